//! `cargo xtask import perf DIR`: events and metrics of AMD's and arm64 uncore PMUs, and the
//! metrics of Intel's that are in groups, from `tools/perf/pmu-events/arch` in the source of Linux,
//! as the checked-in files of `uncore-trace/catalog/perf`.
//!
//! Metrics that perf's build makes with Python come from the same scripts.
//!
//! Takes names and numbers, no descriptions. An encoding is made as `jevents.py` there makes it.
//! The processors are those of `mapfile.csv`; tables below a directory `sys` are of the PMUs with
//! an `identifier` that their `Compat` matches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::Value;

use super::{
    CONDITIONS, PmuEventKey, generated, intel, left_out, metrics, parse_number, render_sections,
    text_field,
};

/// Where the tables are.
const ARCH: &str = "tools/perf/pmu-events/arch";

/// The name of a PMU, or its pattern, by `Unit` (`unit_to_pmu` of `jevents.py`, Linux 7.2).
const UNITS: [(&str, &str); 11] = [
    ("DFPMC", "amd_df"),
    ("L3PMC", "amd_l3"),
    ("UMCPMC", "amd_umc"),
    ("ali_drw", "ali_drw"),
    ("arm_cmn", "arm_cmn"),
    ("hisi_sccl,ddrc", "hisi_sccl*_ddrc*"),
    ("hisi_sccl,hha", "hisi_sccl*_hha*"),
    ("hisi_sccl,l3c", "hisi_sccl*_l3c*"),
    ("hisi_sicl,cpa", "hisi_sicl*_cpa*"),
    ("imx8_ddr", "imx8_ddr*"),
    ("imx9_ddr", "imx9_ddr*"),
];

/// Keys of an event after its code, with their terms (`event_fields` of `jevents.py`, Linux 7.2).
const FIELDS: [(&str, &str); 7] = [
    ("UMask", "umask"),
    ("NodeType", "type"),
    ("RdWrMask", "rdwrmask"),
    ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"),
    ("SliceId", "sliceid"),
    ("ThreadMask", "threadmask"),
];

/// The lines of all tables: by PMU and line, the patterns of the processors that have it.
pub(super) type Lines = BTreeMap<(String, String), Vec<String>>;

