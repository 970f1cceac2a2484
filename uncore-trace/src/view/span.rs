//! The selected time of a recording.
//!
//! A window belongs to the span in which it ends, so adjacent spans (`--to 2s` and `--from 2s`)
//! divide a recording without overlap or gap.

use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use arrow::array::TimestampMicrosecondArray;

use super::marks::RecordedMarks;
use crate::clock::TimeSpan;
use crate::schema::{columns, fabric};
use crate::tables::reader::{OpenTable, Recording};

/// A moment of a recording, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimePoint {
    /// This long after the begin of its first window, ns.
    After(i64),
    /// At this wall time, ns since 1970.
    Wall(i64),
    /// The first mark of this name: its begin for the begin of the selected time, its end for the
    /// end.
    Mark(String),
}

/// Begin or end of the selected time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanEdge {
    /// Where it begins.
    Begin,
    /// Where it ends.
    End,
}

impl FromStr for TimePoint {
    type Err = String;

    /// Parses a duration (`2s`, `1m30s`; a bare number is seconds), a time of RFC 3339, or
    /// `mark:NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("mark:") {
            Some("") => return Err("write the name of a mark after mark:".to_owned()),
            Some(name) => return Ok(Self::Mark(name.to_owned())),
            None => {}
        }
        if let Ok(seconds) = text.parse::<f64>() {
            let ns = seconds * 1e9;
            // The comparison also refuses NaN.
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
                "write it as time after the start (2s, 1m30s), as 2026-01-31T12:00:00Z, or as \
                 mark:NAME"
                    .to_owned()
            })
    }
}

impl TimePoint {
    /// The time of the point on `CLOCK_MONOTONIC`, ns, in consecutive recordings.
    ///
    /// # Errors
    ///
    /// The recordings cannot be read, have no rows, or have no mark of that name.
    pub fn resolve_across(&self, recordings: &[Recording], edge: SpanEdge) -> Result<i64> {
        let first_recording = recordings.first().context("there is no recording")?;
        let start = read_start(&first_recording.open_table(&fabric::TABLE)?)?;
        let start = start.with_context(|| {
            format!("{} has no rows", first_recording.recording_path().display())
        })?;
        let mut time_found = self.resolve_in(first_recording, start, edge);
        for recording in recordings.iter().skip(1) {
            // A span that is open at the end of a part ends in a later one.
            if time_found.as_ref().is_ok_and(|time| *time != i64::MAX) {
                break;
            }
            time_found = self.resolve_in(recording, start, edge).or(time_found);
        }
        time_found
    }

    fn resolve_in(&self, recording: &Recording, start: StartTime, edge: SpanEdge) -> Result<i64> {
        Ok(match self {
            Self::After(ns) => start.mono_ns.saturating_add(*ns),
            Self::Wall(ns) => ns.saturating_sub(start.wall_offset_ns),
            Self::Mark(name) => {
                RecordedMarks::read_marks(recording)?.find_time(recording, name, edge)?
            }
        })
    }
}

/// The span of `CLOCK_REALTIME` between two moments: the first excluded, the second included; `None`
/// where no moment is one, or where one is known only once the recording is open.
pub fn wall_range(
    from_moment: Option<&TimePoint>,
    to_moment: Option<&TimePoint>,
) -> Option<TimeSpan<i64>> {
    let wall_ns = |moment: Option<&TimePoint>, open| match moment {
        Some(TimePoint::Wall(ns)) => Some(*ns),
        Some(_) => None,
        None => Some(open),
    };
    from_moment.or(to_moment)?;
    let begin_ns = wall_ns(from_moment, i64::MIN)?;
    Some(TimeSpan::new(begin_ns, wall_ns(to_moment, i64::MAX)?))
}

/// The selected time; all times are `CLOCK_MONOTONIC`, ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedTime {
    /// Begin of the recording's first window.
    pub start_ns: i64,
    /// Wall time - monotonic time, ns.
    pub wall_ns: i64,
    /// Windows whose end is in this range are selected; all of them by default.
    pub wanted: RangeInclusive<i64>,
    /// Begin of the shown time, within the recording.
    pub begin_ns: i64,
    /// End of the shown time, within the recording.
    pub end_ns: i64,
}

