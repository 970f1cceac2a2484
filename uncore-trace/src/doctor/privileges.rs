//! Privileges of this process.
//!
//! BPF programs need `CAP_BPF` and `CAP_PERFMON`, CPU-wide perf events `CAP_PERFMON`
//! (capabilities(7), since 5.8; `CAP_SYS_ADMIN` implies both). The effective set counts, not the
//! user id: root of a container mostly lacks them, and root of a user namespace has them only in
//! that namespace, which the kernel does not accept for either.

use rustix::thread::CapabilitySet;

use super::program::Program;
use super::{ExaminedMachine, Finding};
use crate::open::Privileges;

const NAME: &str = "privileges";

/// Optional capabilities of `record`, and their use.
const OPTIONAL: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SYS_NICE, "CAP_SYS_NICE (priority on busy CPUs)"),
    (CapabilitySet::SYS_RESOURCE, "CAP_SYS_RESOURCE (more open files than the hard limit)"),
    (
        CapabilitySet::DAC_READ_SEARCH,
        "CAP_DAC_READ_SEARCH (names of containers, which are in root's files)",
    ),
];

/// Reads `proc/self/status` and `proc/self/uid_map`; `None` if the first does not exist.
pub(super) fn read(machine: &ExaminedMachine) -> Option<Privileges> {
    let status = machine.read_text("proc/self/status").ok()?;
    Privileges::parse(&status, machine.read_text("proc/self/uid_map").ok().as_deref())
}

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let Some(privileges) = machine.privileges else {
        let message =
            "/proc/self/status cannot be read: the privileges of this process are unknown";
        return Finding::not_here(NAME, message);
    };
    let user_kind = if privileges.euid == 0 { "root" } else { "not root" };
    if !privileges.initial_namespace {
        let message =
            format!("{user_kind} of a user namespace: its capabilities do not cover BPF and perf");
        return Finding::failure(NAME, message)
            .with_fix("run uncore-trace on the host, outside the user namespace");
    }
    if privileges.is_bpf_capable() && privileges.is_perfmon_capable() {
        let lacking =
            OPTIONAL.iter().filter(|(capability, _)| !privileges.has_capabilities(*capability));
        let lacking: Vec<_> = lacking.map(|(_, name)| *name).collect();
        let note = match lacking.as_slice() {
            [] => String::new(),
            lacking => format!("; without the optional {}", lacking.join(", ")),
        };
        if privileges.euid != 0 {
            return Finding::ok(NAME, format!("{user_kind}, with CAP_BPF and CAP_PERFMON{note}"));
        }
        let message = format!(
            "{user_kind}, with CAP_BPF and CAP_PERFMON{note}; these two are enough, and this gives them to \
             every user who may run the program"
        );
        return Finding::ok(NAME, message).with_fix(for_users(&machine.program));
    }
    let lacking = [
        (privileges.is_bpf_capable(), "CAP_BPF"),
        (privileges.is_perfmon_capable(), "CAP_PERFMON"),
    ]
    .iter()
    .filter_map(|(is_held, name)| (!is_held).then_some(*name))
    .collect::<Vec<_>>()
    .join(" and ");
    let message = format!("{user_kind}, without {lacking}");
    ways_out(privileges, &machine.program, &message)
}

/// The finding, with the ways to give this user both capabilities.
fn ways_out(privileges: Privileges, program: &Program, message: &str) -> Finding {
    if !privileges.can_get_both() || privileges.euid == 0 {
        return Finding::failure(
            NAME,
            format!("{message}, which this container or service withholds"),
        )
        .with_fix("start the container with --cap-add BPF --cap-add PERFMON (or --privileged)");
    }
    if privileges.no_new_privs {
        return Finding::failure(
            NAME,
            format!("{message}, and no_new_privs keeps sudo and setcap from giving them"),
        )
        .with_fix("use a session outside of the sandbox or service that set no_new_privs");
    }
    let record = format!("sudo {} record -p host -o run.parquet --duration 10s", program.path);
    Finding::failure(NAME, format!(
        "{message}; to fix this, record with sudo (the command then runs as root too), or run setcap once \
         for all users of this program"
    ))
    .with_fix(record)
    .with_fix(for_users(program))
}

