//! Whether `/proc` shows the processes that the kernel's records name.
//!
//! BPF programs and tracepoints identify tasks by their pids in the initial PID namespace. In
//! another namespace, as in a container, the same pids belong to other processes or to none.

use super::{Finding, Machine, State};

const NAME: &str = "PID namespace";
const LINK: &str = "proc/self/ns/pid";
/// The initial namespace: `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`, Linux 6.12 and 7.2.
const INITIAL: &str = "pid:[4026531836]";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let finding = match machine.link(LINK) {
        None => Finding::new(NAME, State::NotHere, format!("/{LINK} cannot be read")),
        Some(own) if own == INITIAL => Finding::new(NAME, State::Ok, "the initial one"),
        Some(own) => {
            let what = format!(
                "{own} is not the initial one: a program that ran before the recording began has no \
                 name or that of another process, and time of one that runs long without a context \
                 switch may be missing"
            );
            Finding::new(NAME, State::Warn, what)
                .mend("start the container with --pid host (Kubernetes: hostPID: true)")
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::machine::fake;
    use super::*;

    fn with(link: &str) -> Finding {
        let dir = fake(&[]);
        fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        symlink(link, dir.path().join(LINK)).unwrap();
        check(&Machine::at(dir.path())).remove(0)
    }

    #[test]
    fn numbers_of_another_namespace_are_not_those_of_the_kernel() {
        assert_eq!(with(INITIAL).state, State::Ok);
        let other = with("pid:[4026532871]");
        assert_eq!(other.state, State::Warn);
        assert!(other.what.contains("4026532871") && other.mend[0].contains("--pid host"));
        assert_eq!(check(&Machine::at(fake(&[]).path()))[0].state, State::NotHere);
    }
}
