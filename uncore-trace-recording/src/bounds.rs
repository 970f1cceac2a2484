//! Limits of everything that is read, and a way to open files that never hangs.
//!
//! A file may come from another machine, and a name may lead to anything. So each reader opens
//! regular files only, and knows how much of one it takes before it takes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Largest configuration or file of the catalog, bytes. Those of the catalog have at most 200 kB; a
/// parser of TOML takes some 20 times that.
pub const TEXT: u64 = 4 << 20;

/// Largest journal of an upload, bytes: a line of some 150 bytes for each file of the roll-up.
pub const JOURNAL: u64 = 64 << 20;

/// Largest file with the types of a kernel, bytes. A `vmlinux` with debug information has some 500
/// MB.
pub const TYPES: u64 = 2 << 30;

/// Largest footer of a Parquet file, bytes: some 100 bytes for each column of each row group.
pub(crate) const FOOTER: u64 = 64 << 20;

/// Largest page of a Parquet file when it is decoded, bytes. The writer ends a page at 1 MiB.
pub const PAGE: u64 = 8 << 20;

/// Most bytes of the texts of a batch that come from a dictionary, where they are repeated.
pub(crate) const REPEATED: u64 = 16 << 20;

/// Largest column of a row group when it is decoded, bytes. The writer ends a row group at 1
/// million rows, and paths have some 100 bytes.
pub(crate) const COLUMN: u64 = 128 << 20;

/// Longest string in a table, bytes. The longest is the command that was recorded: its arguments
/// have at most 2 MiB, a quarter of the usual limit of the stack (execve(2)).
pub(crate) const STRING: usize = 4 << 20;

/// Most bytes of an answer of a store that is no object, bytes.
pub const ANSWER: u64 = 1 << 20;

/// Most bytes of the metrics of an agent. The usual 20 owners of 30 links take some 200 kB. Only
/// their resource is decoded.
pub const METRICS: u64 = 8 << 20;

/// Largest file of sysfs or procfs, bytes. Mount tables of busy hosts have some megabytes; files of
/// sysfs have a page.
pub const SYSTEM: u64 = 16 << 20;

/// Largest attribute of a PMU, a CPU or a device in sysfs, bytes. The kernel gives a page, of at
/// most 64 KiB; its longest list of CPUs, of every second of 8192, has some 20 KiB.
pub const ATTRIBUTE: u64 = 256 << 10;

/// Opens a file to read it, if it is a regular one. A FIFO, a device or a socket is an error, and
/// is not waited for.
///
/// # Errors
///
/// The file cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    // The bits of open(2) are few.
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // A socket cannot be opened.
    let is_socket = || path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    let file = match opened {
        Err(_) if is_socket() => return Err(refuse_kind("a socket")),
        opened => opened?,
    };
    let file_type = file.metadata()?.file_type();
    match file_type {
        _ if file_type.is_file() => Ok(file),
        _ if file_type.is_dir() => Err(Errno::ISDIR.into()),
        _ if file_type.is_fifo() => Err(refuse_kind("a pipe (FIFO)")),
        _ => Err(refuse_kind("a device")),
    }
}

fn refuse_kind(description: &str) -> io::Error {
    io::Error::other(format!(
        "it is {description}, and only regular files are read: copy the data to a regular file"
    ))
}

/// The content of a regular file that has at most `limit` bytes.
///
/// # Errors
///
/// As of [`open_regular`], it cannot be read, or is larger.
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    // Files of procfs do not tell their length.
    let reported = file.metadata()?.len();
    let mut bytes = Vec::new();
    if reported <= limit {
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    if reported.max(bytes.len() as u64) > limit {
        return Err(io::Error::other(format!("it is larger than the limit of {limit} bytes")));
    }
    Ok(bytes)
}

/// The content of a regular file of at most `limit` bytes, as text.
///
/// # Errors
///
/// As of [`read_bytes`], or it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read_bytes(path, limit)?;
    String::from_utf8(bytes).map_err(|error| io::Error::other(format!("it is not UTF-8: {error}")))
}

/// The content of a file of sysfs or procfs, of this machine or of a tree that was captured of
/// another.
///
/// # Errors
///
/// As of [`read_bytes`], with the limit [`SYSTEM`].
pub fn system_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_bytes(path.as_ref(), SYSTEM)
}

/// The same, as text.
///
/// # Errors
///
/// As of [`read_text`], with the limit [`SYSTEM`].
pub fn system_text(path: impl AsRef<Path>) -> io::Result<String> {
    read_text(path.as_ref(), SYSTEM)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_of_a_limited_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        assert_eq!(read_text(&at("file"), 5).unwrap(), "12345");
        let error = read_text(&at("file"), 4).unwrap_err().to_string();
        assert_eq!(error, "it is larger than the limit of 4 bytes");
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (path, says) in [
            (at("fifo"), "it is a pipe (FIFO), and only regular files are read"),
            (at("socket"), "it is a socket"),
            ("/dev/zero".into(), "it is a device"),
            (at("."), "directory"),
            (at("absent"), "No such file"),
        ] {
            let error = open_regular(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{}: {error}", path.display());
        }
    }
}
