//! Kernel lockdown.
//!
//! `integrity` does not affect tracing; `confidentiality` denies BPF programs to read kernel
//! memory, and closes tracefs (`include/linux/security.h`: `LOCKDOWN_BPF_READ_KERNEL` and
//! `LOCKDOWN_TRACEFS` are above `LOCKDOWN_INTEGRITY_MAX`).

use std::io::ErrorKind;

use super::{ExaminedMachine, Finding};

const NAME: &str = "lockdown";
const PATH: &str = "sys/kernel/security/lockdown";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    match machine.read_text(PATH) {
        Ok(text) => match chosen_level(&text) {
            Some("confidentiality") => {
                let message = "confidentiality: BPF programs cannot read the kernel's memory";
                Finding::failure(NAME, message)
                    .with_fix("boot with lockdown=integrity on the kernel command line")
            }
            Some(level) => Finding::ok(NAME, format!("{level}: does not limit tracing")),
            None => Finding::warning(NAME, format!("/{PATH} names no level: {text:?}")),
        },
        // An unmounted securityfs is an empty directory, so a missing file does not mean that there
        // is no lockdown.
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::not_here(
            NAME,
            format!("no /{PATH}: not in this kernel, or securityfs is not mounted"),
        ),
        Err(error) => Finding::not_here(NAME, format!("cannot read /{PATH}: {error}")),
    }
}

/// The chosen level in `none [integrity] confidentiality`.
fn chosen_level(text: &str) -> Option<&str> {
    let (_, tail) = text.split_once('[')?;
    let (level, _) = tail.split_once(']')?;
    Some(level)
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    fn state(text: &str) -> FindingState {
        single_finding(check, &[(PATH, text)]).state
    }

    #[test]
    fn only_confidentiality_stops_a_recording() {
        assert_eq!(state("[none] integrity confidentiality\n"), FindingState::Ok);
        assert_eq!(state("none [integrity] confidentiality\n"), FindingState::Ok);
        assert_eq!(state("none integrity [confidentiality]\n"), FindingState::Fail);
    }

    #[test]
    fn an_absent_lockdown_is_not_here_and_a_malformed_one_is_a_warning() {
        assert_eq!(single_finding(check, &[]).state, FindingState::NotHere);
        assert_eq!(state("]["), FindingState::Warn);
    }
}
