//! Tests of the writer: which data survives which failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use proptest::prelude::*;

use super::mode::FileMode;
use super::names::table_path;
use super::reader::{OpenTable, Recording};
use super::repair::{Repaired, repair_path};
use super::thread::WriterHandle;
use super::writer::{CreateOptions, RecordingTarget, Writer};
use super::{digest, encode, sealed, segment, sound};
use crate::schema::column_type::Encoding;
use crate::schema::{
    ALL, Packing, RowStore as _, SCHEMA_VERSION, TableDef, cpus, fabric, metadata, readings,
    rollup, run, runtime,
};

mod cost;
mod live;
mod old_readers;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../tests/skip.rs"]
mod skip;

use cost::readings_of;

fn pairs() -> BTreeMap<String, String> {
    BTreeMap::from([
        (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string()),
        (metadata::HOST.to_owned(), "test".to_owned()),
        (metadata::COMPLETE.to_owned(), "true".to_owned()),
    ])
}

/// The number of rows that a table seals on its own, before a flush.
#[test]
fn rows_that_others_refer_to_are_on_disk_before_these() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("run");
    let mut writer = Writer::create(
        RecordingTarget::Dataset(target.clone()),
        CreateOptions::default(),
        &pairs(),
    )
    .unwrap();
    let mut rows = cpus::Builder::default();
    rows.append(&cpus::Row {
        mono_ns: 1,
        state: cpus::ONLINE,
        counters: "0-5",
        ..cpus::Row::default()
    });
    writer.write(&cpus::TABLE, &rows.finish()).unwrap();
    let segments = |table: &TableDef| {
        let dir = sealed::partial_dir(&table_path(&target, table));
        fs::read_dir(dir).unwrap().count()
    };
    assert_eq!(segments(&cpus::TABLE), 0);
    // 18 000 rows.
    writer.write(&readings::TABLE, &readings_of(3, 1000, false)).unwrap();
    assert_eq!((segments(&cpus::TABLE), segments(&readings::TABLE)), (1, 1));
}

/// A window: three owners of two counters.
fn window(number: i64) -> RecordBatch {
    let mut builder = fabric::Builder::default();
    for event in ["cycles", "bytes"] {
        for (owner, pid, comm, part) in [
            ("task", Some(100 + (number % 3) as i32), Some("train\n\u{1b}[2J"), 0.5),
            ("irq", None, Some("irq:nvme0q1"), 0.25),
            ("idle", None, None, 0.25),
        ] {
            builder.append(&fabric::Row {
                ts: 1_700_000_000_000_000_000 + number * 10_000_000,
                mono_ns: number * 10_000_000,
                window_ns: 10_000_000,
                host: "test",
                boot_id: "3f4e5d6c",
                subsystem: "host",
                pmu: "msr",
                event,
                unit: "count",
                owner,
                pid,
                number: (owner == "irq").then_some(30),
                comm,
                cgroup_id: pid.map(|pid| pid as u64),
                cgroup: pid.map(|_| "/tenant"),
                container: pid.map(|_| "web@3f4e5d6c7b8a"),
                value: Some(number as f64 * part),
                total: Some(number as f64),
                running: 1.0,
                method: "residency",
                confidence: Some(0.5),
                ..fabric::Row::default()
            });
        }
    }
    builder.finish()
}

fn read(def: &'static TableDef, path: &Path) -> RecordBatch {
    let table = OpenTable::open(def, path).unwrap();
    let names: Vec<&str> = def.encodings.iter().map(|(name, _)| *name).collect();
    let batches: Vec<RecordBatch> =
        table.scan_columns(&names).unwrap().map(Result::unwrap).collect();
    concat_batches(&(def.schema)(), &batches).unwrap()
}

fn windows(range: std::ops::Range<i64>) -> RecordBatch {
    let all: Vec<RecordBatch> = range.map(window).collect();
    concat_batches(&fabric::schema(), &all).unwrap()
}

