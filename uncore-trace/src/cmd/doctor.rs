//! `uncore-trace doctor`: each requirement, its state, and the command that fixes it.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context as _, Result, ensure};

use super::catalog::CatalogArgs;
use super::heading::PRINT;
use super::list::summary;
use super::root::RootArg;
use crate::doctor::{self, ExaminedMachine, Finding, FindingState};
use crate::text::{printable, wrapped};
use crate::view::json_lines::json_object;
use crate::{open, terminal};

mod verifier;

/// Check what recording needs on this machine, and say how to fix it
///
/// The first lines say what can be counted here. The lines below a finding are ways to fix it; one
/// of them is enough.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace doctor
  uncore-trace doctor --json | jq .ready
  sudo uncore-trace doctor --verifier

Exit code: 0 if record works here, 2 if something that it needs is missing.")]
pub struct Args {
    /// Print the findings as JSON
    #[arg(long, help_heading = PRINT)]
    pub json: bool,

    /// Let the kernel verify each BPF program, instead of printing the findings
    ///
    /// Prints how many instructions and states the verifier of the running kernel examined, or why
    /// it refuses the program. Needs the privileges of `record`. Nothing is attached.
    #[arg(long, help_heading = PRINT)]
    pub verifier: bool,

    #[command(flatten)]
    root: RootArg,
}

/// Examines the machine under `root` and prints the findings. Exit code 0 if `record` works, 2 if
/// something that it needs is missing.
pub fn run(args: &Args) -> Result<u8> {
    if args.verifier {
        ensure!(args.root.is_here(), "--verifier uses the running kernel: leave out --root");
        let (text, code) = verifier::verifier_report(&open::verify_programs()?, args.json)?;
        print_findings(&text)?;
        return Ok(code);
    }
    let machine = ExaminedMachine::at_root(args.root.root_dir());
    let findings = doctor::run_checks(&machine);
    let ready = doctor::is_ready(&findings);
    let text = if args.json {
        let report = json_object! { ready: ready, findings: &findings };
        serde_json::to_string_pretty(&report).context("cannot write the findings as JSON")? + "\n"
    } else {
        let width = terminal::columns();
        format!("{}\n{}", countable_summary(&machine, width), render_findings(&findings, width))
    };
    print_findings(&text)?;
    Ok(if ready { 0 } else { 2 })
}

fn print_findings(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed the pipe; the exit code still says the result.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the findings to standard output"),
    }
}

/// What can be counted on the machine, or why that is not known.
fn countable_summary(examined: &ExaminedMachine, width: Option<usize>) -> String {
    // With the user's families, as `record` counts.
    let catalog = || CatalogArgs::default().load_catalog().map_err(|error| format!("{error:#}"));
    let known = examined.known_machine().map_err(str::to_owned);
    let known = known.and_then(|known| Ok((&known.machine, catalog()?)));
    match known {
        Ok((machine, catalog)) => summary::summary_text(machine, &catalog, width),
        Err(error) => {
            let line = format!("cannot list what can be counted here: {error}");
            wrapped("", &printable(&line), width)
        }
    }
}

/// A paragraph for each finding, with the ways to fix it below, and the verdict last.
fn render_findings(findings: &[Finding], columns: Option<usize>) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { name, state, what: message, mend } in findings {
        let prefix = format!("{:<4}  {name:<width$}  ", state.output_word());
        text.push_str(&wrapped(&prefix, message, columns));
        for (index, mend) in mend.iter().enumerate() {
            // A command is never broken into lines, so that it can be copied. Writing to a String
            // cannot fail.
            let label = match (state, index) {
                (FindingState::Ok, _) => " run",
                (_, 0) => " fix",
                _ => "  or",
            };
            let _ok = writeln!(text, "      {label}: {mend}");
        }
    }
    let mut failed: Vec<_> =
        findings.iter().filter(|f| f.state == FindingState::Fail).map(|f| f.name).collect();
    failed.dedup();
    let verdict = match failed.as_slice() {
        [] => "record works here".to_owned(),
        names => format!("record cannot work here: fix {} first", names.join(", ")),
    };
    let _ok = writeln!(text, "\n{verdict}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &'static str, state: FindingState, mend: &[&str]) -> Finding {
        let mend = mend.iter().map(|&mend| mend.to_owned()).collect();
        Finding { name, state, what: "as it is".to_owned(), mend }
    }

    #[test]
    fn lines_are_aligned_and_the_verdict_names_what_failed() {
        let findings = [
            finding("BTF", FindingState::Ok, &[]),
            finding("privileges", FindingState::Fail, &["sudo this", "sudo that"]),
        ];
        assert_eq!(
            render_findings(&findings, None),
            "ok    BTF         as it is\n\
             FAIL  privileges  as it is\n\
             \u{20}      fix: sudo this\n\
             \u{20}       or: sudo that\n\n\
             record cannot work here: fix privileges first\n"
        );
        assert!(render_findings(&findings[..1], None).ends_with("\nrecord works here\n"));
    }

    #[test]
    fn an_empty_root_is_exit_code_2() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args { json: true, verifier: false, root: RootArg::for_dir(dir.path()) };
        assert_eq!(run(&args).unwrap(), 2);
    }
}
