//! `--for-each-cgroup`: counts by cgroup, also for counters that the kernel refuses in a cgroup
//! context.
//!
//! The recorder runs as for `record`, and its rows of `fabric` are summed by cgroup as they arrive,
//! so the counts equal those of a recording. Guarantee: an interval is a whole number of windows.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::runtime::Runtime;

use super::cgroup_rows::CgroupRows;
use super::cgroups::SelectedCgroup;
use super::options::StatOptions;
use super::output::StatOutput;
use super::repeat::Repeats;
use super::run::release_command;
use super::table::StatTable;
use crate::confine::{self, ThreadNeeds};
use crate::discover::Machine;
use crate::plan::Plan;
use crate::record::{self, RecordingOutcome};
use crate::schema::columns::i64_column;
use crate::schema::fabric;
use crate::schema::row_limit::RowLimit;
use crate::signals::Signals;
use crate::tables::writer::{PieceChannel, RecordingTarget, TablePiece};
use crate::workload::Workload;

/// Longest window: the default of `record`. It is short compared with the time in which the mix of
/// tasks on a CPU stays the same.
const WINDOW: Duration = Duration::from_millis(10);

/// Batches of rows that may wait to be summed; if it is full, the recorder waits.
const BATCHES: usize = 64;

/// How long a window waits for later readings before it is divided; with -I half of it.
const LAG: Duration = Duration::from_secs(1);

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct AttributedOptions {
    /// Of what is also asked of other measurements: interval, number of intervals, timeout, command
    /// and output file. The rest is not used.
    pub stat_options: StatOptions,
    /// Time from the start of the command to the start of counting.
    pub delay: Duration,
    /// Cgroups with rows of their own.
    pub named: Vec<SelectedCgroup>,
    /// Counters that cannot be opened: they are not recorded, and their rows say so.
    pub unopened: BTreeSet<u32>,
    /// The files of the catalog that are not embedded.
    pub catalog: Vec<String>,
}

/// The window for an interval: the longest whole number of milliseconds that divides the interval
/// and is not above [`WINDOW`].
pub fn choose_window(interval: Option<Duration>) -> Duration {
    let Some(interval) = interval else { return WINDOW };
    let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
    let fits = |divisor: &u64| millis.is_multiple_of(*divisor);
    Duration::from_millis((1..=WINDOW.as_millis() as u64).rev().find(fits).unwrap_or(1))
}

/// Records, sums and prints. Returns the exit code: 1 if something was lost, else that of the
/// command.
///
/// # Errors
///
/// The counters cannot be recorded, the command cannot be run, or the rows cannot be written; the
/// command may still run then.
pub fn run(
    machine: &Machine,
    table: &StatTable<'_>,
    options: &AttributedOptions,
    output: &mut StatOutput,
    runtime: &Runtime,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    let AttributedOptions { named, unopened, .. } = options;
    let paths: Vec<String> = named.iter().map(|cgroup| cgroup.path.clone()).collect();
    let mut plan = without_unopened(table.plan, unopened);
    // Reads counters of a CPU at every context switch, so that their parts are exact.
    plan.read_at_switch();
    let recording = record_options(machine, &plan, options);
    let (sender, receiver) = mpsc::sync_channel(BATCHES);
    let mut printer =
        IntervalPrinter { options, output, begin_ns: None, printed_ns: 0, end_ns: 0, printed: 0 };
    let (outcome, seen) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            confine::restrict_thread(&ThreadNeeds::default());
            printer.print_intervals(
                receiver,
                CgroupRows::new(table, &paths, unopened).with_labels(named),
            )
        });
        let target = RecordingTarget::Pieces(PieceChannel { sender, tables: vec![&fabric::TABLE] });
        let recorded = record::record(target, machine, &plan, &recording, workload, signals);
        let outcome = runtime.block_on(Box::pin(recorded));
        let seen = reader
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that sums the shares ended early")));
        (outcome, seen)
    });
    let outcome = match (outcome, seen) {
        (Ok(outcome), seen) => {
            let mut unfinished = seen?;
            runtime.block_on(release_command(workload, signals, options.stat_options.timeout))?;
            printer.print_rest(&mut unfinished, &outcome)?;
            outcome
        }
        // First: if the reader failed, the recorder's error says only that nobody takes its rows.
        (Err(_), Err(error)) if printer.begin_ns.is_some() => return Err(error),
        (Err(error), _) => return Err(error),
    };
    if let Some(missing) = outcome.losses.incomplete_text() {
        log::warn!("{missing}");
    }
    Ok(match workload.exit_code() {
        _ if !outcome.losses.is_complete() => 1,
        Some(code) => code,
        None => 0,
    })
}

/// The plan without the counters that cannot be opened. Metrics are computed here, from all
/// selected counters.
fn without_unopened(plan: &Plan, unopened: &BTreeSet<u32>) -> Plan {
    let mut plan = Plan { metrics: Vec::new(), links: Vec::new(), ..plan.clone() };
    plan.retain_counters(|counter| !unopened.contains(&counter.id));
    plan
}

