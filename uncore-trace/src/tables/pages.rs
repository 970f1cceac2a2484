//! How large the pages of a column become when they are decoded.
//!
//! The decoder takes the memory that the header of a page asks for. A kilobyte of zeros in zstd asks
//! for a gigabyte, so headers are read before anything is decoded.

use std::io::{self, Read};
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use arrow::array::{AnyDictionaryArray, AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

use crate::bounds;

/// Deepest structure in a header: statistics in the header of a data page in that of a page.
const DEEPEST: u32 = 8;

/// Most bytes of a header: it may have the least and greatest value of its page.
const HEADER: u64 = 1 << 20;

/// `DICTIONARY_PAGE` of `PageType` in parquet.thrift.
const DICTIONARY: i64 = 2;

/// Checks that no page of the wanted columns of a row group, nor all of a column, are larger than
/// what is read. Returns how many rows, at most `rows`, a batch may have.
///
/// # Errors
///
/// They are, or a header cannot be read.
pub(super) fn batch_rows(
    source: &impl ChunkReader,
    schema: &Schema,
    group: &RowGroupMetaData,
    is_wanted: impl Fn(&str) -> bool,
    rows: usize,
) -> Result<usize> {
    let mut least = rows;
    for chunk in group.columns() {
        let column = chunk.column_path().string();
        if !is_wanted(&column) {
            continue;
        }
        let dictionary = check(source, chunk, &column)?;
        let field = schema.field_with_name(&column);
        if dictionary > 0 && field.is_ok_and(|field| *field.data_type() == DataType::Utf8) {
            // Each row may repeat the longest text.
            let rows = usize::try_from(bounds::REPEATED / dictionary).unwrap_or(usize::MAX);
            least = least.min(rows.max(1));
        }
    }
    Ok(least)
}

/// Checks that no text of a batch is longer than what is read.
///
/// # Errors
///
/// One is.
pub(super) fn texts(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let of_dictionary = column.as_any_dictionary_opt().map(AnyDictionaryArray::values);
        let texts = of_dictionary.unwrap_or(column).as_string_opt::<i32>();
        let is_long = |texts: &StringArray| {
            texts.value_data().len() > bounds::STRING
                && texts.value_offsets().windows(2).any(|pair| {
                    usize::try_from(pair[1] - pair[0]).is_ok_and(|length| length > bounds::STRING)
                })
        };
        ensure!(
            !texts.is_some_and(is_long),
            "column {} has a text of more than the {} bytes that are read",
            field.name(),
            bounds::STRING
        );
    }
    Ok(())
}

/// Checks the pages of a column of a row group. Returns the size of its dictionary, bytes.
fn check(source: &impl ChunkReader, chunk: &ColumnChunkMetaData, column: &str) -> Result<u64> {
    let span = span(chunk).with_context(|| format!("column {column} has no place in the file"))?;
    let (mut at, mut all, mut dictionary) = (span.start, 0, 0);
    while at < span.end {
        let mut reader = Counted { inner: source.get_read(at)?.take(HEADER), read: 0 };
        let header = Header::read(&mut reader)
            .with_context(|| format!("a page of column {column} has no header"))?;
        ensure!(
            header.decoded <= bounds::PAGE,
            "a page of column {column} has {} bytes, more than the {} that are read",
            header.decoded,
            bounds::PAGE
        );
        all += header.decoded;
        ensure!(
            all <= bounds::COLUMN,
            "column {column} has more than the {} bytes that are read of a row group",
            bounds::COLUMN
        );
        if header.kind == DICTIONARY {
            dictionary = header.decoded;
        }
        at = at.saturating_add(reader.read).saturating_add(header.stored);
    }
    Ok(dictionary)
}

