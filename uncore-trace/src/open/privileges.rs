//! Privileges of a process, as procfs shows them.

use rustix::thread::CapabilitySet;

/// The privileges that recording depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The effective user id.
    pub euid: u32,
    /// The effective capabilities.
    pub effective: CapabilitySet,
    /// The bounding set: the most that an executed program can get.
    pub bounding: CapabilitySet,
    /// Whether executing a program can add no privileges (`no_new_privs`, prctl(2)).
    pub no_new_privs: bool,
    /// Whether it has a seccomp filter.
    pub is_filtered: bool,
    /// Whether the process is in the initial user namespace; capabilities count only there.
    pub initial_namespace: bool,
}

impl Privileges {
    /// Parses the text of `proc/self/status` and, if the kernel has it, of `proc/self/uid_map`.
    pub fn parse(status: &str, uid_map: Option<&str>) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            // "Uid: real effective saved filesystem".
            euid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            effective: CapabilitySet::from_bits_retain(mask("CapEff")?),
            bounding: CapabilitySet::from_bits_retain(mask("CapBnd").unwrap_or(u64::MAX)),
            no_new_privs: field("NoNewPrivs") == Some("1"),
            // SECCOMP_MODE_FILTER, include/uapi/linux/seccomp.h.
            is_filtered: field("Seccomp") == Some("2"),
            // The initial namespace maps every id to itself (user_namespaces(7)).
            initial_namespace: uid_map
                .is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"])),
        })
    }

    /// Whether these capabilities are effective.
    pub const fn has_capabilities(self, capabilities: CapabilitySet) -> bool {
        self.effective.contains(capabilities)
    }

    /// Whether `perf_event_paranoid` does not apply: `perfmon_capable()` of the kernel.
    pub const fn is_perfmon_capable(self) -> bool {
        self.is_admin() || self.initial_namespace && self.has_capabilities(CapabilitySet::PERFMON)
    }

    /// Whether the process has all privileges.
    pub const fn is_admin(self) -> bool {
        self.initial_namespace && self.has_capabilities(CapabilitySet::SYS_ADMIN)
    }

    /// Whether BPF programs may be loaded: `bpf_capable()` of the kernel.
    pub const fn is_bpf_capable(self) -> bool {
        self.is_admin() || self.initial_namespace && self.has_capabilities(CapabilitySet::BPF)
    }

    /// Whether an executed program can get both capabilities.
    pub const fn can_get_both(self) -> bool {
        self.bounding.contains(CapabilitySet::BPF.union(CapabilitySet::PERFMON))
    }
}
