//! How large the pages of a column become when they are decoded.
//!
//! The decoder takes the memory that the header of a page asks for. A kilobyte of zeros in zstd
//! asks for a gigabyte, so headers are read before anything is decoded.

use std::io::{self, Read};
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use arrow::array::{AnyDictionaryArray, AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

use crate::bounds;

/// Rows of a batch: at 200 bytes a row in memory under 2 MiB.
pub(super) const BATCH_ROWS: usize = 8192;

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
/// A page or a column is larger, or a header cannot be read.
pub(super) fn batch_rows(
    source: &impl ChunkReader,
    schema: &Schema,
    group: &RowGroupMetaData,
    is_wanted: impl Fn(&str) -> bool,
    rows: usize,
) -> Result<usize> {
    let mut row_limit = rows;
    for chunk in group.columns() {
        let column = chunk.column_path().string();
        if !is_wanted(&column) {
            continue;
        }
        let dictionary = check_pages(source, chunk, &column)?;
        let field = schema.field_with_name(&column);
        if dictionary > 0 && field.is_ok_and(|field| *field.data_type() == DataType::Utf8) {
            // Each row may repeat the longest text.
            let rows = usize::try_from(bounds::REPEATED / dictionary).unwrap_or(usize::MAX);
            row_limit = row_limit.min(rows.max(1));
        }
    }
    Ok(row_limit)
}

/// Checks that no text of a batch is longer than what is read.
///
/// # Errors
///
/// A text is longer.
pub(super) fn check_text_lengths(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let dictionary_values = column.as_any_dictionary_opt().map(AnyDictionaryArray::values);
        let texts = dictionary_values.unwrap_or(column).as_string_opt::<i32>();
        let is_long = |texts: &StringArray| {
            texts.value_data().len() > bounds::STRING
                && texts.value_offsets().windows(2).any(|pair| {
                    usize::try_from(pair[1] - pair[0]).is_ok_and(|length| length > bounds::STRING)
                })
        };
        ensure!(
            !texts.is_some_and(is_long),
            "column {} has a text of more than {} bytes, the limit",
            field.name(),
            bounds::STRING
        );
    }
    Ok(())
}

/// Checks the pages of a column of a row group. Returns the size of its dictionary, bytes.
fn check_pages(
    source: &impl ChunkReader,
    chunk: &ColumnChunkMetaData,
    column: &str,
) -> Result<u64> {
    let range =
        chunk_range(chunk).with_context(|| format!("the file has no data of column {column}"))?;
    let (mut offset, mut decoded_bytes, mut dictionary_bytes) = (range.start, 0, 0);
    while offset < range.end {
        let mut reader =
            CountingReader { inner: source.get_read(offset)?.take(HEADER), bytes_read: 0 };
        let header = PageSizes::read(&mut reader)
            .with_context(|| format!("a page of column {column} has no header"))?;
        ensure!(
            header.decoded <= bounds::PAGE,
            "a page of column {column} has {} bytes, and the limit is {}",
            header.decoded,
            bounds::PAGE
        );
        decoded_bytes += header.decoded;
        ensure!(
            decoded_bytes <= bounds::COLUMN,
            "column {column} has more than {} bytes in a row group, the limit",
            bounds::COLUMN
        );
        if header.page_type == DICTIONARY {
            dictionary_bytes = header.decoded;
        }
        offset = offset.saturating_add(reader.bytes_read).saturating_add(header.stored);
    }
    Ok(dictionary_bytes)
}

/// The bytes of the file that hold a column of a row group.
fn chunk_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let dictionary_offset = chunk.dictionary_page_offset().filter(|offset| *offset > 0);
    let start =
        u64::try_from(dictionary_offset.unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// Counts the bytes that are read.
struct CountingReader<R> {
    inner: R,
    bytes_read: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes_read += count as u64;
        Ok(count)
    }
}

