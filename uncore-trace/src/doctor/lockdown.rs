//! Kernel lockdown.
//!
//! `integrity` does not affect tracing; `confidentiality` denies BPF programs to read kernel
//! memory, and closes tracefs (`include/linux/security.h`: `LOCKDOWN_BPF_READ_KERNEL` and
//! `LOCKDOWN_TRACEFS` are above `LOCKDOWN_INTEGRITY_MAX`).

use std::io::ErrorKind;

use super::{Finding, Machine, State};

const NAME: &str = "lockdown";
const PATH: &str = "sys/kernel/security/lockdown";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let finding = match machine.text(PATH) {
        Ok(text) => match level(&text) {
            Some("confidentiality") => {
                let what = "confidentiality: BPF programs cannot read the kernel's memory";
                Finding::new(NAME, State::Fail, what)
                    .mend("boot with lockdown=integrity on the kernel command line")
            }
            Some(level) => {
                Finding::new(NAME, State::Ok, format!("{level}: does not limit tracing"))
            }
            None => Finding::new(NAME, State::Warn, format!("/{PATH} names no level: {text:?}")),
        },
        // An unmounted securityfs is an empty directory, so a missing file does not mean that there
        // is no lockdown.
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::new(
            NAME,
            State::NotHere,
            format!("no /{PATH}: not in this kernel, or securityfs is not mounted"),
        ),
        Err(error) => Finding::new(NAME, State::NotHere, format!("cannot read /{PATH}: {error}")),
    };
    vec![finding]
}

/// The chosen level in `none [integrity] confidentiality`.
fn level(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    let (level, _) = rest.split_once(']')?;
    Some(level)
}

#[cfg(test)]
mod tests {
    use super::super::machine::finding;
    use super::*;

    fn state(text: &str) -> State {
        finding(check, &[(PATH, text)]).state
    }

    #[test]
    fn only_confidentiality_stops_a_recording() {
        assert_eq!(state("[none] integrity confidentiality\n"), State::Ok);
        assert_eq!(state("none [integrity] confidentiality\n"), State::Ok);
        assert_eq!(state("none integrity [confidentiality]\n"), State::Fail);
    }

    #[test]
    fn absent_and_strange() {
        assert_eq!(finding(check, &[]).state, State::NotHere);
        assert_eq!(state("]["), State::Warn);
    }
}