fn record_options(
    machine: &Machine,
    plan: &Plan,
    options: &AttributedOptions,
) -> record::RecordOptions {
    let AttributedOptions { stat_options, delay, named, catalog, .. } = options;
    let StatOptions { interval, interval_count, timeout, command, file, .. } = stat_options;
    let interval_of = Duration::from_nanos(plan.window_ns);
    // Windows do not begin when the recording does, so two more windows make the last interval
    // whole.
    let counted = interval
        .zip(*interval_count)
        .map(|(interval, count)| interval.saturating_mul(count) + 2 * interval_of);
    let duration = match (counted, timeout) {
        (Some(counted), Some(timeout)) => Some(counted.min(*timeout)),
        (counted, timeout) => counted.or(*timeout),
    };
    record::RecordOptions {
        no_cmdline: true,
        duration,
        delay: *delay,
        cgroups: named.iter().map(|cgroup| cgroup.path.clone()).collect(),
        lag: if interval.is_some() { LAG / 2 } else { LAG },
        // Sums of small cgroups are wanted too.
        min_share: 0.0,
        row_limit: RowLimit::All,
        catalog: catalog.clone(),
        command: command.clone(),
        afterwards: file.as_deref().map(ThreadNeeds::to_remove).unwrap_or_default(),
        ..record::RecordOptions::for_view(machine, plan)
    }
}

/// Prints rows from the stream of batches.
struct IntervalPrinter<'a> {
    options: &'a AttributedOptions,
    output: &'a mut StatOutput,
    /// Begin of the first window, `CLOCK_MONOTONIC`, ns.
    begin_ns: Option<i64>,
    /// End of the last window that was printed, `CLOCK_MONOTONIC`, ns.
    printed_ns: i64,
    /// End of the last window that was read, `CLOCK_MONOTONIC`, ns.
    end_ns: i64,
    /// Number of intervals printed.
    printed: u32,
}

impl IntervalPrinter<'_> {
    /// Prints every interval that is over. Returns the sums of the last, unfinished one.
    fn print_intervals<'s>(
        &mut self,
        pieces: mpsc::Receiver<TablePiece>,
        mut cgroup_rows: CgroupRows<'s>,
    ) -> Result<CgroupRows<'s>> {
        for piece in pieces {
            let TablePiece::Rows(_, batch) = piece else { continue };
            let (end, length) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "window_ns")?);
            let mut from = 0;
            for row in 0..batch.num_rows() {
                if let Some(finished) = self.finished_intervals(end.value(row), length.value(row)) {
                    cgroup_rows.sums.add_rows(&batch, from..row)?;
                    self.print_interval(&mut cgroup_rows)?;
                    (from, self.printed) = (row, finished);
                }
                self.end_ns = self.end_ns.max(end.value(row));
            }
            cgroup_rows.sums.add_rows(&batch, from..batch.num_rows())?;
        }
        Ok(cgroup_rows)
    }

    /// The number of intervals that are over when a window that ends at `end` arrives, if that is
    /// more than were printed.
    fn finished_intervals(&mut self, end: i64, length: i64) -> Option<u32> {
        let begin = *self.begin_ns.get_or_insert_with(|| {
            (self.printed_ns, self.end_ns) = (end - length, end);
            end - length
        });
        let finished = (end - begin - 1) / (self.options.stat_options.interval?.as_nanos() as i64);
        (finished > i64::from(self.printed)).then_some(finished as u32)
    }

    /// Prints what was added since the last call, unless enough intervals were printed.
    fn print_interval(&mut self, cgroup_rows: &mut CgroupRows<'_>) -> Result<()> {
        let rows = cgroup_rows.take_rows((self.end_ns - self.printed_ns) as f64);
        self.printed_ns = self.end_ns;
        if self.options.stat_options.interval_count.is_none_or(|count| self.printed < count) {
            let seconds = (self.end_ns - self.begin_ns.unwrap_or(self.end_ns)) as f64 / 1e9;
            self.output.print_interval(&rows, seconds)?;
        }
        Ok(())
    }

    fn print_rest(
        &mut self,
        unfinished: &mut CgroupRows<'_>,
        outcome: &RecordingOutcome,
    ) -> Result<()> {
        if self.options.stat_options.interval.is_some() {
            return self.print_interval(unfinished);
        }
        let length = (self.end_ns - self.printed_ns) as f64;
        let mut whole = Repeats::default();
        whole.push(Vec::new(), outcome.seconds, length / 1e9);
        self.output.print_whole(&unfinished.take_rows(length), &whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_divides_the_interval() {
        for (interval, part) in
            [(1000, 10), (25, 5), (7, 7), (1, 1), (1001, 7), (1009, 1), (10, 10)]
        {
            let window = choose_window(Some(Duration::from_millis(interval)));
            assert_eq!(window, Duration::from_millis(part), "{interval} ms");
        }
        assert_eq!(choose_window(None), WINDOW);
    }
}