/// The sizes of a page, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageSizes {
    page_type: i64,
    decoded: u64,
    stored: u64,
}

/// Types of Thrift's compact protocol (thrift-compact-protocol.md, Thrift 0.22).
mod thrift_type {
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

impl PageSizes {
    /// `PageHeader` of parquet.thrift: field 1 is `type`, 2 `uncompressed_page_size`, 3
    /// `compressed_page_size`.
    fn read(reader: &mut impl Read) -> io::Result<Self> {
        let (mut fields, mut last_id) = ([None; 4], 0);
        while let Some((wire_type, field_id)) = read_field_header(reader, last_id)? {
            last_id = field_id;
            match (field_id, wire_type) {
                (1..=3, thrift_type::I32) => {
                    fields[field_id as usize] = Some(decode_zigzag(read_varint(reader)?));
                }
                _ => skip_value(reader, wire_type, DEEPEST)?,
            }
        }
        let size = |id: usize| fields[id].and_then(|size| u64::try_from(size).ok());
        let sizes = fields[1].zip(size(2)).zip(size(3));
        let ((page_type, decoded), stored) = sizes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { page_type, decoded, stored })
    }
}

/// Reads the type and number of the next field of a structure; `None` at its end.
fn read_field_header(reader: &mut impl Read, previous_id: i64) -> io::Result<Option<(u8, i64)>> {
    let head = read_byte(reader)?;
    if head == thrift_type::STOP {
        return Ok(None);
    }
    let (delta, wire_type) = (i64::from(head >> 4), head & 0xf);
    let id = if delta == 0 {
        decode_zigzag(read_varint(reader)?)
    } else {
        previous_id.saturating_add(delta)
    };
    Ok(Some((wire_type, id)))
}

fn skip_value(reader: &mut impl Read, wire_type: u8, depth: u32) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let depth = depth.checked_sub(1).ok_or_else(invalid)?;
    match wire_type {
        thrift_type::TRUE | thrift_type::FALSE => Ok(()),
        thrift_type::BYTE => read_byte(reader).map(drop),
        thrift_type::I16 | thrift_type::I32 | thrift_type::I64 => read_varint(reader).map(drop),
        thrift_type::DOUBLE => discard_bytes(reader, 8),
        thrift_type::BINARY => {
            let length = read_varint(reader)?;
            discard_bytes(reader, length)
        }
        thrift_type::LIST | thrift_type::SET => {
            let head = read_byte(reader)?;
            let (short, listed_type) = (u64::from(head >> 4), head & 0xf);
            let length = if short == 15 { read_varint(reader)? } else { short };
            // A boolean of a list has a byte of its own.
            let element_type = match listed_type {
                thrift_type::TRUE | thrift_type::FALSE => thrift_type::BYTE,
                _ => listed_type,
            };
            (0..length).try_for_each(|_| skip_value(reader, element_type, depth))
        }
        thrift_type::STRUCT => {
            let mut last_id = 0;
            while let Some((field_type, field_id)) = read_field_header(reader, last_id)? {
                last_id = field_id;
                skip_value(reader, field_type, depth)?;
            }
            Ok(())
        }
        _ => Err(invalid()),
    }
}

/// Reads bytes and drops them.
fn discard_bytes(reader: &mut impl Read, length: u64) -> io::Result<()> {
    let passed = io::copy(&mut reader.take(length), &mut io::sink())?;
    if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_byte(reader: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    reader.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn read_varint(reader: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let octet = read_byte(reader)?;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn decode_zigzag(value: u64) -> i64 {
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
        assert_eq!(
            PageSizes::read(&mut reader).unwrap(),
            PageSizes { page_type: 0, decoded: 64, stored: 5 }
        );
        assert_eq!(reader, [0xff], "no byte of the page is read");
        for end in 0..bytes.len() - 1 {
            assert!(PageSizes::read(&mut &bytes[..end]).is_err(), "{end}");
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
            assert!(PageSizes::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
