//! The figures of `cargo xtask bench truth`, and the rows of its two tables.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The figures of a case, or the sums of several.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct TruthFigures {
    median: f64,
    p95: f64,
    misplaced: f64,
    bill: f64,
    said: f64,
    right: f64,
    rms: f64,
    few: [u32; 2],
    many: [u32; 2],
    sure: [u32; 2],
    windows: [u32; 2],
    over_half: [u32; 3],
    over_nine: [u32; 3],
    floor: Floor,
    misfits: Misfits,
    cpu_s: f64,
    peak_mib: f64,
}

/// What recordings say of the model, and how many of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<String>")]
struct Misfits(BTreeMap<String, u32>);

impl From<Vec<String>> for Misfits {
    /// Of notes of one recording: counters, what is said of them, and more, with colons between.
    fn from(notes: Vec<String>) -> Self {
        let texts = notes.iter().filter_map(|note| note.split(": ").nth(1));
        Self(texts.map(|text| (text.to_owned(), 1)).collect())
    }
}

/// Those of the true rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct Floor {
    median: f64,
    misplaced: f64,
}

/// Headings of the columns.
pub(super) const HEADINGS: [&str; 12] = [
    "machine",
    "method",
    "median error, %",
    "95th percentile",
    "misplaced, %",
    "bill, %",
    "floor: median / misplaced, %",
    "confidence: said / right (rms)",
    "intervals that hold: few processes, many",
    "sure bills within 15 %",
    "CPU, s",
    "memory, MiB",
];
/// Those of the table of grounds.
pub(super) const GROUND_HEADINGS: [&str; 12] = [
    "machine",
    "method",
    "misplaced, %",
    "floor, %",
    "bill, %",
    "90 % intervals of sums that hold",
    "of windows, %",
    "confidence from 0.5: values, within 10 %, off by more than 30 %",
    "above 0.9: values, within 10 %",
    "the recording says",
    "CPU, s",
    "memory, MiB",
];

/// Makes the row of a machine and a method from the sums over this number of cases.
pub(super) type RowText = fn(&str, &str, &TruthFigures, f64) -> String;

impl TruthFigures {
    pub(super) fn sum_with(&self, case_figures: &Self) -> Self {
        let mut misfits = self.misfits.clone();
        for (text, count) in &case_figures.misfits.0 {
            *misfits.0.entry(text.clone()).or_default() += count;
        }
        Self {
            median: self.median + case_figures.median,
            p95: self.p95 + case_figures.p95,
            misplaced: self.misplaced + case_figures.misplaced,
            bill: self.bill + case_figures.bill,
            said: self.said + case_figures.said,
            right: self.right + case_figures.right,
            rms: self.rms + case_figures.rms,
            few: sum_counts(self.few, case_figures.few),
            many: sum_counts(self.many, case_figures.many),
            sure: sum_counts(self.sure, case_figures.sure),
            windows: sum_counts(self.windows, case_figures.windows),
            over_half: sum_counts(self.over_half, case_figures.over_half),
            over_nine: sum_counts(self.over_nine, case_figures.over_nine),
            floor: Floor {
                median: self.floor.median + case_figures.floor.median,
                misplaced: self.floor.misplaced + case_figures.floor.misplaced,
            },
            misfits,
            cpu_s: self.cpu_s + case_figures.cpu_s,
            peak_mib: self.peak_mib + case_figures.peak_mib,
        }
    }
}

fn sum_counts<const N: usize>(left_counts: [u32; N], right_counts: [u32; N]) -> [u32; N] {
    std::array::from_fn(|index| left_counts[index] + right_counts[index])
}

