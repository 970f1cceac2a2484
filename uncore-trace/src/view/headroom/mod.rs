//! How full each link was: its average and highest rate compared with its peak, the time that it
//! was nearly full, and the owners that filled it then.
//!
//! Guarantees: the owners' parts sum to the bytes over the link in that time; time in which a
//! counter of the link has no value is counted separately, never as time with room left; a rate
//! above the peak is shown unchanged.

pub mod draw;

use std::collections::BTreeMap;

use anyhow::Result;

use super::key::FabricColumns;
use super::line_cache::LineCache;
use super::links::{Links, PeakLimit, limit};
use super::names::NameNumbers;
use super::question::ReportQuestion;
use super::sums::{CountedTime, MomentBytes, Moments, Window};
use crate::schema::columns::nullable_value;
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// A link is nearly full above this fraction of its peak.
pub const FULL: f64 = 0.8;

/// One direction of a link, or both together.
#[derive(Debug, Clone)]
pub struct LinkHeadroom {
    /// Index of the link.
    pub link_index: usize,
    /// The direction, or both.
    pub direction: Direction,
    /// Bytes counted.
    pub bytes: f64,
    /// Time for which it was counted.
    pub time: CountedTime,
    /// Highest rate of windows that end at the same time, bytes per second; `None` if no such rate
    /// is known.
    pub highest_per_s: Option<f64>,
    /// Time above [`FULL`] of the peak, ns; `None` if the peak is not known.
    pub full_ns: Option<i64>,
    /// Bytes of each owner in that time, the largest first.
    pub fillers: Vec<(String, f64)>,
}

impl LinkHeadroom {
    /// Average rate, bytes per second; `None` if not known.
    pub fn average_per_s(&self) -> Option<f64> {
        self.time.whole.per_second().map(|per_second| self.bytes * per_second)
    }

    /// The peak of the link in this direction.
    pub fn link_peak<'a>(&self, links: &'a Links) -> Option<PeakLimit<'a>> {
        links.peak_limit((self.link_index, self.direction))
    }
}

/// How full each link of a recording was, in the order of the links: in, out, and both together if
/// only the sum has a known peak. `links` of the question is ignored.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub fn headroom(
    recording: &Recording,
    links: &Links,
    question: &ReportQuestion<'_>,
) -> Result<Vec<LinkHeadroom>> {
    if links.links.is_empty() {
        return Ok(Vec::new());
    }
    let table = recording.open_table(&fabric::TABLE)?;
    let Some(span) = question.selected_time(recording, &table)? else { return Ok(Vec::new()) };
    let mut fill = LinkFilling::new(links);
    let mut known = LineCache::default();
    let question = &ReportQuestion { links: Some(links), ..question.clone() };
    let read = question.columns_to_read(recording);
    for batch in table.scan_within(&read, "mono_ns", span.wanted.clone())?.decode_ahead()? {
        let batch = batch?;
        let columns = FabricColumns::new(&batch, question)?;
        known.begin_batch(&columns);
        for row in 0..columns.rows {
            let window = columns.row_window(row);
            let Some(link_and_direction) = columns.row_link(row) else { continue };
            if span.wanted.contains(&window.end_ns) && columns.is_wanted(row) {
                let owner = known
                    .get(columns.quick_key(row), || fill.owners.number_of(columns.line_key(row)));
                let (counter, value) =
                    (columns.counter.value(row), nullable_value(columns.value, row));
                fill.add_row(counter, window, link_and_direction, owner, value);
            }
        }
    }
    Ok(fill.finish())
}

/// One direction, while rows are added.
#[derive(Debug)]
struct OpenHeadroom {
    headroom: LinkHeadroom,
    peak: Option<f64>,
    /// Bytes of each owner in the time above [`FULL`].
    filled: BTreeMap<usize, f64>,
}

/// The sums; rows come in the order of their windows.
#[derive(Debug)]
struct LinkFilling {
    open_headrooms: Vec<OpenHeadroom>,
    /// By the index in `open_headrooms`.
    moments: Moments,
    owners: NameNumbers<String>,
}