impl SelectedTime {
    /// The part of `table`, the table `fabric` of `recording`, between two moments; `None` if it
    /// has no rows.
    ///
    /// # Errors
    ///
    /// The table cannot be read, there is no mark of that name, or the end is not after the begin.
    pub fn between_moments(
        recording: &Recording,
        table: &OpenTable,
        from_moment: Option<&TimePoint>,
        to_moment: Option<&TimePoint>,
    ) -> Result<Option<Self>> {
        let Some(start) = read_start(table)? else {
            return Ok(None);
        };
        let time_at = |moment: &TimePoint, edge| moment.resolve_in(recording, start, edge);
        let asked_begin_ns =
            from_moment.map(|begin_point| time_at(begin_point, SpanEdge::Begin)).transpose()?;
        let asked_end_ns =
            to_moment.map(|end_point| time_at(end_point, SpanEdge::End)).transpose()?;
        let recorded_end_ns = last_window_end(table)?;
        let begin_ns = asked_begin_ns.unwrap_or(start.mono_ns).max(start.mono_ns);
        let end_ns = asked_end_ns.unwrap_or(recorded_end_ns).min(recorded_end_ns);
        if let (Some(from_ns), Some(to_ns)) = (asked_begin_ns, asked_end_ns)
            && from_ns >= to_ns
        {
            bail!(
                "the end is not after the begin: choose a later end (a mark without a length is an \
                 instant)"
            );
        }
        if begin_ns >= end_ns && (asked_begin_ns.is_some() || asked_end_ns.is_some()) {
            let seconds = recorded_end_ns.saturating_sub(start.mono_ns) as f64 / 1e9;
            let wall_ns = start.mono_ns.saturating_add(start.wall_offset_ns);
            let begin = jiff::Timestamp::from_nanosecond(i128::from(wall_ns))
                .map_or_else(|_| "an unknown time".to_owned(), |time| format!("{time:.3}"));
            bail!(
                "nothing was recorded in that time: the recording covers {seconds:.3} s from \
                 {begin}"
            );
        }
        let first_end_ns = asked_begin_ns.map_or(i64::MIN, |from| from.saturating_add(1));
        let wanted = first_end_ns..=asked_end_ns.unwrap_or(i64::MAX);
        let StartTime { mono_ns: start_ns, wall_offset_ns: wall_ns } = start;
        Ok(Some(Self { start_ns, wall_ns, wanted, begin_ns, end_ns }))
    }
}

/// The begin of a recording.
#[derive(Debug, Clone, Copy)]
struct StartTime {
    /// Begin of the first window, `CLOCK_MONOTONIC`, ns.
    mono_ns: i64,
    /// Wall time - monotonic time, ns.
    wall_offset_ns: i64,
}

/// Rows are in the order of their windows, so the first batch has the first.
fn read_start(table: &OpenTable) -> Result<Option<StartTime>> {
    let Some(batch) = table.scan_columns(&["ts", "mono_ns", "window_ns"])?.next().transpose()?
    else {
        return Ok(None);
    };
    let wall: &TimestampMicrosecondArray = columns::typed_column(&batch, "ts")?;
    let (ends, lengths) =
        (columns::i64_column(&batch, "mono_ns")?, columns::i64_column(&batch, "window_ns")?);
    let begins =
        ends.values().iter().zip(lengths.values()).map(|(end, length)| end.saturating_sub(*length));
    let offset = wall.values().first().zip(ends.values().first());
    let offset = offset.map(|(wall, mono)| wall.saturating_mul(1000).saturating_sub(*mono));
    let start = begins.min().zip(offset);
    Ok(start.map(|(mono_ns, wall_offset_ns)| StartTime { mono_ns, wall_offset_ns }))
}

