//! The entries of one counter, in the order of time.

use crate::assemble::span::TickTime;
use crate::count::Count;
use crate::entries::{CounterReading, CounterValue, Owner, ReadingTrigger};
use crate::open::StopCause;
use crate::schema::readings;

/// A counter and its latest entry.
#[derive(Debug, Default)]
pub(super) struct CounterProgress {
    /// Its id in the plan.
    pub id: u32,
    /// The CPU on which the plan reads it.
    pub cpu: u32,
    /// Whether it counts that CPU only.
    pub per_cpu: bool,
    /// Whether it is a witness that does not count virtual machines.
    pub is_blind: bool,
    /// Tick and time of its latest entry.
    pub latest_entry: TickTime,
    /// CPU and trigger of that entry.
    pub last_from: Option<(u32, ReadingTrigger)>,
    /// Time, ns, at which it stopped and why, unless it has started again.
    pub stopped: Option<(u64, StopCause)>,
    /// Tick and time enabled of the timer's last successful reading.
    pub last_read: Option<(u64, u64)>,
}

/// What was read of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedCount {
    /// What triggered the reading.
    pub trigger: ReadingTrigger,
    /// The count, or the errno of the reading.
    pub value: Result<CounterValue, i32>,
    /// Whose the count since the previous reading is, if that is known.
    pub owner: Option<Owner>,
}

/// Whose the counts are that a sample ends, of counters that are read at every context switch.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct SampleOwner {
    /// The owner, if a counter of the sample needs one.
    pub owner: Option<Owner>,
    /// Whether the owner runs a virtual machine.
    pub ran_guest: bool,
}

/// Limits on the time and tick of the next entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLimits {
    /// The first tick that has not ended.
    pub open_tick: u64,
    /// Whether its time is that of a sample. Other entries are moved behind the latest entry.
    pub is_sample: bool,
}

impl CounterProgress {
    /// Whether the counter did not count since the tick before. The time enabled of a counter that
    /// counts increases, also while the counter is multiplexed out.
    pub(super) fn stands_still(&mut self, tick: u64, enabled: u64) -> bool {
        if self.per_cpu {
            return false;
        }
        let previous = self.last_read.replace((tick, enabled));
        enabled > 0
            && previous.is_some_and(|(last_tick, enabled_before)| {
                last_tick < tick && enabled_before == enabled
            })
    }

    /// The entry of a reading, in a tick that has not ended; `None` if a newer entry includes all
    /// of its count.
    pub(super) fn make_reading(
        &mut self,
        cpu: u32,
        read_at: TickTime,
        observed: ObservedCount,
        limits: EntryLimits,
    ) -> Option<CounterReading> {
        let ObservedCount { trigger, value, owner } = observed;
        let latest = self.latest_entry;
        // `readings` is sorted by time, so two entries of a counter need different times. A tick's
        // reading may arrive after that of another CPU, from another ring.
        let after_another = self.last_from.is_some_and(|(last_cpu, last_trigger)| {
            last_cpu != cpu && last_trigger == ReadingTrigger::Event
        });
        let moves = !limits.is_sample || trigger == ReadingTrigger::Timer && after_another;
        let time_ns = if moves { read_at.time_ns.max(latest.time_ns + 1) } else { read_at.time_ns };
        if time_ns <= latest.time_ns || self.stopped.is_some() {
            return None;
        }
        let tick = read_at.tick.max(limits.open_tick).max(latest.tick);
        self.latest_entry = TickTime { tick, time_ns };
        self.last_from = Some((cpu, trigger));
        Some(CounterReading { tick, time: time_ns, counter: self.id, cpu, trigger, value, owner })
    }
}

/// A count as it is logged. Where enabled and running are almost equal they are made equal: the low
/// bits are noise of the kernel's clock.
pub(super) fn logged_value(count: Count) -> CounterValue {
    let times = readings::stored_times(count.enabled, count.running);
    CounterValue { value: count.value, times: times.0.zip(times.1) }
}
