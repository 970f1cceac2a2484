//! Files that are installed beside the program: the documented configuration, the units, the chart
//! and the dashboard agree with the program.
//!
//! `cargo xtask dist --check` installs and renders them for real.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde_json::Value;
use uncore_trace::agent::metrics::{AgentDisk, AgentMetrics, MetricsPage, Unsent};
use uncore_trace::config::Config;
use uncore_trace::schema::rollup;

use crate::skip::show;

/// Labels that Prometheus adds to scraped series.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sections that are completely examples: one of their keys has no default.
const EXAMPLES: [&str; 3] = ["[upload]", "[otlp]", "[[trigger]]"];

/// The configuration with its commented keys enabled; with or without the examples.
fn uncommented(text: &str, with_examples: bool) -> String {
    let code = Regex::new(r"^# ([a-z-]+ = .*|\[.*\])$").unwrap();
    let (mut lines, mut is_example, mut skips) = (String::new(), false, false);
    for line in text.lines() {
        let code = code.captures(line).map(|captures| captures[1].to_owned());
        let uncommented_line = code.as_deref().unwrap_or(line);
        if uncommented_line.starts_with('[') {
            skips = EXAMPLES.contains(&uncommented_line);
            is_example = false;
        }
        match code {
            Some(code) if with_examples || !is_example && !skips => lines.push_str(&code),
            Some(_) => {}
            None => lines.push_str(line),
        }
        // The comment before a key says whether it is an example.
        let is_comment = line.starts_with('#') && !line.contains(" = ");
        is_example = is_comment && (is_example || line.contains("example"));
        lines.push('\n');
    }
    lines
}

/// The keys of a section, from an error.
fn keys_of(section: &str) -> Vec<String> {
    let error = format!("{:#}", Config::parse(&format!("{section}\nno-such = 1\n")).unwrap_err());
    let (_, listed) = error.split_once("there are: ").unwrap_or_else(|| panic!("{error}"));
    listed.replace(" and ", ", ").split(", ").map(|key| key.trim().to_owned()).collect()
}

#[test]
fn the_packaged_configuration_is_accepted() {
    let config = Config::parse(&text("agent.toml")).unwrap();
    assert!(config.rollup.is_some() && config.metrics.is_some());
    assert!(config.ring.is_none() && config.triggers.is_empty());
    assert!(config.upload.is_none() && config.otlp.is_none());
}

#[test]
fn the_examples_of_the_packaged_configuration_are_accepted() {
    let config = Config::parse(&uncommented(&text("agent.toml"), true)).unwrap();
    assert!(config.ring.is_some() && config.upload.is_some() && config.triggers.len() == 1);
    assert!(config.otlp.is_some_and(|otlp| otlp.endpoint.is_some() && otlp.interval.is_some()));
}

#[test]
fn the_packaged_configuration_shows_the_real_defaults() {
    let shown_config = Config::parse(&uncommented(&text("agent.toml"), false)).unwrap();
    // The default tick depends on the interval.
    assert_eq!(
        shown_config.record.tick_duration(),
        Config::parse("").unwrap().record.tick_duration()
    );
    let least = "[record]\ntick = \"1ms\"\n[ring]\n[rollup]\n[metrics]\nlisten = \"127.0.0.1:9762\"\n[kept]\n";
    assert_eq!(shown_config, Config::parse(least).unwrap());
    // Without the values of the examples, the other keys of these two sections would not be
    // compared.
    let examples = Config::parse(&uncommented(&text("agent.toml"), true)).unwrap();
    let upload =
        "[rollup]\n[upload]\nurl = \"s3://bucket/prefix\"\nendpoint = \"http://127.0.0.1:5000\"\n";
    assert_eq!(examples.upload, Config::parse(upload).unwrap().upload);
    let trigger =
        "[ring]\n[[trigger]]\nname = \"pcie-full\"\nwhen = \"pcie_read_bandwidth > 80% for 5ms\"\n";
    assert_eq!(examples.triggers, Config::parse(trigger).unwrap().triggers);
}

