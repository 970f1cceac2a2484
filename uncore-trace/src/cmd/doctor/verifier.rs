//! `uncore-trace doctor --verifier`: the result of the kernel's verifier for each BPF program.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use rustix::system::uname;
use serde::Serialize;

use crate::open::{MOST_INSTRUCTIONS, VerifiedProgram, VerifierEffort};
use crate::text::printable;
use crate::view::json_lines::json_object;

/// The output for these programs, and the exit code: 2 if one is refused.
pub(super) fn verifier_report(programs: &[VerifiedProgram], json: bool) -> Result<(String, u8)> {
    let kernel = uname();
    let release = kernel.release().to_string_lossy().into_owned();
    let code = if programs.iter().any(|verified| verified.effort.is_err()) { 2 } else { 0 };
    if !json {
        return Ok((verifier_table(programs, &release), code));
    }
    let report = json_object! {
        kernel: release,
        arch: kernel.machine().to_string_lossy(),
        limit: MOST_INSTRUCTIONS,
        programs: programs.iter().map(program_object).collect::<Vec<_>>(),
    };
    let text = serde_json::to_string_pretty(&report).context("cannot write the figures as JSON")?;
    Ok((text + "\n", code))
}

/// The object of a program; the counts are null if it is refused.
fn program_object(verified: &VerifiedProgram) -> impl Serialize {
    let effort = verified.effort.as_ref().ok();
    json_object! {
        program: &verified.program,
        instructions: effort.map(|figures| figures.instructions),
        states: effort.map(|figures| figures.states),
        peak_states: effort.map(|figures| figures.peak_states),
        refused: verified.effort.as_ref().err().map(String::as_str),
    }
}

fn verifier_table(programs: &[VerifiedProgram], release: &str) -> String {
    let width =
        programs.iter().map(|verified| verified.program.len()).max().unwrap_or_default().max(7);
    let mut table = format!("{:<width$}  instructions  states  peak states\n", "program");
    for VerifiedProgram { program, effort } in programs {
        // Writing to a String cannot fail.
        let _ok = match effort {
            Ok(VerifierEffort { instructions, states, peak_states }) => {
                writeln!(
                    table,
                    "{program:<width$}  {instructions:>12}  {states:>6}  {peak_states:>11}"
                )
            }
            Err(reason) => writeln!(table, "{program:<width$}  refused: {}", printable(reason)),
        };
    }
    let verdict = match programs.iter().filter(|verified| verified.effort.is_err()).count() {
        0 => "accepts all programs".to_owned(),
        count => format!("refuses {count} of {} programs", programs.len()),
    };
    let release = printable(release);
    let _ok = writeln!(
        table,
        "\nthe verifier of Linux {release} {verdict}; it gives up at {MOST_INSTRUCTIONS} \
         instructions"
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(program: &str, effort: Result<u32, &str>) -> VerifiedProgram {
        let effort = effort
            .map(|instructions| VerifierEffort { instructions, states: 12, peak_states: 3 })
            .map_err(str::to_owned);
        VerifiedProgram { program: program.to_owned(), effort }
    }

    #[test]
    fn figures_are_aligned_and_a_refused_program_is_named() {
        let programs =
            [verified("arm", Ok(123)), verified("irq_handler_entry", Err("Invalid\nargument"))];
        assert_eq!(
            verifier_table(&programs, "7.2.1"),
            "program            instructions  states  peak states\narm                         \
             123      12            3\nirq_handler_entry  refused: Invalid\\nargument\n\nthe \
             verifier of Linux 7.2.1 refuses 1 of 2 programs; it gives up at 1000000 \
             instructions\n"
        );
        assert!(verifier_table(&programs[..1], "7.2.1").contains("accepts all programs"));
    }

    #[test]
    fn a_refused_program_is_exit_code_2() {
        let programs = [verified("arm", Ok(123)), verified("probe", Err("no"))];
        let (text, code) = verifier_report(&programs, true).unwrap();
        assert_eq!(code, 2);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["programs"][0]["peak_states"], 3);
        assert_eq!(json["programs"][1]["refused"], "no");
        assert_eq!(verifier_report(&programs[..1], true).unwrap().1, 0);
    }
}
