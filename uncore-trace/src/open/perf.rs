//! `perf_event_open` for counting events with `config1` to `config4`.
//!
//! aya's `PerfEventConfig::Pmu` has `config` only, and its perf event array opens only BPF-output
//! events. The bindings of the system call are from `perf-event-open-sys`.
#![expect(unsafe_code, reason = "perf_event_open and its ioctls are raw system calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC,
    PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};

use crate::count::Count;

/// An open counter; closed when dropped.
#[derive(Debug)]
pub(super) struct PerfEvent {
    fd: OwnedFd,
    is_leader: bool,
}

/// The counter to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventRequest {
    /// `type` of the PMU.
    pub attr_type: u32,
    /// `config` to `config4`.
    pub config: [u64; 5],
    /// Reader CPU.
    pub cpu: u32,
    /// Whether it does not count while the CPU runs a guest.
    pub exclude_guest: bool,
    /// Whether no other counter of the PMU may run while its group does. Only for a leader.
    pub exclusive: bool,
}

impl EventRequest {
    /// Whether the kernel keeps the count in memory at all times: it adds to that of a software
    /// event when something happens (`perf_swevent_event`), but computes clocks when they are read
    /// (`cpu_clock_event_update`, kernel/events/core.c, Linux 7.2).
    pub(super) fn is_in_memory(&self) -> bool {
        let clocks = [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].map(u64::from);
        let is_clock = clocks.contains(&self.config[0]);
        self.attr_type == PERF_TYPE_SOFTWARE && !is_clock
    }
}

impl PerfEvent {
    /// Opens a counter on its CPU, disabled, for all tasks. A member of a group starts to count
    /// when its leader is enabled.
    ///
    /// Only the encoding is set, `exclusive` for counters that take turns, and `exclude_guest`
    /// where a core PMU needs it: uncore PMUs refuse `exclude_*` and sampling, and events in a perf
    /// event array refuse `inherit`.
    pub(super) fn open(request: &EventRequest, leader: Option<&Self>) -> io::Result<Self> {
        let [config, config1, config2, config3, config4] = request.config;
        let mut attr = perf_event_attr { type_: request.attr_type, config, ..Default::default() };
        // A kernel with a shorter structure accepts this one if the fields that it does not know
        // are zero.
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.__bindgen_anon_3.config1 = config1;
        attr.__bindgen_anon_4.config2 = config2;
        attr.config3 = config3;
        attr.config4 = config4;
        attr.read_format =
            u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr.set_exclude_guest(u64::from(request.exclude_guest));
        attr.set_exclusive(u64::from(request.exclusive && leader.is_none()));
        attr.set_disabled(u64::from(leader.is_none()));
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attr` is a fully initialised structure of at least `attr.size` bytes.
        let fd = unsafe {
            perf_event_open(
                &raw mut attr,
                -1,
                request.cpu as i32,
                group,
                u64::from(PERF_FLAG_FD_CLOEXEC),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, is_leader: leader.is_none() })
    }

    /// Starts counting; a member of a group follows its leader.
    pub(super) fn enable(&self) -> io::Result<()> {
        self.control_event(ioctls::ENABLE)
    }

    /// Stops counting; a member of a group follows its leader.
    pub(super) fn disable(&self) -> io::Result<()> {
        self.control_event(ioctls::DISABLE)
    }

    /// Its count, or its last count if its CPU went offline.
    pub(super) fn read(&self) -> io::Result<Count> {
        let mut bytes = [0; 24];
        // A read of an event in error state returns 0 bytes.
        if rustix::io::read(&self.fd, &mut bytes)? != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let mut word = || words.next().unwrap_or_default();
        // read_format in `open`: value, time enabled, time running.
        Ok(Count { value: word(), enabled: word(), running: word() })
    }

    /// Whether it counts. When a CPU goes offline, the kernel removes its counters; unless the
    /// driver moves a counter to another CPU, it never counts again, and its time enabled no longer
    /// increases.
    pub(super) fn is_enabled(&self) -> bool {
        match (self.read(), self.read()) {
            (Ok(first_read), Ok(second_read)) => second_read.enabled > first_read.enabled,
            _ => false,
        }
    }

    fn control_event(&self, ioctl: unsafe fn(i32, u32) -> i32) -> io::Result<()> {
        if !self.is_leader {
            return Ok(());
        }
        // SAFETY: a perf event descriptor, and an ioctl that takes a flag and no pointer.
        if unsafe { ioctl(self.fd.as_raw_fd(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_counts_of_hardware_are_not_in_memory() {
        let is_in_memory = |attr_type, config| {
            let config = [config, 0, 0, 0, 0];
            let (cpu, exclude_guest, exclusive) = (0, false, false);
            EventRequest { attr_type, config, cpu, exclude_guest, exclusive }.is_in_memory()
        };
        // `PERF_TYPE_HARDWARE`, then software: clocks, page faults, emulation faults.
        assert!(!is_in_memory(0, 2) && !is_in_memory(1, 0) && !is_in_memory(1, 1));
        assert!(is_in_memory(1, 2) && is_in_memory(1, 8));
    }
}
