//! What recording needs from this machine: each requirement, its state, and how to fix it.
//!
//! A check is a function of the files under a root directory and of the
//! [`Privileges`](crate::open::Privileges) of the process, so it can be tested on made-up trees.
//! One check, [`calls`], also opens counters and loads a program on the running machine, since no
//! file shows whether the kernel allows it; it closes them at once. No check changes a setting or
//! starts a counter, so `doctor` is safe on a production host. A check that cannot find out says
//! so, and never reads an unreadable file as a good or a bad answer.
//!
//! To add a check, add a file with a function `check`, its `mod` line and its line in [`CHECKS`].

use serde::Serialize;

use crate::text::printable;

mod bpf;
mod btf;
mod calls;
mod cgroups;
mod confinement;
mod drivers;
mod files;
mod kconfig;
mod kernel;
mod limits;
mod lockdown;
mod machine;
mod output;
mod paranoid;
mod pids;
mod platforms;
mod pmus;
mod privileges;
mod program;
mod resctrl;
mod sample_rate;
mod tracefs;

pub use drivers::absent_drivers;
pub use machine::ExaminedMachine;

/// State of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingState {
    /// The requirement is met.
    Ok,
    /// Recording works, but something is missing from it or is more expensive than necessary.
    Warn,
    /// Recording does not work until this is fixed.
    Fail,
    /// The requirement does not apply to this machine, or cannot be examined here.
    NotHere,
}

impl FindingState {
    /// The word in the text output.
    pub fn output_word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::NotHere => "-",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The requirement, in one or two words.
    pub name: &'static str,
    /// Its state.
    pub state: FindingState,
    /// What was found, as one line that is safe to print.
    pub what: String,
    /// Commands that fix it, the preferred one first; each is enough on its own. If no command can,
    /// what to use instead.
    pub mend: Vec<String>,
}

impl Finding {
    fn new(name: &'static str, state: FindingState, message: impl Into<String>) -> Self {
        Self { name, state, what: printable(&message.into()).into_owned(), mend: Vec::new() }
    }

    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, FindingState::Ok, message)
    }

    fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, FindingState::Warn, message)
    }

    fn failure(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, FindingState::Fail, message)
    }

    fn not_here(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, FindingState::NotHere, message)
    }

    /// Adds a fix.
    fn with_fix(mut self, command: impl Into<String>) -> Self {
        self.mend.push(printable(&command.into()).into_owned());
        self
    }
}

/// A check, by the number of its findings.
enum DoctorCheck {
    Single(fn(&ExaminedMachine) -> Finding),
    Several(fn(&ExaminedMachine) -> Vec<Finding>),
}

use DoctorCheck::{Several, Single};

/// All checks, in the order of the output: the strict requirements first.
const CHECKS: &[DoctorCheck] = &[
    Single(kernel::check),
    Single(btf::check),
    Single(bpf::check),
    Single(privileges::check),
    Single(confinement::check),
    Single(paranoid::check),
    Single(lockdown::check),
    Several(calls::check),
    Single(tracefs::check),
    Single(cgroups::check),
    Single(pids::check),
    Several(files::check),
    Several(limits::check),
    Single(output::check),
    Single(sample_rate::check),
    Several(pmus::check),
    Several(drivers::check),
    Single(resctrl::check),
];

/// Runs every check on the machine.
pub fn run_checks(machine: &ExaminedMachine) -> Vec<Finding> {
    let findings = CHECKS.iter().flat_map(|check| match check {
        Single(check) => vec![check(machine)],
        Several(check) => check(machine),
    });
    findings.collect()
}

/// Whether `record` works: no requirement has failed.
pub fn is_ready(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != FindingState::Fail)
}

#[cfg(test)]
mod tests {
    use super::machine::fake_tree;
    use super::*;

    #[test]
    fn an_empty_machine_is_not_ready_and_every_check_answers() {
        let dir = fake_tree(&[]);
        let findings = run_checks(&ExaminedMachine::at_root(dir.path()));
        assert!(findings.len() >= CHECKS.len());
        assert!(!is_ready(&findings));
        assert!(findings.iter().all(|f| !f.what.contains('\n')), "{findings:?}");
    }

    #[test]
    fn readiness_forgives_warnings_only() {
        let with =
            |state| vec![Finding::new("a", FindingState::Ok, ""), Finding::new("b", state, "")];
        assert!(is_ready(&with(FindingState::Warn)));
        assert!(is_ready(&with(FindingState::NotHere)));
        assert!(!is_ready(&with(FindingState::Fail)));
    }

    #[test]
    fn hostile_text_stays_on_one_line_and_cannot_steer_a_terminal() {
        let finding = Finding::new("x", FindingState::Ok, "a\nb\u{1b}[31mé").with_fix("rm\r\0");
        assert_eq!(finding.what, "a\\nb\\u{1b}[31mé");
        assert_eq!(finding.mend, ["rm\\r\\u{0}"]);
    }
}
