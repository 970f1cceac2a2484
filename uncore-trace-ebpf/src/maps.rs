//! Every map, one line of purpose each. Sizes marked `1` are set by the loader to the machine's.

use aya_ebpf::bindings::bpf_timer;
use aya_ebpf::btf_maps::{Array, PerCpuArray, PerfEventArray, RingBuf};
use aya_ebpf::macros::btf_map;
use uncore_trace_common::record::{Sample, TRIGGERS};
use uncore_trace_common::state::{CpuState, Drops, IoState, Sampler, Sweep};

/// A timer alone in its value: up to Linux 6.12 the verifier refuses maps that hold a timer to
/// raw tracepoint programs, so nothing that they need may share it.
#[repr(C)]
pub struct TimerSlot {
    pub timer: bpf_timer,
}

/// Everything that goes to user space.
#[btf_map]
pub static RECORDS: RingBuf<u64, { 1 << 23 }> = RingBuf::new();

/// The opened counters; each reader CPU has a run of slots.
#[btf_map]
pub static COUNTERS: PerfEventArray = PerfEventArray::new();

/// What ran on each CPU.
#[btf_map]
pub static CPUS: Array<CpuState, 1> = Array::new();

/// What each CPU saw being moved.
#[btf_map]
pub static IO: Array<IoState, 1> = Array::new();

/// What the sampler of each CPU has to do.
#[btf_map]
pub static SAMPLERS: Array<Sampler, 1> = Array::new();

/// How far the sampler of each CPU is.
#[btf_map]
pub static SWEEPS: Array<Sweep, 1> = Array::new();

/// The timer of each CPU.
#[btf_map]
pub static TIMERS: Array<TimerSlot, 1> = Array::new();

/// Where a sample is put together: one place for each context that can interrupt another.
#[btf_map]
pub static SCRATCH: PerCpuArray<Sample, TRIGGERS> = PerCpuArray::new();

/// What was dropped.
#[btf_map]
pub static DROPS: PerCpuArray<Drops, 1> = PerCpuArray::new();
