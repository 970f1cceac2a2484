//! This program on a captured machine: plans, and values of metrics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::OracleMachine;
use super::counts::Opened;
use super::perf::parse_rows;

/// Readings before the counted time: the library gives 0 for them.
const ZEROS: &str = "2";

/// Mounts the files of a machine and counts there.
const STAT: &str = r#"
mount --bind "$0/sys" /sys
for file in proc/cpuinfo proc/sys/kernel/osrelease; do
    if [ -f "$0/$file" ]; then mount --bind "$0/$file" "/$file"; fi
done
export LD_PRELOAD="$1"
shift
exec "$@"
"#;

/// The program, and the library that it counts on.
pub(super) struct Ours {
    pub(super) program: PathBuf,
    pub(super) library: PathBuf,
}

/// A counter of a plan, with its unit and what one count is in it.
pub(super) struct OracleCounter {
    pub(super) opened: Opened,
    pub(super) unit: String,
    pub(super) scale: f64,
}

impl Ours {
    /// The counters of the plan for an event; the error's text if it is refused.
    pub(super) fn plan_event(
        &self,
        machine: &OracleMachine,
        text: &str,
    ) -> Result<Result<Vec<OracleCounter>, String>> {
        let output = Command::new(&self.program)
            .args(["record", "--dry-run", "--json", "--method", "residency", "--root"])
            .arg(&machine.root)
            .args(["-o", "unused.parquet", "-e", text])
            .output()
            .context("cannot run uncore-trace")?;
        if !output.status.success() {
            return Ok(Err(last_error(&output)));
        }
        let plan: Value = serde_json::from_slice(&output.stdout).context("cannot read the plan")?;
        let mut planned = Vec::new();
        for counter in plan["counters"].as_array().context("a plan without counters")? {
            if counter["role"].as_str().is_some_and(|role| role != "counted") {
                continue;
            }
            let word = |index: usize| counter["config"][index].as_u64().context("no config");
            let config = [word(0)?, word(1)?, word(2)?, word(3)?];
            let attr_type = u32::try_from(counter["attr_type"].as_u64().context("no type")?)?;
            let cpu = i32::try_from(counter["cpu"].as_i64().context("no CPU")?)?;
            let unit = counter["unit"].as_str().unwrap_or_default().to_owned();
            let scale = counter["scale"].as_f64().unwrap_or(1.0);
            planned.push(OracleCounter { opened: Opened { attr_type, config, cpu }, unit, scale });
        }
        Ok(Ok(planned))
    }

    /// The metrics that it lists for a machine.
    pub(super) fn listed_metrics(&self, root: &Path) -> Result<BTreeSet<String>> {
        let output = Command::new(&self.program)
            .args(["list", "metrics", "--json", "--root"])
            .arg(root)
            .output()
            .context("cannot run uncore-trace")?;
        let list: Value = serde_json::from_slice(&output.stdout).context("cannot read the list")?;
        let metrics = list["metrics"].as_array().context("a list without metrics")?;
        Ok(metrics.iter().filter_map(|metric| Some(metric["name"].as_str()?.to_owned())).collect())
    }

    /// The rows that `stat` prints of a metric; the error's text if it is refused.
    pub(super) fn measure_metric(
        &self,
        machine: &OracleMachine,
        metric: &str,
    ) -> Result<Result<Vec<Value>, String>> {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-e", "-c", STAT])
            .args([&machine.root, &self.library, &self.program])
            .args(["stat", "-a", "-j", "-M", metric, "-e", "duration_time", "--", "true"])
            .env("ORACLE_ZEROS", ZEROS)
            .output()
            .context("cannot run uncore-trace")?;
        if !output.status.success() {
            return Ok(Err(last_error(&output)));
        }
        Ok(Ok(parse_rows(&String::from_utf8_lossy(&output.stderr))))
    }
}

/// The error, which stands after the warnings.
fn last_error(output: &Output) -> String {
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    let line = stderr_text.lines().last().unwrap_or_default();
    line.trim_start_matches("uncore-trace: ").to_owned()
}
