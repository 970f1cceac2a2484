//! Numbers with their units, as people read them.
//!
//! Guarantees: the figure keeps three significant digits down to 0.01, and says that it is less below; decimal prefixes (1 GB is 10^9 bytes, as
//! links and memory are sold); a number that is not finite is shown as such.

/// Prefix steps of counts and bytes.
const DECIMAL: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Time steps, from nanoseconds.
const TIME: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];

/// `value` of `unit` with a prefix: `12.3 GB`, `4.56 ms`, `7.89 M cycles`; a `count` is a bare number.
pub fn human(value: f64, unit: &str) -> String {
    let (size, suffix) = scale(value, unit);
    format!("{} {suffix}", digits(value / size)).trim_end().to_owned()
}

/// From `low` to `high`, in the unit that `high` has in [`human`]: `52.4–62.0 GB`. One number where both
/// read the same.
pub fn range(low: f64, high: f64, unit: &str, dash: &str) -> String {
    let (size, suffix) = scale(high, unit);
    // Next to the higher end less than that is nothing, and would be the longer number.
    let low = if low / size < 0.01 && low < high * 0.01 { 0.0 } else { low };
    let (from, to) = (digits(low / size), digits(high / size));
    let range = if from == to { to } else { format!("{from}{dash}{to}") };
    format!("{range} {suffix}").trim_end().to_owned()
}

/// How many of `unit` are one of what `value` is shown in, and what that is called.
fn scale(value: f64, unit: &str) -> (f64, String) {
    let fits = |(size, _): &&(f64, &str)| value.abs() >= *size;
    let (size, prefix) = DECIMAL.iter().find(fits).copied().unwrap_or((1.0, ""));
    match unit {
        "bytes" => (size, format!("{prefix}B")),
        "ns" => {
            let (size, name) = TIME.iter().find(fits).copied().unwrap_or((1.0, "ns"));
            (size, name.to_owned())
        }
        "" | "count" => (size, prefix.to_owned()),
        "%" => (1.0, "%".to_owned()),
        other if prefix.is_empty() => (1.0, other.to_owned()),
        other => (size, format!("{prefix} {other}")),
    }
}

/// Whether [`human`] writes the unit as a symbol or not at all; other units are words.
pub fn has_symbol(unit: &str) -> bool {
    matches!(unit, "bytes" | "ns" | "" | "count" | "%")
}

/// As [`human`], per second.
pub fn rate(per_second: f64, unit: &str) -> String {
    match unit {
        "" | "count" => format!("{} /s", human(per_second, unit)),
        _ => format!("{}/s", human(per_second, unit)),
    }
}

/// Three significant digits for what is below 1000, and at most two decimals.
fn digits(value: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_prefix() {
        assert_eq!(human(12_345_678_901.0, "bytes"), "12.3 GB");
        assert_eq!(human(999.0, "bytes"), "999 B");
        assert_eq!(human(4_560_000.0, "ns"), "4.56 ms");
        assert_eq!(human(7_890_000.0, "count"), "7.89 M");
        assert_eq!(human(7_890_000.0, "cycles"), "7.89 M cycles");
        assert_eq!(human(0.0, "count"), "0");
        assert_eq!(human(1500.0, ""), "1.50 k");
        assert_eq!(rate(2e9, "bytes"), "2.00 GB/s");
        for unit in ["bytes", "ns", "", "count", "%", "cycles"] {
            assert_eq!(has_symbol(unit), !human(1.0, unit).contains("cycles"), "{unit}");
        }
        assert_eq!(human(f64::NAN, "bytes"), "NaN B");
    }

    #[test]
    fn a_range_has_one_unit() {
        let range = |low: f64, high: f64, unit: &str| range(low, high, unit, "-");
        assert_eq!(range(52.4e9, 62.04e9, "bytes"), "52.4-62.0 GB");
        assert_eq!(range(750.0, 1500.0, "count"), "0.75-1.50 k");
        assert_eq!(range(900.0, 1.5e6, "cycles"), "0-1.50 M cycles");
        assert_eq!(range(0.0, 2e6, "ns"), "0-2.00 ms");
        assert_eq!(range(57.21e9, 57.22e9, "bytes"), "57.2 GB");
        assert_eq!(range(0.0, 0.0, "bytes"), "0 B");
        assert_eq!(range(0.004, 0.005, ""), "<0.01");
        assert_eq!(human(-0.004, "bytes"), ">-0.01 B");
    }
}
