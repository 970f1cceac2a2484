//! Options of a session that the plan does not have.

/// How to record, beyond what the plan says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own to do or not")]
pub struct SessionOptions {
    /// Nanoseconds between two readings.
    pub tick_ns: u64,
    /// Record every slice.
    pub slices: bool,
    /// Also read at `sched_switch`.
    pub sample_on_sched: bool,
    /// Also read at IRQ and softirq entry and exit.
    pub sample_on_irq: bool,
    /// Shortest time between readings that the timer does not trigger, ns.
    pub min_gap_ns: u64,
    /// See what block and network devices move.
    pub io: bool,
    /// See who holds which device.
    pub holders: bool,
    /// What triggers the readings.
    pub timer: Timer,
    /// Size of the ring in bytes; a power of two and a multiple of the page size.
    pub buffer_bytes: u32,
}

/// What triggers the readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timer {
    /// Pinned, or run-on-cpu where the kernel has no pinned BPF timers.
    #[default]
    Auto,
    /// A BPF timer that stays on its CPU.
    Pinned,
    /// A thread that runs the sampler on each reader CPU.
    RunOnCpu,
}

impl Timer {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pinned => "pinned",
            Self::RunOnCpu => "run-on-cpu",
        }
    }
}
