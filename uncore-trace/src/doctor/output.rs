//! Whether a recording can be written where `record` writes without `-o`: to the working directory.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::{Finding, Machine, State};

const NAME: &str = "output";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    if machine.root() != Path::new("/") {
        let what = "what can be written is known only on the running machine";
        return vec![Finding::new(NAME, State::NotHere, what)];
    }
    vec![writable(Path::new("."))]
}

fn writable(dir: &Path) -> Finding {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    match accessat(CWD, dir, access, AtFlags::EACCESS) {
        Ok(()) => Finding::new(NAME, State::Ok, "the working directory can be written"),
        Err(error) => {
            let error = std::io::Error::from(error);
            let what = format!("record cannot write to the working directory: {error}");
            Finding::new(NAME, State::Warn, what)
                .mend("change to another directory, or name a file in one with record -o")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_said() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(writable(dir.path()).state, State::Ok);
        let absent = writable(&dir.path().join("absent"));
        assert_eq!(absent.state, State::Warn);
        assert!(absent.mend[0].contains("record -o"), "{absent:?}");
        assert_eq!(super::super::machine::finding(check, &[]).state, State::NotHere);
    }
}
