//! Whether a recording can be written where `record` writes without `-o`: to the working directory.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::{ExaminedMachine, Finding};

const NAME: &str = "output";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    if !machine.is_running() {
        return Finding::not_here(NAME, "what can be written is known only on the running machine");
    }
    check_writable(Path::new("."))
}

fn check_writable(dir: &Path) -> Finding {
    match accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Finding::ok(NAME, "the working directory can be written"),
        Err(error) => {
            let error = std::io::Error::from(error);
            Finding::warning(NAME, format!("record cannot write to the working directory: {error}"))
                .with_fix("change to another directory, or name a file in one with record -o")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check_writable(dir.path()).state, FindingState::Ok);
        let absent = check_writable(&dir.path().join("absent"));
        assert_eq!(absent.state, FindingState::Warn);
        assert!(absent.mend[0].contains("record -o"), "{absent:?}");
        assert_eq!(super::super::machine::single_finding(check, &[]).state, FindingState::NotHere);
    }
}
