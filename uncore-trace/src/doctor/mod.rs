//! What recording needs from this machine: each requirement, its state, and how to fix it.
//!
//! A check is a function of the files under a root directory and of the [`Privileges`](crate::open::Privileges) of the process, so
//! it can be tested on made-up trees. One check, [`calls`], also opens counters and loads a program on the
//! running machine, since no file shows whether the kernel allows it; it closes them at once. No check
//! changes a setting or starts a counter, so `doctor` is safe on a production host. A check that cannot
//! find out says so, and never reads an unreadable file as a good or a bad answer.
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

pub use machine::Machine;

/// State of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The requirement is met.
    Ok,
    /// Recording works, but something is missing from it or is more expensive than necessary.
    Warn,
    /// Recording does not work until this is fixed.
    Fail,
    /// The requirement does not apply to this machine, or cannot be examined here.
    NotHere,
}

impl State {
    /// The word in the text output.
    pub fn word(self) -> &'static str {
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
    pub state: State,
    /// What was found, as one line that is safe to print.
    pub what: String,
    /// Commands that fix it, the preferred one first; each is enough on its own. If no command can,
    /// what to use instead.
    pub mend: Vec<String>,
}

impl Finding {
    fn new(name: &'static str, state: State, what: impl Into<String>) -> Self {
        Self { name, state, what: printable(&what.into()).into_owned(), mend: Vec::new() }
    }

    /// Adds a fix.
    fn mend(mut self, command: impl Into<String>) -> Self {
        self.mend.push(printable(&command.into()).into_owned());
        self
    }
}

/// Most checks return one finding; the one for PMU drivers returns one for each driver.
type Check = fn(&Machine) -> Vec<Finding>;

/// All checks, in the order of the output: the strict requirements first.
const CHECKS: &[Check] = &[
    kernel::check,
    btf::check,
    bpf::check,
    privileges::check,
    confinement::check,
    paranoid::check,
    lockdown::check,
    calls::check,
    tracefs::check,
    cgroups::check,
    pids::check,
    files::check,
    limits::check,
    output::check,
    sample_rate::check,
    pmus::check,
    drivers::check,
    resctrl::check,
];

/// Runs every check on the machine.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(machine)).collect()
}

/// The uncore PMUs that this kind of machine has but this one does not show, and why.
pub fn absent_pmus(machine: &Machine) -> Vec<Finding> {
    drivers::absent(machine)
}

/// Whether `record` works: no requirement has failed.
pub fn ready(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Fail)
}

#[cfg(test)]
mod tests {
    use super::machine::fake;
    use super::*;

    #[test]
    fn an_empty_machine_is_not_ready_and_every_check_answers() {
        let dir = fake(&[]);
        let findings = examine(&Machine::at(dir.path()));
        assert!(findings.len() >= CHECKS.len());
        assert!(!ready(&findings));
        assert!(findings.iter().all(|f| !f.what.contains('\n')), "{findings:?}");
    }

    #[test]
    fn readiness_forgives_warnings_only() {
        let with = |state| vec![Finding::new("a", State::Ok, ""), Finding::new("b", state, "")];
        assert!(ready(&with(State::Warn)));
        assert!(ready(&with(State::NotHere)));
        assert!(!ready(&with(State::Fail)));
    }

    #[test]
    fn hostile_text_stays_on_one_line_and_cannot_steer_a_terminal() {
        let finding = Finding::new("x", State::Ok, "a\nb\u{1b}[31mé").mend("rm\r\0");
        assert_eq!(finding.what, "a\\nb\\u{1b}[31mé");
        assert_eq!(finding.mend, ["rm\\r\\u{0}"]);
    }
}
