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

use super::{CONDITIONS, Key, generated, intel, left_out, metrics, number, render, text};

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
pub(super) fn made(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let arch = dir.join(ARCH);
    let mut events = Lines::new();
    let mut all_metrics = Lines::new();
    let mut not_imported = Lines::new();
    for (processors, tables) in tables(&arch)? {
        let mut own: BTreeMap<Key, String> = BTreeMap::new();
        for event in tables.iter().filter(|entry| !text(entry, "EventName").is_empty()) {
            let unit = text(event, "Unit");
            let Some((_, pmu)) = UNITS.iter().find(|(known, _)| *known == unit) else { continue };
            let name = text(event, "EventName").to_ascii_lowercase();
            let encoding = encoded(event).with_context(|| name.clone())?;
            own.insert(((*pmu).to_owned(), name), encoding);
        }
        for ((pmu, name), encoding) in &own {
            let of = events.entry((pmu.clone(), format!("{name} {encoding}"))).or_default();
            of.extend(processors.clone());
        }
        for metric in tables.iter().filter(|entry| !text(entry, "MetricName").is_empty()) {
            let Some((pmu, line)) = measured(metric, &own) else {
                let reason = left_out::reason(text(metric, "MetricExpr"), &own);
                left_out::add(&mut not_imported, metric, reason, &processors);
                continue;
            };
            let of = all_metrics.entry((pmu, line)).or_default();
            of.extend(
                processors.iter().filter(|its| !of.contains(its)).cloned().collect::<Vec<_>>(),
            );
        }
    }
    let groups = intel::add(&arch, &mut all_metrics, &mut not_imported)?;
    Ok(vec![
        ("events.txt", rendered(events)),
        ("metrics.txt", rendered(all_metrics)),
        ("groups.txt", rendered(groups)),
        ("left_out.txt", rendered(not_imported)),
    ])
}

/// The entries of all tables, by the patterns of their processors or identifiers.
fn tables(arch: &Path) -> Result<Vec<(Vec<String>, Vec<Value>)>> {
    let mut tables = Vec::new();
    tables.push((vec!["*".to_owned()], entries(&arch.join("common/common"))?));
    for (folder, processors) in amd(arch)? {
        let mut all = entries(&arch.join("x86").join(&folder))?;
        all.extend(generated::metrics(arch, &folder)?);
        tables.push((processors, all));
    }
    for (midr, folder) in mapped(&arch.join("arm64"))? {
        // Any variant and revision, as perf compares (`strcmp_cpuid_str`).
        let mut pattern = midr;
        for at in [12, 17] {
            pattern.replace_range(at..=at, "?");
        }
        tables.push((vec![pattern], entries(&arch.join("arm64").join(folder))?));
    }
    for folder in sys_folders(&arch.join("arm64"))? {
        let mut compatible: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in entries(&folder)? {
            compatible.entry(text(&entry, "Compat").to_owned()).or_default().push(entry);
        }
        for (compat, entries) in compatible {
            tables.push((identifiers(&compat), entries));
        }
    }
    Ok(tables)
}

/// Patterns of identifiers for `Compat`: `(a|b).*` are `a*` and `b*`.
fn identifiers(compat: &str) -> Vec<String> {
    let Some((these, rest)) = compat.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return vec![compat.to_owned()];
    };
    these.split('|').map(|one| one.to_owned() + &rest.replace(".*", "*")).collect()
}

