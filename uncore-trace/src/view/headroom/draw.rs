//! Prints how full the links were: a table, or JSON.
//!
//! Guarantees: text from the machine is escaped; figures of one column share a unit; in tables an
//! unknown value is `?` and one that is not counted `-`, in JSON both are null.

use std::fmt::Write as _;

use super::{FULL, LinkHeadroom};
use crate::table::{ColumnFit, TextTable};
use crate::terminal::{mark, wrap_words};
use crate::text::printable;
use crate::units::{self, SharedUnit};
use crate::view::json_lines::{json_lines, json_object};
use crate::view::links::Links;
use crate::view::render::TextStyle;

/// Number of owners that are named for a full link; the others are counted.
const NAMED: usize = 3;

/// A table with a line for each direction of each link, then the owners that filled nearly full
/// links, and the sources of the peaks.
pub fn render_table(headrooms: &[LinkHeadroom], links: &Links, style: TextStyle) -> String {
    if headrooms.is_empty() {
        return String::new();
    }
    let unit = SharedUnit::for_values(
        headrooms
            .iter()
            .flat_map(|headroom| [headroom.average_per_s(), headroom.highest_per_s])
            .flatten(),
        "bytes",
    );
    let rate =
        |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| unit.format_figure(rate));
    let mut text_table = TextTable::new([
        ("link".to_owned(), ColumnFit::Shorten),
        (format!("average {}", unit.rate_name()), ColumnFit::Number),
        (format!("highest {}", unit.rate_name()), ColumnFit::Number),
        ("of peak".to_owned(), ColumnFit::Number),
        ("highest".to_owned(), ColumnFit::Number),
        (format!("above {:.0} %", FULL * 100.0), ColumnFit::Number),
    ]);
    let percent_of_peak =
        |headroom: &LinkHeadroom, rate: Option<f64>| format_percent_of_peak(headroom, links, rate);
    for headroom in headrooms {
        text_table.add_row([
            printable(&links.direction_label(headroom.link_index, headroom.direction)).into_owned(),
            rate(headroom.average_per_s()),
            rate(headroom.highest_per_s),
            percent_of_peak(headroom, headroom.average_per_s()),
            percent_of_peak(headroom, headroom.highest_per_s),
            match (headroom.link_peak(links), headroom.full_ns) {
                (None, _) => "-".to_owned(),
                (_, None) => "?".to_owned(),
                (_, Some(ns)) => units::human(ns as f64, "ns"),
            },
        ]);
    }
    let mut text = text_table.to_text(style.width, mark(style.ascii));
    for line in table_sentences(headrooms, links) {
        let line = style.width.map_or(line.clone(), |width| wrap_words(&line, width));
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    }
    text
}

/// A rate in percent of the peak; `!` if it is above the peak, or if sources of the peak are in
/// conflict.
fn format_percent_of_peak(headroom: &LinkHeadroom, links: &Links, rate: Option<f64>) -> String {
    let Some(link_peak) = headroom.link_peak(links) else { return "-".to_owned() };
    let Some(rate) = rate else { return "?".to_owned() };
    let percentage = |fraction: f64| SharedUnit::as_percent().format_figure(fraction);
    let fraction = link_peak.fraction_of_peak(rate);
    let text = percentage(fraction);
    match link_peak.fraction_of_conflicting_peak(rate) {
        Some(conflicting_fraction) => format!("{text} | {} %!", percentage(conflicting_fraction)),
        None if fraction > 1.0 => format!("{text} %!"),
        None => format!("{text} %"),
    }
}

/// The sentences below the table.
fn table_sentences(headrooms: &[LinkHeadroom], links: &Links) -> Vec<String> {
    let fill_sentences = headrooms.iter().filter_map(|headroom| describe_fillers(headroom, links));
    let unknown_sentences = headrooms
        .iter()
        .filter(|headroom| headroom.time.whole.unknown_ns() > 0.0)
        .map(|headroom| {
            let name = links.direction_label(headroom.link_index, headroom.direction);
            let unknown = units::human(headroom.time.whole.unknown_ns(), "ns");
            format!("{} is not known for {unknown}", printable(&name))
        });
    let peak_sentences = headrooms.iter().filter_map(|headroom| describe_peak(headroom, links));
    let mut sentences: Vec<String> = fill_sentences.chain(unknown_sentences).collect();
    for line in peak_sentences {
        // The sentence is mostly the same for in and out.
        if !sentences.contains(&line) {
            sentences.push(line);
        }
    }
    sentences
}

/// The owners that filled a nearly full link.
fn describe_fillers(headroom: &LinkHeadroom, links: &Links) -> Option<String> {
    let full_ns = headroom.full_ns.filter(|ns| *ns > 0)?;
    let filled_bytes: f64 = headroom.fillers.iter().map(|(_, bytes)| bytes).sum();
    let percentage =
        |bytes: f64| format!("{} %", SharedUnit::as_percent().format_figure(bytes / filled_bytes));
    // One more name takes no more room than "1 other".
    let count = if headroom.fillers.len() == NAMED + 1 { NAMED + 1 } else { NAMED };
    let (named, other_fillers) = headroom.fillers.split_at(headroom.fillers.len().min(count));
    let mut filler_texts: Vec<String> = named
        .iter()
        .map(|(owner, bytes)| format!("{} {}", printable(owner), percentage(*bytes)))
        .collect();
    if !other_fillers.is_empty() {
        let sum = other_fillers.iter().map(|(_, bytes)| bytes).sum();
        filler_texts.push(format!("{} others {}", other_fillers.len(), percentage(sum)));
    }
    Some(format!(
        "{} was above {:.0} % of its peak for {}, filled by {}",
        printable(&links.direction_label(headroom.link_index, headroom.direction)),
        FULL * 100.0,
        units::human(full_ns as f64, "ns"),
        filler_texts.join(", ")
    ))
}

