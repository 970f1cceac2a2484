//! The part of a recording that is asked for: from when to when.
//!
//! A window belongs to the span it ends in: spans that meet (`--to 2s` and `--from 2s`) divide a
//! recording without a rest.

use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use arrow::array::TimestampMicrosecondArray;

use crate::schema::columns;
use crate::tables::reader::Table;

/// A moment of a recording, as a user gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This long after the begin of its first window, ns.
    After(i64),
    /// At this wall time, ns since 1970.
    Wall(i64),
}

impl FromStr for Moment {
    type Err = String;

    /// A duration (`2s`, `1m30s`; a bare number is seconds) or a time of RFC 3339.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(seconds) = text.parse::<f64>() {
            let ns = seconds * 1e9;
            // The comparison also refuses what is not a number.
            return if (0.0..9e18).contains(&ns) {
                Ok(Self::After(ns as i64))
            } else {
                Err(format!("{text} s is out of range"))
            };
        }
        if let Ok(duration) = humantime::parse_duration(text) {
            let ns = i64::try_from(duration.as_nanos());
            return ns.map(Self::After).map_err(|_long| format!("{text} is too long"));
        }
        text.parse::<jiff::Timestamp>()
            .ok()
            .and_then(|time| i64::try_from(time.as_nanosecond()).ok())
            .map(Self::Wall)
            .ok_or_else(|| {
                "write it as time after the start (2s, 1m30s) or as 2026-01-31T12:00:00Z".to_owned()
            })
    }
}

/// What is asked of a table of windows; all times are `CLOCK_MONOTONIC`, ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Begin of the recording's first window.
    pub start_ns: i64,
    /// When a window ends that counts. Every row counts where nothing was asked.
    pub wanted: RangeInclusive<i64>,
    /// Begin of what is shown, within the recording.
    pub begin_ns: i64,
    /// End of what is shown, within the recording.
    pub end_ns: i64,
}

impl Span {
    /// The part of `table` between two moments; none if it has no rows.
    ///
    /// # Errors
    ///
    /// The table cannot be read, or the end is not after the begin.
    pub fn of(table: &Table, from: Option<Moment>, to: Option<Moment>) -> Result<Option<Self>> {
        let Some((start_ns, wall)) = start(table)? else {
            return Ok(None);
        };
        let at = |moment| match moment {
            Moment::After(ns) => start_ns.saturating_add(ns),
            Moment::Wall(ns) => ns.saturating_sub(wall),
        };
        let whole = last(table)?;
        let begin_ns = from.map_or(start_ns, at).max(start_ns);
        let end_ns = to.map_or(whole, at).min(whole);
        if let (Some(from), Some(to)) = (from.map(at), to.map(at))
            && from >= to
        {
            bail!("--from is not before --to: nothing lies between them");
        }
        if begin_ns >= end_ns && (from.is_some() || to.is_some()) {
            let seconds = whole.saturating_sub(start_ns) as f64 / 1e9;
            let begin = jiff::Timestamp::from_nanosecond(i128::from(start_ns.saturating_add(wall)))
                .map_or_else(|_| "an unknown time".to_owned(), |time| format!("{time:.3}"));
            bail!(
                "nothing was recorded in that time: the recording covers {seconds:.3} s from {begin}"
            );
        }
        let after = from.map_or(i64::MIN, |from| at(from).saturating_add(1));
        let wanted = after..=to.map_or(i64::MAX, at);
        Ok(Some(Self { start_ns, wanted, begin_ns, end_ns }))
    }
}

/// Begin of the first window, and what makes a monotonic time a wall time.
///
/// Rows are in the order of their windows, so the first batch has the first.
fn start(table: &Table) -> Result<Option<(i64, i64)>> {
    let Some(batch) = table.scan(&["ts", "mono_ns", "window_ns"])?.next().transpose()? else {
        return Ok(None);
    };
    let wall: &TimestampMicrosecondArray = columns::column(&batch, "ts")?;
    let (ends, lengths) = (columns::i64s(&batch, "mono_ns")?, columns::i64s(&batch, "window_ns")?);
    let begins =
        ends.values().iter().zip(lengths.values()).map(|(end, length)| end.saturating_sub(*length));
    let offset = wall.values().first().zip(ends.values().first());
    let offset = offset.map(|(wall, mono)| wall.saturating_mul(1000).saturating_sub(*mono));
    Ok(begins.min().zip(offset))
}

/// End of the last window: by the file's statistics, which cost nothing, else by its rows.
fn last(table: &Table) -> Result<i64> {
    if let Some((_, last)) = table.bounds("mono_ns") {
        return Ok(last);
    }
    let mut last = i64::MIN;
    for batch in table.scan(&["mono_ns"])? {
        let batch = batch?;
        let ends = columns::i64s(&batch, "mono_ns")?;
        last = ends.values().iter().copied().fold(last, i64::max);
    }
    (last > i64::MIN).then_some(last).context("the table has no rows")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{BEGIN, INTACT, Sample, WALL, WINDOWS};
    use super::*;
    use crate::schema::fabric;

    #[test]
    fn moments_are_durations_or_times() {
        let cases = [
            ("2", Moment::After(2_000_000_000)),
            ("0.5", Moment::After(500_000_000)),
            ("250ms", Moment::After(250_000_000)),
            ("1m30s", Moment::After(90_000_000_000)),
            ("1970-01-01T00:00:01Z", Moment::Wall(1_000_000_000)),
            ("1970-01-01T02:00:01.5+02:00", Moment::Wall(1_500_000_000)),
        ];
        for (text, moment) in cases {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        for text in ["", "soon", "-1", "nan", "inf", "1e300", "2026-01-31", "99999999y"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_span_is_within_the_recording() {
        let sample = Sample::new(false, &INTACT);
        let table = sample.open().table(&fabric::TABLE).unwrap();
        let end = BEGIN + WINDOWS * 10_000_000;
        let of = |from: &str, to: &str| {
            let parse = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
            Span::of(&table, parse(from), parse(to))
                .map(|span| span.map(|span| (span.begin_ns, span.end_ns)).unwrap())
                .map_err(|error| error.to_string())
        };
        assert_eq!(of("", ""), Ok((BEGIN, end)));
        assert_eq!(of("1s", "2"), Ok((BEGIN + 1_000_000_000, BEGIN + 2_000_000_000)));
        assert_eq!(of("1s", "1h"), Ok((BEGIN + 1_000_000_000, end)));
        let wall = jiff::Timestamp::from_nanosecond(i128::from(WALL + BEGIN + 7)).unwrap();
        assert_eq!(of(&wall.to_string(), ""), Ok((BEGIN + 7, end)));
        assert!(of("2s", "1s").unwrap_err().contains("--from is not before --to"));
        assert!(of("1h", "").unwrap_err().contains("covers 3.000 s from 2023-11-14T22:13:25"));
        assert!(
            of("", "1970-01-01T00:00:00Z")
                .unwrap_err()
                .contains("nothing was recorded in that time")
        );
    }

    proptest! {
        #[test]
        fn no_moment_panics(text in "\\PC{0,20}") {
            text.parse::<Moment>().ok();
        }
    }
}
