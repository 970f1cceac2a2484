//! The oldest and newest versions of readers with which `cargo xtask engines` reads recordings.
//!
//! Guarantees: every reader gives the same rows and the same sums of every column of every table,
//! or the task fails; the documents name the versions that are tried here.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::{last_lines, run_quietly};
use crate::engines::{self, Answers, NEW};
use crate::venv::Venv;

/// A version of a reader.
struct Reader {
    /// As the documents call it.
    name: &'static str,
    /// In `tests/engines/reader.py`.
    function: &'static str,
    version: &'static str,
    venv: Venv,
}

/// A reader in an environment of its own: name, package, version, other packages.
macro_rules! alone {
    ($name:literal, $package:literal, $version:literal $(, $other:literal)*) => {
        Reader {
            name: $name,
            function: $package,
            version: $version,
            venv: Venv {
                name: concat!("venv-", $package, "-", $version),
                packages: &[concat!($package, "==", $version) $(, $other)*],
                modules: $package,
            },
        }
    };
}

/// A reader of the environment of all engines.
macro_rules! newest {
    ($name:literal, $package:literal, $version:literal) => {
        Reader { name: $name, function: $package, version: $version, venv: NEW }
    };
}

/// All are compared with the first, which also says what there is to read. Of each name the first
/// line is the oldest version, and the last the newest.
const READERS: &[Reader] = &[
    alone!("PyArrow", "pyarrow", "10.0.1", "numpy<2"),
    newest!("PyArrow", "pyarrow", "26.0.1"),
    alone!("pandas", "pandas", "1.5.1", "pyarrow==10.0.1", "numpy<2"),
    newest!("pandas", "pandas", "3.1.1"),
    alone!("Polars", "polars", "1.0.0"),
    newest!("Polars", "polars", "2.1.0"),
    alone!("DataFusion", "datafusion", "40.1.0"),
    alone!("DataFusion", "datafusion", "50.0.0"),
    newest!("DataFusion", "datafusion", "55.0.0"),
    alone!("DuckDB", "duckdb", "0.9.0"),
    alone!("DuckDB", "duckdb", "1.0.0"),
    newest!("DuckDB", "duckdb", "2.0.0"),
    alone!("fastparquet", "fastparquet", "2026.9.0"),
];

/// It reads `DELTA_BINARY_PACKED` as other values, so it reads tables without that.
const WITHOUT_DELTAS: &str = "fastparquet";
/// The tables that it reads, and the single file.
const PLAIN_FILES: &[&str] = &[
    "vm",
    "rollup",
    "fabric",
    "assignments",
    "canary",
    "cgroups",
    "counters",
    "holders",
    "links",
    "marks",
    "run",
];

/// Reads the samples, the recording `run`, and a roll-up that `program` makes of a sample.
pub(crate) fn compare_readers(program: &Path, run: &Path) -> Result<()> {
    install_readers()?;
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let samples = workspace_root().join("samples");
    let mut files = vec![samples.join("vm.parquet"), roll_up(program, &samples, dir.path())?];
    for dataset in [&samples.join("grace"), run] {
        files.extend(tables_of(dataset)?);
    }
    let kinds = dir.path().join("kinds.json");
    let arguments: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let text = ask_reader(&NEW, "kinds", &arguments)?;
    fs::write(&kinds, &text).with_context(|| format!("cannot write {}", kinds.display()))?;
    let mut tables: BTreeMap<String, Value> =
        serde_json::from_str(&text).context("the kinds of columns are unexpected")?;
    tables.retain(|file, _| has_no_deltas(file));
    let plain = dir.path().join("plain.json");
    let text = serde_json::to_string(&tables).context("cannot write the kinds of columns")?;
    fs::write(&plain, text).with_context(|| format!("cannot write {}", plain.display()))?;

    let mut reference: Option<(String, Answers)> = None;
    for reader in READERS {
        let begin = Instant::now();
        let name = format!("{} {}", reader.name, reader.version);
        let is_partial = reader.function == WITHOUT_DELTAS;
        let list = if is_partial { &plain } else { &kinds };
        let text =
            ask_reader(&reader.venv, reader.function, &[list.as_path()]).context(name.clone())?;
        let answers: Answers = serde_json::from_str(&text)
            .with_context(|| format!("{name} gave an unexpected answer"))?;
        let took = begin.elapsed().as_secs_f64();
        let count = answers.len();
        match &reference {
            None => {
                engines::require_something(&answers)?;
                reference = Some((name.clone(), answers));
            }
            Some((expected, wanted)) => {
                let mut wanted = wanted.clone();
                wanted.retain(|file, _| tables.contains_key(file) || !is_partial);
                engines::compare_answers((expected, &wanted), (&name, &answers))?;
            }
        }
        println!("engines: {name}: the same sums of {count} files ({took:.1} s)");
    }
    Ok(())
}

