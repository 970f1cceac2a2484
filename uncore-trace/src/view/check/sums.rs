//! Verifies `sums`: the owners of a second sum to its total, which is that of its windows in
//! `fabric`.

use std::collections::{HashMap, VecDeque};

use anyhow::Result;

use super::facts::MetadataFacts;
use super::rows::conservation_fault;
use super::window::{self, CheckedCounter, CheckedWindow, WindowCollector, WindowReader};
use super::{CheckOutcome, FaultTally};
use crate::schema::sums;
use crate::tables::reader::Recording;

/// Relative error of a sum of totals.
const RELATIVE: f64 = 1e-9;

/// Compares each second with its windows; `None` if the recording has no sums. A recorder that was
/// killed may have synced a second without its last windows: such a second ends after all windows.
pub(super) fn verify_sum_rows(
    recording: &Recording,
    facts: &MetadataFacts,
) -> Option<CheckOutcome> {
    let compare = || compare_seconds(recording, facts.repaired);
    FaultTally::table_outcome(recording, &sums::TABLE, compare, "seconds")
}

/// The windows of `fabric` that no second has had yet, by counter.
struct UnsummedWindows {
    reader: WindowReader,
    /// The end of the last window of any counter so far, `CLOCK_MONOTONIC`, ns.
    last_end_ns: i64,
    windows: HashMap<CheckedCounter, VecDeque<CheckedWindow>>,
}

fn compare_seconds(recording: &Recording, is_repaired: bool) -> Result<FaultTally> {
    let mut unsummed = UnsummedWindows {
        reader: WindowReader::open(recording)?,
        last_end_ns: i64::MIN,
        windows: HashMap::new(),
    };
    let mut tally = FaultTally::default();
    let mut seconds = WindowCollector::default();
    let mut read = Ok(());
    let mut compare = |seconds: &WindowCollector, second: &CheckedWindow| {
        let counter = seconds.counter_name(second.counter);
        match unsummed.take_total(counter, second) {
            Ok(total) => {
                let is_cut = is_repaired && unsummed.last_end_ns < second.end_ns;
                let comparable_total = (!is_cut).then_some(total);
                tally.examine_item(|| second_fault(seconds, second, comparable_total));
            }
            Err(error) => read = Err(error),
        }
    };
    for batch in recording.open_table(&sums::TABLE)?.scan_columns(&window::COLUMNS)? {
        seconds.add_batch(&batch?, &mut compare)?;
    }
    seconds.finish(&mut compare);
    read.map(|()| tally)
}

impl UnsummedWindows {
    /// The sum of the totals of a counter's windows that end in a second.
    fn take_total(&mut self, counter: CheckedCounter, second: &CheckedWindow) -> Result<f64> {
        let last_ns = |windows: &HashMap<CheckedCounter, VecDeque<CheckedWindow>>| {
            windows.get(&counter).and_then(|windows| windows.back()).map(|window| window.end_ns)
        };
        while !self.reader.is_over
            && last_ns(&self.windows).is_none_or(|end_ns| end_ns < second.end_ns)
        {
            self.read_batch()?;
        }
        let mut total = 0.0;
        let windows = self.windows.entry(counter).or_default();
        while let Some(window) = windows.pop_front_if(|window| window.end_ns <= second.end_ns) {
            // Earlier ones are of a second that was cut in two.
            if window.end_ns > second.begin_ns {
                total += window.total.unwrap_or_default();
            }
        }
        Ok(total)
    }

    fn read_batch(&mut self) -> Result<()> {
        let Self { reader, windows, last_end_ns } = self;
        reader.read_batch(|collector, window| {
            *last_end_ns = window.end_ns.max(*last_end_ns);
            windows.entry(collector.counter_name(window.counter)).or_default().push_back(*window);
        })
    }
}

fn second_fault(
    seconds: &WindowCollector,
    second: &CheckedWindow,
    fabric_total: Option<f64>,
) -> Option<String> {
    let total = second.total.unwrap_or_default();
    let is_near = |other: &f64| (other - total).abs() <= RELATIVE * total.abs().max(other.abs());
    if let Some(fabric_total) = fabric_total.filter(|fabric_total| !is_near(fabric_total)) {
        let name = seconds.describe_window(second);
        return Some(format!("{name}: sums has {total}, the windows of fabric {fabric_total}"));
    }
    conservation_fault(seconds, second, total)
}
