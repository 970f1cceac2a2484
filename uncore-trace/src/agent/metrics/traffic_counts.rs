//! Counts of one link or event, and the choice of the owners with a series.
//!
//! A tenant can make as many cgroups as it likes, so a series is given late and seldom: to an owner
//! with bytes in [`AFTER`] windows, and in the long run to at most as many owners an hour as may
//! have one. A series that begins again goes on, so that no counter goes down.

use std::collections::{HashMap, VecDeque};

use crate::clock::TimeSpan;
use crate::schema::owner::{IDLE, IRQ, SOFTIRQ};

/// Forgetting factor per window for an owner's recent bytes. Recent bytes decide who has a series.
const FORGETTING: f64 = 0.9;

/// An owner replaces another if it has this many times the other's recent bytes.
const BETTER: f64 = 2.0;

/// Windows without bytes after which an owner loses its series.
const QUIET: u32 = 360;

/// Windows with bytes after which an owner may get a series.
pub(super) const AFTER: u32 = 3;

/// Time in which as many series may begin as owners may have one, s.
const HOUR: f64 = 3600.0;

/// For each owner that may have a series, this many may begin at once.
const AT_ONCE: f64 = 2.0;

/// For each owner that may have a series, this many wait for one.
pub(super) const WAITING: usize = 16;

/// An owner that was not seen for this many windows waits no longer if others do.
const GONE: u64 = 2;

/// An owner that was not seen for this many windows waits no longer.
const FORGOTTEN: u64 = 100;

/// For each owner with a series, this many that lost theirs are remembered.
const FORMER: usize = 64;

/// An owner, as the labels name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OwnerName {
    pub owner: String,
    pub device: String,
    pub cgroup: String,
    pub container: String,
    pub pod: String,
    /// Without the step, which is in the path.
    pub job: String,
}

impl OwnerName {
    /// Whether it is one of the few owners that are always there, which keep their series.
    fn is_fixed(&self) -> bool {
        [IDLE, IRQ, SOFTIRQ].contains(&self.owner.as_str())
    }
}

/// What a row of the roll-up says of an owner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerShare {
    pub value: f64,
    pub confidence: Option<f32>,
    /// Ends of the interval, and length of the window in s.
    pub interval: Option<(f64, f64, f64)>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerSeries {
    pub total: f64,
    /// When it was 0, ns since 1970.
    pub since_ns: i64,
    pub recent: f64,
    pub idle_windows: u32,
    /// Sum of confidence x value, and sum of value, in the last window.
    pub confident_sum: (f64, f64),
    /// Lowest and highest rate of the last window, per second.
    pub rate_bounds: Option<(f64, f64)>,
}

impl OwnerSeries {
    /// The part of the value that is expected in confident shares; `None` if nothing is claimed.
    pub(super) fn confident_part(&self) -> Option<f64> {
        let (confident, whole) = self.confident_sum;
        (whole > 0.0).then(|| confident / whole)
    }
}

/// An owner without a series.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitingOwner {
    recent: f64,
    /// Number of windows with bytes, the last of them at this time.
    windows: u32,
    last_window: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct TrafficCounts {
    /// When all sums were 0, ns since 1970.
    pub since_ns: i64,
    /// The window, on `CLOCK_REALTIME`.
    window: TimeSpan<i64>,
    pub total: f64,
    pub unattributed: f64,
    pub other_owners: f64,
    pub peak: Option<f64>,
    pub series: HashMap<OwnerName, OwnerSeries>,
    pub waiting: HashMap<OwnerName, WaitingOwner>,
    /// Totals of owners that lost their series, and when they were 0, oldest first: with a new
    /// series they go on.
    former_owners: VecDeque<(OwnerName, f64, i64)>,
    /// Number of series that began, less those that may by now.
    begun_series: f64,
    /// Number of windows.
    windows: u64,
}

impl TrafficCounts {
    /// Nothing is counted yet in this window, the first.
    pub(super) fn new(window: TimeSpan<i64>) -> Self {
        Self { since_ns: window.begin_ns, window, ..Self::default() }
    }

    /// Forgets the last window, and begins one with these ends.
    pub(super) fn begin_window(&mut self, window: TimeSpan<i64>) {
        self.window = window;
        // The clock may have been set back; no series begins after it is read.
        self.since_ns = self.since_ns.min(window.end_ns);
        for series in self.series.values_mut() {
            (series.confident_sum, series.rate_bounds) = ((0.0, 0.0), None);
            series.since_ns = series.since_ns.min(window.end_ns);
        }
    }

    /// Adds the share of an owner. Returns whether the owner has no series; at most `owner_limit`
    /// owners have one, beside those that are always there.
    pub(super) fn add_share(
        &mut self,
        name: OwnerName,
        row: OwnerShare,
        owner_limit: usize,
    ) -> bool {
        let OwnerShare { value, confidence, interval } = row;
        if name.is_fixed() && value > 0.0 && !self.series.contains_key(&name) {
            let since_ns = self.window.begin_ns;
            self.series.insert(name.clone(), OwnerSeries { since_ns, ..OwnerSeries::default() });
        }
        let Some(series) = self.series.get_mut(&name) else {
            self.other_owners += value;
            self.remember_waiting(name, value, WAITING * owner_limit);
            return true;
        };
        series.total += value;
        series.recent += value;
        if value > 0.0 {
            series.idle_windows = 0;
        }
        if let Some(confidence) = confidence {
            series.confident_sum.0 += f64::from(confidence) * value;
            series.confident_sum.1 += value;
        }
        if let Some((low, high, seconds)) = interval {
            let rate = series.rate_bounds.get_or_insert_default();
            rate.0 += low / seconds;
            rate.1 += high / seconds;
        }
        false
    }

