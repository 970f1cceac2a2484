//! The order of values that a file's statistics are for, as old readers know it.
//!
//! The parquet crate marks real numbers with `IEEE_754_TOTAL_ORDER`, and has no option for it.
//! Polars before 1.44 and `DataFusion` before 51 do not know this order and refuse the whole file,
//! so each column is marked with `TYPE_DEFINED_ORDER`, as in the files of other writers. Both are
//! encoded in as many bytes.
//!
//! What readers must assume of a minimum or maximum that is 0 or NaN in this order holds for the
//! statistics that the crate computes: a minimum of 0.0 has no -0.0 above it, and NaN is ignored
//! (`ColumnOrder` in parquet.thrift).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use parquet::errors::{ParquetError, Result};

/// `TYPE_DEFINED_ORDER` in Thrift's compact protocol: field 1 of the union `ColumnOrder`, an empty
/// structure, and the end of the union.
const TYPE_DEFINED: [u8; 3] = [0x1c, 0, 0];
/// `IEEE_754_TOTAL_ORDER`: the same with field 2.
const TOTAL: [u8; 3] = [0x2c, 0, 0];

/// Marks all columns of a file with `TYPE_DEFINED_ORDER`. `footer_end` is the end of its footer.
///
/// # Errors
///
/// The file cannot be read or written, or its footer does not end with the orders of this many
/// columns.
pub(super) fn set_type_defined(file: &File, footer_end: u64, columns: usize) -> Result<()> {
    let header = list_header(columns);
    // The list is the last field of the footer; a zero byte ends the structure.
    let length = header.len() + columns * TYPE_DEFINED.len() + 1;
    let mut bytes = vec![0; length];
    let begin = footer_end.checked_sub(length as u64).ok_or_else(unknown_end)?;
    file.read_exact_at(&mut bytes, begin)?;
    let orders = bytes.strip_prefix(header.as_slice()).and_then(|tail| tail.strip_suffix(&[0]));
    let (orders, _) = orders.ok_or_else(unknown_end)?.as_chunks();
    if !orders.iter().all(|order| [TYPE_DEFINED, TOTAL].contains(order)) {
        return Err(unknown_end());
    }
    file.write_all_at(&TYPE_DEFINED.repeat(columns), begin + header.len() as u64)?;
    Ok(())
}

/// The header of the field `column_orders`: its number is one more than that of the field before
/// it, its type is a list; the list's length and the type of its elements, which are structures.
fn list_header(columns: usize) -> Vec<u8> {
    const FIELD: u8 = 0x19;
    const STRUCTURES: u8 = 0x0c;
    if columns < 15 {
        return vec![FIELD, (columns as u8) << 4 | STRUCTURES];
    }
    let mut header = vec![FIELD, 0xf0 | STRUCTURES];
    let mut remaining = columns;
    while remaining >= 0x80 {
        header.push(remaining as u8 | 0x80);
        remaining >>= 7;
    }
    header.push(remaining as u8);
    header
}

fn unknown_end() -> ParquetError {
    ParquetError::General("the footer does not end with the orders of its columns".to_owned())
}
