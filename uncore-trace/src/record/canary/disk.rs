//! Reads of a file that bypass the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rustix::fs::{Mode, OFlags, open};

use super::memory::whole_chunks;
use super::orders;

/// Bytes that are read at once: a multiple of the block size of every disk.
const CHUNK: usize = 4096;

/// Size of the file.
const FILE: usize = 4 << 20;

/// A file without a name: it is gone when this process is.
#[derive(Debug)]
pub(super) struct DiskReader {
    file: File,
    buffer: Vec<u8>,
    /// Where the aligned part of the buffer begins: direct reads need that.
    aligned_begin: usize,
    /// Where the next read begins.
    position: usize,
    bytes_per_s: f64,
}

impl DiskReader {
    /// Makes the file and fills it.
    pub(super) fn new(orders: &orders::DiskOrders, random: &mut Rng) -> Result<Self> {
        let shown = orders.directory.display();
        let file = make_unnamed_file(&orders.directory).with_context(|| {
            format!("cannot make a file without a name and for direct reads in {shown}")
        })?;
        let buffer = vec![0; 2 * CHUNK];
        let begin = buffer.as_ptr().align_offset(CHUNK).min(CHUNK);
        let mut disk = Self {
            file,
            buffer,
            aligned_begin: begin,
            position: 0,
            bytes_per_s: orders.bytes_per_s,
        };
        for offset in (0..FILE).step_by(CHUNK) {
            // Numbers that no file system can compress.
            let chunk = &mut disk.buffer[begin..begin + CHUNK];
            chunk
                .chunks_mut(8)
                .for_each(|word| word.copy_from_slice(&random.u64(..).to_le_bytes()));
            let full = || format!("cannot fill a file of {} MiB in {shown}", FILE >> 20);
            disk.file.write_all_at(chunk, offset as u64).with_context(full)?;
        }
        disk.file.sync_all().with_context(|| format!("cannot write to {shown}"))?;
        Ok(disk)
    }

    /// Number of chunks of a burst of this length.
    pub(super) fn chunks_in(&self, seconds: f64) -> u64 {
        whole_chunks(self.bytes_per_s * seconds, CHUNK as u64)
    }

    /// Reads the next chunk; returns its bytes.
    pub(super) fn read_chunk(&mut self) -> Result<u64> {
        let chunk = &mut self.buffer[self.aligned_begin..self.aligned_begin + CHUNK];
        self.file
            .read_exact_at(chunk, self.position as u64)
            .context("cannot read the canary's file")?;
        self.position = (self.position + CHUNK) % FILE;
        Ok(CHUNK as u64)
    }
}

fn make_unnamed_file(directory: &Path) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(open(directory, flags, Mode::from_raw_mode(0o600))?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_a_name_is_read_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let orders =
            orders::DiskOrders { directory: directory.path().to_owned(), bytes_per_s: 1e6 };
        let mut disk = DiskReader::new(&orders, &mut Rng::new()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        for _ in 0..=FILE / CHUNK {
            assert_eq!(disk.read_chunk().unwrap(), CHUNK as u64);
        }
        assert_eq!((disk.position, disk.chunks_in(0.01), disk.chunks_in(0.0)), (CHUNK, 2, 1));
    }

    #[test]
    fn a_place_without_direct_reads_is_named() {
        let orders = orders::DiskOrders { directory: "/proc/self".into(), bytes_per_s: 1e6 };
        let error = DiskReader::new(&orders, &mut Rng::new()).unwrap_err().to_string();
        assert!(error.contains("direct reads in /proc/self"), "{error}");
    }
}
