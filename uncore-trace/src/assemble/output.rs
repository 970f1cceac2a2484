//! The destination of the entries of a live recording: the consumer of the log, and the raw tables.

use std::sync::Arc;

use super::reading_output::{ReadingColumns, ReadingOutput};
use super::sink::Sink;
use crate::entries::{CounterReading, EntryConsumer, LogEntry, Owner, OwnerFields};
use crate::schema::cgroups::CgroupNames;
use crate::schema::readings;

/// The consumer and the tables.
#[derive(Debug)]
pub(super) struct EntryOutput<'a> {
    /// Makes `fabric` from the entries.
    pub consumer: &'a mut dyn EntryConsumer,
    /// The rows of the raw tables.
    pub sink: &'a mut Sink,
    /// Whether the raw tables are written.
    pub raw: bool,
}

impl EntryOutput<'_> {
    /// Gives an entry to the consumer.
    pub(super) fn log_entry(&mut self, entry: LogEntry<'_>) {
        // The order of entries is made in this module, so an error here is a bug. It costs what the
        // entry says, which is a loss like any other.
        if let Err(disorder) = self.consumer.take_entry(entry, &mut self.sink.rows) {
            log::error!("{disorder}");
            self.sink.refuse_entry(disorder);
        }
    }

    /// Logs the path of a cgroup, known from the bin that ends at `end_ns`.
    pub(super) fn log_cgroup(&mut self, id: u64, names: &Arc<CgroupNames>, end_ns: u64) {
        self.log_entry(LogEntry::Cgroup { id, names });
        if self.raw {
            self.sink.append_cgroup(id, names, end_ns);
        }
    }
}

impl ReadingOutput for EntryOutput<'_> {
    fn open_tick(&self) -> u64 {
        self.consumer.open_tick()
    }

    fn log_readings(&mut self, readings: &[CounterReading], row: &ReadingColumns<'_>) {
        for reading in readings {
            self.log_entry(LogEntry::Reading(*reading));
        }
        if !self.raw {
            return;
        }
        let owner = readings.iter().find_map(|reading| reading.owner.as_ref());
        let owner = owner.map_or_else(OwnerFields::default, Owner::to_columns);
        let rows: Vec<_> = readings.iter().map(|reading| table_row(reading, &owner, row)).collect();
        self.sink.rows.readings.append_all(&rows);
    }
}

/// A reading as a row of the table. `owner` is the owner of those readings of the sample that have
/// one.
fn table_row<'a>(
    reading: &CounterReading,
    owner: &'a OwnerFields<'_>,
    row: &ReadingColumns<'_>,
) -> readings::Row<'a> {
    let (value, error) = match reading.value {
        Ok(value) => (Some(value), None),
        Err(0) => (None, None),
        Err(errno) => (None, Some(errno)),
    };
    let times = value.and_then(|value| value.times);
    let owner = reading.owner.map(|_| owner);
    readings::Row {
        mono_ns: reading.time as i64,
        tick: reading.tick as i64,
        counter: reading.counter as i32,
        cpu: reading.cpu as i32,
        value: value.map(|value| value.value),
        enabled: times.map(|(enabled, _)| enabled),
        running: times.map(|(_, running)| running),
        // A CPU that stands still during a sweep, as that of a virtual machine may, takes longer
        // than the column can say: 2.1 s.
        width_ns: i32::try_from(row.width_ns).unwrap_or(i32::MAX),
        trigger: row.trigger,
        error,
        pid: row.task.map(|task| task.pid as i32),
        tid: row.task.map(|task| task.tid as i32),
        cgroup_id: row.task.map(|task| task.cgroup_id),
        owner: owner.map(|owner| owner.kind),
        process: owner.and_then(|owner| owner.process.as_deref()),
        owner_cgroup_id: owner.and_then(|owner| owner.cgroup_id),
        number: owner.and_then(|owner| owner.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::Ledger;
    use crate::assemble::monitors::tests::Kept;
    use crate::entries::{Disorder, ReadingTrigger};
    use crate::schema::columns::{i64_column, word_column};

    #[test]
    fn an_entry_that_was_refused_is_a_loss() {
        let (mut consumer, mut sink) = (Kept::default(), Sink::default());
        let mut ledger = Ledger::default();
        for tick in [3, 4] {
            let entry = LogEntry::EndOfTick { tick, is_last: false };
            EntryOutput { consumer: &mut consumer, sink: &mut sink, raw: false }.log_entry(entry);
        }
        ledger.write_rows(&mut sink);
        assert!(ledger.loss_summary().is_complete());
        consumer.2 = Some(Disorder::Tick(4));
        for tick in [4, 5] {
            let entry = LogEntry::EndOfTick { tick, is_last: false };
            EntryOutput { consumer: &mut consumer, sink: &mut sink, raw: false }.log_entry(entry);
        }
        ledger.write_rows(&mut sink);
        assert!(!ledger.loss_summary().is_complete());
        let rows = sink.rows.loss.finish();
        assert_eq!(word_column(&rows, "cause").unwrap().get(0), Some("disorder"));
        assert_eq!(i64_column(&rows, "count").unwrap().values(), &[2]);
    }

    #[test]
    fn a_sweep_that_took_longer_than_the_column_can_say_is_as_long_as_it_can() {
        let reading = CounterReading {
            tick: 1,
            time: 1,
            counter: 0,
            cpu: 0,
            trigger: ReadingTrigger::Timer,
            value: Err(0),
            owner: None,
        };
        let width = |width_ns| {
            let row = ReadingColumns { width_ns, ..ReadingColumns::default() };
            table_row(&reading, &OwnerFields::default(), &row).width_ns
        };
        assert_eq!([1500, 3_000_000_000, u64::MAX].map(width), [1500, i32::MAX, i32::MAX]);
    }
}
