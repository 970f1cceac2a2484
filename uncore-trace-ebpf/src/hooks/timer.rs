//! The pinned timer of a reader CPU (Linux >= 6.7).
//!
//! It fires at absolute multiples of the tick on the CPU that started it, idle or busy, without
//! waking user space. If a tick fires after the time of the next one, that one is skipped: the tick
//! numbers show the gap.

use core::ffi::c_void;

use aya_ebpf::bindings::bpf_timer;
use aya_ebpf::helpers::generated::{bpf_timer_init, bpf_timer_set_callback, bpf_timer_start};
use uncore_trace_common::state::{SAMPLER_MOVED, SAMPLER_OFF, Sampler};

use crate::globals::tick_end;
use crate::helpers::{monotonic_ns, this_cpu};
use crate::maps::{SAMPLERS, TIMERS, TimerSlot};
use crate::{emit, sample};

/// `BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN`, include/uapi/linux/bpf.h, Linux 6.7.
const ABSOLUTE_PINNED: u64 = 1 | 2;

/// `CLOCK_MONOTONIC`, include/uapi/linux/time.h.
const CLOCK_MONOTONIC: u64 = 1;

/// Starts the timer of CPU `cpu`, which must be this CPU. Returns 0 or a negative errno.
#[inline(always)]
pub fn start_timer(cpu: u32) -> i64 {
    let Some(slot) = TIMERS.get_ptr_mut(cpu) else {
        return -2;
    };
    // SAFETY: `slot` is a map value; the kernel guards the timer in it.
    unsafe {
        let timer = &raw mut (*slot).timer;
        // If the timer exists already (the CPU was a reader before), the result is -EBUSY.
        let _again = bpf_timer_init(timer, (&raw const TIMERS).cast_mut().cast(), CLOCK_MONOTONIC);
        let callback: unsafe extern "C" fn(*mut c_void, *mut u32, *mut TimerSlot) -> i64 = on_tick;
        let set = bpf_timer_set_callback(timer, callback as *mut c_void);
        if set < 0 {
            return set;
        }
        arm_timer(timer)
    }
}

/// # Safety
///
/// `timer` must be an initialised timer inside a map value.
#[inline(always)]
unsafe fn arm_timer(timer: *mut bpf_timer) -> i64 {
    // SAFETY: as the caller promises.
    unsafe { bpf_timer_start(timer, tick_end(monotonic_ns()), ABSOLUTE_PINNED) }
}

unsafe extern "C" fn on_tick(_map: *mut c_void, key: *mut u32, slot: *mut TimerSlot) -> i64 {
    // SAFETY: the kernel passes the key and the value of the timer that fired.
    let cpu = unsafe { *key };
    let Some(sampler) = SAMPLERS.get_ptr_mut(cpu) else {
        return 0;
    };
    // SAFETY: user space changes `state` at any time, one word; and see `stop_moved`.
    let sampler = unsafe { &mut *sampler };
    if sampler.state == SAMPLER_OFF {
        return 0;
    }
    if this_cpu() != cpu {
        stop_moved(sampler);
        return 0;
    }
    sample::read_on_timer(cpu);
    // SAFETY: the timer that fired is initialised.
    let armed = unsafe { arm_timer(&raw mut (*slot).timer) };
    if armed < 0 {
        // SAFETY: a field of the value that is given.
        emit::count_drop(|drops| unsafe { &raw mut (*drops).timer });
    }
    0
}

/// The CPU of this timer has gone offline and the kernel has moved the timer to this CPU, where the
/// counters cannot be read. The timer stops, and user space is told. If its CPU came back and
/// started the timer in between, user space starts it again.
#[inline(always)]
fn stop_moved(sampler: &mut Sampler) {
    // The count below is what user space looks at first, and instructions that order the two are
    // not in the set of this object; user space may also write here what it has read before. So it
    // takes no state for sure once the count has grown, and starts all timers again
    // (`RunningSampler::reassign`, uncore-trace/src/open/sampler.rs). If this is written after that,
    // the timer runs all the same, and is started once more at the next change.
    // SAFETY: a reference is writable. Volatile, so that the compiler keeps the order.
    unsafe { (&raw mut sampler.state).write_volatile(SAMPLER_MOVED) };
    // SAFETY: a field of the value that is given.
    emit::count_drop(|drops| unsafe { &raw mut (*drops).moved });
}
