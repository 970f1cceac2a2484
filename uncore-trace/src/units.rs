//! Numbers with their units, as people read them.
//!
//! Guarantees: the figure keeps three significant digits; decimal prefixes (1 GB is 10^9 bytes, as
//! links and memory are sold); a number that is not finite is shown as such.

/// Prefix steps of counts and bytes.
const DECIMAL: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Time steps, from nanoseconds.
const TIME: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];

/// `value` of `unit` with a prefix: `12.3 GB`, `4.56 ms`, `7.89 M cycles`; a `count` is a bare number.
pub fn human(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => prefixed(value, "B"),
        "ns" => match TIME.iter().find(|(size, _)| value.abs() >= *size) {
            Some((size, name)) => format!("{} {name}", digits(value / size)),
            None => format!("{} ns", digits(value)),
        },
        "" | "count" => prefixed(value, "").trim_end().to_owned(),
        "%" => format!("{} %", digits(value)),
        other => match DECIMAL.iter().find(|(size, _)| value.abs() >= *size) {
            Some((size, prefix)) => format!("{} {prefix} {other}", digits(value / size)),
            None => format!("{} {other}", digits(value)),
        },
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

fn prefixed(value: f64, symbol: &str) -> String {
    match DECIMAL.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{} {prefix}{symbol}", digits(value / size)),
        None => format!("{} {symbol}", digits(value)),
    }
}

/// Three significant digits for what is below 1000.
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
    } else {
        format!("{value:.1e}")
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
}
