//! `cargo xtask engines`: queries the tables of a recording with several query engines.
//!
//! Records for a second, as root, and asks each engine the questions of `tests/engines/engine.py`,
//! with the default options of its Parquet reader. Guarantee: it fails unless every engine opens
//! every column of every table, and all answers are equal, real numbers to within [`TOLERANCE`].
//! Old versions of readers are asked for sums only ([`crate::readers`]).
//!
//! Not tried: Trino, whose server is too heavy for a test.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use uncore_trace_ebpf::stamp::workspace_root;

use crate::apt::Apt;
use crate::command::version_of;
use crate::venv::Venv;
use crate::{readers, target};

/// Relative difference of sums that counts as rounding: engines add in different orders.
const TOLERANCE: f64 = 1e-9;

/// Rounding error of the difference of two equal numbers, relative to them.
const RESIDUE: f64 = 1e-14;

/// All engines except the older Spark, and what `fleet` needs: Iceberg with a file as catalog, and
/// time zones for the times of `DuckDB`.
pub(crate) const NEW: Venv = Venv {
    name: "venv-engines",
    packages: &[
        "chdb==4.4.0",
        "datafusion==55.0.0",
        "duckdb==2.0.0",
        "obstore==0.12.1",
        "pandas==3.1.1",
        "polars==2.1.0",
        "pyarrow==26.0.1",
        "pyiceberg==0.12.0",
        "pyspark==4.0.1",
        "pytz==2026.6",
        "sqlalchemy==2.1.9",
    ],
    modules: "chdb, datafusion, duckdb, obstore, pandas, polars, pyarrow, pyiceberg.catalog.sql, \
              pyspark, pytz",
};
/// The most widely used version of Spark. It needs none of the other packages.
const OLD: Venv =
    Venv { name: "venv-engines-old", packages: &["pyspark==3.5.7"], modules: "pyspark" };

/// Name, name in `engine.py`, environment. All are compared with the first.
const ENGINES: &[(&str, &str, &Venv)] = &[
    ("DuckDB", "duckdb", &NEW),
    ("ClickHouse", "chdb", &NEW),
    ("Polars", "polars", &NEW),
    ("pandas", "pandas", &NEW),
    ("Spark 4.0", "spark", &NEW),
    ("Spark 3.5", "spark", &OLD),
];

/// Spark needs Java; 17 is the newest version that both versions of Spark support.
const JAVA: &[&str] = &["openjdk-17-jre-headless"];

/// The answers of an engine: rows by question.
pub(crate) type Answers = BTreeMap<String, Vec<Vec<Value>>>;

/// Installs the engines, records and compares.
pub(crate) fn run() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "this task records: run it as root");
    install_engines(&[&NEW, &OLD])?;
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let run = dir.path().join("run/");
    let program = target::debug_binary()?;
    record_tables(&program, &run)?;
    readers::compare_readers(&program, &run)?;
    let tables = dir.path().join("tables.json");
    let listed = ask_engine(&NEW, &["schema".as_ref(), &run])?;
    fs::write(&tables, &listed).with_context(|| format!("cannot write {}", tables.display()))?;
    let mut reference: Option<(&str, Answers)> = None;
    for &(name, engine, venv) in ENGINES {
        let begin = Instant::now();
        let text = ask_engine(venv, &[engine.as_ref(), &run, &tables]).context(name)?;
        let answers: Answers = serde_json::from_str(&text)
            .with_context(|| format!("{name} gave an unexpected answer"))?;
        let took = begin.elapsed().as_secs_f64();
        match &reference {
            None => {
                require_something(&answers)?;
                reference = Some((name, answers));
            }
            Some((expected, wanted)) => compare_answers((expected, wanted), (name, &answers))?,
        }
        println!("engines: {name}: the same answers ({took:.1} s)");
    }
    Ok(())
}

/// Installs environments, and Java for Spark.
pub(crate) fn install_engines(venvs: &[&Venv]) -> Result<()> {
    let apt = Apt::new();
    if version_of(Command::new("java")).is_err() {
        println!("engines: installing {}", JAVA.join(" "));
        apt.install_packages(JAVA)?;
    }
    for venv in venvs {
        if let Err(error) = venv.installed_packages() {
            println!("engines: {}: installing ({error:#})", venv.name);
            venv.install_venv(&apt).with_context(|| format!("cannot install: {}", venv.name))?;
        }
        println!("engines: {}", venv.installed_packages()?);
    }
    Ok(())
}

/// A recording with all tables, with rows in each that a virtual machine can fill.
fn record_tables(program: &Path, run: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["record", "-p", "host", "--io", "--slices", "--cluster", "engines", "-o"]);
    command.arg(run).args([
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done; sleep 1",
    ]);
    let output = command.stderr(Stdio::piped()).output().context("cannot run the recorder")?;
    let text = String::from_utf8_lossy(&output.stderr);
    // A loaded machine may lose records; the tables are still valid.
    ensure!(matches!(output.status.code(), Some(0 | 1)), "the recording failed: {text}");
    println!("{}", text.trim());
    Ok(())
}

/// The output of `engine.py`.
fn ask_engine(venv: &Venv, args: &[&Path]) -> Result<String> {
    let script = workspace_root().join("tests/engines/engine.py");
    let output = Command::new(venv.python_path()?)
        .arg(script)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("cannot run Python")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{}\n{}", output.status, crate::command::last_lines(error.trim(), 30));
    }
    String::from_utf8(output.stdout).context("the answer is not UTF-8")
}

