//! An open file that several readers read at once, each at its own place.
//!
//! Guarantee: what is read is the file that was opened, whatever becomes of its name.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::disk;
use super::mode::FileMode;

/// The file, and its length and mode when it was opened.
#[derive(Debug, Clone)]
pub(super) struct OpenedFile {
    pub file: Arc<File>,
    pub length: u64,
    pub mode: FileMode,
}

impl OpenedFile {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = disk::open_file(path)?;
        let metadata = disk::with_action("read", path, file.metadata())?;
        let mode = FileMode::from_metadata(&metadata);
        Ok(Self { file: Arc::new(file), length: metadata.len(), mode })
    }
}

/// A place in a file. All handles of a [`File`] share one, so each reader has its own here.
pub(super) struct FileCursor {
    file: Arc<File>,
    offset: u64,
}

impl Read for FileCursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Length for OpenedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for OpenedFile {
    type T = BufReader<FileCursor>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(FileCursor { file: Arc::clone(&self.file), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A damaged footer may name any length: no memory is taken for what is not there.
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!(
                "the file ends before the {length} bytes at \
                                                  {start}"
            )));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The kind of a file with Arrow IPC messages; `None` for other files.
///
/// A stream begins with a continuation marker, a file with its magic (Arrow columnar format 1.5,
/// "Serialization and interprocess communication").
pub(super) fn arrow_kind(file: &File) -> Option<&'static str> {
    let mut begin = [0; 6];
    file.read_exact_at(&mut begin, 0).ok()?;
    match &begin {
        [0xff, 0xff, 0xff, 0xff, ..] => Some("an Arrow IPC stream"),
        b"ARROW1" => Some("an Arrow IPC file"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn arrow_is_told_from_parquet_by_its_first_bytes() {
        let kind = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            arrow_kind(&file)
        };
        assert_eq!(kind(b"ARROW1\0\0"), Some("an Arrow IPC file"));
        assert_eq!(kind(b"\xff\xff\xff\xff\x10\0"), Some("an Arrow IPC stream"));
        assert_eq!(kind(b"PAR1\x15\x04\x15"), None);
        assert_eq!(kind(b"\xff\xff"), None);
    }
}
