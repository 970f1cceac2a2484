//! The options of a recording, checked: every number in its range, every combination possible.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::attribute::MIN_SHARE;
use crate::choice::MethodChoice;
use crate::confine::ThreadNeeds;
use crate::discover::Machine;
use crate::open::Timer;
use crate::plan::{Counter, CounterRole, Plan};
use crate::schema::row_limit::RowLimit;
use crate::tables::mode::FileMode;
use crate::tables::series::Keep;
use crate::tables::series::Rotate;
use crate::tables::thread::Tap;

/// Tracepoints at which counters are also read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// `sched_switch`.
    Sched,
    /// Interrupt handlers and softirqs, entry and exit.
    Irq,
}

impl Sampling {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sched => "sched",
            Self::Irq => "irq",
        }
    }
}

/// How and where to record.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own to do or not")]
pub struct RecordOptions {
    /// `-`, `FILE.parquet` or a directory.
    pub output: PathBuf,
    /// Overwrite an existing output.
    pub force: bool,
    /// Permissions of the files.
    pub mode: FileMode,
    /// When a part ends and the next begins; `None`: one part only.
    pub rotate: Option<Rotate>,
    /// How many old parts are kept; `None`: all.
    pub keep: Option<Keep>,
    /// Name of the host's cluster, for the column `cluster`; `None`: no name.
    pub cluster: Option<String>,
    /// Leave the command line out of the metadata.
    pub no_cmdline: bool,
    /// Time between two readings.
    pub tick: Duration,
    /// Length of a window.
    pub interval: Duration,
    /// Length of the recording; `None`: until a signal comes or the command ends.
    pub duration: Option<Duration>,
    /// Time to wait before counting begins.
    pub delay: Duration,
    /// Record every slice.
    pub slices: bool,
    /// Tracepoints at which counters are also read.
    pub sample_on: Vec<Sampling>,
    /// Shortest time between two such readings.
    pub min_gap: Duration,
    /// How often data is written so that it survives a kill.
    pub flush: Duration,
    /// Cgroups with rows of their own.
    pub cgroups: Vec<String>,
    /// Cgroups below which all names of containers, pods and jobs are believed.
    pub trusted_cgroups: Vec<String>,
    /// Owners in deeper cgroups are replaced by their ancestor at this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// The method of attribution.
    pub method: MethodChoice,
    /// How long a window waits for later data, if the method learns.
    pub lag: Duration,
    /// Shares below this part of a window's total are united, 0 to 1.
    pub min_share: f64,
    /// Rows of `fabric` at most.
    pub row_limit: RowLimit,
    /// CPU time that the readings of a witness may take, in percent of each CPU's time. A witness
    /// that takes more is dropped. `None`: witnesses are never dropped.
    pub witness_budget: Option<f64>,
    /// Record what block and network devices move, by owner.
    pub io: bool,
    /// Run a canary ([`super::canary`]).
    pub canary: bool,
    /// Number of monitoring groups that are made for the largest tenants at most
    /// ([`super::monitors`]); `None`: none are made.
    pub monitor: Option<usize>,
    /// What triggers the readings.
    pub timer: Timer,
    /// A file with the kernel's types, for a kernel that has none of its own.
    pub btf: Option<PathBuf>,
    /// Ring size in bytes.
    pub buffer: u32,
    /// Accept marks from `uncore-trace mark`.
    pub listen: bool,
    /// Catalog files of the user.
    pub catalog: Vec<String>,
    /// A second consumer of the rows. With it, an error of the output does not end the recording.
    pub tap: Option<Tap>,
    /// Requests from another thread.
    pub control: RecorderControl,
    /// Print errors only.
    pub quiet: bool,
    /// The command to run.
    pub command: Vec<OsString>,
    /// What the process needs after the recording.
    pub afterwards: ThreadNeeds,
}

/// Requests from another thread to a recorder that rotates, and its progress.
#[derive(Clone, Debug, Default)]
pub struct RecorderControl {
    end_part: Arc<AtomicBool>,
    drains: Arc<AtomicU64>,
}

impl RecorderControl {
    /// Asks for the current part to end now, whatever its length.
    pub fn end_part(&self) {
        self.end_part.store(true, Ordering::Relaxed);
    }

    /// Number of times that the recorder has processed what was in the ring.
    pub fn drain_count(&self) -> u64 {
        self.drains.load(Ordering::Relaxed)
    }

    /// Counts such a time.
    pub fn count_drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether that was asked for since the last call.
    pub(crate) fn take_end_part(&self) -> bool {
        self.end_part.swap(false, Ordering::Relaxed)
    }
}

/// How often rows go to a view in this process.
const FLUSH: Duration = Duration::from_millis(250);

impl RecordOptions {
    /// Options for a view in this process: records `plan` until a signal, with the plan's ticks and
    /// windows and with method `auto`.
    pub fn for_view(machine: &Machine, plan: &Plan) -> Self {
        let window = Duration::from_nanos(plan.window_ns);
        Self {
            output: PathBuf::from("-"),
            tick: Duration::from_nanos(plan.tick_ns),
            interval: window,
            flush: FLUSH.max(window),
            min_share: MIN_SHARE,
            io: plan.needs_io(MethodChoice::Auto),
            buffer: buffer_mib(machine.cpus.online.len(), false, AtSwitch::from_plan(plan, false))
                << 20,
            quiet: true,
            ..Self::default()
        }
    }
}

