//! `--for-each-cgroup`: counts by cgroup, also of counters that the kernel refuses to a cgroup.
//!
//! The recorder runs as it does for `record`; its rows of `fabric` are summed by cgroup as they are
//! made, so that these counts are those of a recording. Guarantee: an interval is a whole number of
//! the timeline's windows.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::runtime::Runtime;

use super::output::{Ending, Output};
use super::parts::{Parts, recorded_ids};
use super::repeat::Stats;
use super::run::release;
use super::table::Table;
use crate::confine::{self, Needs};
use crate::discover::Machine;
use crate::plan::{Counter, Plan};
use crate::record::{self, Outcome};
use crate::schema::columns::i64s;
use crate::schema::fabric;
use crate::signals::Signals;
use crate::tables::writer::{Piece, Pieces, Target};
use crate::workload::Workload;

/// Longest window the parts are made in: `record`'s own default, short beside the time for which
/// the mix of tasks on a CPU stays the same.
const WINDOW: Duration = Duration::from_millis(10);

/// Batches of rows that may wait to be summed; the recorder waits then.
const BATCHES: usize = 64;

/// How long a window waits for what comes after it; half of it where intervals are printed.
const LAG: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// From one set of rows to the next; `None`: one set at the end.
    pub interval: Option<Duration>,
    /// End after so many of them.
    pub interval_count: Option<u32>,
    /// End after this long.
    pub timeout: Option<Duration>,
    /// How long after the command's start counting begins.
    pub delay: Duration,
    /// Cgroups with rows of their own.
    pub named: Vec<String>,
    /// Counters that cannot be opened: they are left out, and their rows say so.
    pub unopened: BTreeSet<u32>,
    /// The command to run; empty for none.
    pub command: Vec<OsString>,
    /// The files of the catalog that are not embedded.
    pub catalog: Vec<String>,
    /// The file that rows go to, if it is one.
    pub file: Option<PathBuf>,
}

/// The window of the timeline for an interval: the longest part of it, of whole milliseconds, that
/// is not longer than [`WINDOW`].
pub fn window(interval: Option<Duration>) -> Duration {
    let Some(interval) = interval else { return WINDOW };
    let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
    let fits = |part: &u64| millis.is_multiple_of(*part);
    Duration::from_millis((1..=WINDOW.as_millis() as u64).rev().find(fits).unwrap_or(1))
}

/// Records, sums and prints. Returns the exit code: 1 if something was lost, else the command's.
///
/// # Errors
///
/// The counters cannot be recorded, the command cannot be run, or the rows cannot be written; the
/// command may still run then.
pub fn run(
    machine: &Machine,
    table: &Table<'_>,
    options: &Options,
    output: &mut Output,
    runtime: &Runtime,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    let Options { named, unopened, .. } = options;
    let mut plan = without(table.plan, unopened);
    // What counts its own CPU can be told exactly whose it is, and that is what was asked.
    plan.read_at_switch();
    let recording = recorder(machine, &plan, options);
    let (sender, receiver) = mpsc::sync_channel(BATCHES);
    let mut view = View { options, output, begin: None, cut: 0, end: 0, printed: 0 };
    let (outcome, seen) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            confine::thread(&Needs::default());
            view.read(receiver, Parts::new(table, named, unopened))
        });
        let target = Target::Pieces(Pieces { sender, tables: vec![&fabric::TABLE] });
        let recorded = record::record(target, machine, &plan, &recording, workload, signals);
        let outcome = runtime.block_on(Box::pin(recorded));
        let seen = reader
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that sums the shares ended early")));
        (outcome, seen)
    });
    let outcome = match (outcome, seen) {
        (Ok(outcome), seen) => {
            let mut rest = seen?;
            runtime.block_on(release(workload, signals, options.timeout))?;
            view.finish(&mut rest, &outcome)?;
            outcome
        }
        // If it is the reader that failed, the recorder only knows that nobody reads.
        (Err(_), Err(error)) if view.begin.is_some() => return Err(error),
        (Err(error), _) => return Err(error),
    };
    if let Some(missing) = outcome.losses.incomplete() {
        log::warn!("{missing}");
    }
    Ok(match workload.exit_code() {
        _ if !outcome.losses.is_complete() => 1,
        Some(code) => code,
        None => 0,
    })
}

