//! Maps that several programs share; others stand where they are used. The loader replaces sizes of
//! `1` by those of the machine.

use aya_ebpf::bindings::bpf_timer;
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, PerCpuArray, PerfEventArray, RingBuf};
use aya_ebpf::macros::btf_map;
use uncore_trace_common::record::{Sample, TRIGGERS};
use uncore_trace_common::state::{CpuState, Drops, IoState, Sampler, SamplerProgress};

/// A timer alone in its value: up to Linux 6.12 the verifier refuses maps that hold a timer to
/// raw tracepoint programs, so nothing that they need may share it.
#[repr(C)]
pub struct TimerSlot {
    pub timer: bpf_timer,
}

/// All records for user space: the ring of each CPU. The loader makes the rings, and CPUs share
/// them. The size here is that of a page of any kernel.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<u64, { 1 << 16 }>, 1> = ArrayOfMaps::new();

/// The open counters; each reader CPU has consecutive slots.
#[btf_map]
pub static COUNTERS: PerfEventArray = PerfEventArray::new();

/// Times of tasks and interrupts, for each CPU.
#[btf_map]
pub static CPUS: Array<CpuState, 1> = Array::new();

/// Bytes moved, for each CPU.
#[btf_map]
pub static IO: Array<IoState, 1> = Array::new();

/// What the sampler of each CPU reads.
#[btf_map]
pub static SAMPLERS: Array<Sampler, 1> = Array::new();

/// Progress of each CPU's sampler.
#[btf_map]
pub static PROGRESS: Array<SamplerProgress, 1> = Array::new();

/// The timer of each CPU.
#[btf_map]
pub static TIMERS: Array<TimerSlot, 1> = Array::new();

/// Buffers for samples: one for each trigger, since one can interrupt another.
#[btf_map]
pub static SCRATCH: PerCpuArray<Sample, TRIGGERS> = PerCpuArray::new();

/// Counts of drops.
#[btf_map]
pub static DROPS: PerCpuArray<Drops, 1> = PerCpuArray::new();
