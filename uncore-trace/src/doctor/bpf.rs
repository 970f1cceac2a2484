//! The bpf system call, tracing programs, the ring buffer and the JIT.
//!
//! Read from what the kernel exports rather than by loading a program: the sysctl
//! `unprivileged_bpf_disabled` exists exactly where `CONFIG_BPF_SYSCALL` is set
//! (`kernel/bpf/syscall.c`), and the type information names the ring buffer's functions. The JIT
//! matters beyond speed: the verifier refuses callbacks in programs that are interpreted
//! (`kernel/bpf/verifier.c`, `fixup_call_args`), and the sampling timer is a callback.

use super::kconfig::{KernelConfig, OptionSetting};
use super::{ExaminedMachine, Finding};

const NAME: &str = "BPF";
const SYSCTL: &str = "proc/sys/kernel/unprivileged_bpf_disabled";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let config = KernelConfig::read(machine).ok().flatten();
    let off = |name| {
        config.as_ref().is_some_and(|config| config.option_setting(name) == OptionSetting::Unset)
    };
    if !machine.has_path("proc/sys/kernel") {
        let message = "/proc/sys is missing: it is unknown whether the kernel has BPF";
        return Finding::warning(NAME, message).with_fix("mount -t proc proc /proc");
    }
    if !machine.has_path(SYSCTL) || off("CONFIG_BPF_SYSCALL") {
        return Finding::failure(NAME, "the kernel has no bpf system call")
            .with_fix("boot a kernel built with CONFIG_BPF_SYSCALL=y");
    }
    if off("CONFIG_BPF_EVENTS") {
        let message = "the kernel cannot attach BPF programs to tracepoints and perf events";
        let mend = "boot a kernel built with CONFIG_BPF_EVENTS=y";
        return Finding::failure(NAME, message).with_fix(mend);
    }
    // The BTF check reports unreadable type information.
    let types = machine.read_btf().ok();
    if types.is_some_and(|types| !has_bytes(types, b"bpf_ringbuf_reserve")) {
        return Finding::failure(NAME, "the kernel has no BPF ring buffer")
            .with_fix("boot a kernel >= 6.1 built with CONFIG_BPF_SYSCALL=y");
    }
    if machine.read_number(JIT) == Some(0) {
        let message =
            "BPF programs are interpreted: this is slow, and the sampling timer cannot be loaded";
        let mend = machine.as_root("sysctl -w net.core.bpf_jit_enable=1");
        return Finding::warning(NAME, message).with_fix(mend);
    }
    Finding::ok(NAME, "system call and ring buffer")
}

fn has_bytes(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::{BTF, single_finding};
    use super::*;

    #[test]
    fn a_complete_bpf_setup_is_ok() {
        let files =
            [(SYSCTL, "2\n"), (JIT, "1\n"), (BTF, "..bpf_ringbuf_reserve.."), ("proc/stat", "")];
        assert_eq!(single_finding(check, &files).state, FindingState::Ok);
    }

    #[test]
    fn each_missing_part_of_bpf_is_named() {
        let no_call = single_finding(check, &[("proc/sys/kernel/osrelease", "6.12.0\n")]);
        assert_eq!(no_call.state, FindingState::Fail);
        assert!(no_call.mend[0].contains("CONFIG_BPF_SYSCALL"));
        let no_ring = single_finding(check, &[(SYSCTL, "2"), (BTF, "other types")]);
        assert_eq!(no_ring.state, FindingState::Fail);
        assert!(no_ring.what.contains("ring buffer"));
        let no_jit = single_finding(check, &[(SYSCTL, "2"), (JIT, "0\n")]);
        assert_eq!(no_jit.state, FindingState::Warn);
        assert_eq!(no_jit.mend, ["sysctl -w net.core.bpf_jit_enable=1"]);
        let no_events = single_finding(
            check,
            &[
                (SYSCTL, "2"),
                ("proc/sys/kernel/osrelease", "6.12.0\n"),
                ("boot/config-6.12.0", "CONFIG_BPF_SYSCALL=y\n# CONFIG_BPF_EVENTS is not set\n"),
            ],
        );
        assert_eq!(no_events.state, FindingState::Fail);
        assert!(no_events.mend[0].contains("CONFIG_BPF_EVENTS"));
    }

    #[test]
    fn without_proc_the_bpf_setup_is_a_warning() {
        assert_eq!(single_finding(check, &[]).state, FindingState::Warn);
    }
}
