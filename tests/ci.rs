//! Tests of `.ci/retry.sh`, which runs failed tests again, with a `cargo` that prints prepared
//! output.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use tempfile::TempDir;

use crate::command::script;

/// Prints `output-N` and exits with `code-N` in its Nth run; logs its arguments, one run per line.
const CARGO: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
for arg in "$@"; do printf '[%s]' "$arg" >> args; done
echo >> args
run=$(wc -l < args)
cat "output-$run"
exit "$(cat "code-$run")"
"#;

/// The log of a run of two test binaries, with the failures of each.
fn log(unit: &[&str], doc: &[&str]) -> String {
    let binary = |name: &str, failed: &[&str]| {
        let mut text = format!("     Running {name}\n\nrunning 5 tests\ntest good ... ok\n");
        for name in failed {
            writeln!(text, "test {name} ... FAILED").unwrap();
        }
        let (verdict, passed) = if failed.is_empty() { ("ok", 5) } else { ("FAILED", 1) };
        let failed = failed.len();
        text + &format!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored\n\n")
    };
    binary("unittests src/lib.rs", unit) + &binary("tests/main.rs", doc)
}

/// Runs `test_retry --locked` with a cargo that gives these results.
fn test_retry(runs: &[(&str, i32)]) -> (Output, Vec<String>) {
    test_retry_with_list(runs, "")
}

/// The day on which the script runs.
const TODAY: &str = "2028-03-01";

/// Says that it is [`TODAY`]; calculates with dates as date(1) does.
const DATE: &str = r#"#!/bin/sh
if [ "$*" = +%F ]; then echo TODAY; else exec /usr/bin/date "$@"; fi
"#;

/// The same with a list of tests that have failed once before.
fn test_retry_with_list(runs: &[(&str, i32)], list: &str) -> (Output, Vec<String>) {
    run_function("test_retry --locked", runs, list)
}

/// Runs a function of the script with a cargo that gives these results.
fn run_function(call: &str, runs: &[(&str, i32)], list: &str) -> (Output, Vec<String>) {
    let dir = TempDir::new().unwrap();
    let list_path = dir.path().join("twice.txt");
    fs::write(&list_path, list).unwrap();
    let cargo = dir.path().join("cargo");
    script(&cargo, CARGO);
    script(&dir.path().join("date"), &DATE.replace("TODAY", TODAY));
    for (run, (output, code)) in (1..).zip(runs) {
        fs::write(dir.path().join(format!("output-{run}")), output).unwrap();
        fs::write(dir.path().join(format!("code-{run}")), code.to_string()).unwrap();
    }
    let line = format!("set -euo pipefail; . .ci/retry.sh; {call}; again; echo reached");
    let path = env::join_paths([dir.path(), "/usr/bin".as_ref(), "/bin".as_ref()]).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut bash = Command::new("bash");
    bash.args(["-c", &line]).env("PATH", path).env("TWICE", list_path).current_dir(root);
    let output = bash.output().unwrap();
    let args = fs::read_to_string(dir.path().join("args")).unwrap();
    (output, args.lines().map(str::to_owned).collect())
}

const ALL: &str = "[test][--no-fail-fast][--locked]";

