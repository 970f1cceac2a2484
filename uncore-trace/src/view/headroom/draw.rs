//! Prints how full the links were: a table, or JSON.
//!
//! Guarantees: text from the machine is escaped; figures of one column share a unit; in tables an
//! unknown value is `?` and one that is not counted `-`, in JSON both are null.

use std::fmt::Write as _;

use serde::Serialize;

use super::{FULL, Way};
use crate::table::{Fit, TextTable};
use crate::terminal::{mark, wrap_words};
use crate::text::{escape_json, printable};
use crate::units::{self, SharedUnit};
use crate::view::links::Links;
use crate::view::render::TextStyle;

/// Number of owners that are named for a full link; the others are counted.
const NAMED: usize = 3;

/// A table with a line for each direction of each link, then the owners that filled nearly full
/// links, and the sources of the peaks.
pub fn table(ways: &[Way], links: &Links, style: TextStyle) -> String {
    if ways.is_empty() {
        return String::new();
    }
    let unit =
        SharedUnit::for_values(ways.iter().flat_map(|way| [way.average(), way.highest]).flatten(), "bytes");
    let rate = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| unit.format_figure(rate));
    let mut table = TextTable::new([
        ("link".to_owned(), Fit::Shorten),
        (format!("average {}", unit.rate_name()), Fit::Number),
        (format!("highest {}", unit.rate_name()), Fit::Number),
        ("of peak".to_owned(), Fit::Number),
        ("highest".to_owned(), Fit::Number),
        (format!("above {:.0} %", FULL * 100.0), Fit::Number),
    ]);
    let of_peak = |way: &Way, rate: Option<f64>| percent(way, links, rate);
    for way in ways {
        table.row([
            printable(&links.label(way.link, way.direction)).into_owned(),
            rate(way.average()),
            rate(way.highest),
            of_peak(way, way.average()),
            of_peak(way, way.highest),
            match (way.limit(links), way.full_ns) {
                (None, _) => "-".to_owned(),
                (_, None) => "?".to_owned(),
                (_, Some(ns)) => units::human(ns as f64, "ns"),
            },
        ]);
    }
    let mut text = table.to_text(style.width, mark(style.ascii));
    for line in said(ways, links) {
        let line = style.width.map_or(line.clone(), |width| wrap_words(&line, width));
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    }
    text
}

/// A rate in percent of the peak; `!` if it is above the peak, or if sources of the peak are in
/// conflict.
fn percent(way: &Way, links: &Links, rate: Option<f64>) -> String {
    let Some(limit) = way.limit(links) else { return "-".to_owned() };
    let Some(rate) = rate else { return "?".to_owned() };
    let number = |part: f64| SharedUnit::as_percent().format_figure(part);
    match limit.other_part(rate) {
        Some(other) => format!("{} | {} %!", number(limit.part(rate)), number(other)),
        None if limit.part(rate) > 1.0 => format!("{} %!", number(limit.part(rate))),
        None => format!("{} %", number(limit.part(rate))),
    }
}

/// The sentences below the table.
fn said(ways: &[Way], links: &Links) -> Vec<String> {
    let filled = ways.iter().filter_map(|way| filled(way, links));
    let unknown = ways.iter().filter(|way| way.time.whole_time().unknown_ns() > 0.0).map(|way| {
        let name = links.label(way.link, way.direction);
        format!(
            "{} is not known for {}",
            printable(&name),
            units::human(way.time.whole_time().unknown_ns(), "ns")
        )
    });
    let peaks = ways.iter().filter_map(|way| peak(way, links));
    let mut said: Vec<String> = filled.chain(unknown).collect();
    for line in peaks {
        // The sentence is mostly the same for in and out.
        if !said.contains(&line) {
            said.push(line);
        }
    }
    said
}

/// The owners that filled a nearly full link.
fn filled(way: &Way, links: &Links) -> Option<String> {
    let full = way.full_ns.filter(|ns| *ns > 0)?;
    let all: f64 = way.fillers.iter().map(|(_, bytes)| bytes).sum();
    let part = |bytes: f64| format!("{} %", SharedUnit::as_percent().format_figure(bytes / all));
    // One more name takes no more room than "1 other".
    let count = if way.fillers.len() == NAMED + 1 { NAMED + 1 } else { NAMED };
    let (named, rest) = way.fillers.split_at(way.fillers.len().min(count));
    let mut parts: Vec<String> =
        named.iter().map(|(who, bytes)| format!("{} {}", printable(who), part(*bytes))).collect();
    if !rest.is_empty() {
        let sum = rest.iter().map(|(_, bytes)| bytes).sum();
        parts.push(format!("{} others {}", rest.len(), part(sum)));
    }
    Some(format!(
        "{} was above {:.0} % of its peak for {}, filled by {}",
        printable(&links.label(way.link, way.direction)),
        FULL * 100.0,
        units::human(full as f64, "ns"),
        parts.join(", ")
    ))
}

/// The peak that percentages refer to.
fn peak(way: &Way, links: &Links) -> Option<String> {
    let limit = way.limit(links)?;
    let name = links.links.get(way.link).map(|link| printable(&link.name).into_owned())?;
    let of = |peak: &crate::schema::link::PeakRate| {
        let rate = units::human_rate(peak.bytes_per_s, "bytes");
        format!("{rate} ({}: {})", peak.source.source_name(), printable(&peak.detail))
    };
    Some(match limit.other {
        None => format!("peak of {name}: {}", of(limit.peak)),
        Some(other) => format!(
            "peak of {name}: {}, but {}: these are in conflict; the first of two percentages is of the \
             first",
            of(limit.peak),
            of(other)
        ),
    })
}

