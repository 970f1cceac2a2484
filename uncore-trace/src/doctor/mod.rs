//! What recording needs from this machine: each requirement, its state, and what mends it.
//!
//! A check is a pure function of what is read under a root directory and of the [`Privileges`] of
//! the process: nothing is opened, loaded or changed, so `doctor` is safe on a production host and
//! its answers can be tested on made-up trees. A check that cannot tell says so; it never takes a
//! file it could not read for a good or a bad answer.
//!
//! Adding a check adds a file with a `check` function, its `mod` line and its line in [`CHECKS`].

use serde::Serialize;

use crate::text::printable;

mod bpf;
mod btf;
mod cgroups;
mod confinement;
mod drivers;
mod files;
mod kconfig;
mod kernel;
mod lockdown;
mod machine;
mod paranoid;
mod pids;
mod platforms;
mod pmus;
mod privileges;
mod program;
mod sample_rate;
mod tracefs;

pub use machine::Machine;
pub use privileges::Privileges;

/// What a check has to say about one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The requirement is met.
    Ok,
    /// Recording works, but something is missing from it or costs more than it should.
    Warn,
    /// Recording cannot work until this is mended.
    Fail,
    /// The question does not arise on this machine, or its answer cannot be read here.
    NotHere,
}

impl State {
    /// The word the text output prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::NotHere => "-",
        }
    }
}

/// The answer of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The requirement, in one or two words.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found, on one line that cannot steer a terminal.
    pub what: String,
    /// The exact commands that mend it, any one of which is enough, the one to prefer first; where no
    /// command can, what to use instead.
    pub mend: Vec<String>,
}

impl Finding {
    fn new(name: &'static str, state: State, what: impl Into<String>) -> Self {
        Self { name, state, what: printable(&what.into()).into_owned(), mend: Vec::new() }
    }

    /// Adds a way out that is enough on its own.
    fn mend(mut self, command: impl Into<String>) -> Self {
        self.mend.push(printable(&command.into()).into_owned());
        self
    }
}

/// One requirement: most give a single finding, the PMU drivers one for each driver.
type Check = fn(&Machine) -> Vec<Finding>;

/// Every requirement, in the order of the output: first what recording cannot do without.
const CHECKS: &[Check] = &[
    kernel::check,
    btf::check,
    bpf::check,
    privileges::check,
    confinement::check,
    paranoid::check,
    lockdown::check,
    tracefs::check,
    cgroups::check,
    pids::check,
    files::check,
    sample_rate::check,
    pmus::check,
    drivers::check,
];

/// Runs every check on the machine.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(machine)).collect()
}

/// Which uncore PMUs this kind of machine has and this one does not show, and why.
pub fn absent_pmus(machine: &Machine) -> Vec<Finding> {
    drivers::absent(machine)
}

/// Whether `record` can work: nothing that it needs has failed.
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
