//! `cargo xtask test --quick`: the tests that need nothing but this checkout.
//!
//! These are the unit tests of all crates, and the modules of `tests/` whose source has none of the
//! words in [`NEEDS`]. A unit test that needs root lists itself as skipped, as in `tests/skip.rs`.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::run_checked;
use crate::target::cargo_command;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out tests that need root, the programs of `cargo xtask setup`, or minutes
    #[arg(long)]
    quick: bool,
}

/// What a module of `tests/` may need, and the words of its source that say so.
const NEEDS: [(&str, &[&str]); 3] = [
    ("root", &["has_root(", "or_skip!"]),
    (
        "what `cargo xtask setup` installs",
        &["python(", "python}", "harness::made", "need(", "promtool"],
    ),
    (
        "captured machines or much memory, which take minutes",
        &["machines::", "fn captured(", ".machine(", "bench::", "gigabyte"],
    ),
];

/// Unit tests whose names have these words take minutes without optimization.
const SLOW: [&str; 1] = ["simulation::"];

/// A module of `tests/`.
struct TestModule {
    name: String,
    tests: usize,
    /// What it needs, an index of [`NEEDS`].
    need: Option<usize>,
}

/// Runs the quick tests, and says what was left out.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.quick, "say --quick: `cargo test` of CONTRIBUTING.md runs all tests");
    let modules = read_modules(&workspace_root().join("tests"))?;
    let slow = SLOW.iter().flat_map(|word| ["--skip", word]);
    run_checked(test_command().args(["--lib", "--bins", "--"]).args(slow))?;
    let filters = modules.iter().filter(|module| module.need.is_none());
    let filters = filters.map(|module| format!("{}::", module.name));
    run_checked(test_command().args(["--test", "tests", "--"]).args(filters))?;
    for (index, (need, _)) in NEEDS.iter().enumerate() {
        let left_out = modules.iter().filter(|module| module.need == Some(index));
        let tests: usize = left_out.map(|module| module.tests).sum();
        println!("left out: {tests} tests in modules that need {need}");
    }
    println!("left out: unit tests with {} in their names: they take minutes", SLOW.join(", "));
    println!("left out: the tests of tests/uploads, which need what `cargo xtask setup` installs");
    Ok(())
}

/// The same packages as in CI, so that nothing is built twice.
fn test_command() -> Command {
    let mut cargo = cargo_command();
    cargo.args(["test", "--locked", "--workspace", "--exclude", "uncore-trace-ebpf"]);
    cargo.args(["--exclude", "uncore-trace-fuzz"]).env_remove("UNCORE_TRACE_REQUIRE_ROOT");
    cargo
}

/// The modules that `tests/main.rs` lists.
fn read_modules(tests: &Path) -> Result<Vec<TestModule>> {
    let list = read_source(&tests.join("main.rs"))?;
    let names = list.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let read_module = |name: &str| -> Result<TestModule> {
        let mut source = read_source(&tests.join(name).with_extension("rs"))?;
        for entry in fs::read_dir(tests.join(name)).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                source.push_str(&read_source(&entry.path())?);
            }
        }
        let has_any = |words: &[&str]| words.iter().any(|word| source.contains(word));
        Ok(TestModule {
            name: name.to_owned(),
            tests: source.matches("#[test]").count(),
            need: NEEDS.iter().position(|(_, words)| has_any(words)),
        })
    };
    names.map(read_module).collect()
}

fn read_source(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_left_out_for_what_its_source_names() {
        let modules = read_modules(&workspace_root().join("tests")).unwrap();
        let need_of = |name: &str| modules.iter().find(|module| module.name == name).unwrap().need;
        assert_eq!(need_of("structure"), None);
        assert_eq!(need_of("docs"), None);
        assert_eq!(need_of("agent"), Some(0));
        assert_eq!(need_of("analysis"), Some(1));
        assert_eq!(need_of("reports"), Some(0));
        assert_eq!(need_of("plans"), Some(2));
        let quick = modules.iter().filter(|module| module.need.is_none());
        assert!(quick.map(|module| module.tests).sum::<usize>() > 50);
        // A word that no module has would leave out nothing.
        for (index, (need, _)) in NEEDS.iter().enumerate() {
            assert!(modules.iter().any(|module| module.need == Some(index)), "{need}");
        }
    }
}
