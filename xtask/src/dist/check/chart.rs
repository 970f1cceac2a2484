//! Tests of the Helm chart: it is rendered by Helm's library and validated against the schemas of
//! Kubernetes, and its containers have only the privileges that they need.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;
use uncore_trace_lab::fixtures;

use crate::apt::Apt;
use crate::command::run_quietly;
use crate::venv::Venv;

/// Helm 4.2 as a library, and the schemas of Kubernetes 1.25 to 1.37.
const HELM: Venv = Venv {
    name: "venv-packaging",
    packages: &["helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0", "PyYAML==6.0.3"],
    modules: "helm_python, kubernetes_validate, yaml",
};

/// The chart rendered with a set of values.
#[derive(Debug, Deserialize)]
pub(super) struct RenderedChart {
    /// The agent's configuration.
    config: String,
    /// The pod template of the `DaemonSet`.
    pod: Value,
}

impl RenderedChart {
    /// The capabilities of the recorder's container.
    pub(super) fn recorder_capabilities(&self) -> Vec<String> {
        let added = &self.pod_containers()[0]["securityContext"]["capabilities"]["add"];
        let added = added.as_array().map(Vec::as_slice).unwrap_or_default();
        added.iter().filter_map(Value::as_str).map(|name| format!("CAP_{name}")).collect()
    }

    /// Whether the recorder makes a cgroup for a canary.
    fn has_canary(&self) -> bool {
        self.config.lines().any(|line| line == "canary = true")
    }

    fn pod_containers(&self) -> &[Value] {
        self.pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default()
    }
}

/// Renders and checks the chart with several sets of values; returns the default one.
pub(super) fn check_chart(program: &Path, apt: &Apt) -> Result<RenderedChart> {
    if let Err(error) = HELM.installed_packages() {
        println!("dist: {}: installing ({error:#})", HELM.name);
        HELM.install_venv(apt)?;
    }
    let root = workspace_root();
    let mut python = Command::new(HELM.python_path()?);
    python.arg(root.join("tests/packaging/chart.py")).arg(root.join("packaging/helm/uncore-trace"));
    let text = run_quietly(&mut python)?;
    let mut charts: BTreeMap<String, RenderedChart> = serde_json::from_str(&text)
        .with_context(|| format!("cannot parse the rendered chart: {text}"))?;
    for (name, rendered) in &charts {
        check_privileges(rendered).with_context(|| format!("values {name}"))?;
        check_config(program, &rendered.config).with_context(|| format!("values {name}"))?;
    }
    let chart_of = |name: &str| charts.get(name).with_context(|| format!("no values {name}"));
    let default_chart = chart_of("default")?;
    ensure!(default_chart.pod_containers().len() == 1, "there must be no uploader by default");
    let wanted = ["CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"];
    ensure!(
        default_chart.recorder_capabilities() == wanted,
        "the recorder has {:?}",
        default_chart.recorder_capabilities()
    );
    ensure!(
        chart_of("names off")?.recorder_capabilities() == wanted[..2],
        "ids need no CAP_DAC_READ_SEARCH"
    );
    for with in ["full", "push"] {
        ensure!(chart_of(with)?.pod_containers().len() == 2, "{with}: the uploader is missing");
    }
    charts.remove("default").context("no values default")
}

/// Checks that no container has more privileges than it needs.
fn check_privileges(rendered: &RenderedChart) -> Result<()> {
    ensure!(
        rendered.pod["spec"]["hostPID"] == true,
        "without hostPID, process ids are those of the container"
    );
    ensure!(
        rendered.pod["spec"]["automountServiceAccountToken"] == false,
        "the pod has a token of the API server, which it does not use"
    );
    for container in rendered.pod_containers() {
        let name = &container["name"];
        let context = &container["securityContext"];
        for (key, wanted) in [
            ("privileged", false),
            ("allowPrivilegeEscalation", false),
            ("readOnlyRootFilesystem", true),
        ] {
            ensure!(context[key] == wanted, "{name}: {key} is {}", context[key]);
        }
        ensure!(context["capabilities"]["drop"] == json!(["ALL"]), "{name}: not all are dropped");
        let is_upload = name == "upload";
        ensure!(
            !is_upload || context["capabilities"].get("add").is_none(),
            "{name}: has capabilities"
        );
        for key in ["requests", "limits"] {
            for resource in ["cpu", "memory"] {
                ensure!(
                    !container["resources"][key][resource].is_null(),
                    "{name}: no {key} of {resource}"
                );
            }
        }
        let mounts = container["volumeMounts"].as_array().map(Vec::as_slice).unwrap_or_default();
        for mount in mounts.iter().filter(|mount| mount["name"] != "state") {
            let is_for_canary = mount["name"] == "cgroups" && !is_upload && rendered.has_canary();
            ensure!(
                mount["readOnly"] == !is_for_canary,
                "{name}: readOnly of {} is {}",
                mount["mountPath"],
                mount["readOnly"]
            );
        }
    }
    Ok(())
}

/// The captured machine on which configurations are checked: it has the PMUs that their groups and
/// conditions name.
const MACHINE: &str = "grace-2s";

/// Checks that the agent accepts the configuration.
fn check_config(program: &Path, config: &str) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let (path, root) = (dir.path().join("agent.toml"), dir.path().join("root"));
    fs::write(&path, config).with_context(|| format!("cannot write {}", path.display()))?;
    fixtures::machine(MACHINE)?.unpack_to(&root)?;
    let mut agent = Command::new(program);
    agent.args(["agent", "--check", "--config"]).arg(&path).arg("--root").arg(&root);
    // As the downward API sets it.
    agent.env("POD_IP", "192.0.2.1");
    run_quietly(&mut agent).map(drop)
}