/// `enum perf_type_id` of `include/uapi/linux/perf_event.h` (Linux 7.2).
const PERF_TYPE_SOFTWARE: u32 = 1;

/// What is read at every context switch, from what sends the least to what sends the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtSwitch {
    /// No counter.
    Nothing,
    /// Counters of the kernel. They are sent only if one has counted since the last switch.
    Software,
    /// Witnesses, perhaps with counters of the kernel. They are dropped if there are too many
    /// switches.
    Witness,
    /// Counters, for the whole recording.
    Counter,
}

impl AtSwitch {
    /// What `plan` reads at every switch. With `optional`, its witnesses may be dropped.
    pub fn from_plan(plan: &Plan, optional: bool) -> Self {
        let read_by = |counter: &Counter| match counter {
            _ if optional && counter.role == CounterRole::Weight => Self::Witness,
            _ if counter.attr_type == PERF_TYPE_SOFTWARE => Self::Software,
            _ => Self::Counter,
        };
        let read = plan.counters.iter().filter(|counter| counter.at_switch);
        read.map(read_by).max().unwrap_or(Self::Nothing)
    }
}

/// The shortest time between two drains.
const DRAIN: Duration = Duration::from_millis(50);

/// The longest time between two drains. A drain has fixed costs that exceed those of the records of
/// 50 ms with 10 counters: it wakes an idle CPU, and asks the kernel for drops, online CPUs and
/// running tasks (docs/cost.md). A process that lives for less than this may exit before its name
/// is read.
const LONGEST_DRAIN: Duration = Duration::from_millis(100);

/// What a CPU may send during three of the shortest drain periods, KiB. A busy CPU sends at most
/// one record of 16 tasks (960 bytes) a tick, which is 1 MB/s at 1 kHz. With every slice it sends
/// 56 bytes a switch, which is 22 MB/s at the 400 000 switches a second of a pipe benchmark. A
/// reading at every switch, with 88 bytes and 24 per counter, is three times that. Witnesses send a
/// tenth of it, because they are dropped above some 20 000 switches a second. Page faults and
/// migrations are sent after at most some 8000 slices a second.
const fn sent_kib(slices: bool, at_switch: AtSwitch) -> u32 {
    match (slices, at_switch) {
        (false, AtSwitch::Nothing) => 150,
        (false, AtSwitch::Software) => 300,
        (false, AtSwitch::Witness) => 1000,
        (true, AtSwitch::Nothing | AtSwitch::Software | AtSwitch::Witness) => 3300,
        (_, AtSwitch::Counter) => 10_000,
    }
}

/// The default size of the ring in MiB: what the CPUs send in three drain periods, and at least 4
/// MiB for a recorder that has to wait for its CPU.
pub fn buffer_mib(cpus: usize, slices: bool, at_switch: AtSwitch) -> u32 {
    let mib = (cpus as u32).saturating_mul(sent_kib(slices, at_switch)).div_ceil(1024);
    // What a few CPUs send in the time that dropping a witness takes.
    let smallest_mib = if at_switch == AtSwitch::Witness { 16 } else { 4 };
    mib.clamp(smallest_mib, 512).next_power_of_two()
}

impl RecordOptions {
    /// The drain period: the longest for which the ring holds three times what `cpus` CPUs send.
    pub(super) fn drain_period(&self, cpus: usize, at_switch: AtSwitch) -> Duration {
        if !self.sample_on.is_empty() {
            // The ring is not sized for that.
            return DRAIN.min(self.flush / 4);
        }
        let sent = (cpus as f64 * f64::from(sent_kib(self.slices, at_switch)) * 1024.0).max(1.0);
        let period = DRAIN.as_secs_f64() * f64::from(self.buffer) / sent;
        let period = period.clamp(DRAIN.as_secs_f64(), LONGEST_DRAIN.as_secs_f64());
        Duration::from_secs_f64(period).min(self.flush / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::captured_machine;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_ring_is_drained_before_it_is_a_third_full() {
        let machine = captured_machine("bare");
        let options = RecordOptions {
            flush: ms(2000),
            ..RecordOptions::for_view(&machine, &Plan { tick_ns: 1_000_000, ..Plan::default() })
        };
        let period = |cpus, slices, at_switch| {
            let buffer = buffer_mib(cpus, slices, at_switch) << 20;
            let options = RecordOptions { slices, buffer, ..options.clone() };
            options.drain_period(cpus, at_switch)
        };
        assert_eq!(period(2, false, AtSwitch::Nothing), ms(100));
        // 32 MiB hold what 21 CPUs send.
        assert!((ms(70)..ms(80)).contains(&period(144, false, AtSwitch::Nothing)));
        assert!((ms(60)..ms(65)).contains(&period(2, true, AtSwitch::Nothing)));
        // The ring cannot be larger.
        assert_eq!(period(1024, true, AtSwitch::Counter), ms(50));
        let often = RecordOptions { sample_on: vec![Sampling::Sched], ..options.clone() };
        assert_eq!(often.drain_period(2, AtSwitch::Nothing), ms(50));
        // Data must be written before the next flush.
        let soon = RecordOptions { flush: ms(100), ..options };
        assert_eq!(soon.drain_period(2, AtSwitch::Nothing), ms(25));
    }
}