fn install_readers() -> Result<()> {
    let is_alone = |venv: &&Venv| venv.name != NEW.name;
    let alone = READERS.iter().map(|reader| &reader.venv).filter(is_alone);
    let missing: Vec<&Venv> = alone.filter(|venv| venv.installed_packages().is_err()).collect();
    // pip waits for the network most of the time.
    let results = thread::scope(|scope| {
        let threads = missing.into_iter().map(|venv| {
            println!("engines: {}: installing", venv.name);
            scope.spawn(|| {
                venv.install_by(&NEW).with_context(|| format!("cannot install: {}", venv.name))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for result in results {
        let Ok(installed) = result else { bail!("the installation of a reader panicked") };
        installed?;
    }
    Ok(())
}

/// Makes a roll-up. Its path has no names of partitions: some readers make columns of them.
fn roll_up(program: &Path, samples: &Path, dir: &Path) -> Result<PathBuf> {
    let hours = dir.join("hours");
    let mut command = Command::new(program);
    command.arg("rollup").arg(samples.join("grace")).args(["--window", "1s", "-o"]).arg(&hours);
    run_quietly(&mut command)?;
    let mut below = hours;
    while below.is_dir() {
        let mut entries = fs::read_dir(&below)
            .with_context(|| format!("cannot read {}", below.display()))?
            .filter_map(Result::ok);
        let entry = entries.next();
        below = entry.with_context(|| format!("nothing in {}", below.display()))?.path();
    }
    let file = dir.join("rollup.parquet");
    fs::copy(&below, &file).with_context(|| format!("cannot copy {}", below.display()))?;
    Ok(file)
}

fn tables_of(dataset: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(dataset).with_context(|| format!("cannot read {}", dataset.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|name| name == "parquet")).collect();
    files.sort();
    ensure!(!files.is_empty(), "no tables in {}", dataset.display());
    Ok(files)
}

fn has_no_deltas(file: &str) -> bool {
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| PLAIN_FILES.contains(&stem))
}

/// The output of `reader.py`.
fn ask_reader(venv: &Venv, function: &str, files: &[&Path]) -> Result<String> {
    let mut command = Command::new(venv.python_path()?);
    command.arg(workspace_root().join("tests/engines/reader.py")).arg(function).args(files);
    // What a reader says of its own future is not about this project.
    command.env("PYTHONWARNINGS", "ignore").stdin(Stdio::null());
    let output = command.output().context("cannot run Python")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{}\n{}", output.status, last_lines(error.trim(), 10));
    }
    String::from_utf8(output.stdout).context("the answer is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::screens::replace_between;

    /// The documents that name the versions.
    const DOCUMENTS: &[&str] = &["docs/tables.md", "python/README.md"];

    /// The table of the documents.
    fn versions() -> String {
        let mut names: Vec<&str> = READERS.iter().map(|reader| reader.name).collect();
        names.dedup();
        let row = |name: &&str| {
            let versions = READERS.iter().filter(|reader| reader.name == *name);
            let versions: Vec<&str> = versions.map(|reader| reader.version).collect();
            let [oldest, .., newest] = versions.as_slice() else {
                return format!("| {name} | {0} | {0} |\n", versions.concat());
            };
            format!("| {name} | {oldest} | {newest} |\n")
        };
        let rows: String = names.iter().map(row).collect();
        format!("| reader | oldest | newest |\n|---|---|---|\n{rows}")
    }

    /// `UPDATE_DOCS=1` writes them; look at the difference.
    #[test]
    fn documents_name_the_versions_that_are_tried() {
        for document in DOCUMENTS {
            let path = workspace_root().join(document);
            let text = fs::read_to_string(&path).unwrap();
            let renewed = replace_between(&text, "readers", &versions()).unwrap();
            if std::env::var_os("UPDATE_DOCS").is_some() {
                fs::write(&path, &renewed).unwrap();
            }
            let stale = "is stale: run UPDATE_DOCS=1 cargo test -p xtask documents_name";
            assert!(fs::read_to_string(&path).unwrap() == renewed, "{document} {stale}");
        }
    }

    #[test]
    fn newest_versions_are_those_of_the_environment_of_all_engines() {
        for reader in READERS.iter().filter(|reader| reader.venv.name == NEW.name) {
            let package = format!("{}=={}", reader.function, reader.version);
            assert!(NEW.packages.contains(&package.as_str()), "{package}");
        }
    }
}