/// The peak that percentages refer to.
fn describe_peak(headroom: &LinkHeadroom, links: &Links) -> Option<String> {
    let link_peak = headroom.link_peak(links)?;
    let name =
        links.links.get(headroom.link_index).map(|link| printable(&link.name).into_owned())?;
    let peak_and_source = |peak: &crate::schema::link::PeakRate| {
        let rate = units::human_rate(peak.bytes_per_s, "bytes");
        format!("{rate} ({}: {})", peak.source.source_name(), printable(&peak.detail))
    };
    Some(match link_peak.conflicting_peak {
        None => format!("peak of {name}: {}", peak_and_source(link_peak.peak)),
        Some(conflicting) => format!(
            "peak of {name}: {}, but {}: these are in conflict; the first of two percentages is \
             of the first",
            peak_and_source(link_peak.peak),
            peak_and_source(conflicting)
        ),
    })
}

/// One object per line, for each direction of each link; `report --help` lists the keys.
///
/// # Errors
///
/// Never in practice: only numbers and text are written.
pub fn write_json_lines(
    headrooms: &[LinkHeadroom],
    links: &Links,
    grouping_name: &'static str,
) -> serde_json::Result<String> {
    json_lines(headrooms.iter().filter_map(|headroom| {
        let link = links.links.get(headroom.link_index)?;
        let link_peak = headroom.link_peak(links);
        let conflicting = link_peak.and_then(|limit| limit.conflicting_peak);
        let fillers = headroom.fillers.iter();
        let fillers = fillers.map(|(key, bytes)| json_object! { key: key, bytes: bytes });
        Some(json_object! {
            link: &link.name,
            kind: &link.kind,
            subsystem: &link.subsystem,
            socket: link.socket,
            devices: link.devices.as_deref(),
            direction: headroom.direction.direction_name(),
            bytes: headroom.average_per_s().map(|_| headroom.bytes),
            average_per_s: headroom.average_per_s(),
            highest_per_s: headroom.highest_per_s,
            known_ns: headroom.time.whole.known_ns().round() as i64,
            unknown_ns: headroom.time.whole.unknown_ns().round() as i64,
            peak_per_s: link_peak.map(|limit| limit.peak.bytes_per_s),
            peak_source: link_peak.map(|limit| limit.peak.source.source_name()),
            other_peak_per_s: conflicting.map(|peak| peak.bytes_per_s),
            other_peak_source: conflicting.map(|peak| peak.source.source_name()),
            full_ns: headroom.full_ns,
            by: grouping_name,
            fillers: fillers.collect::<Vec<_>>(),
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LOADED, headrooms_of};
    use super::*;
    use crate::schema::link::Direction;
    use crate::schema::link::PeakSource;
    use crate::terminal::cells;
    use crate::view::sample::{sample_link, sample_peak};

    #[test]
    fn the_table_of_links_has_their_load_and_fillers() {
        let (links, ways) = headrooms_of(&LOADED);
        let text = render_table(&ways, &links, TextStyle::default());
        let expected = "\
\x20link         average MB/s  highest MB/s  of peak  highest  above 80 %
\x20memory 0 in          97.1         128.0   64.7 %   85.3 %      1.50 s
memory 0 in was above 80 % of its peak for 1.50 s, filled by /tenant\\u{1b}[2J 50.0 %, /other 25.0 \
                        %, idle 12.5 %, irq 12.5 %
memory 0 in is not known for 100 ms
peak of memory 0: 150 MB/s (sysfs: 16 GT/s x4)
";
        let trimmed: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n") + "\n", expected, "{text}");
        for width in [60, 80, 100] {
            let text = render_table(&ways, &links, TextStyle { ascii: true, width: Some(width) });
            let widest = text.lines().map(cells).max();
            assert!(width < 80 || widest <= Some(width), "{text}");
        }
    }

    #[test]
    fn more_than_the_peak_and_a_conflict_are_marked() {
        let (_, ways) = headrooms_of(&LOADED);
        let peaks =
            vec![sample_peak(PeakSource::Calibrated, 64e6), sample_peak(PeakSource::Sysfs, 256e6)];
        let links = Links::new(vec![sample_link(peaks)]);
        let text = render_table(&ways, &links, TextStyle::default());
        assert!(text.contains("200.0 | 50.0 %!"), "{text}");
        assert!(text.contains("these are in conflict"), "{text}");
        let links = Links::new(vec![sample_link(vec![sample_peak(PeakSource::Sysfs, 64e6)])]);
        let text = render_table(&ways, &links, TextStyle::default());
        assert!(text.contains("200.0 %!"), "{text}");
    }

    #[test]
    fn json_lines_have_numbers_and_null() {
        let (links, mut ways) = headrooms_of(&LOADED);
        let text = write_json_lines(&ways, &links, "cgroup").unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["link"], "memory 0");
        assert_eq!(object["full_ns"], 1_500_000_000_i64);
        assert_eq!(object["fillers"][0]["key"], "/tenant\u{1b}[2J");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        ways[0].direction = Direction::Out;
        ways[0].time = crate::view::sums::CountedTime::default();
        let text = write_json_lines(&ways, &links, "cgroup").unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in ["peak_per_s", "average_per_s", "bytes"] {
            assert!(object[key].is_null(), "{key}");
        }
        assert_eq!(render_table(&[], &links, TextStyle::default()), "");
    }
}
