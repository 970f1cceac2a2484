//! Readings of counters, as entries and as rows of `readings`.

use super::readers::{Readers, SampleOwner};
use super::sink::Sink;
use super::span::TickTime;
use super::stream::{AppliedChange, ClosingBin, RawStream, StreamContext, StreamStart};
use crate::drain::{DrainedRecord, SampleRecord};
use crate::entries::{EntryConsumer, Owner};
use crate::identity::guests::Guests;
use crate::plan::Counter;
use crate::schema::loss::LossCause;

/// The readers, and what says whose the counts between two readings are.
#[derive(Debug)]
pub(super) struct ReadingStream {
    pub readers: Readers,
    /// Needed if a witness does not count virtual machines.
    guests: Option<Guests>,
}

impl RawStream for ReadingStream {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        let setup = start.setup;
        let has_blind_witness = setup.plan.counters.iter().any(Counter::is_blind_witness);
        Self {
            readers: Readers::new(setup.plan, setup.layouts, setup.opened, setup.start_tick),
            guests: has_blind_witness.then(|| Guests::new(setup.root)),
        }
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        if let DrainedRecord::Sample(sample) = record {
            self.feed_sample(sample, context);
        }
    }

    fn apply_change(&mut self, applied: &AppliedChange<'_>, context: &mut StreamContext<'_>) {
        let StreamContext { output, ledger, .. } = context;
        self.readers.apply_change(applied.change, applied.time_ns, ledger, output);
    }

    fn stop_at(&mut self, stop: TickTime) {
        self.readers.stop_at(stop.tick);
    }

    /// A window ends with the reading of its last tick.
    fn is_complete(&self, closing: &ClosingBin, consumer: &dyn EntryConsumer) -> bool {
        let is_needed = closing.is_last || consumer.needs_readings(closing.tick);
        !is_needed || self.readers.have_read(closing.tick)
    }
}

impl ReadingStream {
    fn feed_sample(&mut self, sample: &SampleRecord, context: &mut StreamContext<'_>) {
        let Some(needs_owner) = self.readers.needs_owner(sample) else {
            let (time_ns, cpu) = (sample.begin_ns, Some(sample.cpu));
            context.ledger.add_loss(LossCause::LostSample, time_ns, 0, cpu, None, 1);
            return;
        };
        let owner = needs_owner.then(|| {
            let task_owner = || context.names.task_owner(&sample.task, sample.begin_ns);
            Owner::of_interrupt(sample.context).unwrap_or_else(task_owner)
        });
        if let Some(owner) = owner {
            context.request_owner_name(owner);
        }
        let guests = self.guests.as_mut().filter(|_| needs_owner);
        let ran_guest =
            guests.is_some_and(|guests| guests.runs_guest(&sample.task, sample.begin_ns));
        let StreamContext { output, ledger, .. } = context;
        self.readers.log_sample(sample, SampleOwner { owner, ran_guest }, ledger, output);
    }
}
