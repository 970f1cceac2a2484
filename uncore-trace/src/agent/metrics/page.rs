//! The page of metrics: [`super::table`] in the OpenMetrics format.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::MetricsPage;
use super::table::{MetricKind, SeriesLabels};

impl Collector for MetricsPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.all_metrics() {
            let metric_type = match metric.metric_type {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut encoder =
                encoder.encode_descriptor(&metric.name, metric.help, None, metric_type)?;
            for series in metric.series {
                let mut encoder = encoder.encode_family(&series.labels)?;
                match metric.metric_type {
                    MetricKind::Counter => {
                        let none: Option<&Exemplar<SeriesLabels<'_>, f64>> = None;
                        encoder.encode_counter(&series.value, none)?;
                    }
                    MetricKind::Gauge => encoder.encode_gauge(&series.value)?,
                }
            }
        }
        Ok(())
    }
}
