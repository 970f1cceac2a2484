//! What devices count themselves, as entries of the windows in which it was read.
//!
//! A reading belongs to the window that ends before it, if it was made in the first half of the
//! next one: they are made when a second ends. One that arrives later belongs to a later window,
//! which costs precision only, as values are sums.

use std::collections::VecDeque;
use std::sync::Arc;

use super::output::EntryOutput;
use super::sink::Sink;
use super::stream::{ClosingBin, RawStream, SourceReading, StreamContext, StreamStart};
use super::streams::Streams;
use crate::entries::{Accounted, LogEntry};
use crate::schema::accounts;
use crate::schema::io::IoDirection;

/// Accounts that were read together.
#[derive(Debug)]
pub struct AccountReading {
    /// When, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The accounts.
    pub accounts: Vec<Accounted>,
}

/// The readings of windows that are not closed.
#[derive(Debug)]
pub(super) struct PendingAccounts {
    start_ns: u64,
    window_ns: u64,
    /// Oldest first.
    waiting: VecDeque<Arc<AccountReading>>,
}

impl SourceReading for Arc<AccountReading> {
    fn feed_stream(&self, streams: &mut Streams, _context: &mut StreamContext<'_>) {
        streams.accounts.feed_reading(self);
    }
}

impl RawStream for PendingAccounts {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        Self::new(start.start_ns, start.setup.plan.window_ns)
    }

    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        if closing.is_window_end {
            self.close_window(closing.span.end_ns, closing.is_last, &mut context.output);
        }
    }
}

impl PendingAccounts {
    /// Before the first window, which begins at `start_ns`.
    pub(super) const fn new(start_ns: u64, window_ns: u64) -> Self {
        Self { start_ns, window_ns, waiting: VecDeque::new() }
    }

    /// Takes a reading. Readings are in the order of time. The last one before the first window is
    /// what growth is counted from.
    pub(super) fn feed_reading(&mut self, reading: &Arc<AccountReading>) {
        if reading.time_ns < self.start_ns + self.window_ns / 2 {
            self.waiting.clear();
        }
        self.waiting.push_back(Arc::clone(reading));
    }

    /// Logs the readings of the window that ends at `end_ns`; of the last one all.
    pub(super) fn close_window(
        &mut self,
        end_ns: u64,
        is_last: bool,
        output: &mut EntryOutput<'_>,
    ) {
        let is_due = |next_reading: &mut Arc<AccountReading>| {
            is_last || next_reading.time_ns < end_ns + self.window_ns / 2
        };
        while let Some(reading) = self.waiting.pop_front_if(is_due) {
            for accounted in &reading.accounts {
                output.log_entry(LogEntry::Account(accounted));
                if output.raw {
                    let Accounted { time, account, value } = accounted;
                    output.sink.rows.accounts.append(&accounts::Row {
                        mono_ns: end_ns as i64,
                        read_ns: *time as i64,
                        bdf: &account.function.to_string(),
                        source: account.source.source_name(),
                        name: &account.name,
                        direction: account.direction.map(IoDirection::direction_name),
                        unit: account.unit.unit_name(),
                        pid: account.pid.map(u32::cast_signed),
                        client: account.client,
                        value: *value,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::monitors::tests::Kept;
    use super::*;
    use crate::discover::accounts::{Account, AccountSource, Unit};
    use crate::schema::columns::{
        bits_column, i32_column, i64_column, nullable_value, word_column,
    };

    fn reading(time: u64, value: Option<u64>) -> Arc<AccountReading> {
        let account = Account {
            function: "0002:01:00.0".parse().unwrap(),
            source: AccountSource::Drm,
            name: "gfx".into(),
            direction: Some(IoDirection::Write),
            unit: Unit::Ns,
            pid: Some(7),
            client: Some(u64::MAX),
        };
        Arc::new(AccountReading {
            time_ns: time,
            accounts: vec![Accounted { time, account, value }],
        })
    }

    /// End of the window, time and value of a row.
    type Line = (i64, i64, Option<u64>);

    /// The rows and entries of these readings.
    fn closed(readings: &[(u64, Option<u64>)]) -> (Vec<Line>, Vec<Accounted>) {
        let (mut consumer, mut sink) = (Kept::default(), Sink::default());
        let mut accounts = PendingAccounts::new(1000, 100);
        for (time, value) in readings {
            accounts.feed_reading(&reading(*time, *value));
        }
        for end in [1100, 1200, 1300] {
            let mut output = EntryOutput { consumer: &mut consumer, sink: &mut sink, raw: true };
            accounts.close_window(end, end == 1300, &mut output);
        }
        let rows = sink.rows.accounts.finish();
        let (end, read) =
            (i64_column(&rows, "mono_ns").unwrap(), i64_column(&rows, "read_ns").unwrap());
        let value = bits_column(&rows, "value").unwrap();
        let row = |row| (end.value(row), read.value(row), value.get(row));
        ((0..rows.num_rows()).map(row).collect(), consumer.1)
    }

    #[test]
    fn a_reading_is_of_the_window_that_ends_before_it() {
        let (rows, entries) = closed(&[
            (900, Some(0)),
            (1001, Some(1)),
            (1101, Some(2)),
            (1149, None),
            (1380, Some(5)),
        ]);
        // The last one before the first window is kept; all that is left is in the last window.
        assert_eq!(
            rows,
            [
                (1100, 1001, Some(1)),
                (1100, 1101, Some(2)),
                (1100, 1149, None),
                (1300, 1380, Some(5))
            ]
        );
        assert_eq!(
            entries.iter().map(|its| its.value).collect::<Vec<_>>(),
            [Some(1), Some(2), None, Some(5)]
        );
    }

    #[test]
    fn a_row_has_all_of_the_account() {
        let (mut consumer, mut sink) = (Kept::default(), Sink::default());
        let mut accounts = PendingAccounts::new(0, 100);
        accounts.feed_reading(&reading(90, Some(u64::MAX)));
        let mut output = EntryOutput { consumer: &mut consumer, sink: &mut sink, raw: true };
        accounts.close_window(100, false, &mut output);
        let rows = sink.rows.accounts.finish();
        let word =
            |name: &str| word_column(&rows, name).unwrap().get(0).map(str::to_owned).unwrap();
        let all = ["bdf", "source", "name", "direction", "unit"].map(word);
        assert_eq!(all, ["0002:01:00.0", "drm", "gfx", "write", "ns"]);
        assert_eq!(nullable_value(i32_column(&rows, "pid").unwrap(), 0), Some(7));
        let of = |name: &str| bits_column(&rows, name).unwrap().get(0);
        assert_eq!((of("client"), of("value")), (Some(u64::MAX), Some(u64::MAX)));
    }
}