/// End of the last window: from the file's statistics, which are fast, or else from its rows.
fn last_window_end(table: &OpenTable) -> Result<i64> {
    if let Some((_, recorded_end_ns)) = table.column_bounds("mono_ns") {
        return Ok(recorded_end_ns);
    }
    let mut last_ns = i64::MIN;
    for batch in table.scan_columns(&["mono_ns"])? {
        let last_of_batch = arrow::compute::max(columns::i64_column(&batch?, "mono_ns")?);
        last_ns = last_ns.max(last_of_batch.unwrap_or(i64::MIN));
    }
    (last_ns > i64::MIN).then_some(last_ns).context("the table has no rows")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{BEGIN, Broken, INTACT, MARKS, SampleRecording, WALL, WINDOWS};
    use super::*;
    use crate::schema::fabric;

    #[test]
    fn time_points_are_durations_or_times() {
        let cases = [
            ("2", TimePoint::After(2_000_000_000)),
            ("0.5", TimePoint::After(500_000_000)),
            ("250ms", TimePoint::After(250_000_000)),
            ("1m30s", TimePoint::After(90_000_000_000)),
            ("1970-01-01T00:00:01Z", TimePoint::Wall(1_000_000_000)),
            ("1970-01-01T02:00:01.5+02:00", TimePoint::Wall(1_500_000_000)),
            ("mark:epoch 1", TimePoint::Mark("epoch 1".to_owned())),
            ("mark:mark:2s", TimePoint::Mark("mark:2s".to_owned())),
        ];
        for (text, moment) in cases {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        for text in ["", "soon", "-1", "nan", "inf", "1e300", "2026-01-31", "99999999y", "mark:"] {
            assert!(text.parse::<TimePoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_span_is_within_the_recording() {
        let sample = SampleRecording::new(false, &Broken { marks: MARKS, ..INTACT });
        let recording = sample.open();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        let end = BEGIN + WINDOWS * 10_000_000;
        let of = |from: &str, to: &str| {
            let parse = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
            SelectedTime::between_moments(
                &recording,
                &table,
                parse(from).as_ref(),
                parse(to).as_ref(),
            )
            .map(|span| span.map(|span| (span.begin_ns, span.end_ns)).unwrap())
            .map_err(|error| error.to_string())
        };
        assert_eq!(of("", ""), Ok((BEGIN, end)));
        assert_eq!(of("1s", "2"), Ok((BEGIN + 1_000_000_000, BEGIN + 2_000_000_000)));
        assert_eq!(of("1s", "1h"), Ok((BEGIN + 1_000_000_000, end)));
        let wall = jiff::Timestamp::from_nanosecond(i128::from(WALL + BEGIN + 7)).unwrap();
        assert_eq!(of(&wall.to_string(), ""), Ok((BEGIN + 7, end)));
        let second = |seconds: i64| BEGIN + seconds * 1_000_000_000;
        assert_eq!(of("mark:epoch 1", "mark:epoch 1"), Ok((second(1), second(2))));
        assert_eq!(of("mark:epoch 1", ""), Ok((second(1), end)));
        assert_eq!(of("", "mark:epoch 1"), Ok((BEGIN, second(2))));
        assert_eq!(of("mark:save", "mark:save"), Ok((second(2) + 500_000_000, end)));
        assert!(of("mark:no", "").unwrap_err().contains("has no mark 'no': it has "));
        let instant = "mark:warm\u{1b}[2J\nup";
        assert!(of(instant, instant).unwrap_err().contains("the end is not after the begin"));
        assert!(of("2s", "1s").unwrap_err().contains("the end is not after the begin"));
        assert!(of("1h", "").unwrap_err().contains("covers 3.000 s from 2023-11-14T22:13:25"));
        assert!(
            of("", "1970-01-01T00:00:00Z")
                .unwrap_err()
                .contains("nothing was recorded in that time")
        );
    }

    proptest! {
        #[test]
        fn no_text_of_a_time_point_panics(text in "\\PC{0,20}") {
            text.parse::<TimePoint>().ok();
        }
    }
}
