//! Whether a recording can be written where `record` writes without `-o`: to the working directory.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::{ExaminedMachine, Finding, FindingState};

const NAME: &str = "output";

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    if machine.root_dir() != Path::new("/") {
        let message = "what can be written is known only on the running machine";
        return vec![Finding::new(NAME, FindingState::NotHere, message)];
    }
    vec![check_writable(Path::new("."))]
}

fn check_writable(dir: &Path) -> Finding {
    match accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Finding::new(NAME, FindingState::Ok, "the working directory can be written"),
        Err(error) => {
            let error = std::io::Error::from(error);
            let message = format!("record cannot write to the working directory: {error}");
            Finding::new(NAME, FindingState::Warn, message)
                .with_fix("change to another directory, or name a file in one with record -o")
        }
    }
}

#[cfg(test)]
mod tests {
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
