//! An output that is not a recording: a file or standard output.
//!
//! Guarantees: a file gets its name only when it is complete. Before that it is unnamed, so nothing
//! is left of it if the process ends in any way. If the file system does not support unnamed files,
//! it is a temporary file in the same directory, which is removed on an error. Only the users of
//! its [`FileMode`] can read the file. An existing regular file is replaced only if requested;
//! other kinds of files are never replaced.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Error, Result, bail};
use rustix::fs::{AtFlags, CWD, linkat};

use super::mode::FileMode;
use super::{disk, output_path};

/// The name that stands for standard output.
const STDOUT: &str = "-";

/// Kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Can be shown on a terminal.
    Text,
    /// Must not be shown on a terminal.
    Binary,
}

/// An output that is being written. It is discarded unless [`CommandOutput::publish`] is called.
#[derive(Debug)]
pub struct CommandOutput {
    path: PathBuf,
    sink: OutputSink,
    bytes: u64,
    failure: Option<io::Error>,
}

#[derive(Debug)]
enum OutputSink {
    Stdout(BufWriter<io::Stdout>),
    File {
        file: BufWriter<File>,
        /// Its temporary name.
        temporary: PathBuf,
        /// Whether the temporary file exists.
        is_named: bool,
        overwrite: bool,
    },
}

impl OutputSink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stdout(stdout) => stdout,
            Self::File { file, .. } => file,
        }
    }
}

impl CommandOutput {
    /// Starts to write `path`, which must not belong to a recording at one of `recordings`; `-` is
    /// standard output.
    ///
    /// # Errors
    ///
    /// A file at `path` must not be replaced, the output cannot be written, or it is a terminal and
    /// `content` cannot be shown there.
    pub fn create(
        path: &Path,
        content: Content,
        recordings: &[&Path],
        overwrite: bool,
        mode: FileMode,
    ) -> Result<Self> {
        let path = path.to_owned();
        if path == Path::new(STDOUT) {
            if content == Content::Binary && io::stdout().is_terminal() {
                bail!("standard output is a terminal and this is binary: redirect it to a file");
            }
            let sink = OutputSink::Stdout(BufWriter::new(io::stdout()));
            return Ok(Self { path, sink, bytes: 0, failure: None });
        }
        recordings.iter().try_for_each(|recording| output_path::require_apart(recording, &path))?;
        output_path::require_parent(&path)?;
        output_path::require_vacant(&path, overwrite)?;
        let temporary = disk::with_suffix(&path, &format!(".{}.tmp", process::id()));
        let unnamed = mode.create_unnamed(disk::parent_dir(&path));
        let is_named = unnamed.is_err();
        let file = unnamed.or_else(|_| mode.create_new(&temporary));
        let file = BufWriter::new(disk::with_action("write", &path, file)?);
        let sink = OutputSink::File { file, temporary, is_named, overwrite };
        Ok(Self { path, sink, bytes: 0, failure: None })
    }

    /// The path that the user gave.
    pub fn output_path(&self) -> &Path {
        &self.path
    }

    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.sink, OutputSink::Stdout(_))
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.bytes
    }

    /// The error of a failed write, which replaces what the caller's writer made of it. For a
    /// closed pipe, it is the I/O error itself.
    pub fn explain_error(&mut self, error: Error) -> Error {
        match self.failure.take() {
            None => error,
            Some(io) if io.kind() == io::ErrorKind::BrokenPipe && self.is_stdout() => io.into(),
            Some(io) if self.is_stdout() => {
                disk::action_error("write to", Path::new("standard output"), &io)
            }
            Some(io) => disk::action_error("write", &self.path, &io),
        }
    }

    /// Writes buffered data, so that only [`CommandOutput::publish`] is left to do.
    ///
    /// # Errors
    ///
    /// The data cannot be written.
    pub fn finish_writing(&mut self) -> Result<()> {
        if let Err(error) = self.flush() {
            return Err(self.explain_error(error.into()));
        }
        Ok(())
    }

    /// Gives a complete file its name.
    ///
    /// # Errors
    ///
    /// It cannot be renamed, or another file was created there meanwhile.
    pub fn publish(&mut self) -> Result<()> {
        let OutputSink::File { file, temporary, is_named, overwrite } = &mut self.sink else {
            return Ok(());
        };
        // The data is synced before the file has a name, so that a failure leaves nothing behind.
        disk::with_action("sync", &self.path, file.get_ref().sync_all())?;
        output_path::require_vacant(&self.path, *overwrite)?;
        if !*is_named {
            // This is how an unprivileged process names such a file: linkat(2).
            let descriptor = format!("/proc/self/fd/{}", file.get_ref().as_raw_fd());
            let linked = linkat(CWD, descriptor, CWD, &*temporary, AtFlags::SYMLINK_FOLLOW);
            disk::with_action("write", &self.path, linked.map_err(io::Error::from))?;
            *is_named = true;
        }
        disk::rename_durably(temporary, &self.path)?;
        *is_named = false;
        Ok(())
    }
}

