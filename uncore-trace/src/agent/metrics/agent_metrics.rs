//! The metrics of the agent itself.

use super::table::{LabelledValue, MetricKind, PageMetric, SeriesLabels, list_metrics};
use super::{AgentDisk, MetricsPage};
use crate::schema::loss;

/// The values of a metric, with their labels.
type LabelledValues<'a> = Vec<(SeriesLabels<'a>, f64)>;

/// A metric of the agent.
pub(super) struct AgentMetricDef {
    name: &'static str,
    help: &'static str,
    metric_type: MetricKind,
    unit: &'static str,
    /// The values; `None`: there is no such metric now.
    series: fn(&MetricsPage) -> Option<LabelledValues<'_>>,
}

/// Those of the agent itself, after [`MetricsPage::canary_metric`].
pub(super) const AGENT_METRICS: &[AgentMetricDef] = list_metrics! { AgentMetricDef:
    Counter "uncore_trace_lost" "{loss}"
        "Losses, by cause as in the table loss; kind=loss: counts or owners are missing, \
         kind=note: shares are less precise"
        = |page| Some(page.losses().collect());
    Gauge "uncore_trace_last_window_timestamp_seconds" "s"
        "End of the last window of the roll-up, in seconds since 1970"
        = |page| unlabelled(page.agent_metrics.last_window_s);
    Gauge "uncore_trace_unsent_files" "{file}"
        "Finished files of the roll-up that the object store has not confirmed"
        = |page| unlabelled(page.agent_metrics.unsent.map(|unsent| unsent.files as f64));
    Gauge "uncore_trace_unsent_bytes" "By"
        "Size of the finished files of the roll-up that the object store has not confirmed"
        = |page| unlabelled(page.agent_metrics.unsent.map(|unsent| unsent.bytes as f64));
    Gauge "uncore_trace_unsent_oldest_timestamp_seconds" "s"
        "Time at which the oldest file that the object store has not confirmed was finished, in \
         seconds since 1970"
        = |page| unlabelled(page.agent_metrics.unsent.and_then(|unsent| unsent.oldest_s));
    Gauge "uncore_trace_disk_free_bytes" "By"
        "Free space on the disk of the ring or the roll-up that the agent may use"
        = |page| page.by_disk(|disk| disk.free_bytes);
    Gauge "uncore_trace_disk_size_bytes" "By" "Size of the disk of the ring or the roll-up"
        = |page| page.by_disk(|disk| disk.size_bytes);
    Counter "uncore_trace_cpu_seconds" "s" "CPU time of the agent"
        = |page| unlabelled(page.agent_metrics.cpu_s);
    Gauge "uncore_trace_resident_bytes" "By" "Resident memory of the agent"
        = |page| unlabelled(page.agent_metrics.resident_bytes as f64);
    Counter "uncore_trace_unwritten_rows" "{row}" "Rows of the roll-up that could not be written"
        = |page| unlabelled(page.agent_metrics.unwritten as f64);
    Counter "uncore_trace_kept" "{recording}" "Number of time spans of the ring that were saved"
        = |page| unlabelled(page.agent_metrics.kept as f64);
    Counter "uncore_trace_triggers_refused" "{trigger}"
        "Triggers and requests that saved nothing, because of the pause, the quota or an error"
        = |page| unlabelled(page.agent_metrics.refused as f64);
    Counter "uncore_trace_owners_joined" "{share}"
        "Shares without a row of their own in the roll-up or a series of their own in the metrics, \
         and owners that lost their series"
        = |page| unlabelled((page.agent_metrics.joined + page.without_series) as f64);
    Counter "uncore_trace_rows_without_series" "{row}"
        "Rows of links and events that have no series, because there are too many"
        = |page| unlabelled(page.left_out as f64);
    Gauge "uncore_trace_build_info" "" "Version of the agent"
        = |_| Some(vec![(vec![("version", env!("CARGO_PKG_VERSION").into())], 1.0)]);
};

/// A value without labels, if it is known.
fn unlabelled(value: impl Into<Option<f64>>) -> Option<LabelledValues<'static>> {
    Some(vec![(Vec::new(), value.into()?)])
}

impl AgentMetricDef {
    /// The metric with its series, if there is such a metric now.
    pub(super) fn collect_series<'a>(&self, page: &'a MetricsPage) -> Option<PageMetric<'a>> {
        let since_ns = page.since_ns;
        let series = (self.series)(page)?.into_iter();
        let series =
            series.map(|(labels, value)| LabelledValue { labels, owner: None, value, since_ns });
        Some(PageMetric {
            name: self.name.into(),
            help: self.help,
            unit: self.unit.into(),
            metric_type: self.metric_type,
            is_of_window: false,
            series: series.collect(),
        })
    }
}

impl MetricsPage {
    /// What the canary was credited.
    pub(super) fn canary_metric(&self) -> Option<PageMetric<'_>> {
        let series = self.canary.credited_ratios().map(|((link, direction), ratio)| {
            let labels = vec![("link", link.into()), ("direction", direction.into())];
            LabelledValue { labels, owner: None, value: ratio, since_ns: 0 }
        });
        let series: Vec<_> = series.collect();
        (!series.is_empty()).then(|| PageMetric {
            name: "uncore_trace_canary_credited_ratio".into(),
            help: "Bytes in the shares of the canary, divided by the bytes that it moved, in about \
                   the last hour",
            unit: "1".into(),
            metric_type: MetricKind::Gauge,
            is_of_window: true,
            series,
        })
    }

    /// Losses by cause.
    fn losses(&self) -> impl Iterator<Item = (SeriesLabels<'_>, f64)> {
        self.lost.iter().map(|(cause, count)| {
            let loss_kind = if loss::is_precision(cause) { "note" } else { "loss" };
            (vec![("cause", cause.into()), ("kind", loss_kind.into())], *count as f64)
        })
    }

    /// A figure of each disk that the agent writes, if there is one.
    fn by_disk(&self, bytes: fn(&AgentDisk) -> u64) -> Option<LabelledValues<'_>> {
        let disks = &self.agent_metrics.disks;
        let value = |disk: &AgentDisk| (vec![("of", disk.content.into())], bytes(disk) as f64);
        (!disks.is_empty()).then(|| disks.iter().map(value).collect())
    }
}
