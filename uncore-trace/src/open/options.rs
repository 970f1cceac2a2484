//! How to open a session: what the plan does not say.

/// How to record, beyond what the plan says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own to do or not")]
pub struct Options {
    /// Nanoseconds from one reading to the next.
    pub tick_ns: u64,
    /// Keep every slice.
    pub slices: bool,
    /// Also read at `sched_switch`.
    pub sample_on_sched: bool,
    /// Also read at IRQ and softirq entry and exit.
    pub sample_on_irq: bool,
    /// Least nanoseconds between readings that the timer did not make.
    pub min_gap_ns: u64,
    /// See what block and network devices move.
    pub io: bool,
    /// What makes the readings.
    pub timer: Timer,
    /// Size of the ring; a power of two and a multiple of the page size.
    pub buffer_bytes: u32,
}

/// How the counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Timer {
    /// A pinned BPF timer, or the fallback where the kernel has none.
    Auto,
    /// A pinned BPF timer.
    Pinned,
    /// A thread that runs the sampler on each reader CPU.
    RunOnCpu,
}