impl LinkFilling {
    fn new(links: &Links) -> Self {
        let mut open_headrooms = Vec::new();
        for (link_index, link) in links.links.iter().enumerate() {
            let is_counted =
                |wanted| link.counters.iter().any(|counter| counter.direction == wanted);
            for direction in [Direction::In, Direction::Out, Direction::Both] {
                let link_peak = limit(link, direction);
                // The sum of both directions has a line if it has a peak of its own.
                let has_sum_line = direction == Direction::Both && link_peak.is_some();
                if !is_counted(direction) && !has_sum_line {
                    continue;
                }
                let headroom = LinkHeadroom {
                    link_index,
                    direction,
                    bytes: 0.0,
                    time: CountedTime::default(),
                    highest_per_s: None,
                    full_ns: link_peak.map(|_| 0),
                    fillers: Vec::new(),
                };
                let peak = link_peak.map(|peak_limit| peak_limit.peak.bytes_per_s);
                open_headrooms.push(OpenHeadroom { headroom, peak, filled: BTreeMap::new() });
            }
        }
        let moments = Moments::new(open_headrooms.len());
        Self { open_headrooms, moments, owners: NameNumbers::default() }
    }

    fn add_row(
        &mut self,
        counter: i32,
        window: Window,
        (link, direction): (usize, Direction),
        owner: usize,
        value: Option<f64>,
    ) {
        if let Some(moved) = self.moments.begin_moment(window.end_ns) {
            self.end_moment(moved);
        }
        for (index, OpenHeadroom { headroom, .. }) in self.open_headrooms.iter_mut().enumerate() {
            if headroom.link_index == link
                && [direction, Direction::Both].contains(&headroom.direction)
            {
                headroom.time.add_window(counter, window, &());
                headroom.bytes += value.unwrap_or(0.0);
                self.moments.add_row(index, window, Some(owner), value);
            }
        }
    }

    fn end_moment(&mut self, moved: Vec<MomentBytes>) {
        for (OpenHeadroom { headroom, peak, filled }, moved) in
            self.open_headrooms.iter_mut().zip(moved)
        {
            let Some(rate) = moved.known_rate() else { continue };
            headroom.highest_per_s =
                Some(headroom.highest_per_s.map_or(rate, |highest| highest.max(rate)));
            if peak.is_some_and(|peak| rate > FULL * peak) {
                headroom.full_ns = headroom.full_ns.map(|full| full + moved.length_ns);
                for (owner, bytes) in moved.value_by_owner {
                    *filled.entry(owner).or_default() += bytes;
                }
            }
        }
    }

