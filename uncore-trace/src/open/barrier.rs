//! What keeps this process from `perf_event_open` and `bpf`, and the way out: a privilege that it
//! lacks, the seccomp profile of a container, or a kernel without the call.
//!
//! The error number alone does not say it: a profile answers EPERM, older ones ENOSYS, whatever the
//! capabilities are.

use std::{fmt, io};

use rustix::thread::CapabilitySet;

use super::privileges::Privileges;
use crate::bounds;

/// A system call that a measurement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `perf_event_open(2)`.
    Perf,
    /// `bpf(2)`.
    Bpf,
}

impl Call {
    const fn call_name(self) -> &'static str {
        match self {
            Self::Perf => "perf_event_open",
            Self::Bpf => "bpf",
        }
    }

    /// The privileges that it takes: `perfmon_capable()` and `bpf_capable()` of the kernel.
    const fn needed_privileges(self) -> (CapabilitySet, &'static str) {
        match self {
            Self::Perf => (CapabilitySet::PERFMON, "CAP_PERFMON"),
            Self::Bpf => {
                (CapabilitySet::BPF.union(CapabilitySet::PERFMON), "CAP_BPF and CAP_PERFMON")
            }
        }
    }

    const fn kernel_option(self) -> &'static str {
        match self {
            Self::Perf => "CONFIG_PERF_EVENTS",
            Self::Bpf => "CONFIG_BPF_SYSCALL",
        }
    }
}

/// What keeps this process from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// What it is, as a part of a sentence.
    pub reason: String,
    /// The ways out, the preferred one first; each is enough.
    pub remedies: Vec<&'static str>,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some((preferred, alternatives)) = self.remedies.split_first() {
            write!(f, ": {preferred}")?;
            alternatives.iter().try_for_each(|remedy| write!(f, ", or {remedy}"))?;
        }
        Ok(())
    }
}

/// Lets a container make both calls: what its seccomp profile decides.
const PROFILE: [&str; 3] = [
    "start the container with --security-opt seccomp=unconfined (docker, podman)",
    "with --security-opt seccomp=FILE and a profile that allows perf_event_open and bpf",
    "in Kubernetes with securityContext.seccompProfile.type Unconfined or such a Localhost profile",
];

/// Gives a container the capabilities; the profile of docker then allows both calls.
const CAPABILITIES: [&str; 2] = [
    "start the container with --cap-add PERFMON --cap-add BPF (docker, podman)",
    "in Kubernetes with securityContext.capabilities.add",
];

/// This process, as far as it decides about a call.
#[derive(Clone, Copy, Debug)]
struct OwnProcess {
    privileges: Privileges,
    /// Whether the kernel may let only `CAP_SYS_ADMIN` open counters: those of Debian and Ubuntu do
    /// with `kernel.perf_event_paranoid` above 2.
    is_paranoid: bool,
}

impl OwnProcess {
    fn read() -> Option<Self> {
        let status = bounds::system_text("/proc/self/status").ok()?;
        let map = bounds::system_text("/proc/self/uid_map").ok();
        let paranoid = bounds::system_text("/proc/sys/kernel/perf_event_paranoid");
        let is_paranoid =
            paranoid.is_ok_and(|text| text.trim().parse().is_ok_and(|level: i32| level > 2));
        Some(Self { privileges: Privileges::parse(&status, map.as_deref())?, is_paranoid })
    }

