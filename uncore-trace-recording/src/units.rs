//! Formats numbers with their units.
//!
//! Guarantees: a single figure ([`human`]) has three significant digits down to 0.01; figures in a
//! column ([`SharedUnit`]) have the same unit and number of decimals; a value too small for the
//! last digit is `<0.01`, and only 0 is `0`; prefixes are decimal (1 GB is 10^9 bytes, as in data
//! sheets of links and memory); a number that is not finite is printed as such.

use std::cmp::Ordering;
use std::time::Duration;

/// Prefix steps of counts and bytes.
const DECIMAL: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Time steps, from nanoseconds.
const TIME: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];

/// `value` of `unit` with a prefix: `12.3 GB`, `4.56 ms`, `7.89 M cycles`; a `count` has no unit. A
/// whole number without a prefix has no decimals.
pub fn human(value: f64, unit: &str) -> String {
    let (size, suffix) = find_scale(value, unit);
    let figure = if is_bare(size) && value.fract() == 0.0 {
        value.to_string()
    } else {
        three_digits(value / size)
    };
    format!("{figure} {suffix}").trim_end().to_owned()
}

/// The unit of figures in a column: that which [`human`] uses for the largest of them.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedUnit {
    size: f64,
    suffix: String,
    decimals: usize,
}

impl SharedUnit {
    /// The unit for these values of `unit`. They have two decimals, one if the largest is 10 or
    /// more, and none if all are whole numbers without a prefix.
    pub fn for_values(values: impl IntoIterator<Item = f64>, unit: &str) -> Self {
        let (mut largest, mut whole) = (0.0_f64, true);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            largest = largest.max(value.abs());
            whole &= value.fract() == 0.0;
        }
        let (size, suffix) = find_scale(largest, unit);
        let decimals = match largest / size {
            _ if whole && is_bare(size) => 0,
            // 9.995 is rounded to 10.0, which needs one decimal less.
            figure if figure < 9.995 => 2,
            _ => 1,
        };
        Self { size, suffix, decimals }
    }

    /// Percent with one decimal.
    pub fn as_percent() -> Self {
        Self { size: 0.01, suffix: "%".to_owned(), decimals: 1 }
    }

    /// The name of the unit: `GB`, `M cycles`; empty for bare numbers.
    pub fn unit_name(&self) -> &str {
        &self.suffix
    }

    /// As [`Self::unit_name`], per second.
    pub fn rate_name(&self) -> String {
        format!("{}/s", self.suffix)
    }

    /// The figure, padded with blanks if it has no decimals but others have: the decimal points in
    /// a right-aligned column are below each other.
    pub fn format_figure(&self, value: f64) -> String {
        let (value, decimals) = (value / self.size, self.decimals);
        let behind = " ".repeat(if decimals > 0 { decimals + 1 } else { 0 });
        let smallest = 10_f64.powi(-i32::try_from(decimals).unwrap_or(0));
        if value == 0.0 {
            format!("0{behind}")
        } else if !value.is_finite() || value.abs() >= smallest {
            format!("{value:.decimals$}")
        } else if value > 0.0 {
            format!("<{smallest:.decimals$}")
        } else {
            format!(">-{smallest:.decimals$}")
        }
    }

    /// From `low` to `high`, padded to `width` characters; one figure if both are printed alike.
    pub fn format_range(&self, low: f64, high: f64, dash: &str, width: usize) -> String {
        let (low_figure, high_figure) = (self.format_figure(low), self.format_figure(high));
        if low_figure == high_figure {
            high_figure
        } else {
            format!("{low_figure} {dash} {high_figure:>width$}")
        }
    }
}

/// Whether there is no prefix; sizes are constants, so the comparison is exact.
fn is_bare(size: f64) -> bool {
    size.total_cmp(&1.0) == Ordering::Equal
}

/// The divisor for `value` and the name of the unit with its prefix.
fn find_scale(value: f64, unit: &str) -> (f64, String) {
    // 999.5 is rounded to 1000, which needs the next prefix.
    let fits = |(size, _): &&(f64, &str)| value.abs() >= *size * 0.9995;
    let (size, prefix) = DECIMAL.iter().find(fits).copied().unwrap_or((1.0, ""));
    match unit {
        "bytes" => (size, format!("{prefix}B")),
        "ns" => {
            let (size, name) = TIME.iter().find(fits).copied().unwrap_or((1.0, "ns"));
            (size, name.to_owned())
        }
        "" | "count" => (size, prefix.to_owned()),
        "%" => (1.0, "%".to_owned()),
        word if prefix.is_empty() => (1.0, word.to_owned()),
        word => (size, format!("{prefix} {word}")),
    }
}