/// The plan's counters that can be opened, with ids of their own. What leads a group of those is
/// one of them: without it none of the group opens.
fn without(plan: &Plan, unopened: &BTreeSet<u32>) -> Plan {
    let ids = recorded_ids(plan, unopened);
    let recorded = |id: u32| ids.get(id as usize).copied().flatten();
    let renumbered = |counter: &Counter| {
        let leader = counter.leader.and_then(recorded);
        Some(Counter { id: recorded(counter.id)?, leader, ..counter.clone() })
    };
    Plan {
        tick_ns: plan.tick_ns,
        window_ns: plan.window_ns,
        counters: plan.counters.iter().filter_map(renumbered).collect(),
        // They are computed here, from all the counters that were asked for.
        metrics: Vec::new(),
        links: Vec::new(),
        warnings: plan.warnings.clone(),
        notes: plan.notes.clone(),
    }
}

fn recorder(machine: &Machine, plan: &Plan, options: &Options) -> record::Options {
    let Options { interval, interval_count, timeout, delay, named, command, catalog, .. } = options;
    let interval_of = Duration::from_nanos(plan.window_ns);
    // The windows do not begin with the recording: one more than is printed makes the last whole.
    let counted = interval
        .zip(*interval_count)
        .map(|(interval, count)| interval.saturating_mul(count) + 2 * interval_of);
    let duration = match (counted, timeout) {
        (Some(counted), Some(timeout)) => Some(counted.min(*timeout)),
        (counted, timeout) => counted.or(*timeout),
    };
    record::Options {
        no_cmdline: true,
        duration,
        delay: *delay,
        cgroups: named.clone(),
        lag: if interval.is_some() { LAG / 2 } else { LAG },
        catalog: catalog.clone(),
        command: command.clone(),
        afterwards: options.file.as_deref().map(Needs::to_remove).unwrap_or_default(),
        ..record::Options::for_view(machine, plan)
    }
}

/// Turns the stream into printed rows.
struct View<'a> {
    options: &'a Options,
    output: &'a mut Output,
    /// Begin of the first window, `CLOCK_MONOTONIC` ns.
    begin: Option<i64>,
    /// End of the last window of what was printed.
    cut: i64,
    /// End of the last window.
    end: i64,
    /// Intervals that are over.
    printed: u32,
}

impl View<'_> {
    /// Prints every interval that is over; returns what is left of the last one.
    fn read<'s>(
        &mut self,
        pieces: mpsc::Receiver<Piece>,
        mut parts: Parts<'s>,
    ) -> Result<Parts<'s>> {
        for piece in pieces {
            let Piece::Rows(_, batch) = piece else { continue };
            let (end, length) = (i64s(&batch, "mono_ns")?, i64s(&batch, "window_ns")?);
            let mut from = 0;
            for row in 0..batch.num_rows() {
                if let Some(over) = self.is_over(end.value(row), length.value(row)) {
                    parts.sums.add(&batch, from..row)?;
                    self.print(&mut parts)?;
                    (from, self.printed) = (row, over);
                }
                self.end = self.end.max(end.value(row));
            }
            parts.sums.add(&batch, from..batch.num_rows())?;
        }
        Ok(parts)
    }

    /// How many intervals are over when a window that ends at `end` comes, where that is more than
    /// were printed: what came before it is whole.
    fn is_over(&mut self, end: i64, length: i64) -> Option<u32> {
        let begin = *self.begin.get_or_insert_with(|| {
            (self.cut, self.end) = (end - length, end);
            end - length
        });
        let over = (end - begin - 1) / (self.options.interval?.as_nanos() as i64);
        (over > i64::from(self.printed)).then_some(over as u32)
    }

    /// What was added since the last time, unless enough intervals were printed.
    fn print(&mut self, parts: &mut Parts<'_>) -> Result<()> {
        let rows = parts.take((self.end - self.cut) as f64);
        self.cut = self.end;
        if self.options.interval_count.is_none_or(|count| self.printed < count) {
            let seconds = (self.end - self.begin.unwrap_or(self.end)) as f64 / 1e9;
            self.output.interval(&rows, seconds)?;
        }
        Ok(())
    }

    fn finish(&mut self, rest: &mut Parts<'_>, outcome: &Outcome) -> Result<()> {
        if self.options.interval.is_some() {
            return self.print(rest);
        }
        let length = (self.end - self.cut) as f64;
        let mut ending = Ending { runs: 1, seconds: Stats::default(), counted: Stats::default() };
        ending.seconds.push(outcome.seconds);
        ending.counted.push(length / 1e9);
        self.output.whole(&rest.take(length), &ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_divide_the_interval() {
        for (interval, part) in
            [(1000, 10), (25, 5), (7, 7), (1, 1), (1001, 7), (1009, 1), (10, 10)]
        {
            let window = window(Some(Duration::from_millis(interval)));
            assert_eq!(window, Duration::from_millis(part), "{interval} ms");
        }
        assert_eq!(window(None), WINDOW);
    }
}
