//! Small files that become large, and names that lead to no file: each reader ends soon, in a
//! limited memory, with one line.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, loss, metadata};
use uncore_trace::tables::digest;

use crate::PROGRAM;
use crate::command::{Answer, Place};
use crate::small::{one_row, row};

/// Memory that a reader may take, bytes.
const MEMORY: u64 = 512 << 20;

/// Longest time that a reader may take, s.
const PATIENCE: &str = "20";

/// Runs the program with little memory and time.
fn limited(place: &Place, args: &[&str]) -> Answer {
    let mut command = Command::new("timeout");
    command.args([PATIENCE, "prlimit", &format!("--data={MEMORY}"), PROGRAM]).args(args);
    let answer = Answer::of(command.current_dir(place.path("")).output().unwrap());
    assert_ne!(answer.code, 124, "{args:?} does not end");
    assert!(!answer.err.contains("memory allocation"), "{args:?}: {answer:?}");
    answer
}

/// A row whose process has a name of `length` bytes.
fn named(length: usize) -> RecordBatch {
    let name = "a".repeat(length);
    let mut rows = fabric::Builder::default();
    rows.append(&fabric::Row { comm: Some(&name), ..row() });
    rows.finish()
}

/// Writes a file of a table, as somebody can who wants to do harm: with a sound digest.
fn write(path: &Path, rows: &RecordBatch) {
    let version = SCHEMA_VERSION.to_string();
    let pairs = vec![KeyValue::new(metadata::SCHEMA_VERSION.to_owned(), version)];
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(zstd);
    let properties = properties.set_key_value_metadata(Some(pairs)).build();
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let handle = file.try_clone().unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.flush().unwrap();
    let (writer, _) = writer.into_serialized_writer().unwrap();
    digest::close_with_digests(writer, &handle).unwrap();
}

#[test]
fn a_file_with_one_name_of_a_gigabyte_takes_little_memory() {
    let place = Place::new();
    write(&place.path("bomb.parquet"), &named(1 << 30));
    let size = fs::metadata(place.path("bomb.parquet")).unwrap().len();
    assert!(size < 200 << 10, "{size}");
    for args in [
        &["report", "bomb.parquet"][..],
        &["report", "bomb.parquet", "--by", "pid"],
        &["diff", "bomb.parquet", "bomb.parquet"],
        &["check", "bomb.parquet"],
        &["top", "bomb.parquet", "--once"],
        &["export", "bomb.parquet", "--csv", "-"],
    ] {
        let answer = limited(&place, args);
        assert!([1, 2].contains(&answer.code), "{args:?}: {answer:?}");
        let answer_text = format!("{}{}", answer.out, answer.err);
        assert!(answer_text.contains("bytes, and the limit is 8388608"), "{args:?}: {answer_text}");
    }
}

#[test]
fn a_name_that_no_process_can_have_is_refused_and_a_long_one_is_not() {
    let place = Place::new();
    for (length, is_read) in [(4 << 20, true), ((4 << 20) + 1, false)] {
        write(&place.path("long.parquet"), &named(length));
        let answer = limited(&place, &["report", "long.parquet", "--by", "pid"]);
        assert_eq!(answer.code == 0, is_read, "{length}: {}", answer.err);
        let says = "column comm has a text of more than 4194304 bytes, the limit";
        assert_eq!(answer.err.contains(says), !is_read, "{length}: {}", answer.err);
        fs::remove_file(place.path("long.parquet")).unwrap();
    }
}

/// Rows that repeat a text are each as long as it when they are decoded.
#[test]
fn a_reason_that_is_repeated_takes_little_memory() {
    let place = Place::new();
    let reason = "b".repeat(60 << 10);
    let mut rows = loss::Builder::default();
    for _ in 0..16_000 {
        let detail = Some(reason.as_str());
        rows.append(&loss::Row {
            host: "test",
            cause: "late_tick",
            count: 1,
            detail,
            ..loss::Row::default()
        });
    }
    fs::create_dir(place.path("run")).unwrap();
    write(&place.path("run/fabric.parquet"), &one_row());
    write(&place.path("run/loss.parquet"), &rows.finish());
    let size = fs::metadata(place.path("run/loss.parquet")).unwrap().len();
    println!("{size} bytes");
    for args in [&["check", "run"][..], &["report", "run"]] {
        let answer = limited(&place, args);
        assert!((0..=2).contains(&answer.code), "{args:?}: {answer:?}");
    }
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for() {
    let place = Place::new();
    write(&place.path("good.parquet"), &one_row());
    fifo(&place.path("pipe.parquet"));
    fifo(&place.path("pipe.toml"));
    fs::create_dir(place.path("run")).unwrap();
    fifo(&place.path("run/fabric.parquet"));
    let record =
        ["record", "--btf", "pipe.toml", "-p", "host", "--duration", "0.1s", "-o", "x.parquet"];
    // Without root it is refused before it reads the file.
    let with_root = geteuid().is_root().then_some(&record[..]);
    for args in [
        &["report", "pipe.parquet"][..],
        &["report", "run"],
        &["check", "pipe.parquet"],
        &["top", "pipe.parquet", "--once"],
        &["diff", "good.parquet", "pipe.parquet"],
        &["cut", "pipe.parquet", "--from", "0s", "-o", "cut/"],
        &["attribute", "run", "-o", "again.parquet"],
        &["agent", "--check", "--config", "pipe.toml"],
        &["upload", "--once", "--config", "pipe.toml"],
        &["list", "--catalog", "."],
    ]
    .into_iter()
    .chain(with_root)
    {
        let line = limited(&place, args).refused();
        assert!(
            line.contains("it is a pipe (FIFO), and only regular files are read"),
            "{args:?}: {line}"
        );
    }
}

#[test]
fn a_configuration_is_not_read_beyond_its_limit() {
    let place = Place::new();
    let config = File::create(place.path("large.toml")).unwrap();
    config.set_len(300_000_000).unwrap();
    for args in [&["agent", "--check", "--config", "large.toml"][..], &["list", "--catalog", "."]] {
        let line = limited(&place, args).refused();
        assert!(line.contains("larger than the limit of 4194304 bytes"), "{args:?}: {line}");
    }
}
