//! The plan as tables, for `record --dry-run`.

use std::fmt::Write as _;

use super::{Counter, Plan};
use crate::catalog::metric::{Input, PlannedMetric};
use crate::discover::format::{WHOLE_WORDS, WORDS};
use crate::table::TextTable;
use crate::text::{count_noun, printable};
use crate::units;

/// `config=0x2,config1=0x3ff`: the words that are not 0, or `config=0x0`.
pub fn config_text(words: &[u64; WORDS]) -> String {
    let used = WHOLE_WORDS.iter().zip(words).filter(|(_, value)| **value != 0);
    let used: Vec<_> = used.map(|(name, value)| format!("{name}={value:#x}")).collect();
    if used.is_empty() { "config=0x0".to_owned() } else { used.join(",") }
}

impl Plan {
    /// The whole plan as text: the period, one line per counter and per metric, then warnings and
    /// notes.
    pub fn render_plan(&self) -> String {
        let mut table = TextTable::with_whole_columns([
            "id",
            "subsystem",
            "pmu",
            "event",
            "filter",
            "unit",
            "scale",
            "type",
            "config",
            "cpu",
            "socket",
            "sees",
            "leader",
        ]);
        for counter in &self.counters {
            table.add_row(counter_row(counter));
        }
        let readers = self.reader_cpus();
        let mut text = format!(
            "{}{}, read every {} in windows of {}\n\n{}",
            count_noun(self.counters.len(), "counter"),
            if readers.is_empty() { String::new() } else { format!(" on CPU {readers}") },
            format_duration(if readers.is_empty() { self.window_ns } else { self.tick_ns }),
            format_duration(self.window_ns),
            table.to_text(None, "")
        );
        if !self.metrics.is_empty() {
            text.push('\n');
            text.push_str(&metrics_table(&self.metrics));
        }
        if !self.warnings.is_empty() || !self.notes.is_empty() {
            text.push('\n');
        }
        for (word, lines) in [("warning", &self.warnings), ("note", &self.notes)] {
            for line in lines {
                // Writing to a String cannot fail.
                let _infallible = writeln!(text, "{word}: {}", printable(line));
            }
        }
        text
    }
}

fn counter_row(counter: &Counter) -> [String; 13] {
    let dash = || "-".to_owned();
    [
        counter.id.to_string(),
        or_dash(&counter.subsystem),
        or_dash(&counter.pmu),
        or_dash(&counter.event),
        or_dash(&counter.filter),
        or_dash(&counter.unit),
        units::format_factor(counter.scale),
        if counter.is_statistic() { dash() } else { counter.attr_type.to_string() },
        config_text(&counter.config),
        counter.cpu.to_string(),
        counter.socket.map_or_else(dash, |socket| socket.to_string()),
        sight_text(counter),
        counter.leader.map_or_else(dash, |leader| leader.to_string()),
    ]
}

/// `0-7 (far: 4-7)`: the CPUs that a counter sees; `-` if there are none, `cause unknown` if that
/// is why.
fn sight_text(counter: &Counter) -> String {
    let Counter { sees, far, .. } = counter;
    match (sees.is_empty(), far.is_empty()) {
        _ if counter.is_of_unknown_cause() => "cause unknown".to_owned(),
        (true, _) => "-".to_owned(),
        (_, true) => sees.to_string(),
        (_, false) => format!("{sees} (far: {far})"),
    }
}

/// One line per metric and PMU, with the ids of the counters after each input.
fn metrics_table(metrics: &[PlannedMetric]) -> String {
    let mut table = TextTable::with_whole_columns([
        "metric", "unit", "pmu", "filter", "cpu", "formula", "inputs",
    ]);
    let input = |input: &Input| {
        let counter = input.counter.map_or_else(|| "not here".to_owned(), |id| id.to_string());
        format!("{}: {counter}", printable(&input.name))
    };
    for metric in metrics {
        let constants = metric.constants.iter().map(|(name, value)| format!("{name} = {value}"));
        let inputs: Vec<_> = metric.inputs.iter().map(input).chain(constants).collect();
        table.add_row([
            or_dash(&metric.name),
            or_dash(&metric.unit),
            or_dash(&metric.pmu),
            or_dash(&metric.filter),
            metric.cpu.to_string(),
            or_dash(&metric.formula),
            inputs.join(", "),
        ]);
    }
    table.to_text(None, "")
}

/// Text escaped for a terminal; `-` if it is empty.
fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { printable(text).into_owned() }
}

/// `10ms`.
pub(super) fn format_duration(ns: u64) -> String {
    humantime::format_duration(std::time::Duration::from_nanos(ns)).to_string()
}