/// The command that lets every user of the program record.
fn for_users(program: &Program) -> String {
    let Program { path, nosuid } = program;
    let setcap = |path: &str| format!("sudo setcap cap_bpf,cap_perfmon+ep {path}");
    if *nosuid {
        // The kernel ignores capabilities of files on a file system that is mounted with `nosuid`.
        let copy = "/usr/local/bin/uncore-trace";
        format!("sudo install -m 755 {path} {copy} && {}", setcap(copy))
    } else {
        setcap(path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::{fake_tree, single_finding};
    use super::*;
    use proptest::prelude::*;

    const HOST: (&str, &str) = ("proc/self/uid_map", "         0          0 4294967295\n");

    fn status(uid: u32, caps: &str) -> String {
        format!(
            "Name:\tdoctor\nUid:\t1000\t{uid}\t1000\t1000\nCapPrm:\t0\nCapEff:\t{caps}\nSeccomp:\t0\n"
        )
    }

    fn finding_for(uid: u32, caps: &str, map: (&str, &str)) -> Finding {
        single_finding(check, &[("proc/self/status", &status(uid, caps)), map])
    }

    #[test]
    fn root_and_the_two_capabilities_are_enough() {
        let root = finding_for(0, "000001ffffffffff", HOST);
        assert_eq!(root.state, FindingState::Ok);
        assert!(root.what.starts_with("root, with CAP_BPF and CAP_PERFMON; "), "{}", root.what);
        assert_eq!(root.mend, ["sudo setcap cap_bpf,cap_perfmon+ep uncore-trace"]);
        let with_two_capabilities = finding_for(1000, "000000c000000000", HOST);
        assert_eq!(with_two_capabilities.state, FindingState::Ok);
        for optional in ["CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"] {
            assert!(
                with_two_capabilities.what.contains(optional),
                "{}",
                with_two_capabilities.what
            );
        }
        // Kernels without user namespaces have no uid_map.
        assert_eq!(finding_for(0, "0000000000200000", ("proc/x", "")).state, FindingState::Ok);
    }

    /// Neither `perf_event_paranoid` nor one capability alone lets an ordinary user record.
    #[test]
    fn an_ordinary_user_is_given_two_ways_out() {
        let nobody = finding_for(1000, "0000000000000000", HOST);
        assert_eq!(nobody.state, FindingState::Fail);
        assert!(nobody.what.starts_with("not root, without CAP_BPF and CAP_PERFMON; to fix "));
        let [record, setcap] = nobody.mend.as_slice() else { panic!("{:?}", nobody.mend) };
        assert!(record.starts_with("sudo uncore-trace record "), "{record}");
        assert_eq!(setcap, "sudo setcap cap_bpf,cap_perfmon+ep uncore-trace");
        let half = finding_for(1000, "0000008000000000", HOST);
        assert!(half.what.starts_with("not root, without CAP_PERFMON; "), "{}", half.what);
        assert_eq!(half.mend, nobody.mend);
    }

    #[test]
    fn on_a_nosuid_mount_a_copy_elsewhere_gets_the_capabilities() {
        let dir = fake_tree(&[("proc/self/status", &status(1000, "0")), HOST]);
        let mut machine = ExaminedMachine::at_root(dir.path());
        machine.program = Program { path: "/home/me/uncore-trace".to_owned(), nosuid: true };
        let finding = check(&machine);
        assert!(finding.mend[0].starts_with("sudo /home/me/uncore-trace record "));
        assert_eq!(
            finding.mend[1],
            "sudo install -m 755 /home/me/uncore-trace /usr/local/bin/uncore-trace && \
             sudo setcap cap_bpf,cap_perfmon+ep /usr/local/bin/uncore-trace"
        );
    }

    #[test]
    fn remedies_that_cannot_help_are_not_advised() {
        // The default sets of a container.
        let container = finding_for(0, "00000000a80425fb", HOST);
        assert_eq!(container.state, FindingState::Fail);
        assert!(container.mend[0].contains("--cap-add"));
        let mut user = status(1000, "0");
        user.push_str("CapBnd:\t00000000a80425fb\n");
        let user = single_finding(check, &[("proc/self/status", &user), HOST]);
        assert!(user.mend.len() == 1 && user.mend[0].contains("--cap-add"), "{user:?}");
        let mut sandbox = status(1000, "0");
        sandbox.push_str("NoNewPrivs:\t1\n");
        let sandbox = single_finding(check, &[("proc/self/status", &sandbox), HOST]);
        assert!(sandbox.what.contains("no_new_privs"), "{}", sandbox.what);
        assert!(!sandbox.mend.iter().any(|mend| mend.contains("setcap")), "{:?}", sandbox.mend);
    }

    #[test]
    fn root_of_a_user_namespace_is_not_root() {
        let map = ("proc/self/uid_map", "0 1000 1\n");
        let finding = finding_for(0, "000001ffffffffff", map);
        assert_eq!(finding.state, FindingState::Fail);
        assert!(finding.what.contains("user namespace"));
    }

    #[test]
    fn without_status_privileges_are_not_checked() {
        assert_eq!(single_finding(check, &[]).state, FindingState::NotHere);
        assert_eq!(
            single_finding(check, &[("proc/self/status", "junk")]).state,
            FindingState::NotHere
        );
    }

    proptest! {
        #[test]
        fn no_text_of_status_panics(status in ".*", map in proptest::option::of(".*")) {
            let _privileges = Privileges::parse(&status, map.as_deref());
        }
    }
}