#[test]
fn the_packaged_configuration_has_every_key() {
    let text = uncommented(&text("agent.toml"), true);
    let mut section = String::new();
    let mut keys_by_section = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys_by_section.entry(section.clone()).or_default().insert(key.to_owned());
        }
    }
    for (section, shown_keys) in keys_by_section {
        let expected_keys: BTreeSet<String> = keys_of(&section).into_iter().collect();
        let sections =
            expected_keys.iter().filter(|key| text.contains(&format!("[{key}]"))).cloned();
        let found = if section.is_empty() {
            shown_keys.into_iter().chain(sections).collect()
        } else {
            shown_keys
        };
        assert_eq!(found, expected_keys, "{section}");
    }
}

/// The values of a key of a unit, from all its lines.
fn setting(unit: &str, key: &str) -> Vec<String> {
    let value_of_line = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    unit.lines().filter_map(value_of_line).collect()
}

#[test]
fn the_uploader_has_no_capability_and_the_recorder_no_network() {
    let agent = text("systemd/uncore-trace.service");
    let capabilities = "CAP_PERFMON CAP_BPF CAP_DAC_READ_SEARCH";
    assert_eq!(setting(&agent, "AmbientCapabilities"), [capabilities]);
    assert_eq!(setting(&agent, "CapabilityBoundingSet"), [capabilities]);
    assert_eq!(setting(&agent, "IPAddressDeny"), ["any"]);
    let upload = text("systemd/uncore-trace-upload.service");
    assert_eq!(setting(&upload, "CapabilityBoundingSet"), [""]);
    for unit in [agent, upload] {
        assert_eq!(setting(&unit, "User"), ["uncore-trace"]);
        assert_eq!(setting(&unit, "StateDirectory"), ["uncore-trace"]);
        assert_eq!(setting(&unit, "NoNewPrivileges"), ["yes"]);
        // They confine themselves; systemd's set of a service's calls has none of these.
        let calls = setting(&unit, "SystemCallFilter").join(" ");
        for call in
            ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
        {
            assert!(calls.split(' ').any(|allowed| allowed == call), "{call}: {calls}");
        }
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = text("helm/uncore-trace/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\n")), "{chart}");
    assert!(chart.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
}

/// The labels of each metric of the exporter.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let mut rows = rollup::Builder::default();
    for (link, unit) in
        [(Some("memory 0"), "bytes"), (None, "bytes"), (None, "ns"), (None, "count")]
    {
        rows.append(&rollup::Row {
            ts: 1,
            mono_ns: 1,
            window_ns: 1,
            known_ns: 1,
            host: "h",
            boot_id: "b",
            socket: Some(0),
            subsystem: "mem",
            link,
            direction: link.map(|_| "in"),
            peak: link.map(|_| 1.0),
            peak_direction: link.map(|_| "in"),
            pmu: "p",
            event: "e",
            unit,
            owner: "task",
            cgroup: Some("/a"),
            value: Some(1.0),
            low: Some(1.0),
            high: Some(1.0),
            running: 1.0,
            method: "exact",
            confidence: Some(1.0),
            ..rollup::Row::default()
        });
    }
    let mut metrics = MetricsPage::new(5);
    let rows = rows.finish();
    // An owner has a series after some windows.
    for _ in 0..5 {
        metrics.add_window(&rows).unwrap();
    }
    metrics.lost = [("ring_full".to_owned(), 1)].into();
    metrics.agent_metrics = AgentMetrics {
        last_window_s: Some(1.0),
        disks: vec![AgentDisk { content: "ring", free_bytes: 1, size_bytes: 2 }],
        unsent: Some(Unsent { files: 1, bytes: 1, oldest_s: Some(1.0) }),
        ..AgentMetrics::default()
    };
    let page = metrics.encode_page().unwrap();
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let label = Regex::new(r#"(\w+)=""#).unwrap();
    let metric = |line: &str| {
        let (name, labels) = line.split_once('{').unwrap();
        let labels = label.captures_iter(labels).map(|captures| captures[1].to_owned()).collect();
        (name.to_owned(), labels)
    };
    // The upload's metrics have no labels.
    let upload = of_the_upload().into_iter().map(|name| (name, BTreeSet::new()));
    series.map(metric).chain(upload).chain([canary_ratio()]).collect()
}

/// The metric that only an agent with a canary has, with its labels.
fn canary_ratio() -> (String, BTreeSet<String>) {
    let name = "uncore_trace_canary_credited_ratio";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/agent/metrics/agent_metrics.rs");
    assert!(fs::read_to_string(source).unwrap().contains(&format!("\"{name}\"")), "{name}");
    (name.to_owned(), ["link", "direction"].map(str::to_owned).into())
}