/// Whether [`human`] writes the unit as a symbol or leaves it out; other units are words.
pub fn has_symbol(unit: &str) -> bool {
    matches!(unit, "bytes" | "ns" | "" | "count" | "%")
}

/// As [`human`], per second: `12.3 GB/s`, `4.56 k/s`; `789 /s` for a bare number.
pub fn human_rate(per_second: f64, unit: &str) -> String {
    let figure = human(per_second, unit);
    if figure.contains(' ') { format!("{figure}/s") } else { format!("{figure} /s") }
}

/// A part of a whole: `58 %`, `0.3 %`.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent > 0.0 && percent < 0.95 {
        return format!("{percent:.1} %");
    }
    format!("{percent:.0} %")
}

/// A ratio with its decimals, also if it is whole, because it stands in a column: `3.00`.
pub fn format_ratio(value: f64) -> String {
    let (size, suffix) = find_scale(value, "");
    format!("{} {suffix}", three_digits(value / size)).trim_end().to_owned()
}

/// The factor of one count: at most three decimals, or a power of two if that is short.
pub fn format_factor(value: f64) -> String {
    let power = value.log2();
    if value > 0.0 && value < 0.001 && power.fract() == 0.0 {
        return format!("2^{power}");
    }
    match format!("{value:.3}").trim_end_matches('0').trim_end_matches('.') {
        "0" if value > 0.0 => "<0.001".to_owned(),
        figure => figure.to_owned(),
    }
}

/// Three significant digits below 1000, and at most two decimals.
fn three_digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 99.95 || !value.is_finite() {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.01 {
        format!("{value:.2}")
    } else if value > 0.0 {
        "<0.01".to_owned()
    } else {
        ">-0.01".to_owned()
    }
}

/// A unit as a part of a metric's name: letters, digits and underscores.
pub fn unit_identifier(unit: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    unit.chars().map(plain).collect()
}