/// Compares rows, not the layout of dictionaries.
fn assert_same(found: &RecordBatch, wanted: &RecordBatch) {
    assert_eq!(found.num_rows(), wanted.num_rows());
    assert_eq!(found.schema().fields(), wanted.schema().fields());
    for (field, (found, wanted)) in
        found.schema().fields().iter().zip(found.columns().iter().zip(wanted.columns()))
    {
        assert!(found == wanted, "column {} differs", field.name());
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn record(path: &Path, seals: std::ops::Range<i64>) -> Writer {
    let mut writer =
        Writer::create(RecordingTarget::File(path.to_owned()), CreateOptions::default(), &pairs())
            .unwrap();
    for number in seals {
        writer.write(&fabric::TABLE, &window(number)).unwrap();
        writer.seal_rows().unwrap();
    }
    writer
}

/// The tables that fastparquet reads right (docs/tables.md): it takes wide deltas for other values.
const WITHOUT_DELTAS: [&str; 10] = [
    "fabric",
    "rollup",
    "assignments",
    "canary",
    "cgroups",
    "counters",
    "holders",
    "links",
    "marks",
    "run",
];

/// Spark, `ClickHouse`, `DuckDB`, pandas, Polars and `PyArrow` read these types and encodings
/// without options: no unsigned numbers, no times in nanoseconds, no `BYTE_STREAM_SPLIT`.
#[test]
fn columns_are_of_types_and_encodings_that_all_readers_know() {
    use arrow::datatypes::{DataType, TimeUnit};
    for def in ALL.iter().copied().chain([&rollup::TABLE]) {
        let schema = (def.schema)();
        for (field, (name, encoding)) in schema.fields().iter().zip(def.encodings) {
            let what = format!("{}.{name}", def.name);
            assert_eq!(field.name(), name);
            let is_integer = match field.data_type() {
                DataType::Int32 | DataType::Int64 => true,
                DataType::Timestamp(TimeUnit::Microsecond, zone) => zone.as_deref() == Some("UTC"),
                DataType::Int16 | DataType::Float32 | DataType::Float64 | DataType::Utf8 => false,
                DataType::Dictionary(keys, values) => {
                    assert_eq!((&**keys, &**values), (&DataType::Int32, &DataType::Utf8), "{what}");
                    false
                }
                other => panic!("{what} is of type {other}"),
            };
            let may_be_delta = is_integer && !WITHOUT_DELTAS.contains(&def.name);
            assert!(may_be_delta || *encoding != Encoding::Delta, "{what}: {encoding:?}");
        }
    }
    // Reserved words of SQL would need quotes.
    let keywords = ["group", "order", "table", "user", "end"];
    for def in ALL {
        assert!(def.encodings.iter().all(|(name, _)| !keywords.contains(name)), "{}", def.name);
    }
}

#[test]
fn row_groups_of_a_table_in_order_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    record(&path, 0..70).finish(&pairs()).unwrap();
    let (_, footer) = sound::read_footer(&path).unwrap();
    for group in footer.metadata().row_groups() {
        let [sorted] = group.sorting_columns().unwrap().as_slice() else { panic!("{group:?}") };
        let column = group.column(sorted.column_idx as usize).column_path().string();
        assert_eq!((column.as_str(), sorted.descending), ("mono_ns", false));
    }
}

#[test]
fn finished_files_are_packed_to_stay() {
    // One segment, several segments, and several segments besides a merged one.
    for seals in [1, 5, 33] {
        let dir = tempfile::tempdir().unwrap();
        let target = RecordingTarget::Dataset(dir.path().to_owned());
        let mut writer = Writer::create(target, CreateOptions::default(), &pairs()).unwrap();
        for _ in 0..seals {
            writer.write(&readings::TABLE, &readings_of(1, 10, false)).unwrap();
            writer.seal_rows().unwrap();
        }
        writer.finish(&pairs()).unwrap();
        let (_, footer) = sound::read_footer(&dir.path().join("readings.parquet")).unwrap();
        assert_eq!(footer.metadata().file_metadata().num_rows(), seals * 60);
        assert!(encode::is_kept(&readings::TABLE, &footer), "{seals} segments");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let finished = record(&path, 0..5).finish(&pairs()).unwrap();
    assert_eq!(finished.rows, 30);
    assert_eq!(finished.bytes, fs::metadata(&path).unwrap().len());
    assert_same(&read(&fabric::TABLE, &path), &windows(0..5));
    assert_eq!(OpenTable::open(&fabric::TABLE, &path).unwrap().metadata_pairs(), &pairs());
    assert_eq!(names(dir.path()), ["run.parquet"]);
}

#[test]
fn segments_merge_and_keep_order_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let writer = record(&path, 0..70);
    // 71 seals with the empty first one: two merged segments and seven single ones.
    let found: Vec<String> =
        names(&sealed::partial_dir(&path)).into_iter().filter(|n| n != "lock").collect();
    assert_eq!(found[0], "000000-000031.parquet");
    assert_eq!(found[1], "000032-000063.parquet");
    assert_eq!(found.len(), 2 + 7);
    writer.finish(&pairs()).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &windows(0..70));
    assert_eq!(OpenTable::open(&fabric::TABLE, &path).unwrap().row_groups(), 1);
}

