//! Features of the format that readers of the last years do not know.

use std::path::Path;

use parquet::basic::{ColumnOrder, Encoding};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::cost::readings_of;
use super::{pairs, windows};
use crate::schema::{ALL, TableDef, fabric, readings, rollup};
use crate::tables::encode::{self, FileProperties};
use crate::tables::mode::FileMode;
use crate::tables::sound;

use arrow::array::RecordBatch;

/// Fails if a file has a feature that old readers refuse or misread. Fields that they skip, such as
/// the sizes of strings in memory, may be there.
fn assert_old_readers_read(path: &Path, what: &str) {
    let (_, footer) = sound::read_footer(path).unwrap();
    let file: &ParquetMetaData = footer.metadata();
    let orders = file.file_metadata().column_orders().unwrap();
    assert_eq!(orders.len(), file.file_metadata().schema_descr().num_columns(), "{what}");
    for (order, column) in orders.iter().zip(file.file_metadata().schema_descr().columns()) {
        let is_known = matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(_));
        assert!(is_known, "{what}.{}: {order:?}", column.name());
    }
    // With version 2 there are data pages of version 2.
    assert_eq!(file.file_metadata().version(), 1, "{what}");
    for column in file.row_groups().iter().flat_map(RowGroupMetaData::columns) {
        let what = format!("{what}.{}", column.column_path());
        assert_eq!(column.bloom_filter_offset(), None, "{what}");
        assert_eq!(column.column_index_offset(), None, "{what}");
        assert_eq!(column.offset_index_offset(), None, "{what}");
        for encoding in column.encodings() {
            let is_known = matches!(
                encoding,
                Encoding::PLAIN
                    | Encoding::RLE
                    | Encoding::RLE_DICTIONARY
                    | Encoding::PLAIN_DICTIONARY
                    | Encoding::DELTA_BINARY_PACKED
            );
            assert!(is_known, "{what}: {encoding}");
        }
    }
}

/// Writes rows of a table in each way in which files are made.
fn write_in_all_ways(def: &'static TableDef, rows: &RecordBatch) {
    let dir = tempfile::tempdir().unwrap();
    let pairs = pairs();
    let form = FileProperties { def, pairs: &pairs, mode: FileMode::default() };
    let [segment, merged, copied] =
        ["segment", "merged", "copied"].map(|name| dir.path().join(name));
    encode::write_rows(&segment, &form, std::slice::from_ref(rows)).unwrap();
    assert_old_readers_read(&segment, &format!("segment of {}", def.name));
    encode::merge_files(&merged, &form, &[segment.clone(), segment]).unwrap();
    assert_old_readers_read(&merged, &format!("merged {}", def.name));
    encode::concatenate_files(&copied, &form, &[merged.clone(), merged]).unwrap();
    assert_old_readers_read(&copied, &format!("copied {}", def.name));
}

#[test]
fn files_have_only_features_that_old_readers_know() {
    for def in ALL.iter().copied().chain([&rollup::TABLE]) {
        write_in_all_ways(def, &RecordBatch::new_empty((def.schema)()));
    }
    write_in_all_ways(&fabric::TABLE, &windows(0..30));
    write_in_all_ways(&readings::TABLE, &readings_of(1, 1000, true));
}
