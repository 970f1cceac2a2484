//! Digests of a recording's file, stored in its own footer.
//!
//! There are two key-value pairs, with XXH64 digests (seed 0, 16 hexadecimal digits):
//! - [`metadata::ROW_GROUP_DIGESTS`]: a JSON list with one digest per row group, over the bytes
//!   from the end of the previous row group (or the begin of the file) to its own end;
//! - [`metadata::DIGEST`], the last pair: over the footer and everything after it, with its own 16
//!   digits taken as zeros. The footer contains the digests of the row groups, so this digest
//!   covers the whole file.
//!
//! Guarantees: every byte of the file is covered, so a change is detected; if the footer is intact,
//! the damaged row groups are known. The digests protect against faults of disks, memory and
//! copying. They are not signatures: whoever changes a file on purpose can change them too.

use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::file::writer::SerializedFileWriter;
use twox_hash::XxHash64;

use super::column_order;
use crate::bounds;
use crate::schema::metadata;

/// Prefix of a digest, which names the algorithm.
const PREFIX: &str = "xxh64:";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;
/// How much of a footer is searched at a time for the pair [`metadata::DIGEST`], from its end:
/// after it come the tool's name and 3 bytes for each column (`FileMetaData` in parquet.thrift), so
/// the first piece has it in all but tables of more than a thousand columns.
const PIECE: u64 = 4096;
/// The length of the footer and `PAR1`, at the end of a Parquet file.
const TRAILER: u64 = 8;
/// Bytes read at a time.
const CHUNK: usize = 256 << 10;

/// The state of a footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FooterState {
    /// It is intact; this is its digest.
    Sound(String),
    /// It was changed.
    Damaged,
    /// It has no digest, or is not a Parquet footer.
    Without,
}

/// The position of a footer's digest.
struct DigestPosition {
    /// Begin of the footer.
    footer: u64,
    /// Begin of the digits.
    digits: u64,
    /// End of the file.
    end: u64,
}

/// Finishes a Parquet file: adds the digests and writes the footer, as old readers know it
/// ([`column_order`]). `file` is another handle of the
/// same file. Returns the digest of the file.
///
/// # Errors
///
/// The file cannot be written or read back.
pub fn close_with_digests(
    mut writer: SerializedFileWriter<File>,
    file: &File,
) -> Result<String, ParquetError> {
    writer.flush()?;
    let digests = hash_groups(file, writer.flushed_row_groups())?;
    let quoted: Vec<String> = digests.iter().map(|digest| format!("\"{digest}\"")).collect();
    let list = format!("[{}]", quoted.join(","));
    let empty = format!("{PREFIX}{}", "0".repeat(DIGITS));
    for (key, value) in [(metadata::ROW_GROUP_DIGESTS, list), (metadata::DIGEST, empty)] {
        writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    let columns = writer.close()?.file_metadata().schema_descr().num_columns();
    let footer_end = file.metadata()?.len().saturating_sub(TRAILER);
    column_order::set_type_defined(file, footer_end, columns)?;
    let position =
        locate_digest(file)?.ok_or_else(|| ParquetError::General("no digest".to_owned()))?;
    let digits = hash_footer(file, &position)?;
    file.write_all_at(digits.as_bytes(), position.digits)?;
    Ok(format!("{PREFIX}{digits}"))
}

/// Verifies the footer without parsing it, so its content may be anything.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn verify_footer(file: &File) -> io::Result<FooterState> {
    let Some(position) = locate_digest(file)? else { return Ok(FooterState::Without) };
    let mut written = [0; DIGITS];
    file.read_exact_at(&mut written, position.digits)?;
    let digits = hash_footer(file, &position)?;
    Ok(if written == digits.as_bytes() {
        FooterState::Sound(format!("{PREFIX}{digits}"))
    } else {
        FooterState::Damaged
    })
}

/// The row groups of a file with their digests. It remembers which are intact.
#[derive(Debug)]
pub struct RowGroupDigests {
    /// The end of each row group.
    ends: Vec<u64>,
    /// Their digests; the number differs if the footer's list is inconsistent.
    digests: Vec<String>,
    sound: Vec<AtomicBool>,
}

