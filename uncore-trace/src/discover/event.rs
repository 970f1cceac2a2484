//! The `events/` files of a PMU: named terms, with scale and unit in files next to them.
//!
//! The parser accepts what drivers really write: blanks after commas, no newline at the end, `=?`
//! for a value that the user must give, and hex, decimal and octal numbers. Anything else is an
//! error, because a wrong encoding counts something else.

use anyhow::{Context, Result, bail};

/// The value of a term in an event file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasValue {
    /// `term=0x21`, or a bare `term`, which means 1.
    Number(u64),
    /// `term=?`: the user must give the value.
    Asked,
}

/// One term of an event file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasTerm {
    /// A format of the PMU, or `config`, `config1` to `config4`.
    pub name: String,
    /// Its value.
    pub value: AliasValue,
}

/// A named event in sysfs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventAlias {
    /// Its terms, in the order of the file.
    pub terms: Vec<AliasTerm>,
    /// `<event>.scale`: value in `unit` per count.
    pub scale: Option<f64>,
    /// `<event>.unit`, as written.
    pub unit: Option<String>,
    /// `<event>.per-pkg`: every CPU of a package counts the same.
    pub per_pkg: bool,
    /// `<event>.snapshot`: the value is a gauge; its differences have no meaning.
    pub snapshot: bool,
}

impl EventAlias {
    /// Parses the file of an event, which has no scale or unit.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { terms: parse_terms(text)?, ..Self::default() })
    }

    /// The terms that have values.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.terms.iter().filter_map(|term| match term.value {
            AliasValue::Number(number) => Some((term.name.as_str(), number)),
            AliasValue::Asked => None,
        })
    }

    /// The same with names of their own.
    pub fn owned_numbers(&self) -> Vec<(String, u64)> {
        self.numbers().map(|(name, number)| (name.to_owned(), number)).collect()
    }

    /// The terms that the user must give.
    pub fn asked_terms(&self) -> impl Iterator<Item = &str> {
        self.terms
            .iter()
            .filter(|term| term.value == AliasValue::Asked)
            .map(|term| term.name.as_str())
    }

    /// The terms as one text, with numbers in hex: `eventid=0x70c,type=0x1,lane=?`.
    pub fn terms_text(&self) -> String {
        let terms: Vec<String> = self
            .terms
            .iter()
            .map(|term| match term.value {
                AliasValue::Number(n) => format!("{}={n:#x}", term.name),
                AliasValue::Asked => format!("{}=?", term.name),
            })
            .collect();
        terms.join(",")
    }
}

/// Parses `name=value,name,name=?`.
fn parse_terms(text: &str) -> Result<Vec<AliasTerm>> {
    let mut terms = Vec::new();
    for raw_term in text.trim().split(',') {
        let term_text = raw_term.trim();
        let (name, value) = match term_text.split_once('=') {
            None => (term_text, AliasValue::Number(1)),
            Some((name, "?")) => (name, AliasValue::Asked),
            Some((name, value)) => (name, AliasValue::Number(number(value)?)),
        };
        if name.is_empty()
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        {
            bail!("event {text:?}: {term_text:?} is not a term");
        }
        terms.push(AliasTerm { name: name.to_owned(), value });
    }
    Ok(terms)
}

/// Parses a number as perf does: `0x` is hex, a leading `0` octal, anything else decimal.
pub fn number(text: &str) -> Result<u64> {
    let parsed = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        parse_digits(hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        parse_digits(text, 8)
    } else {
        parse_digits(text, 10)
    };
    parsed.with_context(|| format!("{text:?} is not a number of at most 64 bits"))
}

/// `from_str_radix` without its tolerance for a sign.
fn parse_digits(text: &str, radix: u32) -> Option<u64> {
    if text.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn event_files_of_drivers_are_parsed() {
        for (file, text) in [
            ("event=0x101\n", "event=0x101"),
            ("config=0x80", "config=0x80"),
            ("eventid=0x21, type=0x1", "eventid=0x21,type=0x1"),
            ("eventid=0x70c,type=0x1,lane=?\n", "eventid=0x70c,type=0x1,lane=?"),
            ("type=0x3", "type=0x3"),
            ("event=60,in_tx", "event=0x3c,in_tx=0x1"),
        ] {
            assert_eq!(EventAlias::parse(file).unwrap().terms_text(), text);
        }
        let lane = EventAlias::parse("eventid=0x70c,lane=?").unwrap();
        assert_eq!(lane.asked_terms().collect::<Vec<_>>(), ["lane"]);
    }

    #[test]
    fn numbers_are_decimal_hex_or_octal() {
        assert_eq!(number("413").unwrap(), 413);
        assert_eq!(number("0x1A").unwrap(), 26);
        assert_eq!(number("010").unwrap(), 8);
        assert_eq!(number("0").unwrap(), 0);
        assert_eq!(number("0xffffffffffffffff").unwrap(), u64::MAX);
        for text in ["", "0x", "09", "1x", "+1", "0x+1", "-1", "0x10000000000000000"] {
            assert!(number(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn malformed_event_files_are_refused() {
        for text in ["", "event=", "event=0x1,", "=1", "ev ent=1", "event=cycles", "a\u{1b}=1"] {
            assert!(EventAlias::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn a_printed_event_parses_to_itself(terms in proptest::collection::vec(
            ("[a-z][a-z0-9_]{0,9}", proptest::option::of(any::<u64>())), 1..5))
        {
            let event = EventAlias {
                terms: terms.into_iter().map(|(name, value)| AliasTerm {
                    name, value: value.map_or(AliasValue::Asked, AliasValue::Number),
                }).collect(),
                scale: None, unit: None, per_pkg: false, snapshot: false,
            };
            prop_assert_eq!(EventAlias::parse(&event.terms_text()).unwrap(), event);
        }
    }
}