/// Of the sums over `seeds` cases.
pub(super) fn table_row(machine: &str, method: &str, sum: &TruthFigures, seeds: f64) -> String {
    let percent = |seed_sum: f64| format!("{:.1}", seed_sum / seeds * 100.0);
    let errors = [sum.median, sum.p95, sum.misplaced, sum.bill].map(percent).join(" | ");
    let floor = [sum.floor.median, sum.floor.misplaced].map(percent).join(" / ");
    let [said, right, rms] = [sum.said, sum.right, sum.rms].map(|figure_sum| figure_sum / seeds);
    let [few, many, sure] =
        [sum.few, sum.many, sum.sure].map(|[holding, total]| format!("{holding} of {total}"));
    let (cpu, peak) = (sum.cpu_s / seeds, sum.peak_mib / seeds);
    format!(
        "| {machine} | {method} | {errors} | {floor} | {said:.2} / {right:.2} ({rms:.2}) | {few}, \
         {many} | {sure} | {cpu:.1} | {peak:.0} |"
    )
}

/// The same for the table of grounds.
pub(super) fn ground_row(machine: &str, method: &str, sum: &TruthFigures, seeds: f64) -> String {
    let percent = |seed_sum: f64| format!("{:.1}", seed_sum / seeds * 100.0);
    let errors = [sum.misplaced, sum.floor.misplaced, sum.bill].map(percent).join(" | ");
    let [holding, total] = sum_counts(sum.few, sum.many);
    let fraction = |count: u32, total: u32| f64::from(count) / f64::from(total.max(1));
    let windows = 100.0 * fraction(sum.windows[0], sum.windows[1]);
    let [half, half_right, half_wrong] = sum.over_half;
    let [nine, nine_right, _] = sum.over_nine;
    let says = |(text, count): (&String, &u32)| {
        let is_every = f64::from(*count) >= seeds;
        if is_every { text.clone() } else { format!("{text} ({count} of {seeds})") }
    };
    let misfits = sum.misfits.0.iter().map(says).collect::<Vec<_>>().join("; ");
    format!(
        "| {machine} | {method} | {errors} | {holding} of {total} | {windows:.0} | {half}, {:.2}, \
         {:.2} | {nine}, {:.2} | {misfits} | {:.1} | {:.0} |",
        fraction(half_right, half),
        fraction(half_wrong, half),
        fraction(nine_right, nine),
        sum.cpu_s / seeds,
        sum.peak_mib / seeds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_means_and_counts_of_all_seeds() {
        let one = TruthFigures {
            median: 0.1,
            few: [3, 4],
            cpu_s: 1.0,
            said: 0.5,
            ..TruthFigures::default()
        };
        let two = TruthFigures {
            median: 0.2,
            few: [5, 6],
            cpu_s: 2.0,
            said: 0.7,
            ..TruthFigures::default()
        };
        let sum = TruthFigures::default().sum_with(&one).sum_with(&two);
        let expected = "| a | auto | 15.0 | 0.0 | 0.0 | 0.0 | 0.0 / 0.0 | 0.60 / 0.00 (0.00) | 8 \
                        of 10, 0 of 0 | 0 of 0 | 1.5 | 0 |";
        assert_eq!(table_row("a", "auto", &sum, 2.0), expected);
    }
    #[test]
    fn a_row_of_a_ground_says_what_holds_and_what_recordings_say() {
        let figures = |notes: &[&str], over_half| TruthFigures {
            misplaced: 0.1,
            few: [3, 4],
            many: [1, 1],
            windows: [9, 10],
            over_half,
            over_nine: [2, 1, 0],
            misfits: Misfits::from(notes.iter().map(|&note| note.to_owned()).collect::<Vec<_>>()),
            ..TruthFigures::default()
        };
        let late = "memory_0/bytes/: bytes come late: some count; confidences are lower";
        let full = "memory_0/bytes/, memory_1/bytes/: a link is full: as said";
        let sum = figures(&[late, full], [10, 5, 1]).sum_with(&figures(&[full], [10, 9, 2]));
        let expected = "| a | auto | 10.0 | 0.0 | 0.0 | 8 of 10 | 90 | 20, 0.70, 0.15 | 4, 0.50 | \
                        a link is full; bytes come late (1 of 2) | 0.0 | 0 |";
        assert_eq!(ground_row("a", "auto", &sum, 2.0), expected);
    }
}
