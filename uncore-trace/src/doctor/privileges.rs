//! What this process may do.
//!
//! Tracing programs need `CAP_BPF` and `CAP_PERFMON`, CPU-wide perf events `CAP_PERFMON`
//! (capabilities(7), since 5.8; `CAP_SYS_ADMIN` implies both). The effective set decides and not the
//! user id: root of a container mostly lacks them, and root of a user namespace has them only over
//! that namespace, which the kernel does not accept for either.

use super::{Finding, Machine, State};

const NAME: &str = "privileges";

/// Bit numbers of `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What the kernel lets this process do, as far as recording depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The effective user id.
    pub euid: u32,
    /// The effective capabilities, one bit each as in capability.h.
    pub effective: u64,
    /// Whether the process is in the first user namespace, the only one whose capabilities count.
    pub initial_namespace: bool,
}

impl Privileges {
    /// Reads `proc/self/status` and `proc/self/uid_map`; `None` where the first is not there.
    pub(super) fn read(machine: &Machine) -> Option<Self> {
        let status = machine.text("proc/self/status").ok()?;
        Self::parse(&status, machine.text("proc/self/uid_map").ok().as_deref())
    }

    /// Reads the text of `proc/self/status` and, where the kernel has it, of `proc/self/uid_map`.
    fn parse(status: &str, uid_map: Option<&str>) -> Option<Self> {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Some(Self {
            // "Uid: real effective saved filesystem".
            euid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            effective: u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?,
            // The first namespace maps every id to itself (user_namespaces(7)).
            initial_namespace: uid_map
                .is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"])),
        })
    }

    fn has(self, capability: u32) -> bool {
        self.effective >> capability & 1 == 1
    }

    /// Whether `perf_event_paranoid` does not apply: `perfmon_capable()` of the kernel.
    pub(super) fn perfmon(self) -> bool {
        self.initial_namespace && (self.has(CAP_PERFMON) || self.has(CAP_SYS_ADMIN))
    }

    /// Whether BPF programs may be loaded: `bpf_capable()` of the kernel.
    pub(super) fn bpf(self) -> bool {
        self.initial_namespace && (self.has(CAP_BPF) || self.has(CAP_SYS_ADMIN))
    }
}

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let Some(privileges) = machine.privileges else {
        let what = "/proc/self/status cannot be read: cannot tell what this process may do";
        return vec![Finding::new(NAME, State::NotHere, what)];
    };
    let who = if privileges.euid == 0 { "root" } else { "not root" };
    if privileges.bpf() && privileges.perfmon() {
        // Memory of BPF maps is charged to the cgroup since 5.11, not to RLIMIT_MEMLOCK.
        let note = if privileges.has(CAP_SYS_RESOURCE) {
            ""
        } else {
            "; no CAP_SYS_RESOURCE, which is needed only to open more files than the hard limit"
        };
        let what = format!("{who}, with CAP_BPF and CAP_PERFMON{note}");
        return vec![Finding::new(NAME, State::Ok, what)];
    }
    let finding = if privileges.initial_namespace {
        let lacking = [(privileges.bpf(), "CAP_BPF"), (privileges.perfmon(), "CAP_PERFMON")]
            .iter()
            .filter_map(|(has, name)| (!has).then_some(*name))
            .collect::<Vec<_>>()
            .join(" and ");
        let mend = if privileges.euid == 0 {
            "start the container with --cap-add BPF --cap-add PERFMON (or --privileged)"
        } else {
            "sudo uncore-trace doctor"
        };
        Finding::new(NAME, State::Fail, format!("{who}, without {lacking}")).mend(mend)
    } else {
        let what = format!("{who} of a user namespace: its capabilities do not cover BPF and perf");
        Finding::new(NAME, State::Fail, what)
            .mend("run uncore-trace on the host, outside the user namespace")
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::super::machine::finding;
    use super::*;
    use proptest::prelude::*;

    const HOST: (&str, &str) = ("proc/self/uid_map", "         0          0 4294967295\n");

    fn status(uid: u32, caps: &str) -> String {
        format!(
            "Name:\tdoctor\nUid:\t1000\t{uid}\t1000\t1000\nCapPrm:\t0\nCapEff:\t{caps}\nSeccomp:\t0\n"
        )
    }

    fn with(uid: u32, caps: &str, map: (&str, &str)) -> Finding {
        finding(check, &[("proc/self/status", &status(uid, caps)), map])
    }

    #[test]
    fn root_and_the_two_capabilities_are_enough() {
        let root = with(0, "000001ffffffffff", HOST);
        assert_eq!(root.state, State::Ok);
        assert!(!root.what.contains("CAP_SYS_RESOURCE"));
        let two = with(1000, "000000c000000000", HOST);
        assert_eq!(two.state, State::Ok);
        assert!(two.what.contains("CAP_SYS_RESOURCE"));
        // Kernels without user namespaces have no uid_map.
        assert_eq!(with(0, "0000000000200000", ("proc/x", "")).state, State::Ok);
    }

    #[test]
    fn what_is_lacking_is_named() {
        let nobody = with(1000, "0000000000000000", HOST);
        assert_eq!(nobody.state, State::Fail);
        assert!(nobody.what.contains("CAP_BPF and CAP_PERFMON"));
        assert_eq!(nobody.mend.as_deref(), Some("sudo uncore-trace doctor"));
        let half = with(1000, "0000008000000000", HOST);
        assert!(half.what.ends_with("without CAP_PERFMON"), "{}", half.what);
        // The default set of a container.
        let container = with(0, "00000000a80425fb", HOST);
        assert_eq!(container.state, State::Fail);
        assert!(container.mend.unwrap().contains("--cap-add"));
    }

    #[test]
    fn root_of_a_user_namespace_is_not_root() {
        let map = ("proc/self/uid_map", "0 1000 1\n");
        let finding = with(0, "000001ffffffffff", map);
        assert_eq!(finding.state, State::Fail);
        assert!(finding.what.contains("user namespace"));
    }

    #[test]
    fn without_status_it_cannot_tell() {
        assert_eq!(finding(check, &[]).state, State::NotHere);
        assert_eq!(finding(check, &[("proc/self/status", "junk")]).state, State::NotHere);
    }

    proptest! {
        #[test]
        fn status_never_panics(status in ".*", map in proptest::option::of(".*")) {
            let _privileges = Privileges::parse(&status, map.as_deref());
        }
    }
}