    fn finish(mut self) -> Vec<LinkHeadroom> {
        let last_moved = self.moments.finish_moment();
        self.end_moment(last_moved);
        let names = self.owners.names;
        let counted =
            self.open_headrooms.into_iter().filter(|open| open.headroom.time.counter_count() > 0);
        counted
            .map(|OpenHeadroom { mut headroom, filled, .. }| {
                let positive = filled.into_iter().filter(|(_, bytes)| *bytes > 0.0);
                headroom.fillers =
                    positive.map(|(owner, bytes)| (names[owner].clone(), bytes)).collect();
                // Without known windows the time above the peak is not known either.
                headroom.full_ns = headroom.full_ns.filter(|_| headroom.average_per_s().is_some());
                headroom.fillers.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                headroom
            })
            .collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::grouping::GroupBy;
    use super::super::sample::{
        Broken, INTACT, SampleRecording, sample_link, sample_peak, sample_plan,
    };
    use super::*;
    use crate::schema::link::{Link, LinkCounter, PeakSource};
    use crate::schema::metadata;

    /// 64 MB/s, twice that in the second half of the time.
    pub(super) const LOADED: Broken = Broken {
        fabric: |row, number| {
            if number >= 1200 {
                row.value = row.value.map(|value| value * 2.0);
                row.total = row.total.map(|total| total * 2.0);
            }
            if row.event == "read_bytes" && number < 80 {
                (row.value, row.total) = (None, None);
            }
            true
        },
        metadata: |pairs| {
            let peaks = vec![sample_peak(PeakSource::Sysfs, 150e6)];
            pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(peaks)]));
        },
        ..INTACT
    };

    pub(super) fn headrooms_of(broken: &Broken) -> (Links, Vec<LinkHeadroom>) {
        let sample = SampleRecording::new(false, broken);
        let recording = sample.open();
        let links = Links::from_recording(&recording).unwrap();
        let question = ReportQuestion::grouped_by(GroupBy::Cgroup);
        let headrooms = headroom(&recording, &links, &question).unwrap();
        (links, headrooms)
    }

    #[test]
    fn a_link_has_its_time_near_the_peak_and_its_fillers() {
        let (links, headrooms) = headrooms_of(&LOADED);
        let [headroom] = headrooms.as_slice() else { panic!("{headrooms:#?}") };
        assert_eq!((headroom.link_index, headroom.direction), (0, Direction::In));
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-6 * expected;
        // 300 windows: the first 10 are not known and the last 150 have 128 MB/s.
        assert!(near(headroom.time.whole.known_ns(), 2.9e9), "{headroom:?}");
        assert!(near(headroom.time.whole.unknown_ns(), 1e8), "{headroom:?}");
        assert_eq!(headroom.full_ns, Some(1_500_000_000));
        assert!(near(headroom.highest_per_s.unwrap(), 128e6), "{headroom:?}");
        assert!(
            near(headroom.average_per_s().unwrap(), (1.4 * 64e6 + 1.5 * 128e6) / 2.9),
            "{headroom:?}"
        );
        let parts: Vec<f64> =
            headroom.fillers.iter().map(|(_, bytes)| bytes / (1.5 * 128e6)).collect();
        let expected = [0.5, 0.25, 0.125, 0.125];
        assert!(parts.iter().zip(expected).all(|(part, expected)| near(*part, expected)));
        assert_eq!(headroom.fillers[0].0, "/tenant\u{1b}[2J");
        assert!(near(
            headroom.link_peak(&links).unwrap().fraction_of_peak(headroom.highest_per_s.unwrap()),
            128.0 / 150.0
        ));
    }

    #[test]
    fn a_long_window_of_one_link_leaves_the_other_as_it_is() {
        let link_of = |counter| Link {
            counters: vec![LinkCounter { counter, direction: Direction::In }],
            ..sample_link(vec![sample_peak(PeakSource::Sysfs, 100e6)])
        };
        let links = Links::new(vec![link_of(0), link_of(1)]);
        let mut fill = LinkFilling::new(&links);
        let owner = fill.owners.number_of("/a".to_owned());
        for end_ns in [10_000_000, 20_000_000] {
            let window = Window::new(end_ns, 10_000_000, 10_000_000);
            fill.add_row(0, window, (0, Direction::In), owner, Some(500_000.0));
        }
        // A counter that failed at the begin has one row at the end.
        fill.add_row(1, Window::new(20_000_000, 20_000_000, 0), (1, Direction::In), owner, None);
        let headrooms = fill.finish();
        let [first, second] = headrooms.as_slice() else { panic!("{headrooms:#?}") };
        assert!((first.average_per_s().unwrap() - 50e6).abs() < 1e-6);
        assert!((second.time.whole.unknown_ns() - 2e7).abs() < 1e-6);
        assert_eq!((first.full_ns, second.full_ns), (Some(0), None));
    }

    #[test]
    fn without_a_peak_no_time_near_it_is_given() {
        let no_peak = Broken {
            metadata: |pairs| {
                pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(Vec::new())]));
            },
            ..LOADED
        };
        let (links, shown) = headrooms_of(&no_peak);
        assert_eq!((shown[0].full_ns, shown[0].fillers.len()), (None, 0));
        assert_eq!(shown[0].link_peak(&links), None);
        let (_, none) = headrooms_of(&INTACT);
        assert_eq!(none.len(), 0);
    }
}
