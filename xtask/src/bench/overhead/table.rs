//! The result of one load: as JSON, and as a table of docs/cost.md.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::super::stats::{self, Summary};
use super::loads::OverheadLoad;
use super::variants::{BASE, FLOOR};

/// A variant and its samples, one per round.
#[derive(Debug, Serialize)]
pub(super) struct VariantSeries {
    pub(super) name: &'static str,
    pub(super) samples: Vec<f64>,
    /// Why it has no samples.
    pub(super) absent: Option<String>,
}

/// A line of the result.
#[derive(Debug, Serialize)]
struct VariantRow<'a> {
    name: &'a str,
    /// In the unit of the load; `None` if it was not measured.
    summary: Option<Summary>,
    /// Median over the rounds, in percent of `nothing` in the same round.
    percent: Option<f64>,
    /// Its cost divided by that of the floor; `None` if the floor's cost is below the noise.
    floors: Option<f64>,
    absent: Option<&'a str>,
    samples: &'a [f64],
}

/// The result of one load, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct LoadReport<'a> {
    date: String,
    machine: String,
    rounds: u32,
    load: &'static str,
    unit: &'static str,
    about: String,
    variants: Vec<VariantRow<'a>>,
}

impl<'a> LoadReport<'a> {
    pub(super) fn new(
        load: OverheadLoad,
        series: &'a [VariantSeries],
        rounds: u32,
        about: String,
        (date, machine): (String, String),
    ) -> Result<Self> {
        let (load, unit) = (load.column_title(), load.sample_unit());
        Ok(Self { date, machine, rounds, load, unit, about, variants: variant_rows(series)? })
    }

    /// The table as it goes into the docs.
    pub(super) fn to_markdown(&self) -> String {
        let LoadReport { date, machine, rounds, load, unit, about, variants } = self;
        let mut lines = vec![
            format!("| {load} | {unit}, median | min-max | more than nothing | times the floor |"),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(variants.iter().map(VariantRow::to_markdown_line));
        lines.push(String::new());
        lines.push(format!("{date}, {machine}; {rounds} interleaved rounds of {about}.\n"));
        lines.join("\n")
    }
}

impl VariantRow<'_> {
    fn to_markdown_line(&self) -> String {
        let name = self.name;
        let Some(Summary { median, min, max }) = self.summary else {
            let why = self.absent.unwrap_or_default().replace(['\n', '|'], " ");
            return format!("| {name} | not measured: {why} |  |  |  |");
        };
        let percent = self.percent.map_or_else(String::new, |percent| format!("{percent:+.1} %"));
        let floors = self.floors.map_or_else(String::new, |floors| format!("{floors:.2}"));
        // Three decimals of a number above 100 are noise.
        let digits = if median < 100.0 { 3 } else { 0 };
        format!(
            "| {name} | {median:.digits$} | {min:.digits$}-{max:.digits$} | {percent} | {floors} |"
        )
    }
}

fn variant_rows(series: &[VariantSeries]) -> Result<Vec<VariantRow<'_>>> {
    let (base, floor) = (&series[BASE].samples, &series[FLOOR].samples);
    series
        .iter()
        .enumerate()
        .map(|(index, variant)| {
            let summary = Summary::from_values(variant.samples.iter().copied());
            ensure!(
                summary.is_some() || variant.absent.is_some(),
                "no rounds of {} were measured",
                variant.name
            );
            let percent =
                (index != BASE).then(|| stats::median_percent(&variant.samples, base)).flatten();
            let floors = (index > FLOOR)
                .then(|| stats::floor_ratio(&variant.samples, floor, base))
                .flatten();
            let (absent, samples) = (variant.absent.as_deref(), variant.samples.as_slice());
            Ok(VariantRow { name: variant.name, summary, percent, floors, absent, samples })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let measured = |name, samples: [f64; 3]| VariantSeries {
            name,
            samples: samples.to_vec(),
            absent: None,
        };
        let series = [
            measured("nothing", [2.0, 2.0, 4.0]),
            measured("floor", [2.1, 2.1, 4.2]),
            measured("record", [2.2, 2.2, 4.4]),
            VariantSeries {
                name: "bpftrace",
                samples: Vec::new(),
                absent: Some("no bpftrace: apt knows\nno package".to_owned()),
            },
        ];
        let place = ("2026-01-02".to_owned(), "a CPU".to_owned());
        let report =
            LoadReport::new(OverheadLoad::Pipe, &series, 3, "10 loops".to_owned(), place).unwrap();
        let text = report.to_markdown();
        assert!(text.contains("| nothing | 2.000 | 2.000-4.000 |  |  |"), "{text}");
        assert!(text.contains("| floor | 2.100 | 2.100-4.200 | +5.0 % |  |"), "{text}");
        assert!(text.contains("| record | 2.200 | 2.200-4.400 | +10.0 % | 2.00 |"), "{text}");
        let absent = "| bpftrace | not measured: no bpftrace: apt knows no package |  |  |  |";
        assert!(text.contains(absent), "{text}");
        assert!(text.ends_with("2026-01-02, a CPU; 3 interleaved rounds of 10 loops.\n"));
    }

    #[test]
    fn a_series_without_samples_and_without_a_reason_is_an_error() {
        let series = ["nothing", "floor"];
        let series = series.map(|name| VariantSeries { name, samples: Vec::new(), absent: None });
        assert!(variant_rows(&series).is_err());
    }
}
