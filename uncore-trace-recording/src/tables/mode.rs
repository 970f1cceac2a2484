//! The permission bits of an output.
//!
//! Guarantee: at no time can more users read a recording than its [`FileMode`] allows: files and
//! directories are created with at most these bits.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::str::FromStr;
use std::{fmt, io};

use anyhow::Result;
use rustix::fs::OFlags;

use super::disk;

/// The permissions of the files of an output. The default is 0600, because the metadata contain the
/// command line, and the tables the names of all users' processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

/// Read and write for the owner, which a recorder needs.
const OWNER: u32 = 0o600;
/// Read and write for everybody: the most that a file of a recording needs.
const ALL: u32 = 0o666;

impl Default for FileMode {
    fn default() -> Self {
        Self(OWNER)
    }
}

impl FromStr for FileMode {
    type Err = String;

    /// Parses octal digits, `640` or `0640`.
    fn from_str(text: &str) -> Result<Self, String> {
        let octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let bits = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
        match bits {
            Some(bits) if bits & !ALL == 0 && bits & OWNER == OWNER => Ok(Self(bits)),
            _ => Err(
                "write the permissions of a file in octal: 0600, 0640, 0644, 0660, 0664 or 0666"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FileMode {
    /// Everybody may read, and the owner may write.
    pub const PUBLIC: Self = Self(0o644);

    /// The mode of the file at `path`, without bits that a file of a recording cannot have.
    pub(crate) fn from_path(path: &Path) -> Result<FileMode> {
        Ok(Self::from_metadata(&disk::with_action("look at", path, fs::metadata(path))?))
    }

    /// As [`Self::from_path`], for a file that is open.
    pub(super) fn from_metadata(metadata: &Metadata) -> FileMode {
        FileMode(metadata.permissions().mode() & ALL | OWNER)
    }

    /// The bits.
    pub const fn permission_bits(self) -> u32 {
        self.0
    }

    /// The mode for a file made from two files: the users who can access both.
    #[must_use]
    pub const fn common_mode(self, second: FileMode) -> FileMode {
        FileMode(self.0 & second.0)
    }

    /// The bits of a directory: whoever can read it can search it.
    const fn directory_bits(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }

    /// Creates a file for reading and writing, which must not exist.
    pub fn create_new(self, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(self.0).open(path)?;
        if file.metadata()?.permissions().mode() & 0o777 != self.0 {
            // The umask may have removed requested bits. A file system without permissions refuses
            // this, and cannot protect a file anyway.
            file.set_permissions(Permissions::from_mode(self.0)).ok();
        }
        Ok(file)
    }

    /// Creates an unnamed file in a directory: it is removed when it is closed, unless it is given
    /// a name. Some file systems do not support this (`O_TMPFILE`, open(2)).
    pub(crate) fn create_unnamed(self, directory: &Path) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(directory, flags, rustix::fs::Mode::from(self.0))?);
        file.set_permissions(Permissions::from_mode(self.0)).ok();
        Ok(file)
    }

    /// Opens a file for reading and writing, or creates it.
    pub(crate) fn open_or_create(self, path: &Path) -> io::Result<File> {
        match self.create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Symbolic links are not followed, because somebody else may have created them.
                let flags = OFlags::NOFOLLOW.bits() as i32;
                File::options().read(true).write(true).custom_flags(flags).open(path)
            }
            created => created,
        }
    }

    /// Replaces the file at `path` atomically: a reader sees the old or the new content.
    pub fn replace_file(self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = disk::with_suffix(path, ".tmp");
        // A process that was killed has left it, or another user has created it and might hold it
        // open.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.create_new(&temporary)?.write_all(content)?;
        fs::rename(temporary, path)
    }

    /// Creates an empty file, or truncates an existing one.
    pub fn create_file(self, path: &Path) -> io::Result<File> {
        let file = self.open_or_create(path)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Creates a directory.
    pub(crate) fn create_directory(self, path: &Path) -> io::Result<()> {
        let bits = self.directory_bits();
        DirBuilder::new().mode(bits).create(path)?;
        if fs::metadata(path)?.permissions().mode() & 0o777 != bits {
            // As for a file.
            fs::set_permissions(path, Permissions::from_mode(bits)).ok();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_never_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("x.prom"), place.path().join("other"));
        fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, place.path().join("x.prom.tmp")).unwrap();
        for content in ["one", "two"] {
            FileMode::PUBLIC.replace_file(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn octal_bits_of_a_file_are_a_mode() {
        for (text, file, directory) in
            [("0600", 0o600, 0o700), ("640", 0o640, 0o750), ("0664", 0o664, 0o775)]
        {
            let mode: FileMode = text.parse().unwrap();
            assert_eq!((mode.0, mode.directory_bits()), (file, directory), "{text}");
        }
        assert_eq!(FileMode::default().to_string(), "0600");
        for text in ["", "0888", "rw", "0755", "0440", "01600", "+600", "99999999999"] {
            assert!(text.parse::<FileMode>().unwrap_err().contains("0640"), "{text}");
        }
    }
}
