//! perf's groups of metrics for Intel: the metrics over the events of one kind of uncore PMU, and
//! the names of the others in groups that have such a metric.
//!
//! References to other metrics are replaced by these. A clock of one PMU (`cha_0@event\=0x0@`) is
//! pooled over all of them where it is a divisor, and is that PMU's own count elsewhere.
//! `#has_pmem` is taken for true. Metrics without a group are in the tables of intel/perfmon,
//! except those with filters. Left out are metrics that perf computes without the time in which it
//! counted, although they are rates or times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use regex::{Captures, Regex};
use serde_json::Value;

use super::perf::{Lines, read_entries, read_mapfile};
use super::{PmuEventKey, generated, left_out, metrics, perf, pmu_of_unit, text_field};

/// The metric of the power PMU, which is in `power.toml`: perf multiplies the kernel's unit of
/// 2^-32 J by that of the hardware.
const POWER: &str = "tma_info_system_power";

/// Metrics that the tables of intel/perfmon have too.
const OF_PERFMON: &str = "cpu_cstate";

/// Adds the metrics, and the others to `left_out`; returns the names of the others, with the group
/// in place of the PMU.
pub(super) fn add_intel_metrics(
    arch: &Path,
    lines: &mut Lines,
    not_imported: &mut Lines,
) -> Result<Lines> {
    let mut other_names = Lines::new();
    for (folder, processors) in processor_folders(arch)? {
        let mut tables = read_entries(&arch.join("x86").join(&folder))?;
        tables.extend(generated::generated_metrics(arch, &folder)?);
        let of_perfmon = imported_from_perfmon(&processors)?;
        let mut events: BTreeMap<PmuEventKey, String> = BTreeMap::new();
        for event in tables.iter().filter(|entry| is_uncore(entry)) {
            let name = text_field(event, "EventName").to_ascii_lowercase();
            events.insert((pmu_of_unit(text_field(event, "Unit"), ""), name), String::new());
        }
        let named = tables.iter().map(|entry| (text_field(entry, "MetricName"), entry));
        let metrics: BTreeMap<&str, &Value> = named
            .filter(|(name, entry)| !name.is_empty() && entry.get("MetricExpr").is_some())
            .collect();
        let mut imported = BTreeSet::from([POWER]);
        for (name, metric) in &metrics {
            if of_perfmon.contains(*name) || name.starts_with(OF_PERFMON) || *name == POWER {
                continue;
            }
            let Some((pmu, line)) = import_metric(metric, &metrics, &events)? else {
                let expression = expand_references(text_field(metric, "MetricExpr"), &metrics, 0)?;
                let reason = match left_out::left_out_reason(
                    &perf::simplify_expression(&expression),
                    &events,
                ) {
                    "form" if is_per_time(metric, &expression)? => "time",
                    reason => reason,
                };
                left_out::add_left_out(not_imported, metric, reason, &processors);
                continue;
            };
            lines.entry((pmu, line)).or_default().extend(processors.iter().cloned());
            imported.insert(name);
        }
        let groups = |name: &str| -> Vec<String> {
            let groups = metrics.get(name).map_or("", |metric| text_field(metric, "MetricGroup"));
            groups.split(';').filter(|group| !group.is_empty()).map(str::to_owned).collect()
        };
        let counted: BTreeSet<String> = imported.iter().flat_map(|name| groups(name)).collect();
        for name in metrics.keys().filter(|name| !imported.contains(*name)) {
            for group in groups(name).into_iter().filter(|group| counted.contains(group)) {
                let group_processors = other_names.entry((group, (*name).to_owned())).or_default();
                group_processors.extend(processors.iter().cloned());
            }
        }
    }
    for processors in lines.values_mut().chain(other_names.values_mut()) {
        processors.sort();
        processors.dedup();
    }
    Ok(other_names)
}

