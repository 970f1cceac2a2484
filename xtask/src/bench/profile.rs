//! `cargo xtask bench profile`: the recorder's own CPU time, by stage.
//!
//! `perf record` samples the recorder on the CPU clock, with the stack of each sample. A sample
//! counts for the stage of the innermost function that belongs to one, so functions of libraries
//! count for the stage that calls them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Zoned;

use super::machine;
use super::running::{PythonLoad, RUN_AND_SLEEP, RecorderProcess, Running as _};
use crate::command::run_quietly;
use crate::{setup, target};

/// Time for a recorder to attach and complete its start.
const SETTLE: Duration = Duration::from_secs(4);
/// Samples per second: no common factor with the ticks.
const FREQUENCY: u32 = 499;
/// Bytes copied of each stack.
const STACK: &str = "dwarf,16384";

/// The loads that are recorded: name, number of processes, and their program.
const MACHINES: [(&str, usize, &str); 3] = [
    ("idle", 0, ""),
    ("12 processes run and sleep", 12, RUN_AND_SLEEP),
    ("10000 threads sleep for 1 s", 100, SLEEPERS),
];

/// A hundred threads that are almost idle.
const SLEEPERS: &str = "
import threading, time
def nap():
    while True:
        time.sleep(1)
for _ in range(100):
    threading.Thread(target=nap).start()";

/// Parts of function names of each stage; the first match is used.
const STAGES: [(&str, &[&str]); 10] = [
    ("tables: merge segments", &["encode::merge_files", "Partial::merge"]),
    ("tables: write segments", &["uncore_trace_recording::tables"]),
    ("rows: into columns", &["uncore_trace_recording::schema", "attribute::rows"]),
    ("attribute: learn", &["attribute::learner", "attribute::history", "attribute::solve"]),
    ("attribute: divide", &["uncore_trace::attribute"]),
    ("assemble: names and cgroups", &["uncore_trace::identity"]),
    ("assemble: time line", &["uncore_trace::assemble"]),
    ("drain: read and decode the ring", &["uncore_trace::drain"]),
    ("open: sessions", &["uncore_trace::open"]),
    ("record: the rest", &["uncore_trace::", "uncore_trace_recording::"]),
];

/// Stacks without a function of the recorder: threads that wake up and sleep.
const NONE: &str = "outside of it: wake-ups";

/// Options of `cargo xtask bench profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each profile; segments are first merged after 54 s
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Profile the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// Samples by stage.
type Profile = BTreeMap<&'static str, u64>;

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release_binary()?,
    };
    let python = setup::readers_python()?;
    let mut columns = Vec::new();
    for (name, count, script) in MACHINES {
        let _load = PythonLoad::start(count, &python, script)?;
        for method in ["residency", "auto"] {
            let profile = profile_recorder(&bin, method, args.seconds).context(name)?;
            eprintln!("{name}, {method}: {} samples", profile.values().sum::<u64>());
            columns.push((format!("{name}, `{method}`"), profile));
        }
    }
    println!("{}", stage_table(&columns, args.seconds));
    println!("\n{}, {}.", Zoned::now().strftime("%Y-%m-%d"), machine::describe_machine());
    Ok(())
}

fn profile_recorder(bin: &Path, method: &str, seconds: u64) -> Result<Profile> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let mut command = Command::new(bin);
    command.args(["record", "-q", "-p", "host", "--method", method, "-o", "run/"]);
    command.current_dir(&dir);
    let recorder = RecorderProcess::start(command, &dir.path().join("log"), SETTLE)?;
    let data = dir.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        &FREQUENCY.to_string(),
        "--call-graph",
        STACK,
    ]);
    perf.arg("-p").arg(recorder.process_id().to_string()).arg("-o").arg(&data);
    perf.args(["--", "sleep", &seconds.to_string()]);
    run_quietly(&mut perf)?;
    Box::new(recorder).stop()?;
    // Inlined functions would take addr2line minutes, and belong to the stage of their caller
    // anyway.
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"]).arg(&data);
    let profile = count_samples(&run_quietly(&mut script)?);
    ensure!(!profile.is_empty(), "perf has no sample of the recorder");
    Ok(profile)
}

/// Counts the samples in the output of `perf script`: for each sample a line with the name of the
/// thread, one line per function from innermost to outermost, and an empty line.
fn count_samples(text: &str) -> Profile {
    let mut profile = Profile::new();
    for sample in text.split("\n\n") {
        let functions: Vec<&str> = sample.lines().filter(|line| line.starts_with('\t')).collect();
        if functions.is_empty() {
            continue;
        }
        let stage = functions.iter().find_map(|function| find_stage(function)).unwrap_or(NONE);
        // Merging uses the functions that write a segment, so it is checked first.
        let is_merge = functions.iter().any(|function| is_in_stage(0, function));
        let stage = if is_merge { STAGES[0].0 } else { stage };
        *profile.entry(stage).or_default() += 1;
    }
    profile
}

fn find_stage(function: &str) -> Option<&'static str> {
    (0..STAGES.len()).find(|index| is_in_stage(*index, function)).map(|index| STAGES[index].0)
}

fn is_in_stage(index: usize, function: &str) -> bool {
    STAGES[index].1.iter().any(|name_part| function.contains(name_part))
}

/// A row for each stage: percent of the samples of each column.
fn stage_table(columns: &[(String, Profile)], seconds: u64) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut lines = vec![
        format!("| share of the samples, % | {} |", names.join(" | ")),
        format!("|---{}|", "|---".repeat(columns.len())),
    ];
    for stage in STAGES.map(|(stage, _)| stage).into_iter().chain([NONE]) {
        let cell = |(_, profile): &(String, Profile)| {
            let sample_count: u64 = profile.values().sum();
            let stage_count = profile.get(stage).copied().unwrap_or_default();
            format!("{:.0}", stage_count as f64 * 100.0 / sample_count as f64)
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        lines.push(format!("| {stage} | {} |", cells.join(" | ")));
    }
    let rate = |(_, profile): &(String, Profile)| {
        let sample_count: u64 = profile.values().sum();
        format!("{:.1}", sample_count as f64 * 100.0 / (f64::from(FREQUENCY) * seconds as f64))
    };
    let rates: Vec<String> = columns.iter().map(rate).collect();
    lines.push(format!("| all, % of one CPU | {} |", rates.join(" | ")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_the_innermost_stage() {
        let sample = |functions: &[&str]| {
            let lines: Vec<String> =
                functions.iter().map(|name| format!("\t   1f {name}\n")).collect();
            format!("tables \n{}\n", lines.concat())
        };
        let text = [
            sample(&[
                "intern",
                "uncore_trace_recording::tables::encode::write_rows",
                "start_thread",
            ]),
            sample(&[
                "uncore_trace_recording::tables::encode::concatenate_files",
                "uncore_trace_recording::tables::encode::merge_files",
            ]),
            sample(&[
                "memmove",
                "uncore_trace_recording::schema::fabric",
                "uncore_trace::attribute::x",
            ]),
            sample(&["futex_wait", "clone3"]),
        ];
        let counted = count_samples(&text.concat());
        let names =
            ["tables: write segments", "tables: merge segments", "rows: into columns", NONE];
        assert_eq!(counted, names.map(|name| (name, 1)).into());
    }
}