/// The object of a direction; `report --help` lists the keys.
#[derive(Debug, Serialize)]
struct Object<'a> {
    link: &'a str,
    kind: &'a str,
    subsystem: &'a str,
    socket: Option<i16>,
    devices: Option<&'a str>,
    direction: &'static str,
    bytes: Option<f64>,
    average_per_s: Option<f64>,
    highest_per_s: Option<f64>,
    known_ns: i64,
    unknown_ns: i64,
    peak_per_s: Option<f64>,
    peak_source: Option<&'static str>,
    other_peak_per_s: Option<f64>,
    other_peak_source: Option<&'static str>,
    full_ns: Option<i64>,
    by: &'static str,
    fillers: Vec<Filler<'a>>,
}

#[derive(Debug, Serialize)]
struct Filler<'a> {
    key: &'a str,
    bytes: f64,
}

/// One object per line, for each direction of each link.
///
/// # Errors
///
/// Never in practice: only numbers and text are written.
pub fn json(ways: &[Way], links: &Links, by: &'static str) -> serde_json::Result<String> {
    let mut out = String::new();
    for way in ways {
        let Some(link) = links.links.get(way.link) else { continue };
        let limit = way.limit(links);
        let object = Object {
            link: &link.name,
            kind: &link.kind,
            subsystem: &link.subsystem,
            socket: link.socket,
            devices: link.devices.as_deref(),
            direction: way.direction.direction_name(),
            bytes: way.average().map(|_| way.bytes),
            average_per_s: way.average(),
            highest_per_s: way.highest,
            known_ns: way.time.whole_time().known_ns().round() as i64,
            unknown_ns: way.time.whole_time().unknown_ns().round() as i64,
            peak_per_s: limit.map(|limit| limit.peak.bytes_per_s),
            peak_source: limit.map(|limit| limit.peak.source.source_name()),
            other_peak_per_s: limit.and_then(|limit| limit.other).map(|peak| peak.bytes_per_s),
            other_peak_source: limit.and_then(|limit| limit.other).map(|peak| peak.source.source_name()),
            full_ns: way.full_ns,
            by,
            fillers: way.fillers.iter().map(|(key, bytes)| Filler { key, bytes: *bytes }).collect(),
        };
        let text = serde_json::to_string(&object)?;
        out.push_str(&escape_json(&text));
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LOADED, ways};
    use super::*;
    use crate::schema::link::Direction;
    use crate::schema::link::PeakSource;
    use crate::terminal::cells;
    use crate::view::sample::{sample_link, sample_peak};

    #[test]
    fn the_table_says_how_full_and_by_whom() {
        let (links, ways) = ways(&LOADED);
        let text = table(&ways, &links, TextStyle::default());
        let expected = "\
\x20link         average MB/s  highest MB/s  of peak  highest  above 80 %
\x20memory 0 in          97.1         128.0   64.7 %   85.3 %      1.50 s
memory 0 in was above 80 % of its peak for 1.50 s, filled by /tenant\\u{1b}[2J 50.0 %, /other \
25.0 %, idle 12.5 %, irq 12.5 %
memory 0 in is not known for 100 ms
peak of memory 0: 150 MB/s (sysfs: 16 GT/s x4)
";
        let trimmed: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n") + "\n", expected, "{text}");
        for width in [60, 80, 100] {
            let text = table(&ways, &links, TextStyle { ascii: true, width: Some(width) });
            let widest = text.lines().map(cells).max();
            assert!(width < 80 || widest <= Some(width), "{text}");
        }
    }

    #[test]
    fn more_than_the_peak_and_a_conflict_are_marked() {
        let (_, ways) = ways(&LOADED);
        let peaks = vec![sample_peak(PeakSource::Calibrated, 64e6), sample_peak(PeakSource::Sysfs, 256e6)];
        let links = Links::new(vec![sample_link(peaks)]);
        let text = table(&ways, &links, TextStyle::default());
        assert!(text.contains("200.0 | 50.0 %!"), "{text}");
        assert!(text.contains("these are in conflict"), "{text}");
        let links = Links::new(vec![sample_link(vec![sample_peak(PeakSource::Sysfs, 64e6)])]);
        let text = table(&ways, &links, TextStyle::default());
        assert!(text.contains("200.0 %!"), "{text}");
    }

    #[test]
    fn programs_get_numbers_and_null() {
        let (links, mut ways) = ways(&LOADED);
        let text = json(&ways, &links, "cgroup").unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["link"], "memory 0");
        assert_eq!(object["full_ns"], 1_500_000_000_i64);
        assert_eq!(object["fillers"][0]["key"], "/tenant\u{1b}[2J");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        ways[0].direction = Direction::Out;
        ways[0].time = crate::view::sums::CountedTime::default();
        let text = json(&ways, &links, "cgroup").unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in ["peak_per_s", "average_per_s", "bytes"] {
            assert!(object[key].is_null(), "{key}");
        }
        assert_eq!(table(&[], &links, TextStyle::default()), "");
    }
}