impl Write for CommandOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.writer().write(bytes);
        self.keep_first_error(written).inspect(|count| self.bytes += *count as u64)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.sink.writer().flush();
        self.keep_first_error(flushed)
    }
}

impl CommandOutput {
    /// Keeps the first error, because writers of formats do not preserve it.
    fn keep_first_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if self.failure.is_none() && error.kind() != io::ErrorKind::Interrupted {
                let code = error.raw_os_error();
                self.failure =
                    Some(code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
            }
        })
    }
}

impl Drop for CommandOutput {
    fn drop(&mut self) {
        if let OutputSink::File { temporary, is_named: true, .. } = &self.sink {
            // What counts is the error that prevented publishing.
            fs::remove_file(temporary).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::reader::Recording;
    use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

    struct TestDirectory(tempfile::TempDir);

    impl TestDirectory {
        fn new() -> (Self, Recording) {
            let place = Self(tempfile::tempdir().unwrap());
            let path = place.path("run.parquet");
            let version = crate::schema::SCHEMA_VERSION.to_string();
            let pairs = [(crate::schema::metadata::SCHEMA_VERSION.to_owned(), version)].into();
            let target = RecordingTarget::File(path.clone());
            Writer::create(target, CreateOptions::default(), &pairs)
                .unwrap()
                .finish(&pairs)
                .unwrap();
            let recording = Recording::open(&path).unwrap();
            (place, recording)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path()).unwrap();
            let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
            let mut names: Vec<_> =
                entries.map(|entry| name(entry).into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_file_appears_when_it_is_complete_and_not_before() {
        let (place, recording) = TestDirectory::new();
        let path = place.path("out.csv");
        let create = |overwrite| {
            CommandOutput::create(
                &path,
                Content::Text,
                &[recording.recording_path()],
                overwrite,
                FileMode::default(),
            )
        };
        let mut output = create(false).unwrap();
        output.write_all(b"half").unwrap();
        assert_eq!(place.names(), ["run.parquet"]);
        drop(output);
        assert_eq!(place.names(), ["run.parquet"]);
        let mut output = create(false).unwrap();
        output.write_all(b"whole").unwrap();
        output.finish_writing().unwrap();
        output.publish().unwrap();
        assert_eq!(output.written_bytes(), 5);
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let error = create(false).unwrap_err().to_string();
        assert!(error.ends_with("out.csv exists; use --force to replace it"), "{error}");
        create(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(place.names(), ["out.csv", "run.parquet"]);
    }

    /// This is the case on a file system without unnamed files.
    #[test]
    fn a_temporary_file_is_removed_unless_it_is_published() {
        let (place, recording) = TestDirectory::new();
        let path = place.path("out.csv");
        for published in [false, true] {
            let mut output = CommandOutput::create(
                &path,
                Content::Text,
                &[recording.recording_path()],
                true,
                FileMode::default(),
            )
            .unwrap();
            let OutputSink::File { temporary, is_named, file, .. } = &mut output.sink else {
                panic!()
            };
            *file = BufWriter::new(FileMode::default().create_new(temporary).unwrap());
            *is_named = true;
            assert_eq!(place.names().len(), 2);
            output.write_all(b"whole").unwrap();
            output.finish_writing().unwrap();
            if published {
                output.publish().unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"whole");
            }
            drop(output);
            assert_eq!(place.names().len(), 1 + usize::from(published));
        }
    }

    #[test]
    fn the_recording_is_not_replaced() {
        let (place, recording) = TestDirectory::new();
        std::os::unix::fs::symlink("run.parquet", place.path("link")).unwrap();
        fs::hard_link(place.path("run.parquet"), place.path("hard")).unwrap();
        for name in ["run.parquet", "./run.parquet", "link", "hard"] {
            let path = place.path(name);
            let made = CommandOutput::create(
                &path,
                Content::Text,
                &[recording.recording_path()],
                true,
                FileMode::default(),
            );
            let error = made.unwrap_err().to_string();
            assert!(error.contains("the recording itself"), "{name}: {error}");
        }
    }

    #[test]
    fn a_write_that_fails_is_explained_by_its_own_error() {
        let (_place, recording) = TestDirectory::new();
        let path = Path::new("/dev/full");
        let file = BufWriter::with_capacity(1, File::options().write(true).open(path).unwrap());
        let temporary = PathBuf::from("/nonexistent");
        let to = OutputSink::File { file, temporary, is_named: true, overwrite: false };
        let mut output = CommandOutput { path: path.to_owned(), sink: to, bytes: 0, failure: None };
        output.write_all(b"much").unwrap_err();
        let error = output.explain_error(anyhow::anyhow!("what a library says"));
        assert_eq!(error.to_string(), "cannot write /dev/full: no space left on the disk");
        assert_eq!(output.explain_error(anyhow::anyhow!("another")).to_string(), "another");
        drop(recording);
    }
}
