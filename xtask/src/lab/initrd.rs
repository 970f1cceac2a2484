//! Initramfs images: ACPI tables in front, then files, as cpio archives of format `newc`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Content of a file of the guest.
#[derive(Debug, Clone)]
pub(super) enum FileContent {
    /// The content of a file of this machine.
    File(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// A file of the guest: path, contents, permissions.
pub(super) type GuestFile = (String, FileContent, u32);

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// Directory of ACPI tables in an initramfs
/// (Documentation/admin-guide/acpi/initrd_table_override.rst).
const TABLES: &str = "kernel/firmware/acpi";

/// Writes an image without compression: an emulated CPU decompresses more slowly than it copies.
pub(super) fn write_initrd_image(
    path: &Path,
    tables: &[(&str, Vec<u8>)],
    files: &[GuestFile],
) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive =
        CpioArchive { writer: BufWriter::new(file), inode: 0, directories: BTreeSet::new() };
    let failed = || format!("cannot write {}", path.display());
    if !tables.is_empty() {
        for (name, bytes) in tables {
            let name = format!("{TABLES}/{name}.aml");
            archive.write_file(&name, bytes, 0o644).with_context(failed)?;
        }
        archive.write_trailer().with_context(failed)?;
    }
    for (name, source, mode) in files {
        let name = name.trim_start_matches('/');
        match source {
            FileContent::Bytes(bytes) => {
                archive.write_file(name, bytes, *mode).with_context(failed)?;
            }
            FileContent::File(source_path) => {
                let bytes = fs::read(source_path)
                    .with_context(|| format!("cannot read {}", source_path.display()))?;
                archive.write_file(name, &bytes, *mode).with_context(failed)?;
            }
        }
    }
    archive.write_trailer().with_context(failed)?;
    archive.writer.flush().with_context(failed)
}

struct CpioArchive<W> {
    writer: W,
    inode: u32,
    /// Directories written so far: the kernel creates no parents by itself.
    directories: BTreeSet<String>,
}

impl<W: Write> CpioArchive<W> {
    fn write_file(&mut self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        for (end, _) in name.match_indices('/') {
            let parent = &name[..end];
            if self.directories.insert(parent.to_owned()) {
                self.write_entry(parent, &[], DIRECTORY | 0o755)?;
            }
        }
        self.write_entry(name, bytes, REGULAR | mode)
    }

    /// Ends one archive; another may follow.
    fn write_trailer(&mut self) -> io::Result<()> {
        self.directories.clear();
        self.write_entry("TRAILER!!!", &[], 0)
    }

    /// Header, name and content, each padded to four bytes
    /// (Documentation/driver-api/early-userspace/buffer-format.rst).
    fn write_entry(&mut self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.inode += 1;
        let too_large = |_| io::Error::other(format!("{name} is larger than the format allows"));
        let size = u32::try_from(bytes.len()).map_err(too_large)?;
        let name_size = name.len() as u32 + 1;
        // Inode, mode, uid, gid, links, time, size, four device numbers, size of name, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let fields: String = fields.into_iter().map(hex_field).collect();
        let header = format!("070701{fields}{name}\0");
        self.writer.write_all(header.as_bytes())?;
        self.write_padding(header.len())?;
        self.writer.write_all(bytes)?;
        self.write_padding(bytes.len())
    }

    fn write_padding(&mut self, written: usize) -> io::Result<()> {
        self.writer.write_all(&[0; 3][..written.wrapping_neg() % 4])
    }
}

fn hex_field(field: u32) -> String {
    format!("{field:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_parents_and_padding() {
        let mut archive =
            CpioArchive { writer: Vec::new(), inode: 0, directories: BTreeSet::new() };
        archive.write_file("lab/a/x", b"12345", 0o755).unwrap();
        archive.write_file("lab/y", b"", 0o644).unwrap();
        archive.write_trailer().unwrap();
        assert_eq!(archive.writer.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive.writer);
        assert_eq!(text.matches("070701").count(), 5);
        let [lab, a, x] = ["lab\0", "lab/a\0", "lab/a/x\0"].map(|name| text.find(name).unwrap());
        assert!(lab < a && a < x);
    }
}
