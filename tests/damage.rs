//! A finished recording that was truncated, or in which a bit changed: each table reads as it was
//! written, or gives an error of one line. No wrong row is read, neither by the program nor by the
//! package for Python.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "a test prints what it tried")]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use arrow::array::RecordBatch;
use tempfile::TempDir;
use uncore_trace::schema::{TableDef, fabric};
use uncore_trace::tables::names::table_path;
use uncore_trace::tables::reader::{OpenTable, Recording};
use uncore_trace::view::grouping::GroupBy;
use uncore_trace::view::question::ReportQuestion;
use uncore_trace::view::report_sums::{ReportSums, sum_report};

use crate::analysis::{root, script};
use crate::harness::made::{self, Size};
use crate::harness::run_ok;

/// Some 60 kB, with every table of a dataset, and the names, gaps and losses of a long recording.
const SIZE: Size = Size { windows: 50, links: 2, small: 5, ..made::USUAL };

/// A Parquet file begins with `PAR1`. In a table without rows no digest covers these bytes, and
/// nothing reads them.
const MAGIC: usize = 4;

/// Distances between truncations, and between flipped bits, in bytes: primes, so that they hit all
/// positions of a page.
const CUT: usize = 997;
const FLIP: usize = 61;

/// All rows of a table.
fn rows(def: &'static TableDef, path: &Path) -> Result<Vec<RecordBatch>> {
    let table = OpenTable::open(def, path)?;
    let all: Vec<&str> = def.encodings.iter().map(|(name, _)| *name).collect();
    table.scan_columns(&all)?.collect()
}

/// The report of the recording.
fn report(run: &Path) -> Result<ReportSums> {
    sum_report(&Recording::open(run)?, &ReportQuestion::grouped_by(GroupBy::Cgroup))
}

/// A damaged table gives what it gave before, or an error of one line. Returns whether it was read.
fn reads<T: PartialEq>(before: &T, after: Result<T>, what: &str) -> bool {
    match after {
        Ok(after) => {
            assert!(after == *before, "{what}: other rows are read");
            true
        }
        Err(error) => {
            let line = format!("{error:#}");
            assert!(!line.contains('\n'), "{what}: {line}");
            false
        }
    }
}

/// A recording with every table, with the bytes and rows of each.
struct Sound {
    run: TempDir,
    tables: Vec<(&'static TableDef, Vec<u8>, Vec<RecordBatch>)>,
    usage: ReportSums,
}

impl Sound {
    fn make() -> Self {
        let run = tempfile::tempdir().unwrap();
        made::write(run.path(), SIZE);
        let read = |def: &'static TableDef| {
            let path = table_path(run.path(), def);
            (def, fs::read(&path).unwrap(), rows(def, &path).unwrap())
        };
        let tables: Vec<_> =
            Recording::open(run.path()).unwrap().list_tables().into_iter().map(read).collect();
        assert!(tables.iter().filter(|(.., rows)| !rows.is_empty()).count() >= 5);
        let usage = report(run.path()).unwrap();
        Self { run, tables, usage }
    }

    /// Replaces the bytes of each table by those of `damaged`; returns how many of these were read.
    fn try_all(&self, damaged: impl Fn(&[u8]) -> Vec<(usize, Vec<u8>)>) -> (usize, usize) {
        let (mut read, mut tried) = (0, 0);
        for (def, bytes, before) in &self.tables {
            let path = table_path(self.run.path(), def);
            for (at, damaged) in damaged(bytes) {
                fs::write(&path, damaged).unwrap();
                let what = format!("{} at {at}", def.name);
                tried += 1;
                read += usize::from(reads(before, rows(def, &path), &what));
                if def.name == fabric::TABLE.name {
                    reads(&self.usage, report(self.run.path()), &what);
                }
            }
            fs::write(&path, bytes).unwrap();
        }
        println!("{tried} damaged tables, {read} read as what they were");
        (tried, read)
    }
}

#[test]
fn a_truncated_file_is_not_read() {
    let cut = |bytes: &[u8]| -> Vec<(usize, Vec<u8>)> {
        let places = (0..bytes.len()).step_by(CUT);
        places.map(|at| (at, bytes[..at].to_vec())).collect()
    };
    let (tried, read) = Sound::make().try_all(cut);
    assert!(tried > 50 && read == 0, "{read} of {tried}");
}

#[test]
fn a_changed_bit_is_never_read_as_another_row() {
    let flipped = |bytes: &[u8]| -> Vec<(usize, Vec<u8>)> {
        let places = (MAGIC..bytes.len()).step_by(FLIP);
        let flip = |at: usize| {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << (at % 8);
            (at, damaged)
        };
        places.map(flip).collect()
    };
    let (tried, read) = Sound::make().try_all(flipped);
    // Digests find all of them, also in a table without rows.
    assert!(tried > 1000 && read == 0, "{read} of {tried}");
}

/// A file of a roll-up, a single file, and tables of a dataset, one of them without rows.
fn files_for_python(dir: &Path) -> Vec<PathBuf> {
    let (samples, hours) = (root().join("samples"), dir.join("hours"));
    let grace = samples.join("grace");
    run_ok(["rollup", "-w", "1s", grace.to_str().unwrap(), "-o", hours.to_str().unwrap()]);
    let mut hour = hours;
    while hour.is_dir() {
        hour = fs::read_dir(&hour).unwrap().next().unwrap().unwrap().path();
    }
    let tables = ["fabric", "readings", "loss"].map(|name| grace.join(format!("{name}.parquet")));
    [hour, samples.join("vm.parquet")].into_iter().chain(tables).collect()
}

/// A decoder without digests reads about half of these as other values.
#[test]
fn python_never_reads_a_changed_bit_as_another_value() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = dir.path().join("flipped.parquet");
    for file in files_for_python(dir.path()) {
        let args = ["flips", file.to_str().unwrap(), scratch.to_str().unwrap()];
        let answers = script("damage.py", &args);
        let all = serde_json::json!({ "an error": 255 });
        assert_eq!(answers, all, "{}", file.display());
    }
}

#[test]
fn python_reads_neither_tables_of_another_recording_nor_files_without_digests() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    made::write(&run, SIZE);
    let read =
        |path: &Path, table: &str| script("damage.py", &["read", path.to_str().unwrap(), table]);
    assert!(read(&run, "fabric").as_u64() > Some(0));
    let grace = root().join("samples/grace");
    fs::copy(grace.join("readings.parquet"), run.join("readings.parquet")).unwrap();
    let refused = read(&run, "readings").to_string();
    assert!(refused.contains("readings.parquet is of another recording"), "{refused}");
    // As `report` says it.
    let file = run.join("fabric.parquet");
    let key = b"uncore_trace.digest";
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.windows(key.len()).rposition(|window| window == key).unwrap();
    bytes[place] = b'U';
    fs::write(&file, bytes).unwrap();
    let refused = read(&run, "fabric").to_string();
    let line = format!("{:#}", report(&run).unwrap_err());
    assert!(refused.contains("is damaged: it has no digest"), "{refused}");
    assert!(refused.contains(&line), "{line}: {refused}");
}