#[test]
fn a_second_merge_level_keeps_the_number_of_segments_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let writer = record(&path, 0..1100);
    let found = names(&sealed::partial_dir(&path));
    assert!(found.len() <= 1 + 2 * 32, "{found:?}");
    assert_eq!(found[0], "000000-001023.parquet");
    writer.finish(&pairs()).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &windows(0..1100));
}

#[test]
fn a_killed_recording_is_repaired_up_to_its_last_seal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let mut writer = record(&path, 0..40);
    writer.write(&fabric::TABLE, &window(40)).unwrap();
    kill(writer);
    for segment in names(&sealed::partial_dir(&path)).iter().filter(|n| n.ends_with(".parquet")) {
        OpenTable::open(&fabric::TABLE, &sealed::partial_dir(&path).join(segment)).unwrap();
    }
    let unfinished = Recording::open(&path).unwrap_err();
    assert!(format!("{unfinished:#}").contains("uncore-trace repair"), "{unfinished:#}");
    let again = Writer::create(
        RecordingTarget::File(path.clone()),
        CreateOptions { overwrite: true, ..CreateOptions::default() },
        &pairs(),
    )
    .unwrap_err();
    assert!(format!("{again:#}").contains("uncore-trace repair"), "{again:#}");

    let Repaired::Done { finished, unreadable, .. } = repair_path(&path).unwrap() else {
        panic!("nothing made")
    };
    assert_eq!((finished.rows, unreadable.len()), (240, 0));
    assert_same(&read(&fabric::TABLE, &path), &windows(0..40));
    let table = OpenTable::open(&fabric::TABLE, &path).unwrap();
    assert_eq!(table.metadata_pairs()[metadata::COMPLETE], "false");
    assert_eq!(table.metadata_pairs()[metadata::HOST], "test");
    let before = fs::read(&path).unwrap();
    assert!(matches!(repair_path(&path).unwrap(), Repaired::Good));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(dir.path()), ["run.parquet"]);
}

/// Simulates `kill -9`: no destructor runs, and the lock is released with the process.
fn kill(writer: Writer) {
    if let Some(lock) = writer.lock_of_a_killed() {
        lock.release_lock();
    }
    std::mem::forget(writer);
}

#[test]
fn a_live_recording_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let writer = record(&path, 0..2);
    let error = format!("{:#}", repair_path(&path).unwrap_err());
    assert!(error.contains("is being recorded now"), "{error}");
    writer.finish(&pairs()).unwrap();
}

#[test]
fn a_kill_between_rename_and_removal_of_a_merge_duplicates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    kill(record(&path, 0..30));
    let partial = sealed::partial_dir(&path);
    let kept = dir.path().join("kept");
    fs::create_dir(&kept).unwrap();
    for name in names(&partial) {
        fs::copy(partial.join(&name), kept.join(&name)).unwrap();
    }
    let mut open = segment::Partial::open(&fabric::TABLE, &path).unwrap();
    open.merge_segments(0..31, &pairs()).unwrap();
    for name in names(&kept) {
        fs::copy(kept.join(&name), partial.join(&name)).unwrap();
    }
    fs::write(partial.join("000031-000031.parquet.tmp"), b"half").unwrap();
    repair_path(&path).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &windows(0..30));
}