/// Parses a duration with a unit (`10ms`, `2s`, `1m 30s`), or a bare number in units of `bare`.
///
/// # Errors
///
/// The text is not a duration; the error shows the format.
pub fn parse_duration(text: &str, bare: Duration) -> Result<Duration, String> {
    if let Ok(number) = text.parse::<u32>() {
        return bare.checked_mul(number).ok_or_else(|| format!("{text} is too long"));
    }
    if let Ok(number) = text.parse::<f64>() {
        let seconds = bare.as_secs_f64() * number;
        return Duration::try_from_secs_f64(seconds).map_err(|error| format!("{text}: {error}"));
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it with a unit: 100us, 10ms, 2s, 1m"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_parts_of_names() {
        assert_eq!(unit_identifier("Joules"), "joules");
        assert_eq!(unit_identifier("GB/s"), "gb_s");
    }

    #[test]
    fn figures_have_three_digits_and_a_prefix() {
        assert_eq!(human(12_345_678_901.0, "bytes"), "12.3 GB");
        assert_eq!(human(999.0, "bytes"), "999 B");
        assert_eq!(human(4_560_000.0, "ns"), "4.56 ms");
        assert_eq!(human(7_890_000.0, "count"), "7.89 M");
        assert_eq!(human(7_890_000.0, "cycles"), "7.89 M cycles");
        assert_eq!(human(0.0, "count"), "0");
        assert_eq!(human(1500.0, ""), "1.50 k");
        assert_eq!(human_rate(2e9, "bytes"), "2.00 GB/s");
        assert_eq!(human_rate(2e3, "count"), "2.00 k/s");
        assert_eq!(human_rate(2.5, ""), "2.50 /s");
        assert_eq!(human(3.0, "bytes"), "3 B");
        assert_eq!(
            (format_ratio(3.0), format_ratio(1234.0)),
            ("3.00".to_owned(), "1.23 k".to_owned())
        );
        for unit in ["bytes", "ns", "", "count", "%", "cycles"] {
            assert_eq!(has_symbol(unit), !human(1.0, unit).contains("cycles"), "{unit}");
        }
        assert_eq!(human(f64::NAN, "bytes"), "NaN B");
    }

    #[test]
    fn a_figure_takes_the_prefix_that_it_is_rounded_to() {
        assert_eq!(human(999.4e6, "bytes"), "999 MB");
        assert_eq!(human(999.6e6, "bytes"), "1.00 GB");
        assert_eq!(human(0.004, "bytes"), "<0.01 B");
        assert_eq!(human(-0.004, "bytes"), ">-0.01 B");
    }

    /// The name of the unit, and the figures.
    fn column(values: &[f64], unit: &str) -> (String, Vec<String>) {
        let shared = SharedUnit::for_values(values.iter().copied(), unit);
        let figures = values.iter().map(|value| shared.format_figure(*value)).collect();
        (shared.unit_name().to_owned(), figures)
    }

    #[test]
    fn figures_of_a_column_have_one_unit_and_meet_at_their_points() {
        let (name, figures) = column(&[56.6e9, 1.6e9, 777e6, 4.9e6, 0.0, -4e6], "bytes");
        assert_eq!(name, "GB");
        assert_eq!(figures, ["56.6", "1.6", "0.8", "<0.1", "0  ", ">-0.1"]);
        let (name, figures) = column(&[1.5e6, 4_000.0, 12.0], "cycles");
        assert_eq!(name, "M cycles");
        assert_eq!(figures, ["1.50", "<0.01", "<0.01"]);
        assert_eq!(column(&[104.0, 9.0, 0.0], "count").1, ["104", "9", "0"]);
        assert_eq!(column(&[104.0, 0.5], "count").1, ["104.0", "0.5"]);
        assert_eq!(column(&[9.996, 1.0], "ns").1, ["10.0", "1.0"]);
        assert_eq!(
            column(&[999.6e3, 2e3], "ns"),
            ("ms".into(), vec!["1.00".into(), "<0.01".into()])
        );
        assert_eq!(column(&[], "bytes").0, "B");
        assert_eq!(column(&[f64::NAN, 2e3], "bytes").1, ["NaN", "2.00"]);
        assert_eq!(SharedUnit::as_percent().format_figure(0.0004), "<0.1");
        assert_eq!(SharedUnit::as_percent().format_figure(1.0), "100.0");
        assert_eq!(SharedUnit::for_values([2e9], "bytes").rate_name(), "GB/s");
    }

    #[test]
    fn factors_are_short_and_never_0() {
        for (value, shown) in [
            (1.0, "1"),
            (64.0, "64"),
            (0.5, "0.5"),
            (64.0 / 9.0, "7.111"),
            (2_097_152.0, "2097152"),
            (2.0_f64.powi(-32), "2^-32"),
            (1e-6, "<0.001"),
            (0.0, "0"),
        ] {
            assert_eq!(format_factor(value), shown);
        }
    }

    #[test]
    fn a_range_is_one_figure_where_both_ends_read_the_same() {
        let shared = SharedUnit::for_values([62.04e9], "bytes");
        assert_eq!(shared.format_range(52.4e9, 62.04e9, "-", 0), "52.4 - 62.0");
        assert_eq!(shared.format_range(0.0, 1e9, "-", 4), "0   -  1.0");
        assert_eq!(shared.format_range(57.21e9, 57.22e9, "-", 4), "57.2");
        assert_eq!(shared.format_range(1e6, 2e6, "-", 4), "<0.1");
    }

    proptest! {
        #[test]
        fn no_figure_hides_that_there_is_something(
            values in prop::collection::vec(1e-9..1e18_f64, 1..20),
            unit in prop::sample::select(vec!["bytes", "ns", "count", "%", "cycles"]),
        ) {
            let (_, figures) = column(&values, unit);
            let behind = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            for figure in &figures {
                prop_assert!(figure.chars().any(|c| ('1'..='9').contains(&c)), "{figures:?}");
                prop_assert_eq!(behind(figure), behind(&figures[0]));
            }
        }
    }

    #[test]
    fn bare_numbers_take_the_options_unit() {
        assert_eq!(parse_duration("10", Duration::from_millis(1)), Ok(Duration::from_millis(10)));
        assert_eq!(
            parse_duration("250us", Duration::from_millis(1)),
            Ok(Duration::from_micros(250))
        );
        assert_eq!(parse_duration("0.3", Duration::from_secs(1)), Ok(Duration::from_millis(300)));
        assert!(
            parse_duration("soon", Duration::from_millis(1)).unwrap_err().contains("with a unit")
        );
        for wrong in ["-5", "-0.5", "nan", "inf", "1e300"] {
            assert!(parse_duration(wrong, Duration::from_millis(1)).is_err(), "{wrong}");
        }
    }
}
