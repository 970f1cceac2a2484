//! Files that are no recording, have another version, are damaged or mixed up: every command that
//! reads them gives an error of one line or an answer, and never panics.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

use crate::command::Place;
use crate::small::{one_row, small_recording, small_recording_into, small_recording_with};

#[test]
fn files_that_are_no_recording_are_refused() {
    let place = Place::new();
    let good = place.path("good.parquet");
    small_recording(&good);
    let bytes = fs::read(&good).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(place.path(name), bytes).unwrap();
    write("cut.parquet", &bytes[..bytes.len() / 2]);
    write("tail.parquet", &bytes[bytes.len() / 2..]);
    write("empty.parquet", b"");
    write("text.parquet", b"PAR1 is how it begins, and nothing more PAR1");
    fs::create_dir(place.path("dir")).unwrap();
    foreign(&place.path("foreign.parquet"));
    let stream = File::create(place.path("stream.arrow")).unwrap();
    small_recording_into(RecordingTarget::Stream(Box::new(stream)));
    let cases = [
        ("cut.parquet", "not a readable Parquet file"),
        ("tail.parquet", "tail.parquet"),
        ("empty.parquet", "is empty"),
        ("text.parquet", "not a readable Parquet file"),
        ("foreign.parquet", "not one that uncore-trace recorded"),
        ("stream.arrow", "is an Arrow IPC stream"),
        ("dir", "no fabric.parquet"),
        ("none.parquet", "cannot open none.parquet"),
    ];
    for verb in ["report", "check", "repair"] {
        for (name, word) in cases {
            let answer = place.run([verb, name]);
            if name == "tail.parquet" && answer.code == 0 {
                // Its footer is valid: without rows to read, these commands read no more than that.
                assert_ne!(verb, "check");
                continue;
            }
            let line = answer.refused();
            assert!(line.contains(name) && line.contains(word), "{verb} {name}: {line}");
        }
    }
}

fn foreign(path: &Path) {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Every command refuses a recording of another schema, and the error names the version that wrote
/// it.
#[test]
fn a_recording_of_another_schema_is_refused() {
    let place = Place::new();
    let old = [(metadata::SCHEMA_VERSION, "1"), (metadata::TOOL_VERSION, "0.0.9\u{1b}[2J")];
    small_recording_with(RecordingTarget::File(place.path("file.parquet")), &old);
    small_recording_with(RecordingTarget::Dataset(place.path("run")), &old);
    let pairs = old.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let target = RecordingTarget::File(place.path("killed.parquet"));
    let mut killed = Writer::create(target, CreateOptions::default(), &pairs).unwrap();
    killed.write(&fabric::TABLE, &one_row()).unwrap();
    killed.seal_rows().unwrap();
    drop(killed);
    let before = fs::read_dir(place.path("killed.parquet.partial")).unwrap().count();
    for typed in [
        "report file.parquet",
        "check file.parquet",
        "repair file.parquet",
        "repair killed.parquet",
        "report run",
        "check run",
        "repair run",
        "attribute run -o again.parquet",
    ] {
        let line = place.typed(typed).refused();
        assert!(line.contains("schema version 1, written by uncore-trace 0.0.9"), "{line}");
        assert!(line.contains("record again with this version"), "{line}");
        assert!(line.contains(&format!("schema version {SCHEMA_VERSION}")), "{line}");
    }
    assert!(!place.path("again.parquet").exists() && !place.path("killed.parquet").exists());
    let after = fs::read_dir(place.path("killed.parquet.partial")).unwrap().count();
    assert_eq!(before, after, "what was recorded is kept");
}

/// Shares from the tables of two different recordings could not be detected as wrong.
#[test]
fn a_missing_or_foreign_table_is_not_attributed() {
    let place = Place::new();
    for name in ["run", "other"] {
        small_recording_with(RecordingTarget::Dataset(place.path(name)), &[(metadata::HOST, name)]);
    }
    let table = place.path("run/runtime.parquet");
    fs::copy(place.path("other/runtime.parquet"), &table).unwrap();
    let line = place.typed("attribute run -o again.parquet").refused();
    assert!(
        line.contains("runtime.parquet is of another recording; restore the original"),
        "{line}"
    );
    fs::remove_file(&table).unwrap();
    let line = place.typed("attribute run -o again.parquet").refused();
    assert!(line.contains("runtime.parquet is missing; restore the original"), "{line}");
    assert!(!place.path("again.parquet").exists());
}

/// Every part of a valid file is overwritten in turn: an answer or an error of one line, never a
/// panic.
#[test]
fn a_damaged_recording_never_panics() {
    let place = Place::new();
    let path = place.path("x.parquet");
    small_recording(&path);
    let bytes = fs::read(&path).unwrap();
    for at in (4..bytes.len()).step_by(bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, damaged).unwrap();
        for verb in ["report", "check"] {
            let answer = place.run([verb, "x.parquet"]);
            assert!((0..=2).contains(&answer.code), "byte {at}: {verb}: {answer:?}");
            assert!(!answer.err.contains("panicked"), "byte {at}: {answer:?}");
        }
    }
}