#[test]
fn a_segment_a_power_cut_emptied_is_named_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    kill(record(&path, 0..3));
    fs::write(sealed::partial_dir(&path).join("000003-000003.parquet"), b"").unwrap();
    let Repaired::Done { unreadable, .. } = repair_path(&path).unwrap() else { panic!() };
    assert_eq!(unreadable.len(), 1);
    assert!(unreadable[0].contains("000003-000003.parquet"), "{unreadable:?}");
    assert_same(&read(&fabric::TABLE, &path), &windows(0..2));
}

/// Otherwise its damaged rows would get valid digests.
#[test]
fn a_segment_that_was_damaged_is_named_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    kill(record(&path, 0..3));
    let segment = sealed::partial_dir(&path).join("000002-000002.parquet");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let Repaired::Done { unreadable, .. } = repair_path(&path).unwrap() else { panic!() };
    assert!(unreadable[0].contains("000002-000002.parquet: its row group 0 is damaged"));
    let wanted = concat_batches(&fabric::schema(), &[window(0), window(2)]).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &wanted);
}

/// Files without row groups, with small ones and with merged ones; bytes of every part are changed.
#[test]
fn every_changed_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    for seals in [0..0, 0..2, 0..40] {
        let path = dir.path().join(format!("{seals:?}.parquet"));
        record(&path, seals).finish(&pairs()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let sound = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let table = OpenTable::open(&fabric::TABLE, &path);
            table.is_ok_and(|table| table.require_sound().is_ok())
        };
        assert!(sound(&bytes));
        for at in (0..bytes.len()).step_by(61).chain(bytes.len() - 40..bytes.len()) {
            bytes[at] ^= 1 << (at % 8);
            assert!(!sound(&bytes), "{}: byte {at}", path.display());
            bytes[at] ^= 1 << (at % 8);
        }
        bytes.push(0);
        assert!(!sound(&bytes));
    }
}

#[test]
fn nothing_is_left_of_a_recording_that_sealed_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(
        RecordingTarget::Dataset(dir.path().join("run")),
        CreateOptions::default(),
        &pairs(),
    )
    .unwrap();
    writer.write(&fabric::TABLE, &window(1)).unwrap();
    drop(writer);
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn an_existing_file_is_kept_until_the_new_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    fs::write(&path, b"old").unwrap();
    let refused =
        Writer::create(RecordingTarget::File(path.clone()), CreateOptions::default(), &pairs())
            .unwrap_err();
    assert!(format!("{refused:#}").contains("--force"), "{refused:#}");
    let mut writer = Writer::create(
        RecordingTarget::File(path.clone()),
        CreateOptions { overwrite: true, ..CreateOptions::default() },
        &pairs(),
    )
    .unwrap();
    writer.write(&fabric::TABLE, &window(1)).unwrap();
    writer.seal_rows().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    writer.finish(&pairs()).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &windows(1..2));
}

#[test]
fn a_directory_that_is_missing_or_a_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no/run.parquet");
    let error = Writer::create(RecordingTarget::File(missing), CreateOptions::default(), &pairs())
        .unwrap_err();
    assert!(format!("{error:#}").contains("there is no directory"), "{error:#}");
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    let error = Writer::create(RecordingTarget::Dataset(file), CreateOptions::default(), &pairs())
        .unwrap_err();
    assert!(format!("{error:#}").contains("is a file"), "{error:#}");
}

#[test]
fn every_table_of_a_dataset_is_a_file_even_when_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer = WriterHandle::create(
        RecordingTarget::Dataset(path.clone()),
        CreateOptions::default(),
        &pairs(),
        None,
    )
    .unwrap();
    assert!(writer.wants_table(&readings::TABLE));
    writer.write_rows(&fabric::TABLE, window(3)).unwrap();
    writer.finish(pairs()).unwrap();
    for def in ALL {
        let table = OpenTable::open(def, &table_path(&path, def)).unwrap();
        let rows = match def.name {
            "fabric" => 6,
            "run" => pairs().len() as i64,
            _ => 0,
        };
        assert_eq!(table.row_count(), rows, "{}", def.name);
        let mut found = table.metadata_pairs().clone();
        assert_eq!(found.remove(metadata::TABLES).is_some(), def.name == "fabric");
        assert_eq!(found, pairs());
    }
    assert_eq!(names(&path).len(), ALL.len());
}

