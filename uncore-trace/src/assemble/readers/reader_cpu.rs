//! A CPU that reads counters, and which ticks it has read.

use std::rc::Rc;

use crate::assemble::loss::Ledger;
use crate::drain::SampleRecord;
use crate::open::{Layout, PlacedCounter};
use crate::schema::loss::LossCause;

/// The counters of a sample.
pub(super) type PlacedCounters = Rc<[PlacedCounter]>;

/// A set of counters that a CPU reads or has read.
#[derive(Debug)]
pub(super) struct CounterSet {
    /// The first slot.
    pub first_slot: u32,
    /// The counters, in the order of slots.
    pub slots: PlacedCounters,
    /// How many of the counters are read at every context switch; these come first.
    pub at_switch: usize,
    /// The place of the first counter that other CPUs read too.
    pub first_shared: usize,
    /// These CPUs.
    pub other_cpus: Vec<u32>,
}

impl CounterSet {
    /// The counters of a layout.
    pub(super) fn from_layout(layout: &Layout) -> Self {
        Self {
            first_slot: layout.first_slot,
            slots: layout.counters.as_slice().into(),
            at_switch: layout.at_switch as usize,
            first_shared: layout.first_shared(),
            other_cpus: layout.other_cpus.clone(),
        }
    }

    /// Whether the sample is of those counters that its CPU reads for another one.
    pub(super) fn is_shared_part(&self, sample: &SampleRecord) -> bool {
        let first_shared_slot = self.first_slot as usize + self.first_shared;
        first_shared_slot == sample.first_slot as usize
            && self.slots.len().saturating_sub(self.first_shared) == sample.readings.len()
            && self.other_cpus.contains(&sample.cpu)
    }
}

/// One reader CPU.
#[derive(Debug, Default)]
pub(super) struct ReaderCpu {
    /// The CPU.
    pub cpu: u32,
    /// The current set of counters, and the set before the last change.
    pub sets: Vec<CounterSet>,
    /// Whether the CPU reads counters now.
    pub is_active: bool,
    /// The tick after its last reading.
    pub next_tick: Option<u64>,
    /// Sequence number of its last sample.
    pub sequence: Option<u64>,
    /// CPUs whose counters it took over, with the first tick that they did not read.
    pub inherited_from: Vec<(u32, u64)>,
}

impl ReaderCpu {
    /// Notes that a tick arrived, and enters the missing ticks before it.
    pub(super) fn note_tick(
        &mut self,
        tick: u64,
        tick_ns: u64,
        stop_tick: Option<u64>,
        time_ns: u64,
        ledger: &mut Ledger,
    ) {
        for (cpu, since_tick) in self.inherited_from.drain(..) {
            let missing = tick.saturating_sub(since_tick);
            ledger.add_reader_move(time_ns, cpu, self.cpu, missing, tick_ns);
        }
        let expected = self.next_tick.unwrap_or(tick);
        if tick > expected && stop_tick.is_none_or(|stop| expected <= stop) {
            let missing = tick - expected;
            let span_ns = missing * tick_ns;
            ledger.add_loss(LossCause::LateTick, time_ns, span_ns, Some(self.cpu), None, missing);
        }
        self.next_tick = Some(expected.max(tick + 1));
    }
}
