//! [`super::table`] as a request of OTLP.
//!
//! All series belong to one resource, the agent: its links are shared, and an owner is only a part
//! of what a series says, not who reports it. So `k8s.pod.uid` and its like are attributes of
//! points. As attributes of resources, they would say that the agent runs in the pod of the tenant,
//! and points of two pods would differ by their resource alone, which Prometheus does not store
//! with a series. A collector moves them to the resource where that is wanted (its processor
//! `groupbyattrs`).
//!
//! Guarantees: names, values and labels are those of the page; a label without a value is no
//! attribute; a series without a value is not there. The start time of a counter stays the same
//! while the counter goes on, and is another one when it begins at 0 again.

use prost::Message as _;

use super::table::{LabelledValue, MetricKind, PageMetric};
use super::traffic_counts::OwnerName;
use super::{MetricsPage, now_ns};
use crate::identity::containers::{Inside, is_id, is_uid};
use crate::otlp::{
    CUMULATIVE, ExportRequest, Gauge, InstrumentationScope, KeyValue, MetricData, NumberDataPoint,
    Resource, ResourceMetrics, ScopeMetrics, SumMetric, attribute,
};

/// Name of the program, as the service and as the scope.
const NAME: &str = "uncore-trace";

/// Version of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl MetricsPage {
    /// The body of a request of OTLP with all metrics of this host.
    pub fn encode_request(&self, host: &str) -> Vec<u8> {
        let current_ns = now_ns();
        let end = self.window.map_or(current_ns, |window| window.end_ns);
        let metrics = self.all_metrics().into_iter().filter(|metric| !metric.series.is_empty());
        let time = |metric: &PageMetric<'_>| if metric.is_of_window { end } else { current_ns };
        let metrics = metrics.map(|metric| (time(&metric), metric));
        let scope = InstrumentationScope { name: NAME.to_owned(), version: VERSION.to_owned() };
        let resource = Resource {
            attributes: vec![
                attribute("service.name", NAME),
                attribute("service.version", VERSION),
                attribute("host.name", host),
            ],
        };
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(scope),
            metrics: metrics.map(|(time, metric)| encode_metric(metric, time)).collect(),
        }];
        let metrics = ResourceMetrics { resource: Some(resource), scope_metrics };
        ExportRequest { resource_metrics: vec![metrics] }.encode_to_vec()
    }
}

