//! Whether `/proc` shows the processes that the kernel's records name.
//!
//! BPF programs and tracepoints identify tasks by their pids in the initial PID namespace. In
//! another namespace, as in a container, the same pids belong to other processes or to none.

use super::{ExaminedMachine, Finding};

const NAME: &str = "PID namespace";
const LINK: &str = "proc/self/ns/pid";
/// The initial namespace: `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`, Linux 6.12 and 7.2.
const INITIAL: &str = "pid:[4026531836]";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    match machine.read_link(LINK) {
        None => Finding::not_here(NAME, format!("/{LINK} cannot be read")),
        Some(namespace) if namespace == INITIAL => Finding::ok(NAME, "the initial one"),
        Some(namespace) => {
            let message = format!(
                "{namespace} is not the initial PID namespace: a program that ran before the \
                 recording began has no name or the name of another process, and CPU time of a \
                 task that runs long without a context switch may be missing"
            );
            Finding::warning(NAME, message)
                .with_fix("start the container with --pid host (Kubernetes: hostPID: true)")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::FindingState;
    use super::super::machine::fake_tree;
    use super::*;

    fn finding_for_link(link: &str) -> Finding {
        let dir = fake_tree(&[]);
        fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        symlink(link, dir.path().join(LINK)).unwrap();
        check(&ExaminedMachine::at_root(dir.path()))
    }

    #[test]
    fn numbers_of_another_namespace_are_not_those_of_the_kernel() {
        assert_eq!(finding_for_link(INITIAL).state, FindingState::Ok);
        let other_namespace = finding_for_link("pid:[4026532871]");
        assert_eq!(other_namespace.state, FindingState::Warn);
        assert!(
            other_namespace.what.contains("4026532871")
                && other_namespace.mend[0].contains("--pid host")
        );
        assert_eq!(
            check(&ExaminedMachine::at_root(fake_tree(&[]).path())).state,
            FindingState::NotHere
        );
    }
}