#[test]
fn a_killed_dataset_is_repaired_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer =
        Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &pairs())
            .unwrap();
    let ticks = readings_of(1, 100, false);
    writer.write(&readings::TABLE, &ticks).unwrap();
    writer.write(&fabric::TABLE, &window(1)).unwrap();
    writer.seal_rows().unwrap();
    kill(writer);
    assert!(matches!(repair_path(&path).unwrap(), Repaired::Done { .. }));
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.list_tables().len(), ALL.len());
    let told = read(&run::TABLE, &table_path(&path, &run::TABLE));
    assert_eq!(told.num_rows(), pairs().len() + 1, "the pairs and that it was repaired");
    let table = recording.open_table(&readings::TABLE).unwrap();
    assert_eq!(table.row_count(), 600);
    assert_eq!(table.metadata_pairs()[metadata::HOST], "test");
    assert_eq!(names(&path).len(), ALL.len());
}

#[test]
fn an_error_of_the_thread_comes_out_of_a_later_call() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Ok(0)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(
        WriterHandle::create(
            RecordingTarget::Stream(Box::new(Full)),
            CreateOptions::default(),
            &pairs(),
            None
        )
        .is_err()
    );
    let mut handle = WriterHandle::create(
        RecordingTarget::Stream(Box::new(AfterFirst(4000))),
        CreateOptions::default(),
        &pairs(),
        None,
    )
    .unwrap();
    assert!(!handle.wants_table(&runtime::TABLE));
    let failed = (0..100_000).find_map(|n| handle.write_rows(&fabric::TABLE, window(n)).err());
    assert!(format!("{:#}", failed.unwrap()).contains("broken pipe"));
}

/// A pipe whose reader leaves after this many bytes.
struct AfterFirst(usize);
impl std::io::Write for AfterFirst {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => return Err(std::io::ErrorKind::BrokenPipe.into()),
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_reads_back_with_its_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let file = fs::File::create(&path).unwrap();
    let mut writer =
        Writer::create(RecordingTarget::Stream(Box::new(file)), CreateOptions::default(), &pairs())
            .unwrap();
    writer.write(&fabric::TABLE, &window(1)).unwrap();
    writer.write(&fabric::TABLE, &window(2)).unwrap();
    writer.seal_rows().unwrap();
    assert_eq!(writer.finish(&pairs()).unwrap().rows, 12);
    let reader =
        arrow::ipc::reader::StreamReader::try_new(fs::File::open(&path).unwrap(), None).unwrap();
    assert_eq!(reader.schema().metadata()[metadata::HOST], "test");
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let found = concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(found.columns(), windows(1..3).columns());
}

/// A tmpfs of one megabyte; `None` if this user may not mount.
struct Small(PathBuf, #[expect(dead_code, reason = "removes the mount point")] tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&path)
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Small(path, dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).status().unwrap();
    }
}

#[test]
fn a_full_disk_is_one_line_and_keeps_what_was_sealed() {
    let Some(small) = Small::mount() else {
        return skip::skip("a tmpfs cannot be mounted: it needs root");
    };
    let path = small.0.join("run.parquet");
    let mut writer =
        Writer::create(RecordingTarget::File(path.clone()), CreateOptions::default(), &pairs())
            .unwrap();
    writer.write(&fabric::TABLE, &window(1)).unwrap();
    writer.seal_rows().unwrap();
    let filler = small.0.join("filler");
    let mut full = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut full, &[0; 4096]).is_ok() {}
    let error = (2..10_000)
        .find_map(|n| {
            writer.write(&fabric::TABLE, &window(n)).and_then(|()| writer.seal_rows()).err()
        })
        .unwrap();
    let text = format!("{error:#}");
    assert!(!text.contains('\n'), "{text}");
    assert!(text.contains("no space left on the disk"), "{text}");
    assert!(text.contains("uncore-trace repair"), "{text}");
    drop((writer, full));
    fs::remove_file(&filler).unwrap();
    let left = names(&sealed::partial_dir(&path));
    assert!(left.iter().all(|name| !name.contains(".tmp")), "{left:?}");
    repair_path(&path).unwrap();
    assert_same(&read(&fabric::TABLE, &path), &windows(1..2));
}