/// Where a column of a row group is in the file.
fn span(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let first = chunk.dictionary_page_offset().filter(|offset| *offset > 0);
    let start = u64::try_from(first.unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    let length = u64::try_from(chunk.compressed_size()).ok()?;
    Some(start..start.checked_add(length)?)
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// The sizes of a page, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    kind: i64,
    decoded: u64,
    stored: u64,
}

/// Types of Thrift's compact protocol (thrift-compact-protocol.md, Thrift 0.22).
mod kind {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

impl Header {
    /// `PageHeader` of parquet.thrift: field 1 is `type`, 2 `uncompressed_page_size`, 3
    /// `compressed_page_size`.
    fn read(reader: &mut impl Read) -> io::Result<Self> {
        let (mut kind_of_page, mut decoded, mut stored) = (None, None, None);
        let mut id = 0;
        while let Some((kind, next)) = field(reader, id)? {
            id = next;
            match (id, kind) {
                (1, kind::I32) => kind_of_page = Some(zigzag(varint(reader)?)),
                (2, kind::I32) => decoded = u64::try_from(zigzag(varint(reader)?)).ok(),
                (3, kind::I32) => stored = u64::try_from(zigzag(varint(reader)?)).ok(),
                _ => skip(reader, kind, DEEPEST)?,
            }
        }
        match (kind_of_page, decoded, stored) {
            (Some(kind), Some(decoded), Some(stored)) => Ok(Self { kind, decoded, stored }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The type and number of the next field of a structure.
fn field(reader: &mut impl Read, before: i64) -> io::Result<Option<(u8, i64)>> {
    let first = byte(reader)?;
    if first == kind::STOP {
        return Ok(None);
    }
    let (delta, kind) = (i64::from(first >> 4), first & 0xf);
    let id = if delta == 0 { zigzag(varint(reader)?) } else { before.saturating_add(delta) };
    Ok(Some((kind, id)))
}

fn skip(reader: &mut impl Read, kind: u8, depth: u32) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let depth = depth.checked_sub(1).ok_or_else(invalid)?;
    match kind {
        kind::TRUE | kind::FALSE => Ok(()),
        kind::BYTE => byte(reader).map(drop),
        kind::I16 | kind::I32 | kind::I64 => varint(reader).map(drop),
        kind::DOUBLE => pass(reader, 8),
        kind::BINARY => {
            let length = varint(reader)?;
            pass(reader, length)
        }
        kind::LIST | kind::SET => {
            let first = byte(reader)?;
            let (short, kind) = (u64::from(first >> 4), first & 0xf);
            let length = if short == 15 { varint(reader)? } else { short };
            // A boolean of a list has a byte of its own.
            let kind = if kind == kind::FALSE || kind == kind::TRUE { kind::BYTE } else { kind };
            (0..length).try_for_each(|_| skip(reader, kind, depth))
        }
        kind::STRUCT => {
            let mut id = 0;
            while let Some((kind, next)) = field(reader, id)? {
                id = next;
                skip(reader, kind, depth)?;
            }
            Ok(())
        }
        _ => Err(invalid()),
    }
}

/// Reads bytes that nobody needs.
fn pass(reader: &mut impl Read, length: u64) -> io::Result<()> {
    let passed = io::copy(&mut reader.take(length), &mut io::sink())?;
    if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn byte(reader: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    reader.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn varint(reader: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(reader)?;
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_a_page_are_found_behind_any_field() {
        // type, sizes, crc, data_page_header with an enum, a string, a list and a structure.
        let bytes = [
            0x15, 0x00, 0x15, 0x80, 0x01, 0x15, 0x0a, 0x15, 0x07, 0x1c, 0x15, 0x02, 0x18, 0x02,
            b'a', b'b', 0x19, 0x23, 1, 2, 0x1c, 0x11, 0x00, 0x00, 0x00, 0xff,
        ];
        let mut reader = &bytes[..];
        assert_eq!(Header::read(&mut reader).unwrap(), Header { kind: 0, decoded: 64, stored: 5 });
        assert_eq!(reader, [0xff], "no byte of the page is read");
        for end in 0..bytes.len() - 1 {
            assert!(Header::read(&mut &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn headers_that_nobody_writes_are_refused() {
        // A size below 0, a length without bytes, structures without end, an unknown type.
        for bytes in [
            &[0x15, 0x00, 0x15, 0x01, 0x15, 0x0a, 0x00][..],
            &[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f, 1],
            &[0x1c; 100],
            &[0x1d, 0x00],
            &[0xff; 20],
        ] {
            assert!(Header::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