/// A metric whose values are those of this time.
fn encode_metric(metric: PageMetric<'_>, time_ns: i64) -> crate::otlp::OtlpMetric {
    let PageMetric { name, help, unit, metric_type: series_type, series, is_of_window: _ } = metric;
    let data_points =
        series.iter().map(|series| data_point(series, series_type, time_ns)).collect();
    crate::otlp::OtlpMetric {
        name: name.into_owned(),
        description: help.to_owned(),
        unit: unit.into_owned(),
        data: Some(match series_type {
            MetricKind::Gauge => MetricData::Gauge(Gauge { data_points }),
            MetricKind::Counter => MetricData::Sum(SumMetric {
                data_points,
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
        }),
    }
}

fn data_point(
    series: &LabelledValue<'_>,
    metric_type: MetricKind,
    time_ns: i64,
) -> NumberDataPoint {
    let labels = series.labels.iter().filter(|(_, value)| !value.is_empty());
    let mut attributes: Vec<KeyValue> =
        labels.map(|(name, value)| attribute(name, value.as_ref())).collect();
    attributes.extend(series.owner.into_iter().flat_map(conventional_attributes));
    let since_ns = if metric_type == MetricKind::Counter { series.since_ns } else { 0 };
    NumberDataPoint {
        attributes,
        start_time_unix_nano: u64::try_from(since_ns).unwrap_or_default(),
        time_unix_nano: u64::try_from(time_ns).unwrap_or_default(),
        as_double: Some(series.value),
    }
}

/// What the semantic conventions have names for: container and pod of an owner. Ids are those in
/// its path, which are complete. The labels say whether they are believed.
fn conventional_attributes(name: &OwnerName) -> Vec<KeyValue> {
    let inside = Inside::parse(&name.cgroup);
    let mut attributes = Vec::new();
    if !name.container.is_empty()
        && let Some(id) = inside.container.as_deref().filter(|id| is_id(id))
    {
        attributes.push(attribute("container.id", id));
    }
    let (named, uid) = match name.pod.rsplit_once('@') {
        Some((named, uid)) => (Some(named), uid),
        None => (None, name.pod.as_str()),
    };
    // A pod of podman has no namespace, and no such uid.
    if is_uid(uid) {
        attributes.push(attribute("k8s.pod.uid", uid));
        if let Some((namespace, pod)) = named.and_then(|named| named.split_once('/')) {
            attributes.push(attribute("k8s.namespace.name", namespace));
            attributes.push(attribute("k8s.pod.name", pod));
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::otlp::AnyValue;
    use crate::schema::rollup;

    const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
    const UID: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

    fn pairs<'a>(attributes: &'a [KeyValue]) -> Vec<(&'a str, &'a str)> {
        let text = |any_value: Option<&'a AnyValue>| {
            any_value.and_then(|known_value| known_value.string_value.as_deref()).unwrap()
        };
        attributes
            .iter()
            .map(|attribute| (attribute.key.as_str(), text(attribute.value.as_ref())))
            .collect()
    }

    #[test]
    fn only_complete_and_trusted_ids_are_attributes() {
        let pod = format!("/kubepods/burstable/pod{UID}/{ID}");
        let inner = format!("{pod}/kubepods/pod{}/x", UID.replace('9', "8"));
        let podman = format!("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope");
        let named = format!("shop/db-0@{UID}");
        for (cgroup, container, pod, expected) in [
            (&pod, "", "", &[][..]),
            (&pod, "", UID, &[("k8s.pod.uid", UID)]),
            (
                &inner,
                "db@3f4e5d6c7b8a",
                named.as_str(),
                &[
                    ("container.id", ID),
                    ("k8s.pod.uid", UID),
                    ("k8s.namespace.name", "shop"),
                    ("k8s.pod.name", "db-0"),
                ],
            ),
            (&podman, "3f4e5d6c7b8a", "3f4e5d6c7b8a", &[("container.id", ID)]),
            (&"/lxc/web".to_owned(), "web", "", &[]),
        ] {
            let name = OwnerName {
                owner: "task".to_owned(),
                cgroup: cgroup.clone(),
                container: container.to_owned(),
                pod: pod.to_owned(),
                ..OwnerName::default()
            };
            assert_eq!(
                pairs(&conventional_attributes(&name)),
                expected,
                "{cgroup} {container} {pod}"
            );
        }
    }

    /// The window of 100 s with this number has these owners of an event.
    fn window(metrics: &mut MetricsPage, number: i64, owners: &[&str]) {
        let mut rows = rollup::Builder::default();
        for cgroup in owners {
            rows.append(&rollup::Row {
                ts: number * 100_000_000_000,
                window_ns: 100_000_000_000,
                event: "e",
                unit: "Joules",
                owner: "task",
                cgroup: Some(cgroup),
                value: Some(1000.0),
                ..rollup::Row::default()
            });
        }
        metrics.add_window(&rows.finish()).unwrap();
    }

    /// Start and value of each owner, in s.
    fn owners(metrics: &MetricsPage) -> BTreeMap<String, (u64, f64)> {
        let request = ExportRequest::decode(metrics.encode_request("h").as_slice()).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let owned =
            metrics.iter().find(|metric| metric.name == "uncore_trace_owner_event_joules").unwrap();
        assert_eq!(owned.unit, "J");
        let Some(MetricData::Sum(sum)) = &owned.data else { panic!("{owned:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let points = sum.data_points.iter().map(|point| {
            assert!(point.start_time_unix_nano <= point.time_unix_nano, "{point:?}");
            let attributes = pairs(&point.attributes);
            let name = attributes.iter().find(|(key, _)| *key == "owner_cgroup");
            let name = name.map_or("other", |(_, name)| name);
            let start = point.start_time_unix_nano / 1_000_000_000;
            (name.to_owned(), (start, point.as_double.unwrap()))
        });
        points.collect()
    }

    #[test]
    fn a_start_time_stays_while_a_counter_goes_on() {
        let mut metrics = MetricsPage::new(1);
        for number in 101..=105 {
            window(&mut metrics, number, &["/a"]);
        }
        // `other` counts from the begin of the first window, the owner from its series on.
        let all = [("other", (10_000, 3000.0)), ("/a", (10_300, 2000.0))];
        let all = BTreeMap::from(all.map(|(name, start_and_sum)| (name.to_owned(), start_and_sum)));
        assert_eq!(owners(&metrics), all);
        // It loses its series, and has it again: the sum goes on, and so does the start.
        for number in 106..=300 {
            window(&mut metrics, number, &["/b"]);
        }
        let gone = owners(&metrics);
        assert!(!gone.contains_key("/a") && gone["/b"].0 > 10_500, "{gone:?}");
        for number in 301..=500 {
            window(&mut metrics, number, &["/a"]);
        }
        let back = owners(&metrics);
        assert_eq!((back["/a"].0, back["other"].0), (10_300, 10_000), "{back:?}");
        assert!(back["/a"].1 > 2000.0 && !back.contains_key("/b"), "{back:?}");
        // The clock is set back, once: starts move once.
        window(&mut metrics, 50, &["/a"]);
        assert_eq!(owners(&metrics)["/a"].0, 5000);
        window(&mut metrics, 51, &["/a"]);
        assert_eq!(owners(&metrics)["/a"].0, 5000);
    }
}