/// The first two columns that are useful of `mapfile.csv`: processor and directory.
pub(super) fn mapped(dir: &Path) -> Result<Vec<(String, String)>> {
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
fn amd(arch: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let lines = mapped(&arch.join("x86"))?.into_iter().filter(|(of, _)| of.contains("AMD"));
    let lines = lines.map(|(of, folder)| Ok((Regex::new(&format!("^(?:{of})$"))?, folder)));
    let lines: Vec<(Regex, String)> = lines.collect::<Result<_>>()?;
    let folder = |family: u32, model: u32| {
        let processor = format!("AuthenticAMD-{family}-{model:X}");
        lines.iter().find(|(of, _)| of.is_match(&processor)).map(|(_, folder)| folder.clone())
    };
    let mut patterns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for family in 0..0x100 {
        for high in 0..0x10 {
            let begin = if high == 0 { String::new() } else { format!("{high:x}") };
            let begin = format!("AuthenticAMD-{family}-{begin}");
            let of: Vec<_> = (0..0x10).map(|low| folder(family, high << 4 | low)).collect();
            let is_same = of.iter().all(|one| *one == of[0]);
            for (low, folder) in of.into_iter().enumerate().filter(|(low, _)| !is_same || *low == 0)
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
    let mut found = Vec::new();
    for vendor in below(dir)? {
        for model in below(&vendor)? {
            found.extend(below(&model)?.into_iter().filter(|path| path.ends_with("sys")));
        }
    }
    Ok(found)
}

/// The events and metrics of the JSON files of a directory.
pub(super) fn entries(dir: &Path) -> Result<Vec<Value>> {
    let files = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut all = Vec::new();
    for file in files {
        let path = file.with_context(|| format!("cannot list {}", dir.display()))?.path();
        // This one has descriptions of groups.
        if path.extension().is_none_or(|end| end != "json") || path.ends_with("metricgroups.json") {
            continue;
        }
        let read = || format!("cannot read {}", path.display());
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).with_context(read)?)
            .with_context(read)?;
        all.extend(json.as_array().with_context(read)?.iter().cloned());
    }
    Ok(all)
}

fn encoded(event: &Value) -> Result<String> {
    let code = [("ConfigCode", "config"), ("EventidCode", "eventid"), ("EventCode", "event")];
    let (key, term) = code.into_iter().find(|(key, _)| event.get(key).is_some()).unwrap_or(code[2]);
    let mut terms = vec![format!("{term}={:#x}", number(text(event, key))?)];
    for (key, term) in FIELDS.into_iter().chain(CONDITIONS) {
        let value = number(text(event, key))?;
        terms.extend((value != 0).then(|| format!("{term}={value:#x}")));
    }
    Ok(terms.join(","))
}

/// PMU and line of a metric; `None` if it is left out.
fn measured(metric: &Value, events: &BTreeMap<Key, String>) -> Option<(String, String)> {
    let plain = serde_json::json!({
        "MetricName": text(metric, "MetricName"),
        "MetricGroup": text(metric, "MetricGroup"),
        "MetricExpr": simplified(text(metric, "MetricExpr")),
        "ScaleUnit": text(metric, "ScaleUnit"),
    });
    let [pmu, name, unit, across, formula] = metrics::taken(&plain, events)?;
    Some((pmu, format!("{name} {unit} {across} {formula}")))
}

/// The expression without functions and conditions that need none: an event that is not there makes
/// a metric impossible here anyway, and all CPUs are counted.
pub(super) fn simplified(expression: &str) -> String {
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
    let Some((before, rest)) = expression.split_once("d_ratio(") else {
        return expression.to_owned();
    };
    let mut depth = 1_usize;
    let mut comma = None;
    // A comma of an event's terms has a backslash before it.
    let mut is_escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 1 && !is_escaped => comma = Some(at),
            _ => {}
        }
        is_escaped = c == '\\';
        if let (0, Some(comma)) = (depth, comma) {
            let (over, under) = (rest[..comma].trim(), rest[comma + 1..at].trim());
            return format!("{before}(({over}) / ({under})){}", as_division(&rest[at + 1..]));
        }
    }
    expression.to_owned()
}

/// The lines by the processors that have them, then by PMU.
fn rendered(lines: Lines) -> String {
    let head = [
        "# Made by `cargo xtask import perf DIR` from tools/perf/pmu-events/arch of Linux: do not edit.",
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
    render(&sections, &head.map(str::to_owned))
}

/// The patterns with one for a family of which all models are there.
fn whole_families(mut patterns: Vec<String>) -> Vec<String> {
    patterns.sort();
    for family in 0..0x100 {
        let begin = format!("AuthenticAMD-{family}-");
        let of = |pattern: &String| pattern.starts_with(&begin) && pattern.ends_with('?');
        if patterns.iter().filter(|pattern| of(pattern)).count() == 0x10 {
            patterns.retain(|pattern| !of(pattern));
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
            measured(&metric, &events).unwrap().1
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
        assert_eq!(identifiers("(434|43a).*"), ["434*", "43a*"]);
        assert_eq!(identifiers("i.MX8MM"), ["i.MX8MM"]);
    }
}