impl RowGroupDigests {
    /// The row groups of a file with this footer.
    pub(crate) fn from_footer(footer: &ParquetMetaData) -> RowGroupDigests {
        let groups = footer.row_groups();
        let pairs = footer.file_metadata().key_value_metadata();
        let list = pairs.into_iter().flatten().find(|pair| pair.key == metadata::ROW_GROUP_DIGESTS);
        let digests = list.and_then(|pair| serde_json::from_str(pair.value.as_deref()?).ok());
        RowGroupDigests {
            ends: groups.iter().map_while(group_end).collect(),
            digests: digests.unwrap_or_default(),
            sound: groups.iter().map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Whether a row group is intact. The first call for a row group reads all of it.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn is_sound(&self, file: &File, number: usize) -> io::Result<bool> {
        let Some(sound) = self.sound.get(number) else { return Ok(false) };
        // The atomic flag guards no other data, so no ordering is needed.
        if sound.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let (Some(end), Some(digest)) = (self.ends.get(number), self.digests.get(number)) else {
            return Ok(false);
        };
        let begin = number.checked_sub(1).and_then(|previous| self.ends.get(previous));
        let actual = hash_bytes(file, begin.copied().unwrap_or(0)..*end)?;
        let is_sound = self.is_consistent() && actual == *digest;
        sound.store(is_sound, Ordering::Relaxed);
        Ok(is_sound)
    }

    /// Whether each row group has a digest and an end.
    fn is_consistent(&self) -> bool {
        self.digests.len() == self.sound.len() && self.ends.len() == self.sound.len()
    }

    /// The numbers of the damaged row groups; all of them if there are other bytes between the last
    /// one and the footer. Reads the whole file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn damaged_groups(&self, file: &File) -> io::Result<Vec<usize>> {
        let end = self.ends.last().copied().unwrap_or(4);
        let adjoins = locate_digest(file)?.is_some_and(|position| position.footer == end);
        let mut begins = [0; 4];
        file.read_exact_at(&mut begins, 0)?;
        if !self.is_consistent() || !adjoins || begins != *b"PAR1" {
            return Ok((0..self.sound.len().max(1)).collect());
        }
        let mut damaged = Vec::new();
        for number in 0..self.sound.len() {
            if !self.is_sound(file, number)? {
                damaged.push(number);
            }
        }
        Ok(damaged)
    }
}

/// Finds the digest in the footer.
fn locate_digest(file: &File) -> io::Result<Option<DigestPosition>> {
    let end = file.metadata()?.len();
    let Some(trailer) = end.checked_sub(TRAILER) else { return Ok(None) };
    let mut tail = [0; TRAILER as usize];
    file.read_exact_at(&mut tail, trailer)?;
    let [a, b, c, d, b'P', b'A', b'R', b'1'] = tail else { return Ok(None) };
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    // The file's first 4 bytes are no footer's.
    let Some(footer) = trailer.checked_sub(length).filter(|footer| *footer >= 4) else {
        return Ok(None);
    };
    if length > bounds::FOOTER {
        let max_bytes = bounds::FOOTER;
        return Err(io::Error::other(format!(
            "its footer is larger than the limit of {max_bytes} bytes"
        )));
    }
    let pair = digest_pair();
    // What a name in the metadata may look like comes before the pair, so the last one counts.
    // Pieces overlap: one that begins in a piece may end in the next.
    let overlap = pair.len() as u64;
    let mut until = trailer.saturating_sub(DIGITS as u64);
    while until >= footer + overlap {
        let begin = until.saturating_sub(PIECE).max(footer);
        let mut piece = vec![0; (until - begin) as usize];
        file.read_exact_at(&mut piece, begin)?;
        if let Some(offset) = piece.windows(pair.len()).rposition(|window| window == pair) {
            let digits = begin + (offset + pair.len()) as u64;
            return Ok(Some(DigestPosition { footer, digits, end }));
        }
        if begin == footer {
            break;
        }
        until = begin + overlap - 1;
    }
    Ok(None)
}

/// The bytes of the pair before its digits, in Thrift's compact protocol: each of the two strings
/// is preceded by the type of its field (1 byte) and its length.
fn digest_pair() -> Vec<u8> {
    let key = metadata::DIGEST;
    let mut bytes = vec![0x18, key.len() as u8];
    bytes.extend(key.bytes());
    bytes.extend([0x18, (PREFIX.len() + DIGITS) as u8]);
    bytes.extend(PREFIX.bytes());
    bytes
}

fn hash_footer(file: &File, position: &DigestPosition) -> io::Result<String> {
    let mut hash = XxHash64::with_seed(0);
    hash_range(&mut hash, file, position.footer..position.digits)?;
    hash.write(&[b'0'; DIGITS]);
    hash_range(&mut hash, file, position.digits + DIGITS as u64..position.end)?;
    Ok(format!("{:016x}", hash.finish()))
}

fn hash_groups(file: &File, groups: &[RowGroupMetaData]) -> io::Result<Vec<String>> {
    let mut begin = 0;
    let mut digests = Vec::with_capacity(groups.len());
    for group in groups {
        let end = group_end(group).ok_or(io::ErrorKind::InvalidData)?;
        digests.push(hash_bytes(file, begin..end)?);
        begin = end;
    }
    Ok(digests)
}

fn hash_bytes(file: &File, range: Range<u64>) -> io::Result<String> {
    let mut hash = XxHash64::with_seed(0);
    hash_range(&mut hash, file, range)?;
    Ok(format!("{PREFIX}{:016x}", hash.finish()))
}

/// The end of the last column chunk of a row group.
fn group_end(group: &RowGroupMetaData) -> Option<u64> {
    let ends = group.columns().iter().map(|column| {
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        u64::try_from(begin.checked_add(column.compressed_size())?).ok()
    });
    ends.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

fn hash_range(hash: &mut XxHash64, file: &File, range: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK.min(range.end.saturating_sub(range.start) as usize)];
    let mut offset = range.start;
    while offset < range.end {
        let length = buffer.len().min((range.end - offset) as usize);
        let chunk = &mut buffer[..length];
        file.read_exact_at(chunk, offset)?;
        hash.write(chunk);
        offset += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A file whose footer has the pair with this much before and after it; its digest is right.
    fn file(before: usize, after: usize) -> File {
        let mut footer = vec![1; before];
        footer.extend(digest_pair());
        footer.extend([b'0'; DIGITS]);
        footer.extend(vec![2; after]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"PAR1 rows").unwrap();
        file.write_all(&footer).unwrap();
        file.write_all(&(footer.len() as u32).to_le_bytes()).unwrap();
        file.write_all(b"PAR1").unwrap();
        let position = locate_digest(&file).unwrap().unwrap();
        assert_eq!(position.footer, 9);
        assert_eq!(position.digits, 9 + (before + digest_pair().len()) as u64);
        let digits = hash_footer(&file, &position).unwrap();
        file.write_all_at(digits.as_bytes(), position.digits).unwrap();
        file
    }

    /// As in a table of many columns, or one of a tool with a long name.
    #[test]
    fn the_digest_is_found_wherever_in_the_footer_it_is() {
        let around = PIECE as usize - digest_pair().len() - DIGITS;
        for after in (0..3).chain(around - 40..around + 80).chain([10_000, 1 << 20]) {
            for before in [0, 20_000] {
                let file = file(before, after);
                assert!(
                    matches!(verify_footer(&file).unwrap(), FooterState::Sound(_)),
                    "{before} {after}"
                );
                if after > 0 {
                    file.write_all_at(&[3], file.metadata().unwrap().len() - TRAILER - 1).unwrap();
                    assert_eq!(
                        verify_footer(&file).unwrap(),
                        FooterState::Damaged,
                        "{before} {after}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_footer_that_is_longer_than_the_file_has_no_digest() {
        let file = file(10, 10);
        let end = file.metadata().unwrap().len();
        for length in [0, 4, end as u32 - 8, end as u32 - 11, u32::MAX] {
            file.write_all_at(&length.to_le_bytes(), end - TRAILER).unwrap();
            assert_eq!(verify_footer(&file).unwrap(), FooterState::Without, "{length}");
        }
        file.set_len(7).unwrap();
        assert_eq!(verify_footer(&file).unwrap(), FooterState::Without);
    }
}