#[test]
fn tests_that_pass_run_once() {
    let (output, runs) = test_retry(&[(&log(&[], &[]), 0)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(runs, [ALL]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("failed once"));
}

#[test]
fn only_failed_tests_run_again() {
    let first = log(&["a::one", "b::two - should panic"], &["src/lib.rs - three (line 3)"]);
    let (output, runs) = test_retry(&[(&first, 101), (&log(&[], &[]), 0)]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let again = "[--][--exact][a::one][b::two][src/lib.rs - three (line 3)]";
    assert_eq!(runs, [ALL.to_owned(), format!("{ALL}{again}")]);
    // The log has both runs; the verdict and the repeated tests are at its end.
    assert!(text.starts_with(&first), "{text}");
    let twice = ["a::one", "b::two", "src/lib.rs - three (line 3)"];
    let (runs, report) = text.split_once("failed once and passed then: ").unwrap();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 2 * twice.len() + 1, "{text}");
    assert!(twice.iter().all(|name| report.contains(name)) && lines.last() == Some(&"reached"));
    assert!(runs.trim_end().lines().last().unwrap().starts_with("test result: ok. 5 passed"));
}

#[test]
fn a_test_that_fails_again_has_failed() {
    let first = log(&["a::one", "a::two"], &[]);
    let (output, runs) = test_retry(&[(&first, 101), (&log(&["a::two"], &[]), 101)]);
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    assert!(!String::from_utf8(output.stdout).unwrap().contains("reached"));
    assert_eq!(runs.len(), 2);
}

/// A crash prints no failure of its own; the failures of another binary must not hide it.
#[test]
fn a_crash_runs_everything_again() {
    let crashed = format!("{}     Running tests/x.rs\nrunning 1 test\n", log(&["a::one"], &[]));
    for first in [crashed.as_str(), "error: could not compile `x`\n"] {
        let (output, runs) = test_retry(&[(first, 101), (&log(&[], &[]), 0)]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(runs, [ALL, ALL]);
        let (output, _) = test_retry(&[(first, 101), (first, 101)]);
        assert_eq!(output.status.code(), Some(101), "{output:?}");
    }
}

/// The test harness succeeds if no test has the name.
#[test]
fn a_test_that_does_not_run_again_has_failed() {
    let none = "     Running tests/main.rs\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
    let (output, _) = test_retry(&[(&log(&["a::one"], &[]), 101), (none, 0)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_test_that_passes_again_for_the_second_week_fails_ci() {
    let first = log(&["a::one"], &[]);
    let runs = [(first.as_str(), 101), (&*log(&[], &[]), 0)];
    for (day, is_first_week) in [
        (TODAY, true),
        ("2028-02-29", true),
        // A leap year: the seventh day, and the eighth.
        ("2028-02-24", true),
        ("2028-02-23", false),
        ("2027-03-02", false),
    ] {
        let (output, _) = test_retry_with_list(&runs, &format!("{day} b::two\n{day} a::one\n"));
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.success(), is_first_week, "{day}: {stdout}{stderr}");
        assert_eq!(stdout.contains("reached"), is_first_week, "{day}: {stdout}");
        assert_eq!(stderr.contains(&format!("since {day}")), !is_first_week, "{stderr}");
        assert!(!stdout.contains("add this line"), "{stdout}");
    }
}

#[test]
fn a_test_that_is_not_on_the_list_is_to_be_added() {
    let first = log(&["a::one"], &[]);
    let runs = [(first.as_str(), 101), (&*log(&[], &[]), 0)];
    for list in ["", "2020-01-01 a::one_more\n"] {
        let (output, _) = test_retry_with_list(&runs, list);
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains(&format!("{TODAY} a::one\n")), "{stdout}");
    }
}

#[test]
fn only_scenarios_of_failed_steps_of_the_lab_run_again() {
    let passed = "lab: misses: 4 checks: ok\nlab: 1 passed, 0 failed\n";
    let first = "lab: exact-000-grace-scf: 16 checks: ok\n\
                 lab: seen-top: exit: it does not say '/large': FAILED\n\
                 lab: seen-top: 1 checks: FAILED\nlab: misses: 4 checks: FAILED\n\
                 lab: misses-noisy: 4 checks: FAILED\nlab: 41 passed, 3 failed\n";
    let (output, runs) = run_function("lab_retry grace-2s", &[(first, 1), (passed, 0)], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let whole = "[xtask][lab][grace-2s]";
    let again = format!("{whole}[--scenario=misses][--scenario=seen]");
    assert_eq!(runs, [whole, again.as_str()]);
    for step in ["seen-top", "misses", "misses-noisy"] {
        let line = format!("failed once and passed then: lab grace-2s {step}\n");
        assert!(text.contains(&line), "{text}");
    }
    let (output, _) = run_function("lab_retry grace-2s", &[(first, 1), (first, 1)], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_guest_of_the_lab_that_does_not_end_runs_whole_again() {
    let (output, runs) =
        run_function("lab_retry bare", &[("lab: it did not end\n", 1), ("lab: ok\n", 0)], "");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(runs, ["[xtask][lab][bare]"; 2]);
}