/// The names of metrics that processors have from intel/perfmon.
fn imported_from_perfmon(processors: &[String]) -> Result<BTreeSet<String>> {
    let path = Path::new(super::DATA).join("intel/metrics.txt");
    let file = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut names = BTreeSet::new();
    let mut is_theirs = false;
    for line in file.lines() {
        if let Some((section, _)) = line.strip_prefix('[').and_then(|line| line.split_once(':')) {
            let mut section_models = section.split(' ');
            is_theirs = section_models.any(|model| {
                processors.iter().any(|processor| processor.eq_ignore_ascii_case(model))
            });
        } else if is_theirs {
            names.extend(line.split([':', ' ']).next().map(str::to_owned));
        }
    }
    Ok(names)
}

/// Whether a metric is a rate or a time, or has the clock of one PMU.
fn is_per_time(metric: &Value, expression: &str) -> Result<bool> {
    let about = text_field(metric, "BriefDescription").to_ascii_lowercase();
    Ok(about.contains("/ sec") || Regex::new(CLOCK)?.is_match(expression))
}

/// The clock of one PMU.
const CLOCK: &str = r"(?:uncore_)?(cha|cbox|imc)_0@event\\=0x[01]@";

/// Whether it is an event of an uncore PMU that this program opens: the kernel has no fixed counter
/// of SANTA and ARB, and no PMU with the name of Knights Landing's memory controllers.
fn is_uncore(entry: &Value) -> bool {
    let unit = text_field(entry, "Unit");
    let is_core = unit.is_empty() || unit.starts_with("cpu") || unit == "core";
    let is_fixed = text_field(entry, "EventCode") == "0xff" && ["SANTA", "ARB"].contains(&unit);
    !is_core && !is_fixed && unit != "iMC_DCLK" && !text_field(entry, "EventName").is_empty()
}

/// The directories of Intel's processors; steppings of one model are merged.
fn processor_folders(arch: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pattern, folder) in read_mapfile(&arch.join("x86"))? {
        let regex = Regex::new(&format!("^(?:{pattern})$")).with_context(|| pattern.clone())?;
        let processor_of = |family: u32, model: u32| {
            let name = format!("GenuineIntel-{family}-{model:X}");
            let matches = |end: u32| regex.is_match(&format!("{name}-{end:X}"));
            (regex.is_match(&name) || (0..16).any(matches))
                .then(|| format!("GenuineIntel-{family}-{model:x}"))
        };
        let families = [6, 18, 19].into_iter();
        let model_names: Vec<_> = families
            .flat_map(|family| (0..0x100).filter_map(move |model| processor_of(family, model)))
            .collect();
        if !model_names.is_empty() {
            folders.entry(folder).or_default().extend(model_names);
        }
    }
    Ok(folders)
}

/// PMU and line of a metric; `None` if it is left out.
fn import_metric(
    metric: &Value,
    all_metrics: &BTreeMap<&str, &Value>,
    events: &BTreeMap<PmuEventKey, String>,
) -> Result<Option<(String, String)>> {
    let expression = expand_references(text_field(metric, "MetricExpr"), all_metrics, 0)?;
    let expression = perf::simplify_expression(&expression);
    let clock = Regex::new(CLOCK)?;
    let groups = text_field(metric, "MetricGroup").replace(';', ",");
    if clock.find(&expression).is_some_and(|clock_match| clock_match.len() == expression.len()) {
        let (pmu, code) = expression.split_once('@').unwrap_or_default();
        let (name, code) = (text_field(metric, "MetricName"), code.replace(['\\', '@'], ""));
        let line = format!("{name}:{groups} cycles sum clockticks where clockticks:{code}");
        return Ok(Some((metrics::name_of_first(pmu), line)));
    }
    let pooled = |captures: &Captures<'_>| {
        let event = match &captures[1] {
            "cha" => "UNC_CHA_CLOCKTICKS",
            "imc" => "UNC_M_CLOCKTICKS",
            _ => "UNC_C_CLOCKTICKS",
        };
        format!("( {event} / ( source_count({event}) * #num_packages ) )")
    };
    let is_per_time = is_per_time(metric, &expression)?;
    let expression = clock.replace_all(&expression, pooled);
    let about = text_field(metric, "BriefDescription").to_ascii_lowercase();
    if is_per_time && !expression.contains("duration_time") {
        return Ok(None);
    }
    let per_die = expression.replace(" / #num_dies", "");
    let is_per_die = per_die.len() != expression.len();
    let unit =
        [("[gb / sec]", "GB/s"), ("[mb / sec]", "MB/s"), ("ghz", "GHz"), ("nanosecond", "ns")];
    // Without this factor a latency is in cycles, whatever its description says.
    let is_described = |(text, unit): &(&str, &str)| {
        about.contains(text) && (*unit != "ns" || expression.contains("1e9"))
    };
    let described_unit = unit.into_iter().find(is_described).map(|(_, unit)| unit);
    let scaled = serde_json::json!({
        "MetricName": text_field(metric, "MetricName"),
        "MetricGroup": text_field(metric, "MetricGroup"),
        "MetricExpr": per_die,
        "ScaleUnit": described_unit.unwrap_or(text_field(metric, "ScaleUnit")),
    });
    Ok(metrics::imported_form(&scaled, events).map(|[pmu, name, unit, across, formula]| {
        let across = if is_per_die { "pool".to_owned() } else { across };
        (pmu, format!("{name} {unit} {across} {formula}"))
    }))
}