/// Names and texts of the files.
pub(super) fn perf_files(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let arch = dir.join(ARCH);
    let mut events = Lines::new();
    let mut all_metrics = Lines::new();
    let mut not_imported = Lines::new();
    for (processors, tables) in read_tables(&arch)? {
        let mut table_events: BTreeMap<PmuEventKey, String> = BTreeMap::new();
        for event in tables.iter().filter(|entry| !text_field(entry, "EventName").is_empty()) {
            let unit = text_field(event, "Unit");
            let Some((_, pmu)) = UNITS.iter().find(|(known, _)| *known == unit) else { continue };
            let name = text_field(event, "EventName").to_ascii_lowercase();
            let encoding = encode_event(event).with_context(|| name.clone())?;
            table_events.insert(((*pmu).to_owned(), name), encoding);
        }
        for ((pmu, name), encoding) in &table_events {
            let event_processors =
                events.entry((pmu.clone(), format!("{name} {encoding}"))).or_default();
            event_processors.extend(processors.clone());
        }
        for metric in tables.iter().filter(|entry| !text_field(entry, "MetricName").is_empty()) {
            let Some((pmu, line)) = metric_line(metric, &table_events) else {
                let reason =
                    left_out::left_out_reason(text_field(metric, "MetricExpr"), &table_events);
                left_out::add_left_out(&mut not_imported, metric, reason, &processors);
                continue;
            };
            let metric_processors = all_metrics.entry((pmu, line)).or_default();
            metric_processors.extend(
                processors
                    .iter()
                    .filter(|processor| !metric_processors.contains(processor))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
    }
    let groups = intel::add_intel_metrics(&arch, &mut all_metrics, &mut not_imported)?;
    Ok(vec![
        ("events.txt", render_lines(events)),
        ("metrics.txt", render_lines(all_metrics)),
        ("groups.txt", render_lines(groups)),
        ("left_out.txt", render_lines(not_imported)),
    ])
}

/// The entries of all tables, by the patterns of their processors or identifiers.
fn read_tables(arch: &Path) -> Result<Vec<(Vec<String>, Vec<Value>)>> {
    let mut tables = Vec::new();
    tables.push((vec!["*".to_owned()], read_entries(&arch.join("common/common"))?));
    for (folder, processors) in amd_folders(arch)? {
        let mut folder_entries = read_entries(&arch.join("x86").join(&folder))?;
        folder_entries.extend(generated::generated_metrics(arch, &folder)?);
        tables.push((processors, folder_entries));
    }
    for (midr, folder) in read_mapfile(&arch.join("arm64"))? {
        // Any variant and revision, as perf compares (`strcmp_cpuid_str`).
        let mut pattern = midr;
        for position in [12, 17] {
            pattern.replace_range(position..=position, "?");
        }
        tables.push((vec![pattern], read_entries(&arch.join("arm64").join(folder))?));
    }
    for folder in sys_folders(&arch.join("arm64"))? {
        let mut compatible: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in read_entries(&folder)? {
            compatible.entry(text_field(&entry, "Compat").to_owned()).or_default().push(entry);
        }
        for (compat, entries) in compatible {
            tables.push((identifier_patterns(&compat), entries));
        }
    }
    Ok(tables)
}

/// Patterns of identifiers for `Compat`: `(a|b).*` are `a*` and `b*`.
fn identifier_patterns(compat: &str) -> Vec<String> {
    let Some((alternatives, suffix)) =
        compat.strip_prefix('(').and_then(|inner| inner.split_once(')'))
    else {
        return vec![compat.to_owned()];
    };
    alternatives
        .split('|')
        .map(|alternative| alternative.to_owned() + &suffix.replace(".*", "*"))
        .collect()
}

/// The first two columns that are useful of `mapfile.csv`: processor and directory.
pub(super) fn read_mapfile(dir: &Path) -> Result<Vec<(String, String)>> {
    let path = dir.join("mapfile.csv");
    let map = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let column = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        let is_one = columns.len() == 4 && !line.starts_with('#') && !line.starts_with("Family");
        is_one.then(|| (columns[0].to_owned(), columns[2].to_owned()))
    };
    Ok(map.lines().filter_map(column).collect())
}

/// The directories of AMD's processors with the patterns of their models: of the lines of
/// `mapfile.csv`, which are regular expressions, the first that matches counts.
fn amd_folders(arch: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let lines =
        read_mapfile(&arch.join("x86"))?.into_iter().filter(|(pattern, _)| pattern.contains("AMD"));
    let lines =
        lines.map(|(pattern, folder)| Ok((Regex::new(&format!("^(?:{pattern})$"))?, folder)));
    let lines: Vec<(Regex, String)> = lines.collect::<Result<_>>()?;
    let folder = |family: u32, model: u32| {
        let processor = format!("AuthenticAMD-{family}-{model:X}");
        lines
            .iter()
            .find(|(pattern, _)| pattern.is_match(&processor))
            .map(|(_, folder)| folder.clone())
    };
    let mut patterns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for family in 0..0x100 {
        for high in 0..0x10 {
            let begin = if high == 0 { String::new() } else { format!("{high:x}") };
            let begin = format!("AuthenticAMD-{family}-{begin}");
            let folders: Vec<_> = (0..0x10).map(|low| folder(family, high << 4 | low)).collect();
            let is_same = folders.iter().all(|candidate| *candidate == folders[0]);
            for (low, folder) in
                folders.into_iter().enumerate().filter(|(low, _)| !is_same || *low == 0)
            {
                let Some(folder) = folder else { continue };
                let end = if is_same { "?".to_owned() } else { format!("{low:x}") };
                patterns.entry(folder).or_default().push(begin.clone() + &end);
            }
        }
    }
    Ok(patterns)
}

/// The directories called `sys`, two levels below.
fn sys_folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let below = |dir: &Path| -> Result<Vec<PathBuf>> {
        let entries =
            std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
        let mut below = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
            below.extend(path.is_dir().then_some(path));
        }
        below.sort();
        Ok(below)
    };
    let mut sys_dirs = Vec::new();
    for vendor in below(dir)? {
        for model in below(&vendor)? {
            sys_dirs.extend(below(&model)?.into_iter().filter(|path| path.ends_with("sys")));
        }
    }
    Ok(sys_dirs)
}

/// The events and metrics of the JSON files of a directory.
pub(super) fn read_entries(dir: &Path) -> Result<Vec<Value>> {
    let files = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut all_entries = Vec::new();
    for file in files {
        let path = file.with_context(|| format!("cannot list {}", dir.display()))?.path();
        // This one has descriptions of groups.
        if path.extension().is_none_or(|end| end != "json") || path.ends_with("metricgroups.json") {
            continue;
        }
        let read = || format!("cannot read {}", path.display());
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).with_context(read)?)
            .with_context(read)?;
        all_entries.extend(json.as_array().with_context(read)?.iter().cloned());
    }
    Ok(all_entries)
}

fn encode_event(event: &Value) -> Result<String> {
    let code = [("ConfigCode", "config"), ("EventidCode", "eventid"), ("EventCode", "event")];
    let (key, term) = code.into_iter().find(|(key, _)| event.get(key).is_some()).unwrap_or(code[2]);
    let mut terms = vec![format!("{term}={:#x}", parse_number(text_field(event, key))?)];
    for (key, term) in FIELDS.into_iter().chain(CONDITIONS) {
        let value = parse_number(text_field(event, key))?;
        terms.extend((value != 0).then(|| format!("{term}={value:#x}")));
    }
    Ok(terms.join(","))
}