/// Fails if an answer is empty: equal empty answers prove nothing.
pub(crate) fn require_something(answers: &Answers) -> Result<()> {
    for (question, rows) in answers {
        ensure!(!rows.is_empty(), "{question}: no rows");
    }
    Ok(())
}

/// Fails unless two engines gave equal answers.
pub(crate) fn compare_answers(
    (name, wanted): (&str, &Answers),
    (other_name, answers): (&str, &Answers),
) -> Result<()> {
    ensure!(
        wanted.keys().eq(answers.keys()),
        "{name} and {other_name} answered different questions: {:?}, {:?}",
        wanted.keys(),
        answers.keys()
    );
    for (question, wanted) in wanted {
        let other_rows = answers.get(question).map(Vec::as_slice).unwrap_or_default();
        let is_equal = wanted.len() == other_rows.len()
            && wanted.iter().zip(other_rows).all(|(wanted, row)| is_same_row(wanted, row));
        if !is_equal {
            bail!(
                "{question}: {name} and {other_name} differ\n{}",
                differing_rows(wanted, other_rows, name, other_name)
            );
        }
    }
    Ok(())
}

/// The first rows that differ.
fn differing_rows(
    wanted: &[Vec<Value>],
    other_rows: &[Vec<Value>],
    name: &str,
    other_name: &str,
) -> String {
    let text = |row: Option<&Vec<Value>>| {
        row.map_or_else(|| "no row".to_owned(), |row| Value::from(row.clone()).to_string())
    };
    let rows = (0..wanted.len().max(other_rows.len()))
        .map(|index| (wanted.get(index), other_rows.get(index)));
    let differs = |(wanted_row, other_row): &(Option<&Vec<Value>>, Option<&Vec<Value>>)| match (
        wanted_row, other_row,
    ) {
        (Some(wanted_row), Some(other_row)) => !is_same_row(wanted_row, other_row),
        _ => true,
    };
    let shown = rows.filter(differs).take(3);
    let lines = shown.map(|(wanted_row, other_row)| {
        format!("{name}: {}\n{other_name}: {}", text(wanted_row), text(other_row))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_same_row(wanted: &[Value], other_cells: &[Value]) -> bool {
    let reals = wanted.iter().filter(|cell| cell.is_f64()).filter_map(Value::as_f64);
    let largest = reals.fold(0.0, |largest: f64, real| largest.max(real.abs()));
    wanted.len() == other_cells.len()
        && wanted
            .iter()
            .zip(other_cells)
            .all(|(wanted_cell, other_cell)| is_same(wanted_cell, other_cell, largest))
}

/// Whether two values are equal; `largest` is the largest real number of the row.
fn is_same(wanted: &Value, other_value: &Value, largest: f64) -> bool {
    if let (Some(wanted_int), Some(other_int)) = (wanted.as_i64(), other_value.as_i64()) {
        return wanted_int == other_int;
    }
    match (wanted.as_f64(), other_value.as_f64()) {
        (Some(wanted_real), Some(other_real)) => {
            is_near(wanted_real, other_real)
                || (wanted_real - other_real).abs() <= RESIDUE * largest
        }
        _ => wanted == other_value,
    }
}

/// Whether two sums are equal except for rounding.
pub(crate) fn is_near(first_sum: f64, second_sum: f64) -> bool {
    (first_sum - second_sum).abs() <= TOLERANCE * first_sum.abs().max(second_sum.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_the_same_to_rounding_and_nothing_else_is() {
        let is_same = |one, two| is_same_row(&[json!(1.0), one], &[json!(1.0), two]);
        assert!(is_same(json!(1e15), json!(1e15 + 1.0)));
        assert!(is_same(json!(3), json!(3.0)));
        assert!(is_same(json!(null), json!(null)));
        assert!(!is_same(json!(1_000_000_000_000_000_i64), json!(1_000_000_000_000_001_i64)));
        assert!(!is_same(json!(1.0), json!(1.000_001)));
        assert!(!is_same(json!(null), json!(0)));
        assert!(!is_same(json!("3"), json!(3)));
        // The rounding error of a difference of numbers as large as the others of the row.
        assert!(is_same(json!(0.0), json!(-4e-15)));
        assert!(!is_same(json!(0.0), json!(1e-12)));
    }

    #[test]
    fn a_difference_names_engines_question_and_answers() {
        let answers = |value: f64| {
            Answers::from([("sum".to_owned(), vec![vec![json!("mem"), json!(value)]])])
        };
        let error =
            compare_answers(("DuckDB", &answers(2.0)), ("Spark 3.5", &answers(3.0))).unwrap_err();
        let text = error.to_string();
        let wanted =
            "sum: DuckDB and Spark 3.5 differ\nDuckDB: [\"mem\",2.0]\nSpark 3.5: [\"mem\",3.0]";
        assert_eq!(text, wanted);
        let nothing = Answers::from([("sum".to_owned(), Vec::new())]);
        assert!(compare_answers(("DuckDB", &answers(2.0)), ("chdb", &nothing)).is_err());
        assert!(require_something(&nothing).is_err());
    }
}
