use std::collections::BTreeMap;

use super::*;

const LISTEN: &str = "[metrics]\nlisten = ['127.0.0.1:1', 'unix:/run/a.sock']\n";

fn settings_from(more: &str, variables: &[(&str, &str)]) -> Result<Option<PushSettings>> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let config = Config::parse(&format!("{LISTEN}{more}")).unwrap();
    PushSettings::from_config(&config, |name| variables.get(name).map(|value| (*value).to_owned()))
}

fn some(more: &str, variables: &[(&str, &str)]) -> PushSettings {
    settings_from(more, variables).unwrap().unwrap()
}

const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const ONE: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";

#[test]
fn an_endpoint_for_metrics_is_used_as_it_is_and_others_get_a_path() {
    for (more, variables, address) in [
        ("[otlp]", &[][..], "http://localhost:4318/v1/metrics"),
        ("[otlp]", &[(ALL, "http://c:1")], "http://c:1/v1/metrics"),
        ("", &[(ALL, "https://c")], "https://c/v1/metrics"),
        ("", &[(ALL, "http://c:1/")], "http://c:1/v1/metrics"),
        ("", &[(ALL, "http://c:1/base/")], "http://c:1/base/v1/metrics"),
        ("", &[(ALL, "http://c:1/base?k=v")], "http://c:1/base/v1/metrics?k=v"),
        ("", &[(ONE, "http://c:1")], "http://c:1/"),
        ("", &[(ONE, "http://c:1/x/")], "http://c:1/x/"),
        ("", &[(ALL, "http://c:1"), (ONE, "http://d:2/x")], "http://d:2/x"),
        // The configuration goes before the environment.
        (
            "[otlp]\nendpoint = 'http://e'",
            &[(ALL, "http://c"), (ONE, "http://d")],
            "http://e/v1/metrics",
        ),
    ] {
        assert_eq!(some(more, variables).endpoint.as_str(), address, "{more} {variables:?}");
    }
    // Over a Unix socket nobody else can answer.
    assert_eq!(some("[otlp]", &[]).agent, ListenAddress::Unix("/run/a.sock".into()));
}

#[test]
fn no_metric_is_pushed_without_an_endpoint() {
    for (more, variables) in [
        ("", &[][..]),
        ("", &[(ALL, "")]),
        ("", &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")]),
        ("[otlp]", &[("OTEL_SDK_DISABLED", "TRUE")]),
        ("", &[(ALL, "http://c"), ("OTEL_METRICS_EXPORTER", "none")]),
    ] {
        assert!(settings_from(more, variables).unwrap().is_none(), "{more} {variables:?}");
    }
    assert!(settings_from("[otlp]", &[("OTEL_SDK_DISABLED", "1")]).unwrap().is_some());
    let alone = Config::parse("").unwrap();
    let error =
        PushSettings::from_config(&alone, |name| (name == ALL).then(|| "http://c".to_owned()));
    assert!(error.unwrap_err().to_string().contains("add [metrics] with listen"));
}

#[test]
fn a_variable_for_metrics_goes_before_one_for_all() {
    let settings = some(
        "[otlp]",
        &[
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "Authorization=Bearer%20x%2C, b = 2 "),
            ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
        ],
    );
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.interval, Duration::from_secs(15));
    assert!(!settings.compresses);
    let headers: Vec<_> = settings
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(headers, [("authorization", "Bearer x,"), ("b", "2")]);
    assert!(!format!("{settings:?}").contains("Bearer"), "{settings:?}");
    let settings = some("[otlp]\ninterval = '5s'", &[("OTEL_METRIC_EXPORT_INTERVAL", "15000")]);
    assert_eq!((settings.interval, settings.timeout), (Duration::from_secs(5), TIMEOUT));
    assert_eq!(some("[otlp]", &[]).interval, INTERVAL);
}

#[test]
fn attributes_of_the_resource_are_those_of_the_environment() {
    let list = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,k8s.cluster.name=c%20d");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        some("[otlp]", &[list, ("OTEL_SERVICE_NAME", "b")]).attributes,
        [pair("service.name", "a"), pair("k8s.cluster.name", "c d"), pair("service.name", "b")]
    );
    let wrong = ("OTEL_RESOURCE_ATTRIBUTES", "a=b,wrong");
    assert_eq!(some("[otlp]", &[wrong]).attributes, []);
}

#[test]
fn settings_that_cannot_be_used_are_refused_without_a_secret() {
    for (name, value, says) in [
        (ALL, "c:4318", "write http://HOST:4318"),
        (ALL, "grpc://c:4317", "write http://HOST:4318"),
        (ONE, "http://", "write http://HOST:4318"),
        (ALL, "http://secret@c", "set OTEL_EXPORTER_OTLP_HEADERS"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is supported"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "only http/protobuf is supported"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "not a number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "not a number of milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "not a number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "write gzip or none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent", "cannot read /nonexistent"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/passwd", "no certificate in /etc/passwd"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret", "part 2 of OTEL_EXPORTER_OTLP_HEADERS"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=secret", "part 1 of"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%00", "not an HTTP header"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a secret=b", "not an HTTP header"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%FF", "part 1 of"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Content-Type=secret", "which every request already has"),
    ] {
        let error = settings_from("[otlp]", &[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(says), "{value}: {error}");
        assert!(error.contains(name) && !error.contains("secret"), "{value}: {error}");
    }
}
