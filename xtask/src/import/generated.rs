//! The metrics that perf's build makes: `intel_metrics.py` and `amd_metrics.py` of
//! `tools/perf/pmu-events` print them for a directory of processors (Linux 7.2).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// What the script of the directory's vendor prints; `arch` is `tools/perf/pmu-events/arch`.
pub(super) fn generated_metrics(arch: &Path, folder: &str) -> Result<Vec<Value>> {
    let script = if folder.starts_with("amd") { "amd_metrics.py" } else { "intel_metrics.py" };
    let path = arch.join("..").join(script);
    let mut command = Command::new("python3");
    let output = command.arg("-B").arg(&path).arg(folder).arg(arch).output();
    let output = output.with_context(|| format!("cannot run python3 {}", path.display()))?;
    ensure!(
        output.status.success(),
        "{script} {folder}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut metrics: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{script} {folder} prints no list of metrics"))?;
    for metric in &mut metrics {
        if let Some(Value::String(expression)) = metric.get_mut("MetricExpr") {
            *expression = escape_terms(expression);
        }
    }
    Ok(metrics)
}

/// The expression with a backslash before each `=` and `,` of terms, as the JSON files have it.
fn escape_terms(expression: &str) -> String {
    let is_terms = |index: usize| index % 2 == 1;
    let pieces = expression.split('@').enumerate().map(|(index, piece)| {
        let plain = piece.contains('\\') || !is_terms(index);
        if plain { piece.to_owned() } else { piece.replace('=', "\\=").replace(',', "\\,") }
    });
    pieces.collect::<Vec<_>>().join("@")
}

#[cfg(test)]
mod tests {
    use super::escape_terms;

    #[test]
    fn terms_are_written_as_in_the_tables() {
        let made = escape_terms(r"max(A@umask=1,name=B@, power@energy\-pkg@) = C");
        assert_eq!(made, r"max(A@umask\=1\,name\=B@, power@energy\-pkg@) = C");
    }
}
