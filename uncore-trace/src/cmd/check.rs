//! `uncore-trace check`: verifies the invariants on a recording.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::heading::SPAN;
use super::host::HostArgs;
use super::output::print;
use crate::tables::reader::Recording;
use crate::terminal;
use crate::text::{printable, printable_path, wrapped};
use crate::view::check::{CheckFinding, CheckOutcome, verify_recording};
use crate::view::span::{TimePoint, wall_range};

/// Verify that a recording is intact and that its values add up
///
/// Prints a line for each check: `ok` with how much was checked, `FAILED` with the first place
/// where the check fails, or `-` with the reason why it is not possible (a single file has no raw
/// tables to compare with). The last line is the result.
///
/// For a roll-up, also names files in the wrong directory: files of another host or cluster, files
/// with windows outside of their hour, and files outside of the layout.
///
/// Exit code: 0 if all checks passed, 1 if a check failed, 2 if the recording cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace check run/
  uncore-trace check run.parquet && echo intact
  uncore-trace check /bucket --host 'node-00*' \\
    --from 2026-11-17T10:00:00Z --to 2026-11-17T12:00:00Z")]
pub struct Args {
    /// The recording: a .parquet file, or a directory that `record` wrote; or a roll-up: a file, or
    /// the directory of a host, an hour, a day or a cluster
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    #[command(flatten)]
    hosts: HostArgs,

    /// Only the hours of a roll-up with windows that end after this wall time, e.g.
    /// 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    from: Option<TimePoint>,

    /// Only the hours of a roll-up with windows that end at this wall time or earlier
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    to: Option<TimePoint>,
}

/// Prints the findings; exit code 0 or 1. An error means that the recording cannot be read: exit
/// code 2.
pub fn run(args: &Args) -> Result<u8> {
    let wall_span = wall_range(args.from.as_ref(), args.to.as_ref());
    let times = args.from.as_ref().or(args.to.as_ref());
    ensure!(
        times.is_none() || wall_span.is_some(),
        "--from and --to select hours of a roll-up: write times such as 2026-01-31T12:00:00Z"
    );
    let recording = Recording::open_for_check(&args.path, &args.hosts.rollup_selection(wall_span))?;
    ensure!(
        times.is_none() || recording.is_rollup(),
        "{} is not a roll-up, so it is checked as a whole: leave out --from and --to",
        printable_path(&args.path)
    );
    recording.require_finished()?;
    let findings = verify_recording(&recording)?;
    print(&render_findings(&findings, terminal::columns()))?;
    Ok(u8::from(findings.iter().any(is_failed)))
}

fn is_failed(finding: &CheckFinding) -> bool {
    matches!(finding.outcome, CheckOutcome::Failed(_))
}

/// A line for each finding, of at most `width` cells if there is a limit, and the verdict.
fn render_findings(findings: &[CheckFinding], width: Option<usize>) -> String {
    let names = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for CheckFinding { name, outcome } in findings {
        let (word, detail) = match outcome {
            CheckOutcome::Ok(detail) => ("ok", detail.clone()),
            CheckOutcome::Failed(detail) => ("FAILED", detail.clone()),
            CheckOutcome::NotVerifiable(reason) => ("-", format!("not verifiable: {reason}")),
        };
        let prefix = format!("{word:<6}  {name:<names$}  ");
        text.push_str(&wrapped(&prefix, &printable(&detail), width));
    }
    text.push('\n');
    text.push_str(&wrapped("", &format_verdict(findings), width));
    text
}

/// The verdict: how many facts hold, and which do not.
fn format_verdict(findings: &[CheckFinding]) -> String {
    let failed = findings.iter().filter(|finding| is_failed(finding));
    let failed: Vec<_> = failed.map(|finding| finding.name).collect();
    let is_verifiable =
        |finding: &&CheckFinding| !matches!(finding.outcome, CheckOutcome::NotVerifiable(_));
    let verified = findings.iter().filter(is_verifiable).count();
    let counts = format!("{verified} of {} facts verified", findings.len());
    match failed.as_slice() {
        [] => format!("{counts}, none failed"),
        failed => format!("{counts}, {} FAILED: {}", failed.len(), failed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_fact_and_the_last_is_the_verdict() {
        let finding = |name, outcome| CheckFinding { name, outcome };
        let mut findings = vec![
            finding("all tables are there", CheckOutcome::Ok("a single file".to_owned())),
            finding(
                "CPU time adds up",
                CheckOutcome::NotVerifiable("no \u{1b}[2J clock".to_owned()),
            ),
        ];
        let text = render_findings(&findings, None);
        assert!(text.ends_with("\n\n1 of 2 facts verified, none failed\n"), "{text}");
        let torn = "cycles on CPU 0, window ending at mono_ns 10: rows sum to 3, total is 4";
        findings.push(finding("shares sum to totals", CheckOutcome::Failed(torn.to_owned())));
        insta::assert_snapshot!(render_findings(&findings, Some(60)), @r"
        ok      all tables are there  a single file
        -       CPU time adds up      not verifiable: no \u{1b}[2J
                                      clock
        FAILED  shares sum to totals  cycles on CPU 0, window ending
                                      at mono_ns 10: rows sum to 3,
                                      total is 4

        2 of 3 facts verified, 1 FAILED: shares sum to totals
        ");
    }
}
