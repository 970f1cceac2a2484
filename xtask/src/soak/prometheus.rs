//! A Prometheus that scrapes the agent, and what it is asked.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::service::{self, Service};

/// A running server.
#[derive(Debug)]
pub(super) struct Prometheus {
    _server: Service,
    url: String,
}

/// A series of the answer to an instant query.
#[derive(Debug, Deserialize)]
pub(super) struct PromSample {
    pub metric: std::collections::BTreeMap<String, String>,
    /// Time in s, and value as text.
    value: (f64, String),
}

impl PromSample {
    pub(super) fn parse_value(&self) -> Result<f64> {
        self.value.1.parse().with_context(|| format!("{} is not a number", self.value.1))
    }
}

impl Prometheus {
    /// Starts it with its data in `dir`, scraping `agent` every 5 s.
    ///
    /// # Errors
    ///
    /// There is no program `prometheus`.
    pub(super) fn start(dir: &Path, agent: &str) -> Result<Self> {
        let address = service::free_address()?;
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 5s}}\nscrape_configs:\n- job_name: uncore-trace\n  \
             static_configs: [{{targets: ['{agent}']}}]\n"
        );
        std::fs::write(&config, text).context("cannot write the configuration of Prometheus")?;
        let mut server = Service::start(
            "prometheus",
            Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", dir.join("prometheus").display()))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )
        .context("install Debian's package prometheus, which also has promtool")?;
        server.wait_for_answer(&address)?;
        Ok(Self { _server: server, url: format!("http://{address}") })
    }

    /// The answer to a query of `PromQL`.
    pub(super) fn run_query(&self, query: &str) -> Result<Vec<PromSample>> {
        let output = Command::new("promtool")
            .args(["query", "instant", "--format=json", &self.url, query])
            .output()
            .context("cannot run promtool")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "Prometheus does not answer {query}: {}", error.trim());
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cannot parse the answer to {query}"))
    }

    /// The one value of an answer; 0 if there is none, as where nothing was lost.
    pub(super) fn query_number(&self, query: &str) -> Result<f64> {
        self.run_query(query)?.first().map_or(Ok(0.0), PromSample::parse_value)
    }
}