/// The expression with those of the metrics that it names.
fn expand_references(
    expression: &str,
    all_metrics: &BTreeMap<&str, &Value>,
    depth: usize,
) -> Result<String> {
    anyhow::ensure!(depth < 32, "metrics that name each other: {expression}");
    let names = Regex::new(r"[A-Za-z_#][A-Za-z0-9_.%]*(?:@[^@]*@)?")?;
    let mut expanded_text = String::new();
    let mut copied_end = 0;
    for name in names.find_iter(expression) {
        expanded_text.push_str(&expression[copied_end..name.start()]);
        copied_end = name.end();
        match all_metrics.get(name.as_str()) {
            Some(metric) => {
                let inner =
                    expand_references(text_field(metric, "MetricExpr"), all_metrics, depth + 1)?;
                expanded_text.extend(["(", &inner, ")"]);
            }
            None => expanded_text.push_str(name.as_str()),
        }
    }
    expanded_text.push_str(&expression[copied_end..]);
    Ok(expanded_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_intel() {
        let event = |pmu: &str, event: &str| ((pmu.to_owned(), event.to_owned()), String::new());
        let events = BTreeMap::from([
            event("uncore_cha", "unc_cha_clockticks"),
            event("uncore_cha", "unc_in"),
            event("uncore_imc", "unc_m"),
        ]);
        let time = serde_json::json!({"MetricExpr": "duration_time"});
        let all = BTreeMap::from([("time", &time)]);
        let line = |expression: &str, about: &str| {
            let metric = serde_json::json!({
                "MetricName": "m", "MetricGroup": "A;B", "MetricExpr": expression,
                "BriefDescription": about
            });
            import_metric(&metric, &all, &events)
                .unwrap()
                .map(|(pmu, line)| format!("{pmu}: {line}"))
        };
        assert_eq!(
            line("64 * UNC_M / 1e9 / time", "Use [GB / sec]").unwrap(),
            "uncore_imc: m:A,B GB/s sum 64 * unc_m / 1e9 / ( ( duration_ns / 1000000000 ) )"
        );
        assert_eq!(
            line("(64 * UNC_M / time if #has_pmem > 0 else 0)", "").unwrap(),
            "uncore_imc: m:A,B 1 sum ( 64 * unc_m / ( ( duration_ns / 1000000000 ) ) )"
        );
        assert_eq!(
            line(r"(cha_0@event\=0x0@) / #num_dies / time / 1e9", "frequency [GHZ]").unwrap(),
            "uncore_cha: m:A,B GHz pool ( ( unc_cha_clockticks ) ) / ( ( duration_ns / 1000000000 \
             ) ) / 1e9"
        );
        for left_out in
            [r"UNC_IN / cha_0@event\=0x0@", "UNC_IN / CYCLES", "UNC_IN / UNC_M", "UNC_IN % 2"]
        {
            assert_eq!(line(left_out, ""), None, "{left_out}");
        }
        assert_eq!(line("UNC_IN * 64", "[MB / sec]"), None);
    }
}
