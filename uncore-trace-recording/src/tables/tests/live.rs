//! What can be read of a recording that goes on.

use std::path::Path;

use arrow::compute::concat_batches;

use super::*;

/// The rows of a table of what was opened.
fn rows(recording: &Recording, def: &'static TableDef) -> RecordBatch {
    let names: Vec<&str> = def.encodings.iter().map(|(name, _)| *name).collect();
    let scan = recording.open_table(def).unwrap().scan_columns(&names).unwrap();
    concat_batches(&(def.schema)(), &scan.map(Result::unwrap).collect::<Vec<_>>()).unwrap()
}

fn refusal(opened: anyhow::Result<Recording>) -> String {
    format!("{:#}", opened.unwrap_err())
}

fn seal(writer: &mut Writer, number: i64) {
    writer.write(&fabric::TABLE, &window(number)).unwrap();
    writer.seal_rows().unwrap();
}

#[test]
fn what_is_sealed_can_be_read_and_stays_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for target in ["run.parquet", "run"] {
        let path = dir.path().join(target);
        let dataset = !target.contains('.');
        let made = if dataset {
            RecordingTarget::Dataset(path.clone())
        } else {
            RecordingTarget::File(path.clone())
        };
        let mut writer = Writer::create(made, CreateOptions::default(), &pairs()).unwrap();
        let nothing = refusal(Recording::open_so_far(&path));
        assert!(nothing.contains("no data is on the disk yet"), "{nothing}");
        (0..30).for_each(|number| seal(&mut writer, number));
        let early = Recording::open_so_far(&path).unwrap();
        assert!(early.recording_process().is_some());
        let finished_only = refusal(Recording::open(&path));
        assert!(finished_only.contains("is being recorded now (process"), "{finished_only}");
        // Merges all that it has opened, and goes on.
        (30..70).for_each(|number| seal(&mut writer, number));
        assert_same(&rows(&early, &fabric::TABLE), &windows(0..30));
        let table = early.open_table(&fabric::TABLE).unwrap();
        assert_eq!(
            (table.row_count(), table.column_bounds("mono_ns")),
            (180, Some((0, 290_000_000)))
        );
        assert_eq!(table.metadata_pairs()[metadata::HOST], "test");
        assert_eq!(table.row_groups(), 30);
        table.require_sound().unwrap();
        assert_eq!(table.group_minimum(29, "mono_ns"), Some(290_000_000));
        let within: Vec<_> = table
            .scan_within(&["mono_ns"], "mono_ns", 100_000_000..=110_000_000)
            .unwrap()
            .collect();
        assert_eq!(within.into_iter().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 12);
        if dataset {
            let empty = early.open_table(&runtime::TABLE).unwrap();
            assert_eq!((empty.row_count(), empty.column_bounds("mono_ns")), (0, None));
            assert_eq!(rows(&early, &runtime::TABLE).num_rows(), 0);
            assert!(early.list_tables().iter().any(|def| def.name == runtime::TABLE.name));
        }
        let later = Recording::open_so_far(&path).unwrap();
        assert_same(&rows(&later, &fabric::TABLE), &windows(0..70));
        writer.finish(&pairs()).unwrap();
        assert_same(&rows(&early, &fabric::TABLE), &windows(0..30));
        let finished = Recording::open_so_far(&path).unwrap();
        assert!(finished.recording_process().is_none());
        assert_same(&rows(&finished, &fabric::TABLE), &windows(0..70));
    }
}

#[test]
fn a_recorder_that_was_killed_or_is_none_is_told_from_one_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.parquet");
    kill(record(&path, 0..3));
    let killed = refusal(Recording::open_so_far(&path));
    assert!(killed.contains("was not finished; run `uncore-trace repair"), "{killed}");
    let create = CreateOptions {
        command: super::super::lock::LockingCommand::Attribute,
        ..CreateOptions::default()
    };
    let other: &Path = &dir.path().join("other.parquet");
    let mut writer =
        Writer::create(RecordingTarget::File(other.to_owned()), create, &pairs()).unwrap();
    seal(&mut writer, 0);
    let made = refusal(Recording::open_so_far(other));
    assert!(made.contains("is being written now by `uncore-trace attribute`"), "{made}");
    assert!(made.ends_with("wait until it has ended"), "{made}");
}
