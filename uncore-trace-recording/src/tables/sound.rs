//! Opens files that are intact: what is made from a damaged file would hide the damage.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};

use super::digest::{self, FooterState, RowGroupDigests};
use super::{disk, pages};
use crate::schema::metadata;

/// Opens a file and verifies that its footer is intact.
///
/// # Errors
///
/// The file cannot be read, or its footer was changed.
pub(super) fn read_footer(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let file = disk::open_file(path)?;
    let digest = disk::with_action("read", path, digest::verify_footer(&file))?;
    if !matches!(digest, FooterState::Sound(_)) {
        bail!("cannot read {}: it is damaged or not complete", path.display());
    }
    let footer = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
    Ok((file, disk::with_action("read", path, footer)?))
}

/// The metadata of a file whose footer is intact.
///
/// # Errors
///
/// Those of [`read_footer`].
pub(super) fn read_metadata(path: &Path) -> Result<BTreeMap<String, String>> {
    let (_, footer) = read_footer(path)?;
    Ok(metadata::from_key_values(footer.metadata().file_metadata().key_value_metadata()))
}

/// Opens a file and verifies all of it: a file made from a damaged one would hide the damage.
///
/// # Errors
///
/// Those of [`read_footer`], or a row group is damaged.
pub(super) fn open_sound(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let (file, footer) = read_footer(path)?;
    let damaged = disk::with_action(
        "read",
        path,
        RowGroupDigests::from_footer(footer.metadata()).damaged_groups(&file),
    )?;
    if let Some(group) = damaged.first() {
        bail!("cannot read {}: its row group {group} is damaged", path.display());
    }
    Ok((file, footer))
}

/// Reads a file that is sound and not larger than what is read, in batches of at most `rows` rows.
///
/// # Errors
///
/// Those of [`open_sound`], or a part of it is larger.
pub(super) fn open_reader(path: &Path, rows: usize) -> Result<ParquetRecordBatchReader> {
    let (file, footer) = open_sound(path)?;
    let mut batch_size = rows;
    for group in footer.metadata().row_groups() {
        batch_size = pages::batch_rows(&file, footer.schema(), group, |_| true, batch_size)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, footer);
    disk::with_action("read", path, reader.with_batch_size(batch_size).build())
}