/// PMU and line of a metric; `None` if it is left out.
fn metric_line(metric: &Value, events: &BTreeMap<PmuEventKey, String>) -> Option<(String, String)> {
    let plain = serde_json::json!({
        "MetricName": text_field(metric, "MetricName"),
        "MetricGroup": text_field(metric, "MetricGroup"),
        "MetricExpr": simplify_expression(text_field(metric, "MetricExpr")),
        "ScaleUnit": text_field(metric, "ScaleUnit"),
    });
    let [pmu, name, unit, across, formula] = metrics::imported_form(&plain, events)?;
    Some((pmu, format!("{name} {unit} {across} {formula}")))
}

/// The expression without functions and conditions that need none: an event that is not there makes
/// a metric impossible here anyway, and all CPUs are counted.
pub(super) fn simplify_expression(expression: &str) -> String {
    // A pattern that is wrong would be found by the unit tests: without it, nothing is simplified.
    static CONDITIONS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let patterns = [
            r"\((?<taken>\S+) if has_event\(\S+\) else NaN\)",
            r"\((?<taken>\S+) if #target_cpu else \S+\)",
            r"\((?<taken>.*) if #has_pmem > 0 else 0\)",
        ];
        patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
    });
    let mut expression = expression.to_owned();
    for condition in CONDITIONS.iter() {
        expression = condition.replace_all(&expression, "($taken)").into_owned();
    }
    as_division(&expression)
}

/// The expression with `(A) / (B)` instead of `d_ratio(A, B)`, which is 0 where `B` is.
fn as_division(expression: &str) -> String {
    let Some((prefix, arguments)) = expression.split_once("d_ratio(") else {
        return expression.to_owned();
    };
    let mut depth = 1_usize;
    let mut comma = None;
    // A comma of an event's terms has a backslash before it.
    let mut is_escaped = false;
    for (index, c) in arguments.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 1 && !is_escaped => comma = Some(index),
            _ => {}
        }
        is_escaped = c == '\\';
        if let (0, Some(comma)) = (depth, comma) {
            let (numerator, denominator) =
                (arguments[..comma].trim(), arguments[comma + 1..index].trim());
            return format!(
                "{prefix}(({numerator}) / ({denominator})){}",
                as_division(&arguments[index + 1..])
            );
        }
    }
    expression.to_owned()
}

/// The lines by the processors that have them, then by PMU.
fn render_lines(lines: Lines) -> String {
    let head = [
        "# Made by `cargo xtask import perf DIR` from tools/perf/pmu-events/arch of Linux: do not \
         edit.",
        "# A section is the processors or identifiers, a colon and the PMU.",
    ];
    let mut sections: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ((pmu, line), processors) in lines {
        sections.entry((whole_families(processors).join(" "), pmu)).or_default().push(line);
    }
    // As the tables of perf count them: `cs2` is before `cs10`.
    for entries in sections.values_mut() {
        entries.sort_by_key(|line| {
            let name = line.split(' ').next().unwrap_or(line);
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
            let number = name[stem.len()..].parse::<u64>().ok();
            (stem, number)
        });
    }
    render_sections(&sections, &head.map(str::to_owned))
}

/// The patterns with one for a family of which all models are there.
fn whole_families(mut patterns: Vec<String>) -> Vec<String> {
    patterns.sort();
    for family in 0..0x100 {
        let begin = format!("AuthenticAMD-{family}-");
        let is_of_family = |pattern: &String| pattern.starts_with(&begin) && pattern.ends_with('?');
        if patterns.iter().filter(|pattern| is_of_family(pattern)).count() == 0x10 {
            patterns.retain(|pattern| !is_of_family(pattern));
            patterns.push(begin + "*");
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_have_the_factor_of_their_unit() {
        let key = |event: &str| (("amd_umc".to_owned(), event.to_owned()), String::new());
        let events = BTreeMap::from([key("umc.rd"), key("umc_clk")]);
        let line = |expression: &str, scale: &str| {
            let metric = serde_json::json!({
                "MetricName": "m", "MetricExpr": expression, "ScaleUnit": scale,
                "MetricGroup": "a;b"
            });
            metric_line(&metric, &events).unwrap().1
        };
        let ratio = "d_ratio(umc.rd * 1000, umc_clk)";
        assert_eq!(line(ratio, ""), "m:a,b 1 pool ( ( umc.rd * 1000 ) / ( umc_clk ) )");
        assert_eq!(
            line("umc.rd", "6.103515625e-5MiB"),
            "m:a,b MiB pool 0.00006103515625 * ( umc.rd )"
        );
        assert_eq!(line("umc.rd", "1core clocks"), "m:a,b cycles pool umc.rd");
        assert_eq!(
            line("(umc.rd * 64) / 1e6 / duration_time", "1MB/s"),
            "m:a,b MB/s sum ( umc.rd * 64 ) / 1e6 / ( duration_ns / 1000000000 )"
        );
    }

    #[test]
    fn patterns_of_identifiers() {
        assert_eq!(identifier_patterns("(434|43a).*"), ["434*", "43a*"]);
        assert_eq!(identifier_patterns("i.MX8MM"), ["i.MX8MM"]);
    }
}
