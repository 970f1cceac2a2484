//! The bpf system call, tracing programs, the ring buffer and the JIT.
//!
//! Read from what the kernel exports rather than by loading a program: the sysctl
//! `unprivileged_bpf_disabled` exists exactly where `CONFIG_BPF_SYSCALL` is set
//! (`kernel/bpf/syscall.c`), and the type information names the ring buffer's functions. The JIT
//! matters beyond speed: the verifier refuses callbacks in programs that are interpreted
//! (`kernel/bpf/verifier.c`, `fixup_call_args`), and the sampling timer is a callback.

use super::kconfig::{Config, Setting};
use super::{Finding, Machine, State};

const NAME: &str = "BPF";
const SYSCTL: &str = "proc/sys/kernel/unprivileged_bpf_disabled";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let config = Config::read(machine).ok().flatten();
    let off = |name| config.as_ref().is_some_and(|config| config.setting(name) == Setting::Unset);
    if !machine.has("proc/sys/kernel") {
        let what = "/proc/sys is missing: it is unknown whether the kernel has BPF";
        return vec![Finding::new(NAME, State::Warn, what).mend("mount -t proc proc /proc")];
    }
    if !machine.has(SYSCTL) || off("CONFIG_BPF_SYSCALL") {
        let finding = Finding::new(NAME, State::Fail, "the kernel has no bpf system call");
        return vec![finding.mend("boot a kernel built with CONFIG_BPF_SYSCALL=y")];
    }
    if off("CONFIG_BPF_EVENTS") {
        let what = "the kernel cannot attach BPF programs to tracepoints and perf events";
        let mend = "boot a kernel built with CONFIG_BPF_EVENTS=y";
        return vec![Finding::new(NAME, State::Fail, what).mend(mend)];
    }
    // The BTF check reports unreadable type information.
    let types = machine.btf().ok();
    if types.is_some_and(|types| !contains(types, b"bpf_ringbuf_reserve")) {
        let finding = Finding::new(NAME, State::Fail, "the kernel has no BPF ring buffer");
        return vec![finding.mend("boot a kernel >= 6.1 built with CONFIG_BPF_SYSCALL=y")];
    }
    if machine.number(JIT) == Some(0) {
        let what = "programs are interpreted: slow, and the sampling timer cannot be loaded";
        let mend = machine.as_root("sysctl -w net.core.bpf_jit_enable=1");
        return vec![Finding::new(NAME, State::Warn, what).mend(mend)];
    }
    vec![Finding::new(NAME, State::Ok, "system call and ring buffer")]
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::super::machine::{BTF, finding};
    use super::*;

    #[test]
    fn complete() {
        let files =
            [(SYSCTL, "2\n"), (JIT, "1\n"), (BTF, "..bpf_ringbuf_reserve.."), ("proc/stat", "")];
        assert_eq!(finding(check, &files).state, State::Ok);
    }

    #[test]
    fn each_missing_part_is_named() {
        let no_call = finding(check, &[("proc/sys/kernel/osrelease", "6.12.0\n")]);
        assert_eq!(no_call.state, State::Fail);
        assert!(no_call.mend[0].contains("CONFIG_BPF_SYSCALL"));
        let no_ring = finding(check, &[(SYSCTL, "2"), (BTF, "other types")]);
        assert_eq!(no_ring.state, State::Fail);
        assert!(no_ring.what.contains("ring buffer"));
        let no_jit = finding(check, &[(SYSCTL, "2"), (JIT, "0\n")]);
        assert_eq!(no_jit.state, State::Warn);
        assert_eq!(no_jit.mend, ["sysctl -w net.core.bpf_jit_enable=1"]);
        let no_events = finding(
            check,
            &[
                (SYSCTL, "2"),
                ("proc/sys/kernel/osrelease", "6.12.0\n"),
                ("boot/config-6.12.0", "CONFIG_BPF_SYSCALL=y\n# CONFIG_BPF_EVENTS is not set\n"),
            ],
        );
        assert_eq!(no_events.state, State::Fail);
        assert!(no_events.mend[0].contains("CONFIG_BPF_EVENTS"));
    }

    #[test]
    fn without_proc_it_cannot_tell() {
        assert_eq!(finding(check, &[]).state, State::Warn);
    }
}