/// The metrics of the upload, as its documentation lists them.
fn of_the_upload() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/upload.md");
    let page = fs::read_to_string(page).unwrap();
    let name = Regex::new(r"(?m)^\| `(uncore_trace_upload_\w+)` \|").unwrap();
    name.captures_iter(&page).map(|captures| captures[1].to_owned()).collect()
}

/// All queries of the dashboard, with the labels in their legends.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let query = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables = variables.iter().filter(|variable| variable["type"] == "query");
    targets
        .map(|target| (query(target, "expr"), query(target, "legendFormat")))
        .chain(variables.map(|variable| (query(variable, "definition"), String::new())))
        .collect()
}

/// Names in a query that the exporter does not have.
fn unknown(
    query: &str,
    legend: &str,
    exported: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let all = |regex: &str, text: &str| -> Vec<String> {
        let regex = Regex::new(regex).unwrap();
        regex.captures_iter(text).map(|captures| captures[1].to_owned()).collect()
    };
    let metrics = all(r"\b(uncore_trace_\w+)", query);
    let mut wrong: Vec<String> =
        metrics.iter().filter(|name| !exported.contains_key(*name)).cloned().collect();
    if metrics.is_empty() {
        wrong.push("no metric".to_owned());
    }
    let of_all: BTreeSet<&str> = metrics
        .iter()
        .filter_map(|name| exported.get(name))
        .flat_map(|labels| labels.iter().map(String::as_str))
        .chain(OF_PROMETHEUS)
        .collect();
    let lists = [
        all(r"\b(?:by|on|ignoring|without) \(([^)]*)\)", query),
        all(r"label_values\(.*, (\w+)\)", query),
    ];
    let grouped = lists.iter().flatten().flat_map(|list| list.split(", ").map(str::to_owned));
    let named = grouped.chain(all(r"\{\{(\w+)\}\}", legend));
    wrong.extend(named.filter(|label| !of_all.contains(label.as_str())));
    // A matcher belongs to its own metric.
    for captures in Regex::new(r"\b(uncore_trace_\w+)\{([^}]*)\}").unwrap().captures_iter(query) {
        let own_labels = exported.get(&captures[1]);
        let has = |label: &str| {
            OF_PROMETHEUS.contains(&label) || own_labels.is_some_and(|own| own.contains(label))
        };
        wrong.extend(
            all(r#"(\w+)\s*[!=]~?""#, &captures[2]).into_iter().filter(|label| !has(label)),
        );
    }
    wrong
}

#[test]
fn the_dashboard_queries_exported_metrics() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(&text("grafana/uncore-trace.json")).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 10, "{queries:?}");
    for (query, legend) in &queries {
        let wrong = unknown(query, legend, &exported);
        assert!(wrong.is_empty(), "{query}: {wrong:?}");
    }
    // Every metric is in the dashboard.
    let is_shown = |name: &String| queries.iter().any(|(query, _)| query.contains(name.as_str()));
    let not_shown: Vec<&String> = exported.keys().filter(|name| !is_shown(name)).collect();
    assert!(not_shown.is_empty(), "{not_shown:?}");
}

/// The expressions of the alert rules.
fn alerts(rules: &str) -> Vec<String> {
    let mut expressions = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let (_, rest) = rule.split_once("expr: ").unwrap();
        let ends = ["\n        for: ", "\n        labels:"];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap();
        expressions.push(
            rest[..end].trim_start_matches('|').split_whitespace().collect::<Vec<_>>().join(" "),
        );
    }
    expressions
}

#[test]
fn the_alerts_query_exported_metrics() {
    let exported = exported();
    let alerts = alerts(&text("prometheus/rules.yml"));
    assert_eq!(alerts.len(), 7, "{alerts:?}");
    for query in &alerts {
        let wrong = unknown(query, "", &exported);
        assert!(wrong.is_empty(), "{query}: {wrong:?}");
    }
}

