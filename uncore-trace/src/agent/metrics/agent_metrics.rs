//! The metrics of the agent itself.

use super::table::{MetricKind, PageMetric};
use super::{AgentDisk, AgentMetrics, MetricsPage};
use crate::schema::loss;

impl MetricsPage {
    /// What the canary was credited.
    pub(super) fn canary_metric(&self) -> Option<PageMetric<'_>> {
        let (name, help) = (
            "uncore_trace_canary_credited_ratio",
            "Bytes in the shares of the canary, divided by the bytes that it moved, in about the \
             last hour",
        );
        let mut metric = PageMetric {
            is_of_window: true,
            ..PageMetric::without_series(name, help, "1", MetricKind::Gauge)
        };
        for ((link, direction), ratio) in self.canary.credited_ratios() {
            let labels = vec![("link", link.into()), ("direction", direction.into())];
            metric = metric.with_series(labels, ratio, 0);
        }
        (!metric.series.is_empty()).then_some(metric)
    }

    /// Losses by cause.
    pub(super) fn loss_metric(&self) -> PageMetric<'_> {
        let (name, help) = (
            "uncore_trace_lost",
            "Losses, by cause as in the table loss; kind=loss: counts or owners are missing, \
             kind=note: shares are less precise",
        );
        let mut metric = PageMetric::without_series(name, help, "{loss}", MetricKind::Counter);
        for (cause, count) in &self.lost {
            let loss_kind = if loss::is_precision(cause) { "note" } else { "loss" };
            let labels = vec![("cause", cause.into()), ("kind", loss_kind.into())];
            metric = metric.with_series(labels, *count as f64, self.since_ns);
        }
        metric
    }

    /// The agent itself.
    pub(super) fn process_metrics(&self) -> impl Iterator<Item = PageMetric<'_>> {
        let AgentMetrics { cpu_s, resident_bytes, unwritten, kept, refused, joined, .. } =
            self.agent_metrics;
        let figures = [
            ("uncore_trace_cpu_seconds", "CPU time of the agent", "s", MetricKind::Counter, cpu_s),
            (
                "uncore_trace_resident_bytes",
                "Resident memory of the agent",
                "By",
                MetricKind::Gauge,
                resident_bytes as f64,
            ),
            (
                "uncore_trace_unwritten_rows",
                "Rows of the roll-up that could not be written",
                "{row}",
                MetricKind::Counter,
                unwritten as f64,
            ),
            (
                "uncore_trace_kept",
                "Number of time spans of the ring that were saved",
                "{recording}",
                MetricKind::Counter,
                kept as f64,
            ),
            (
                "uncore_trace_triggers_refused",
                "Triggers and requests that saved nothing, because of the pause, the quota or an \
                 error",
                "{trigger}",
                MetricKind::Counter,
                refused as f64,
            ),
            (
                "uncore_trace_owners_joined",
                "Shares without a row of their own in the roll-up or a series of their own in the \
                 metrics, and owners that lost their series",
                "{share}",
                MetricKind::Counter,
                (joined + self.without_series) as f64,
            ),
            (
                "uncore_trace_rows_without_series",
                "Rows of links and events that have no series, because there are too many",
                "{row}",
                MetricKind::Counter,
                self.left_out as f64,
            ),
        ];
        figures.into_iter().map(|(name, help, unit, metric_type, value)| {
            let metric = PageMetric::without_series(name, help, unit, metric_type);
            metric.with_value(value, self.since_ns)
        })
    }
}

type DiskFigure = fn(&AgentDisk) -> u64;

impl AgentMetrics {
    /// The last window, and the files that wait for the object store.
    pub(super) fn window_gauges(&self) -> impl Iterator<Item = PageMetric<'_>> {
        let unsent = self.unsent;
        let gauges = [
            (
                "uncore_trace_last_window_timestamp_seconds",
                "End of the last window of the roll-up, in seconds since 1970",
                "s",
                self.last_window_s,
            ),
            (
                "uncore_trace_unsent_files",
                "Finished files of the roll-up that the object store has not confirmed",
                "{file}",
                unsent.map(|waiting| waiting.files as f64),
            ),
            (
                "uncore_trace_unsent_bytes",
                "Size of the finished files of the roll-up that the object store has not confirmed",
                "By",
                unsent.map(|waiting| waiting.bytes as f64),
            ),
            (
                "uncore_trace_unsent_oldest_timestamp_seconds",
                "Time at which the oldest file that the object store has not confirmed was \
                 finished, in seconds since 1970",
                "s",
                unsent.and_then(|waiting| waiting.oldest_s),
            ),
        ];
        gauges.into_iter().filter_map(|(name, help, unit, value)| {
            let metric = PageMetric::without_series(name, help, unit, MetricKind::Gauge);
            Some(metric.with_value(value?, 0))
        })
    }

    /// The disks that it writes.
    pub(super) fn disk_gauges(&self) -> impl Iterator<Item = PageMetric<'_>> {
        let disks = [
            (
                "uncore_trace_disk_free_bytes",
                "Free space on the disk of the ring or the roll-up that the agent may use",
                (|disk| disk.free_bytes) as DiskFigure,
            ),
            (
                "uncore_trace_disk_size_bytes",
                "Size of the disk of the ring or the roll-up",
                |disk| disk.size_bytes,
            ),
        ];
        disks.into_iter().filter(|_| !self.disks.is_empty()).map(|(name, help, bytes)| {
            let metric = PageMetric::without_series(name, help, "By", MetricKind::Gauge);
            self.disks.iter().fold(metric, |metric, disk| {
                metric.with_series(vec![("of", disk.content.into())], bytes(disk) as f64, 0)
            })
        })
    }
}