    /// What answered `call` with `errno`; `None` if it is none of what is known here.
    fn find_barrier(self, call: Call, errno: i32) -> Option<Barrier> {
        let (needed, names) = call.needed_privileges();
        let Self { privileges, is_paranoid } = self;
        let is_admin = privileges.has_capabilities(CapabilitySet::SYS_ADMIN);
        let has_all = is_admin || privileges.has_capabilities(needed);
        let name = call.call_name();
        let profile = || (format!("a seccomp profile forbids {name}"), &PROFILE[..]);
        let (reason, remedies): (String, &[&'static str]) = match errno {
            libc::ENOSYS if privileges.is_filtered => profile(),
            libc::ENOSYS => (
                format!(
                    "this kernel has no {name} ({} is not set), or a sandbox such as gVisor hides \
                     it",
                    call.kernel_option()
                ),
                &["run it on the host, or in a container with the runtime runc"],
            ),
            libc::EPERM | libc::EACCES if !privileges.initial_namespace => (
                "the capabilities of a user namespace do not cover it".to_owned(),
                &["run it on the host, outside of the user namespace"],
            ),
            libc::EACCES if call == Call::Perf && has_all && !is_admin && is_paranoid => (
                "kernel.perf_event_paranoid is above 2, so that CAP_PERFMON is not enough"
                    .to_owned(),
                &["sysctl -w kernel.perf_event_paranoid=2"],
            ),
            libc::EPERM | libc::EACCES if has_all && privileges.is_filtered => profile(),
            libc::EPERM | libc::EACCES if has_all => (
                format!("a security module of the kernel forbids {name} (SELinux, lockdown)"),
                &["allow it in its policy"],
            ),
            libc::EPERM | libc::EACCES if privileges.euid == 0 => (
                format!("{names} is needed, which this container or service withholds"),
                &CAPABILITIES,
            ),
            libc::EPERM | libc::EACCES => (format!("root, or {names}, is needed"), &[]),
            _ => return None,
        };
        Some(Barrier { reason, remedies: remedies.to_vec() })
    }
}

/// What answered `call` with this error; `None` if it is neither a privilege nor a filter.
pub fn barrier_to_call(call: Call, error: &io::Error) -> Option<Barrier> {
    OwnProcess::read()?.find_barrier(call, error.raw_os_error()?)
}

/// The same for an error that may have an error of the kernel as its source.
pub(super) fn barrier_in(call: Call, error: &(dyn std::error::Error + 'static)) -> Option<Barrier> {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return barrier_to_call(call, io);
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(uid: u32, caps: &str, seccomp: u32, map: &str) -> OwnProcess {
        let status = format!("Uid:\t{uid}\t{uid}\t0\t0\nCapEff:\t{caps}\nSeccomp:\t{seccomp}\n");
        let privileges = Privileges::parse(&status, Some(map)).unwrap();
        OwnProcess { privileges, is_paranoid: false }
    }

    const HOST: &str = "         0          0 4294967295\n";
    const ALL: &str = "000001ffffffffff";

    #[test]
    fn the_barrier_is_found_from_the_state_of_the_process() {
        let text = |process: OwnProcess, errno| {
            process.find_barrier(Call::Perf, errno).unwrap().to_string()
        };
        let filtered = process(0, ALL, 2, HOST);
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            let text = text(filtered, errno);
            assert!(text.starts_with("a seccomp profile forbids perf_event_open: "), "{text}");
            assert!(text.contains("--security-opt seccomp=unconfined"), "{text}");
        }
        assert!(text(process(0, ALL, 0, HOST), libc::ENOSYS).contains("gVisor"));
        assert!(text(process(0, ALL, 0, HOST), libc::EACCES).contains("SELinux"));
        assert!(text(process(0, ALL, 0, "0 1000 1\n"), libc::EPERM).contains("user namespace"));
        let default = process(0, "00000000a80425fb", 2, HOST);
        assert!(text(default, libc::EPERM).contains("--cap-add PERFMON"));
        let nobody = process(1000, "0000000000000000", 2, HOST);
        assert_eq!(text(nobody, libc::EACCES), "root, or CAP_PERFMON, is needed");
        let perfmon = process(1000, "0000004000000000", 2, HOST);
        let debian = OwnProcess { is_paranoid: true, ..perfmon };
        assert!(text(debian, libc::EACCES).contains("kernel.perf_event_paranoid=2"));
        assert!(text(debian, libc::EPERM).contains("seccomp"));
        assert_eq!(filtered.find_barrier(Call::Perf, libc::EINVAL), None);
    }

    #[test]
    fn bpf_needs_both_capabilities() {
        let perfmon = process(1000, "0000004000000000", 2, HOST);
        let text = perfmon.find_barrier(Call::Bpf, libc::EPERM).unwrap().to_string();
        assert_eq!(text, "root, or CAP_BPF and CAP_PERFMON, is needed");
        let both = process(1000, "000000c000000000", 2, HOST);
        let text = both.find_barrier(Call::Bpf, libc::EPERM).unwrap().to_string();
        assert!(text.starts_with("a seccomp profile forbids bpf"), "{text}");
    }

    #[test]
    fn a_source_of_the_kernel_is_found() {
        let error = io::Error::from_raw_os_error(libc::ENOSYS);
        assert!(barrier_in(Call::Bpf, &error).is_some());
        assert_eq!(barrier_in(Call::Bpf, &fmt::Error), None);
    }
}
