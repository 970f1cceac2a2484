//! The metrics for Prometheus and OpenTelemetry, computed from the rows of the roll-up.
//!
//! Guarantees: no counter goes down or jumps. The bytes of an owner without a series are counted in
//! `other`, and stay there when the owner gets a series. So the rates of all owners of a link and
//! of `unattributed` sum to the rate of the link. The number of series is bounded: [`NAMES`]
//! directions of links and events, each with as many owners as the configuration allows; and so is
//! the number of those that begin in an hour ([`traffic_counts`]).

mod agent_metrics;
mod canary;
mod otlp;
mod page;
mod table;
mod traffic_counts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use arrow::array::{Float64Array, Int16Array, RecordBatch, TimestampMicrosecondArray};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::canary::CanaryRatios;
use self::table::unit_of;
use self::traffic_counts::{OwnerName, OwnerShare, TrafficCounts};
use crate::clock::{TimeSpan, duration_ns};
use crate::schema::cgroups::whole_job;
use crate::schema::columns::{self, nullable_value};
use crate::schema::loss;
use crate::schema::owner::{DEVICE, OTHER_TASKS, TASK, UNATTRIBUTED};

/// Most directions of links and events with series; further ones are left out and counted.
pub const NAMES: usize = 1000;

/// A direction of a link, or an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum MeteredTraffic {
    Link { link: String, direction: String, socket: Option<i16> },
    Event { event: String, filter: String, unit: String },
}

/// A file system that the agent writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDisk {
    /// What is written there: `ring` or `rollup`.
    pub content: &'static str,
    /// Bytes that the agent may still write.
    pub free_bytes: u64,
    /// Its size, bytes.
    pub size_bytes: u64,
}

/// Finished files of the roll-up that the store has not confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Unsent {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest was finished, s since 1970; `None` without files.
    pub oldest_s: Option<f64>,
}

/// Metrics of the agent itself.
#[derive(Debug, Clone, Default)]
pub struct AgentMetrics {
    /// CPU time used, s.
    pub cpu_s: f64,
    /// Memory used, bytes.
    pub resident_bytes: u64,
    /// Rows of the roll-up that could not be written.
    pub unwritten: u64,
    /// Number of recordings that triggers saved.
    pub kept: u64,
    /// Number of triggers that were not served, because of the pause, the quota or an error.
    pub refused: u64,
    /// Shares that the roll-up summed in `other_tasks`.
    pub joined: u64,
    /// End of the last window of the roll-up, s since 1970; `None` before the first.
    pub last_window_s: Option<f64>,
    /// The file systems that it writes.
    pub disks: Vec<AgentDisk>,
    /// What waits for `uncore-trace upload`; `None` without `[upload]`.
    pub unsent: Option<Unsent>,
}

/// Adds the losses of a part. A loss that lasts for the whole recording is reported in each part,
/// and is counted once.
pub fn add_lost(totals: &mut BTreeMap<String, u64>, lost: &BTreeMap<String, u64>) {
    for (cause, count) in lost {
        let total = totals.entry(cause.clone()).or_default();
        *total = if loss::does_hold(cause) { (*total).max(*count) } else { *total + count };
    }
}

/// All counters of the page.
#[derive(Debug, Clone, Default)]
pub struct MetricsPage {
    /// Number of owners of each link with series.
    pub owners: usize,
    traffic: BTreeMap<MeteredTraffic, TrafficCounts>,
    /// Rows of links and events beyond [`NAMES`].
    left_out: u64,
    /// Shares whose owner had no series, and owners that lost theirs.
    without_series: u64,
    /// The losses since the agent began, by cause.
    pub lost: BTreeMap<String, u64>,
    /// The metrics of the agent itself.
    pub agent_metrics: AgentMetrics,
    /// When the counters of the agent began, ns since 1970.
    since_ns: i64,
    /// The last window, on `CLOCK_REALTIME`.
    window: Option<TimeSpan<i64>>,
    /// What the canary was credited.
    pub(super) canary: CanaryRatios,
}

impl MetricsPage {
    /// No counts yet; `owners` is the number of owners of each link with series.
    pub fn new(owners: usize) -> Self {
        Self { owners, since_ns: now_ns(), ..Self::default() }
    }