#[test]
fn a_disk_full_from_the_start_leaves_nothing() {
    let Some(small) = Small::mount() else {
        return skip::skip("a tmpfs cannot be mounted: it needs root");
    };
    let mut full = fs::File::create(small.0.join("filler")).unwrap();
    while std::io::Write::write_all(&mut full, &[0; 4096]).is_ok() {}
    let error = Writer::create(
        RecordingTarget::File(small.0.join("run.parquet")),
        CreateOptions::default(),
        &pairs(),
    )
    .unwrap_err();
    assert!(format!("{error:#}").contains("no space left on the disk"), "{error:#}");
    assert_eq!(names(&small.0), ["filler"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// A file that is truncated or changed anywhere is an error or can be read; it never panics.
    #[test]
    fn damaged_files_do_not_panic(
        cut in proptest::option::of(0.0_f64..1.0),
        flips in proptest::collection::vec((0.0_f64..1.0, 0_u8..8), 0..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.parquet");
        record(&path, 0..3).finish(&pairs()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for (place, bit) in flips {
            let at = (bytes.len() as f64 * place) as usize;
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate((bytes.len() as f64 * cut) as usize);
        }
        fs::write(&path, &bytes).unwrap();
        let Ok(recording) = Recording::open(&path) else { return Ok(()) };
        let Ok(table) = recording.open_table(&fabric::TABLE) else { return Ok(()) };
        let all: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
        let Ok(scan) = table.scan_columns(&all) else { return Ok(()) };
        for batch in scan {
            if let Err(error) = batch {
                let text = format!("{error:#}");
                prop_assert!(!text.contains('\n'), "{}", text);
            }
        }
    }
}

/// A file of 1800 rows in three row groups.
fn three_groups(path: &Path, props: WriterPropertiesBuilder) -> OpenTable {
    let props = props
        .set_max_row_group_row_count(Some(600))
        .set_key_value_metadata(Some(metadata::to_key_values(&pairs())));
    let file = FileMode::default().create_file(path).unwrap();
    let handle = file.try_clone().unwrap();
    let mut writer = ArrowWriter::try_new(file, fabric::schema(), Some(props.build())).unwrap();
    writer.write(&windows(1..301)).unwrap();
    digest::close_with_digests(writer.into_serialized_writer().unwrap().0, &handle).unwrap();
    OpenTable::open(&fabric::TABLE, path).unwrap()
}

/// Writes a file again as an older program did: without the columns that were added later.
fn make_older(path: &Path, packing: Packing) {
    let rows = read(&fabric::TABLE, path);
    let schema = rows.schema();
    let is_old = |place: &usize| !fabric::TABLE.later.contains(&&**schema.field(*place).name());
    let old: Vec<usize> = (0..schema.fields().len()).filter(is_old).collect();
    assert!(old.len() < schema.fields().len());
    let rows = rows.project(&old).unwrap();
    let pairs = Some(metadata::to_key_values(&pairs()));
    let props = fabric::TABLE.writer_properties(packing).set_key_value_metadata(pairs).build();
    let file = FileMode::default().create_file(path).unwrap();
    let handle = file.try_clone().unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(props)).unwrap();
    writer.write(&rows).unwrap();
    digest::close_with_digests(writer.into_serialized_writer().unwrap().0, &handle).unwrap();
}

#[test]
fn columns_that_an_older_file_lacks_are_null() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    record(&path, 0..3).finish(&pairs()).unwrap();
    make_older(&path, Packing::Kept);
    assert_same(&read(&fabric::TABLE, &path), &windows(0..3));
    let table = OpenTable::open(&fabric::TABLE, &path).unwrap();
    for columns in [&["cgroup_confidence"][..], &["cgroup_confidence", "value"], &["value"]] {
        let batch = table.scan_columns(columns).unwrap().next().unwrap().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (18, columns.len()));
    }
}

/// Of an older program that was killed, and updated since.
#[test]
fn segments_that_lack_columns_are_repaired() {
    let dir = tempfile::tempdir().unwrap();
    for packing in [Packing::Segment, Packing::Kept] {
        let path = dir.path().join(format!("{packing:?}.parquet"));
        kill(record(&path, 0..3));
        for number in 1..4 {
            let name = format!("{number:06}-{number:06}.parquet");
            make_older(&sealed::partial_dir(&path).join(name), packing);
        }
        let Repaired::Done { unreadable, .. } = repair_path(&path).unwrap() else { panic!() };
        assert_eq!(unreadable, Vec::<String>::new());
        assert_same(&read(&fabric::TABLE, &path), &windows(0..3));
        let (_, footer) = sound::read_footer(&path).unwrap();
        assert_eq!(footer.schema().fields().len(), fabric::schema().fields().len());
    }
}

/// Without verification, the decoder would read other values from most changed bits.
#[test]
fn a_row_group_is_verified_before_its_rows_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    three_groups(&path, fabric::TABLE.writer_properties(Packing::Segment));
    let (_, footer) = sound::read_footer(&path).unwrap();
    let column = footer.metadata().row_group(1).column(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[column.data_page_offset() as usize + 30] ^= 1;
    fs::write(&path, bytes).unwrap();
    let table = OpenTable::open(&fabric::TABLE, &path).unwrap();
    let first = |from: i64, to: i64| {
        let wanted = from * 10_000_000..=to * 10_000_000;
        table.scan_within(&["value"], "mono_ns", wanted).unwrap().next().unwrap()
    };
    for (from, to) in [(1, 100), (201, 300)] {
        assert_eq!(first(from, to).unwrap().num_rows(), 600);
    }
    for (from, to) in [(101, 200), (101, 300), (101, 101)] {
        let line = format!("{:#}", first(from, to).unwrap_err());
        let wanted = "run.parquet is damaged after row 0: row group 1 has changed since it was \
                      written";
        assert!(line.ends_with(wanted), "{line}");
    }
    // No batch has rows of two row groups, and none follows an error.
    let all: Vec<_> = table.scan_columns(&["value"]).unwrap().decode_ahead().unwrap().collect();
    let [Ok(rows), Err(error)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(rows.num_rows(), 600);
    assert!(format!("{error:#}").contains("is damaged after row 600"), "{error:#}");
    assert_eq!(table.table_files()[0].damaged_groups().unwrap(), [1]);
}

#[test]
fn row_groups_outside_a_range_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    let table = three_groups(&path, fabric::TABLE.writer_properties(Packing::Segment));
    let rows = |table: &OpenTable, from: i64, to: i64| -> usize {
        let wanted = from * 10_000_000..=to * 10_000_000;
        let scan = table.scan_within(&["value"], "mono_ns", wanted).unwrap();
        scan.map(|batch| batch.unwrap().num_rows()).sum()
    };
    assert_eq!(
        (table.row_groups(), table.column_bounds("mono_ns")),
        (3, Some((10_000_000, 3_000_000_000)))
    );
    for (from, to, groups) in
        [(1, 300, 3), (1, 100, 1), (101, 101, 1), (100, 101, 2), (-9, 0, 0), (301, 400, 0)]
    {
        assert_eq!(rows(&table, from, to), groups * 600, "{from}..={to}");
    }
    assert_eq!(table.column_bounds("value"), None);
    let without = fabric::TABLE
        .writer_properties(Packing::Segment)
        .set_statistics_enabled(EnabledStatistics::None);
    let table = three_groups(&path, without);
    assert_eq!((table.column_bounds("mono_ns"), rows(&table, 301, 400)), (None, 1800));
}
