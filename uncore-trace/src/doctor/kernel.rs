//! The kernel's version.
//!
//! 6.1 is the oldest kernel the programs are written for. `BPF_F_TIMER_CPU_PIN`, which keeps the
//! sampling timer on the reader CPU without user space, came with 6.7 (`kernel/bpf/helpers.c`,
//! `bpf_timer_start`); an older kernel is ticked from user space through `BPF_PROG_TEST_RUN` on
//! that CPU, which costs a wake-up and an inter-processor interrupt a tick.

use rustix::system::uname;

use super::{ExaminedMachine, Finding};
use crate::discover::release::{self, KernelVersion};

const NAME: &str = "kernel";
const OLDEST: KernelVersion = KernelVersion(6, 1);
const PINNED_TIMER: KernelVersion = KernelVersion(6, 7);

/// Longest release of a kernel, bytes (`__NEW_UTS_LEN`, include/uapi/linux/utsname.h).
const LONGEST_RELEASE: usize = 64;

/// The kernel's release, as `uname -r` prints it.
pub(super) fn kernel_release(machine: &ExaminedMachine) -> Option<String> {
    let is_release = |text: &String| !text.is_empty() && text.len() <= LONGEST_RELEASE;
    let read = machine.read_text("proc/sys/kernel/osrelease").ok().filter(is_release);
    // Without procfs, the kernel of the running machine says it too.
    let running_release = || uname().release().to_str().ok().map(str::to_owned);
    read.or_else(|| machine.is_running().then(running_release).flatten())
}

/// Whether it is a `PREEMPT_RT` kernel: its version says so, and the patches before 6.12 have a
/// file. Its verifier refuses programs with a `bpf_timer` (`process_timer_func`,
/// kernel/bpf/verifier.c, Linux 6.1 to 7.2).
fn is_realtime(machine: &ExaminedMachine) -> bool {
    release::is_realtime(&machine.read_text("proc/sys/kernel/version").unwrap_or_default())
        || machine.read_number("sys/kernel/realtime") == Some(1)
}

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let upgrade = "boot a kernel >= 6.7";
    let Some(release) = kernel_release(machine) else {
        let message = "proc/sys/kernel/osrelease cannot be read: is /proc mounted?";
        return Finding::failure(NAME, message).with_fix("mount -t proc proc /proc");
    };
    let Some(version) = KernelVersion::parse(&release) else {
        let message =
            format!("release {release:?} does not start with a version: >= 6.1 is needed");
        return Finding::warning(NAME, message);
    };
    if version < OLDEST {
        Finding::failure(NAME, format!("{release}: older than 6.1")).with_fix(upgrade)
    } else if is_realtime(machine) {
        let message = format!(
            "{release}: PREEMPT_RT, which refuses the BPF timer: each tick is run on its CPU from \
             user space, which costs 3 to 6 % of a core at 1 kHz, and the time of softirqs is \
             that of the threads that run them"
        );
        Finding::warning(NAME, message)
    } else if version < PINNED_TIMER {
        let message = format!(
            "{release}: no pinned BPF timer (6.7): each tick is run on its CPU from user space, \
             which costs 3 to 6 % of a core at 1 kHz"
        );
        Finding::warning(NAME, message).with_fix(upgrade)
    } else {
        Finding::ok(NAME, format!("{release}: has the pinned BPF timer"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    fn state(release: &str) -> FindingState {
        single_finding(check, &[("proc/sys/kernel/osrelease", release)]).state
    }

    #[test]
    fn old_kernels_fail_and_kernels_before_6_7_are_a_warning() {
        assert_eq!(state("5.15.0-91-generic\n"), FindingState::Fail);
        assert_eq!(state("6.0.19\n"), FindingState::Fail);
        assert_eq!(state("6.1.192-debug\n"), FindingState::Warn);
        assert_eq!(state("6.6.8"), FindingState::Warn);
        assert_eq!(state("6.7-rc1"), FindingState::Ok);
        assert_eq!(state("6.18.44-fc"), FindingState::Ok);
        assert_eq!(state("10.0.0"), FindingState::Ok);
    }

    #[test]
    fn a_realtime_kernel_is_ticked_from_user_space() {
        let release = ("proc/sys/kernel/osrelease", "6.12.118+deb13-rt-arm64\n");
        for mark in [
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian 6.12.118-1 (2026-09-01)\n"),
            ("sys/kernel/realtime", "1\n"),
        ] {
            let finding = single_finding(check, &[release, mark]);
            assert_eq!(finding.state, FindingState::Warn);
            assert!(
                finding.what.contains("PREEMPT_RT, which refuses the BPF timer"),
                "{finding:?}"
            );
        }
        let dynamic = ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC @0\n");
        assert_eq!(single_finding(check, &[release, dynamic]).state, FindingState::Ok);
    }

    #[test]
    fn a_missing_release_fails_and_a_malformed_one_is_a_warning() {
        assert_eq!(single_finding(check, &[]).state, FindingState::Fail);
        assert_eq!(state("banana"), FindingState::Warn);
    }
}