/// The name and the expression of each recording rule. A recorded name in an expression is replaced
/// by what it stands for.
fn recording_rules(rules: &str) -> Vec<(String, String)> {
    let mut recorded: Vec<(String, String)> = Vec::new();
    for rule in rules.split("- record: ").skip(1) {
        let (name, expression) = rule.split_once("\n        expr: ").unwrap();
        let end = expression.find("\n      #").or_else(|| expression.find("\n      - "));
        let expression = expression[..end.unwrap_or(expression.len())].trim_start_matches('|');
        let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
        let expanded = recorded.iter().fold(expression, |expression, (earlier, meaning)| {
            expression.replace(earlier, &format!("({meaning})"))
        });
        recorded.push((name.to_owned(), expanded));
    }
    recorded
}

#[test]
fn the_recording_rules_query_exported_metrics() {
    let exported = exported();
    let rules = recording_rules(&text("prometheus/rules.yml"));
    assert_eq!(rules.len(), 7, "{rules:?}");
    let level_metric_operation =
        Regex::new(r"^[a-z_]+:uncore_trace_[a-z0-9_]+:[a-z0-9_]+$").unwrap();
    for (name, query) in &rules {
        assert!(level_metric_operation.is_match(name), "{name}");
        let wrong = unknown(query, "", &exported);
        assert!(wrong.is_empty(), "{name}: {query}: {wrong:?}");
    }
}

#[test]
fn the_alerts_come_and_stay_away_as_their_tests_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    let mut command = Command::new("promtool");
    match command.args(["test", "rules", "rules.test.yml"]).current_dir(folder).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            show("no promtool (package prometheus): alerts and recording rules are not tested");
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_query_with_a_wrong_name_is_found() {
    let exported = exported();
    for (query, legend, wrong) in [
        ("rate(uncore_trace_bytes_total[1m])", "", "uncore_trace_bytes_total"),
        ("sum by (link, pod) (uncore_trace_link_bytes_total)", "", "pod"),
        ("uncore_trace_event_total{link=~\"x\"}", "", "link"),
        ("uncore_trace_lost_total{kind=\"loss\"}", "{{event}}", "event"),
        ("label_values(uncore_trace_build_info, link)", "", "link"),
        ("up", "", "no metric"),
    ] {
        assert_eq!(unknown(query, legend, &exported), [wrong], "{query}");
    }
}

#[test]
fn the_data_source_of_every_panel_is_a_variable() {
    let dashboard: Value = serde_json::from_str(&text("grafana/uncore-trace.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(
        variables
            .iter()
            .any(|variable| variable["name"] == "datasource" && variable["type"] == "datasource")
    );
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = variables.iter().filter(|variable| variable["type"] == "query");
    let mut ids = BTreeSet::new();
    for shown_item in panels.iter().chain(targets).chain(queries) {
        assert_eq!(shown_item["datasource"]["uid"], "${datasource}", "{shown_item}");
    }
    assert!(panels.iter().all(|panel| ids.insert(panel["id"].as_u64())), "{ids:?}");
}

/// In a pod, `/sys/fs/cgroup` is the tree of the container's own cgroup namespace, also below a
/// mount of the node's `/sys`.
#[test]
fn a_pod_and_a_container_see_all_cgroups() {
    let chart = text("helm/uncore-trace/templates/daemonset.yaml");
    let volume = Regex::new(r"- name: (\S+)\n +hostPath:\n +path: /sys/fs/cgroup\n").unwrap();
    let name = &volume.captures(&chart).expect("no volume has the node's cgroups")[1];
    let mount =
        Regex::new(&format!(r"- name: {name}\n +mountPath: (\S+)\n +readOnly: true")).unwrap();
    let place = &mount.captures(&chart).expect("the node's cgroups are not mounted")[1];
    assert!(!place.starts_with("/sys"), "the runtime mounts over {place}");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let docs = fs::read_to_string(docs).unwrap();
    let runs = Regex::new(r"(?:podman|docker) run (?:.*\\\n)*.*").unwrap();
    for (file, text) in [("docs/install.md", docs), ("Containerfile", text("Containerfile"))] {
        let names_found: Vec<_> = runs.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(!names_found.is_empty(), "{file} does not say how a container is run");
        for command in names_found {
            let sees_all =
                ["--cgroupns=host", "--pid=host"].iter().all(|word| command.contains(word));
            assert!(sees_all, "{file}: {command}");
        }
    }
}