    /// Adds the rows of a window of the roll-up.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub fn add_window(&mut self, batch: &RecordBatch) -> Result<()> {
        let words = |name| columns::word_column(batch, name);
        let (links, directions) = (words("link")?, words("direction")?);
        let sockets: &Int16Array = columns::typed_column(batch, "socket")?;
        let (events, filters, units) = (words("event")?, words("filter")?, words("unit")?);
        let (owners, comms) = (words("owner")?, words("comm")?);
        let (cgroups, containers, pods) = (words("cgroup")?, words("container")?, words("pod")?);
        let jobs = words("job")?;
        let values: &Float64Array = columns::f64_column(batch, "value")?;
        let (peaks, peak_directions) =
            (columns::f64_column(batch, "peak")?, words("peak_direction")?);
        let confidences = columns::f32_column(batch, "confidence")?;
        let (lows, highs) =
            (columns::f64_column(batch, "low")?, columns::f64_column(batch, "high")?);
        let lengths = columns::i64_column(batch, "window_ns")?;
        let seconds =
            |row: usize| nullable_value(lengths, row).map_or(0.0, |ns: i64| ns as f64 / 1e9);
        let length = (0..batch.num_rows()).map(seconds).fold(0.0, f64::max);
        let ends: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        let end = (batch.num_rows() > 0).then(|| nullable_value(ends, 0)).flatten();
        let end_ns = end.map_or_else(now_ns, |us: i64| us.saturating_mul(1000));
        let begin_ns = end_ns.saturating_sub((length * 1e9) as i64);
        let window = TimeSpan { begin_ns, end_ns };
        self.window = Some(window);
        // The clock may have been set back.
        self.since_ns = self.since_ns.min(end_ns);
        self.traffic.values_mut().for_each(|counted| counted.begin_window(window));
        for row in 0..batch.num_rows() {
            let (_, scale) = unit_of(units.get(row).unwrap_or_default());
            let Some(value) = nullable_value(values, row).map(|value| scale * value.max(0.0))
            else {
                continue;
            };
            let text = |word: columns::WordColumn<'_>| word.get(row).unwrap_or_default().to_owned();
            if let (Some(link), Some(direction)) = (links.get(row), directions.get(row)) {
                self.canary.add_credited((link, direction), cgroups.get(row), value);
            }
            let traffic = match links.get(row) {
                Some(link) => MeteredTraffic::Link {
                    link: link.to_owned(),
                    direction: text(directions),
                    socket: nullable_value(sockets, row),
                },
                None => MeteredTraffic::Event {
                    event: text(events),
                    filter: text(filters),
                    unit: text(units),
                },
            };
            if self.traffic.len() >= NAMES && !self.traffic.contains_key(&traffic) {
                self.left_out += 1;
                continue;
            }
            let new_counts = || TrafficCounts::new(window);
            let counts = self.traffic.entry(traffic).or_insert_with(new_counts);
            counts.total += value;
            // A peak for the sum of both directions is not the peak of one.
            let is_peak_of_direction = peak_directions.get(row) == directions.get(row);
            counts.peak =
                nullable_value(peaks, row).filter(|_| is_peak_of_direction).or(counts.peak);
            let owner_kind = owners.get(row).unwrap_or_default();
            if owner_kind == UNATTRIBUTED {
                counts.unattributed += value;
                continue;
            }
            if owner_kind == OTHER_TASKS {
                counts.other_owners += value;
                self.without_series += 1;
                continue;
            }
            let text_of_kind =
                |kind, word| if owner_kind == kind { text(word) } else { String::new() };
            let owner_name = OwnerName {
                owner: owner_kind.to_owned(),
                // Interrupts are not told apart: there are many, with few bytes each.
                device: text_of_kind(DEVICE, comms),
                cgroup: text_of_kind(TASK, cgroups),
                container: text(containers),
                pod: text(pods),
                job: jobs.get(row).map(whole_job).unwrap_or_default().to_owned(),
            };
            let bounds = nullable_value(lows, row)
                .zip(nullable_value(highs, row))
                .filter(|_| seconds(row) > 0.0);
            let interval = bounds.map(|(low, high)| (scale * low, scale * high, seconds(row)));
            let share =
                OwnerShare { value, confidence: nullable_value(confidences, row), interval };
            self.without_series += u64::from(counts.add_share(owner_name, share, self.owners));
        }
        for counted in self.traffic.values_mut() {
            self.without_series += counted.choose_series(self.owners, length);
        }
        Ok(())
    }

    /// The page in the OpenMetrics format.
    ///
    /// # Errors
    ///
    /// It cannot be formatted.
    pub fn encode_page(&self) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut page = String::new();
        encode(&mut page, &registry)?;
        Ok(page)
    }
}

/// The time, ns since 1970.
fn now_ns() -> i64 {
    duration_ns(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The page as `node_exporter` reads it, in Prometheus' text format: a counter's type and help have
/// the name of its series, and no line ends the text.
pub fn format_textfile(page: &str) -> String {
    let counters =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    let counters: BTreeSet<&str> = counters.collect();
    let mut text = String::new();
    for line in page.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        let described = ["#", "HELP", "TYPE"];
        let head = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match words.next() {
            Some(name)
                if described.contains(&head.0)
                    && described.contains(&head.1)
                    && counters.contains(name) =>
            {
                text.extend(["# ", head.1, " ", name, "_total ", words.next().unwrap_or_default()]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
