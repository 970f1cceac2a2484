//! Writes compact JSON for a page, safe inside a script element.
//!
//! Guarantees: `<`, `>`, `&` and the line separators of JavaScript are written as `\uXXXX`, so no
//! name can end the element or begin another; numbers have four significant digits; a number that
//! is not finite is null.

use std::io::{self, Write};

use serde::Serialize;

/// Number of equal entries of a column from which they are written as a run.
const RUN: usize = 4;

/// Writes one JSON value after the other.
pub(in crate::view) struct Json<'a> {
    writer: &'a mut dyn Write,
    /// Whether a comma is needed before the next value.
    needs_comma: bool,
}

impl<'a> Json<'a> {
    pub(in crate::view) fn new(writer: &'a mut dyn Write) -> Self {
        Self { writer, needs_comma: false }
    }

    /// `"name":` of an object.
    pub(in crate::view) fn write_key(&mut self, name: &str) -> io::Result<&mut Self> {
        self.write_value(name)?;
        self.writer.write_all(b":")?;
        self.needs_comma = false;
        Ok(self)
    }

    /// Text that is JSON already.
    fn write_raw(&mut self, json: &str) -> io::Result<()> {
        if self.needs_comma {
            self.writer.write_all(b",")?;
        }
        self.needs_comma = true;
        self.writer.write_all(json.as_bytes())
    }

    /// Any serializable value; for small ones.
    pub(in crate::view) fn write_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> io::Result<()> {
        self.write_raw(&escape_html(&serde_json::to_string(value)?))
    }

    /// A number with four significant digits.
    pub(in crate::view) fn write_number(&mut self, value: Option<f64>) -> io::Result<()> {
        self.write_raw(&format_number(value))
    }

    pub(in crate::view) fn write_object(
        &mut self,
        write_members: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_nested(["{", "}"], write_members)
    }

    /// A list with an entry for each of `items`.
    pub(in crate::view) fn write_list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write_item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_nested(["[", "]"], |json| {
            items.into_iter().try_for_each(|item| write_item(json, item))
        })
    }

    /// Numbers with four significant digits. Equal consecutive ones are one entry,
    /// `[COUNT, NUMBER]`.
    pub(in crate::view) fn write_column(
        &mut self,
        numbers: impl IntoIterator<Item = Option<f64>>,
    ) -> io::Result<()> {
        self.write_nested(["[", "]"], |json| {
            let mut run: Option<(Option<f64>, usize)> = None;
            for number in numbers {
                match &mut run {
                    Some((value, count)) if *value == number => *count += 1,
                    _ => {
                        json.write_run(run)?;
                        run = Some((number, 1));
                    }
                }
            }
            json.write_run(run)
        })
    }

    fn write_run(&mut self, run: Option<(Option<f64>, usize)>) -> io::Result<()> {
        let Some((value, count)) = run else { return Ok(()) };
        let text = format_number(value);
        if count >= RUN {
            return self.write_raw(&format!("[{count},{text}]"));
        }
        (0..count).try_for_each(|_| self.write_raw(&text))
    }

    fn write_nested(
        &mut self,
        [open, close]: [&str; 2],
        write_content: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_raw(open)?;
        self.needs_comma = false;
        write_content(self)?;
        self.needs_comma = true;
        self.writer.write_all(close.as_bytes())
    }
}

/// JSON with characters that are special in HTML or JavaScript written as `\uXXXX`. They only occur
/// in strings.
fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// The shortest JSON of a number with four significant digits.
fn format_number(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return "null".to_owned() };
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:.3e}");
    let Some((figure, power)) = text.split_once('e') else { return text };
    let power: i32 = power.parse().unwrap_or_default();
    let (sign, figure) = figure.strip_prefix('-').map_or(("", figure), |figure| ("-", figure));
    let digits: String = figure.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    // The digits as an integer, and its power of ten.
    let power = power + 1 - digits.len() as i32;
    let decimals = usize::try_from(-power).unwrap_or_default();
    match power {
        0..=2 => format!("{sign}{digits}{}", "0".repeat(power as usize)),
        -3..0 if digits.len() > decimals => {
            let (whole, decimal_digits) = digits.split_at(digits.len() - decimals);
            format!("{sign}{whole}.{decimal_digits}")
        }
        -4..0 => format!("{sign}0.{digits:0>decimals$}"),
        _ => format!("{sign}{digits}e{power}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn json_of(write: impl FnOnce(&mut Json<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut Json::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_short() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (12345.6, "12350"),
            (1e6, "1e6"),
            (1_234_567.0, "1235e3"),
            (0.5, "0.5"),
            (12.345, "12.35"),
            (0.012_34, "1234e-5"),
            (0.0012, "0.0012"),
            (-2.5, "-2.5"),
            (999.96, "1e3"),
            (1234.6, "1235"),
            (f64::MIN_POSITIVE, "2225e-311"),
        ] {
            assert_eq!(format_number(Some(value)), text);
        }
        for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(format_number(value), "null");
        }
    }

    #[test]
    fn objects_lists_and_columns_nest() {
        let text = json_of(|json| {
            json.write_object(|json| {
                json.write_key("a")?.write_value(&["x", "y"])?;
                json.write_key("b")?.write_list(0..2, |json, n| {
                    json.write_object(|json| json.write_key("n")?.write_value(&n))
                })?;
                let known = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0].map(Some);
                json.write_key("c")?.write_column(known.into_iter().chain([None; 4]))?;
                json.write_key("d")?.write_column([])?;
                json.write_key("e")?.write_number(Some(0.25))
            })
        });
        let expected =
            r#"{"a":["x","y"],"b":[{"n":0},{"n":1}],"c":[1,1,[5,0],2,[4,null]],"d":[],"e":0.25}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn no_name_ends_the_script_element() {
        let name = "</script><img src=x onerror=alert(1)>&amp;<!--\u{2028}\u{2029}\u{1b}[2J\"\\";
        let text = json_of(|json| json.write_value(name));
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{2029}', '\u{1b}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    proptest! {
        #[test]
        fn numbers_keep_four_digits(value in prop::num::f64::NORMAL | prop::num::f64::ZERO) {
            let parsed_number: f64 = serde_json::from_str(&format_number(Some(value))).unwrap();
            prop_assert!((parsed_number - value).abs() <= value.abs() * 5.001e-4, "{value} {parsed_number}");
        }

        #[test]
        fn columns_keep_every_number(numbers in prop::collection::vec(prop::option::of(0_u8..3), 0..40)) {
            let text = json_of(|json| json.write_column(numbers.iter().map(|it| it.map(f64::from))));
            let mut found = Vec::new();
            for entry in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
                let (count, value) = match entry.as_array() {
                    Some(run) => (run[0].as_u64().unwrap(), run[1].clone()),
                    None => (1, entry),
                };
                (0..count).for_each(|_| found.push(value.as_u64().map(|it| it as u8)));
            }
            prop_assert_eq!(found, numbers);
        }
    }
}