    /// Remembers the recent bytes of an owner without a series. The number of such owners is
    /// limited, because names that come and go must not fill the memory: a larger owner replaces
    /// the smallest, but none that was seen in several windows and lately.
    fn remember_waiting(&mut self, name: OwnerName, value: f64, waiting_limit: usize) {
        if value <= 0.0 {
            return;
        }
        let window_number = self.windows + 1;
        if self.waiting.len() >= waiting_limit && !self.waiting.contains_key(&name) {
            let rank =
                |owner: &WaitingOwner| (window_number - owner.last_window <= GONE, owner.windows);
            let smallest_waiting = self
                .waiting
                .iter()
                .min_by(|(_, a), (_, b)| rank(a).cmp(&rank(b)).then(a.recent.total_cmp(&b.recent)));
            let is_less = |owner: &WaitingOwner| {
                rank(owner) < (true, 1) || owner.windows == 1 && owner.recent < value
            };
            let Some((smallest_name, _)) =
                smallest_waiting.filter(|(_, smallest)| is_less(smallest))
            else {
                return;
            };
            let removed_name = smallest_name.clone();
            self.waiting.remove(&removed_name);
        }
        let waiting = self.waiting.entry(name).or_default();
        waiting.recent += value;
        waiting.windows += u32::from(waiting.last_window != window_number);
        waiting.last_window = window_number;
    }

    /// The owner with a series that moved the fewest bytes recently.
    fn least_shown(&self) -> Option<(OwnerName, f64)> {
        let shown = self.series.iter().filter(|(name, _)| !name.is_fixed());
        let smallest = shown.min_by(|a, b| a.1.recent.total_cmp(&b.1.recent));
        smallest.map(|(name, series)| (name.clone(), series.recent))
    }

    /// Number of series of owners that are not always there.
    fn shown_owners(&self) -> usize {
        self.series.keys().filter(|name| !name.is_fixed()).count()
    }

    /// Takes the series of an owner.
    fn end_series(&mut self, name: OwnerName, owner_limit: usize) {
        let Some(series) = self.series.remove(&name) else { return };
        self.former_owners.push_back((name, series.total, series.since_ns));
        while self.former_owners.len() > FORMER * owner_limit {
            self.former_owners.pop_front();
        }
    }

    /// The total from which an owner's series goes on, and when it was 0.
    fn resume_former(&mut self, name: &OwnerName) -> (f64, i64) {
        let index = self.former_owners.iter().position(|(former, ..)| former == name);
        let owner = index.and_then(|index| self.former_owners.remove(index));
        let (total, since_ns) = owner.map_or((0.0, i64::MAX), |(_, total, since)| (total, since));
        (total, since_ns.min(self.window.end_ns))
    }

    /// Chooses the owners with a series for the next window, at the end of one of this length.
    /// Returns how many owners lost theirs.
    pub(super) fn choose_series(&mut self, owner_limit: usize, seconds: f64) -> u64 {
        self.windows += 1;
        self.begun_series = (self.begun_series - owner_limit as f64 * seconds / HOUR).max(0.0);
        for series in self.series.values_mut() {
            series.recent *= FORGETTING;
            series.idle_windows += 1;
        }
        let quiet = self
            .series
            .iter()
            .filter(|(name, shown)| shown.idle_windows > QUIET && !name.is_fixed());
        let quiet: Vec<OwnerName> = quiet.map(|(name, _)| name.clone()).collect();
        for name in quiet {
            self.end_series(name, owner_limit);
        }
        self.waiting.values_mut().for_each(|waiting| waiting.recent *= FORGETTING);
        self.waiting.retain(|_, waiting| self.windows < waiting.last_window + FORGOTTEN);
        let mut replaced = 0;
        // The limit may have been lowered.
        while self.shown_owners() > owner_limit
            && let Some((smallest, recent)) = self.least_shown()
        {
            self.end_series(smallest.clone(), owner_limit);
            self.waiting.insert(
                smallest,
                WaitingOwner { recent, windows: AFTER, last_window: self.windows },
            );
            replaced += 1;
        }
        while self.begun_series + 1.0 <= AT_ONCE * owner_limit as f64 {
            // What has just moved bytes is there still.
            let ready = self.waiting.iter();
            let ready = ready.filter(|(_, waiting)| {
                waiting.windows >= AFTER && waiting.last_window == self.windows
            });
            let best = ready.max_by(|a, b| a.1.recent.total_cmp(&b.1.recent));
            let Some((name, recent)) = best.map(|(name, waiting)| (name.clone(), waiting.recent))
            else {
                break;
            };
            if self.shown_owners() >= owner_limit {
                let Some((smallest, least_recent)) = self.least_shown() else { break };
                if recent < BETTER * least_recent {
                    break;
                }
                self.end_series(smallest, owner_limit);
                replaced += 1;
            }
            self.waiting.remove(&name);
            self.begun_series += 1.0;
            let (total, since_ns) = self.resume_former(&name);
            self.series
                .insert(name, OwnerSeries { total, since_ns, recent, ..OwnerSeries::default() });
        }
        replaced
    }
}
