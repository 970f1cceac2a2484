//! How full each link was: its average and highest rate against what it can carry, for how long it was
//! nearly full, and who filled it then.
//!
//! Guarantees: parts of those who filled a link sum to what went over it in that time; time in which a
//! counter of the link has no value is counted apart and is never time with room left; a rate above
//! the peak is shown as it is.

pub mod draw;

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::key::{By, Columns};
use super::known::Known;
use super::links::{Limit, Links, limit};
use super::span::{Moment, Span};
use crate::schema::columns::get;
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// A link is nearly full above this part of its peak.
pub const FULL: f64 = 0.8;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// Who fills a link: one of these.
    pub by: By,
    /// From when; none: from the begin.
    pub from: Option<Moment>,
    /// To when; none: to the end.
    pub to: Option<Moment>,
    /// As in [`super::usage::Question`].
    pub cgroup_depth: Option<usize>,
}

/// One direction of a link, or both together.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// The link, by its place in what was asked.
    pub link: usize,
    /// Which way.
    pub direction: Direction,
    /// Bytes.
    pub bytes: f64,
    /// Time that windows with a value cover, ns.
    pub known_ns: i64,
    /// Time of windows in which a counter has no value, ns.
    pub unknown_ns: i64,
    /// Highest rate of a window, bytes a second; `None` where no window has a value.
    pub highest: Option<f64>,
    /// Time above [`FULL`] of the peak, ns; `None` where the peak is not known.
    pub full_ns: Option<i64>,
    /// Bytes of each in that time, the most first.
    pub fillers: Vec<(String, f64)>,
}

impl Way {
    /// Average rate, bytes a second; `None` where nothing is known.
    pub fn average(&self) -> Option<f64> {
        (self.known_ns > 0).then(|| self.bytes * 1e9 / self.known_ns as f64)
    }

    /// What limits it.
    pub fn limit<'a>(&self, links: &'a Links) -> Option<Limit<'a>> {
        limit(links.links.get(self.link)?, self.direction)
    }
}

/// How full each link of a recording was, in the order of the links: in, out, then both where only
/// for both together a peak is known.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the time asked for.
pub fn headroom(recording: &Recording, links: &Links, question: &Question) -> Result<Vec<Way>> {
    if links.links.is_empty() {
        return Ok(Vec::new());
    }
    let table = recording.table(&fabric::TABLE)?;
    let (from, to) = (question.from.as_ref(), question.to.as_ref());
    let Some(span) = Span::of(recording, &table, from, to)? else { return Ok(Vec::new()) };
    let mut fill = Filling::new(links);
    let mut known = Known::new();
    for batch in table.scan_within(&question.by.columns(), "mono_ns", span.wanted.clone())? {
        let batch = batch?;
        let columns = Columns::new(&batch, question.by, question.cgroup_depth, Some(links))?;
        known.begin(&columns);
        for row in 0..columns.rows {
            let end_ns = columns.mono_ns.value(row);
            let Some((place, direction)) = columns.link(row) else { continue };
            if span.wanted.contains(&end_ns) {
                let who = known.get(columns.quick(row), || fill.who(columns.key(row)));
                let value = get(columns.value, row);
                fill.add(end_ns, columns.window_ns.value(row), (place, direction), who, value);
            }
        }
    }
    Ok(fill.finish())
}

/// One direction while windows come.
#[derive(Debug)]
struct Open {
    way: Way,
    peak: Option<f64>,
    /// Length of the window that is being added: the longest of the link's own rows, since counters of
    /// other links may have a longer one that ends with it.
    length_ns: i64,
    /// Rate of that window, bytes a second; `None` where a part is not known.
    rate: Option<f64>,
    /// Bytes of each in that window.
    parts: BTreeMap<usize, f64>,
    /// Bytes of each in the time above [`FULL`].
    filled: BTreeMap<usize, f64>,
    touched: bool,
}

/// The sums, of which rows come in the order of their windows.
#[derive(Debug)]
struct Filling {
    ways: Vec<Open>,
    names: Vec<String>,
    index: HashMap<String, usize>,
    end_ns: i64,
}

impl Filling {
    fn new(links: &Links) -> Self {
        let mut ways = Vec::new();
        for (place, link) in links.links.iter().enumerate() {
            let counts = |way| link.counters.iter().any(|its| its.direction == way);
            for direction in [Direction::In, Direction::Out, Direction::Both] {
                let limit = limit(link, direction);
                // A sum of both is a question of its own where it has a limit of its own.
                let sums = direction == Direction::Both && limit.is_some();
                if !counts(direction) && !sums {
                    continue;
                }
                let way = Way {
                    link: place,
                    direction,
                    bytes: 0.0,
                    known_ns: 0,
                    unknown_ns: 0,
                    highest: None,
                    full_ns: limit.map(|_| 0),
                    fillers: Vec::new(),
                };
                let peak = limit.map(|limit| limit.peak.bytes_per_s);
                ways.push(Open {
                    way,
                    peak,
                    length_ns: 0,
                    rate: Some(0.0),
                    parts: BTreeMap::new(),
                    filled: BTreeMap::new(),
                    touched: false,
                });
            }
        }
        Self { ways, names: Vec::new(), index: HashMap::new(), end_ns: i64::MIN }
    }

    /// The number of one who has a part.
    fn who(&mut self, name: String) -> usize {
        if let Some(who) = self.index.get(&name) {
            return *who;
        }
        self.names.push(name.clone());
        self.index.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }

    fn add(
        &mut self,
        end_ns: i64,
        length_ns: i64,
        (place, direction): (usize, Direction),
        who: usize,
        value: Option<f64>,
    ) {
        if end_ns != self.end_ns {
            self.end_window();
            self.end_ns = end_ns;
        }
        for open in &mut self.ways {
            let counts = open.way.direction == direction || open.way.direction == Direction::Both;
            if open.way.link != place || !counts {
                continue;
            }
            open.touched = true;
            open.length_ns = open.length_ns.max(length_ns);
            let Some(value) = value else {
                open.rate = None;
                continue;
            };
            open.rate = open.rate.map(|rate| rate + value * 1e9 / length_ns.max(1) as f64);
            *open.parts.entry(who).or_default() += value;
        }
    }

    fn end_window(&mut self) {
        for open in &mut self.ways {
            let length_ns = std::mem::take(&mut open.length_ns);
            let parts = std::mem::take(&mut open.parts);
            let rate = open.rate.replace(0.0);
            if !std::mem::take(&mut open.touched) {
                continue;
            }
            let Some(rate) = rate else {
                open.way.unknown_ns += length_ns;
                continue;
            };
            let way = &mut open.way;
            way.known_ns += length_ns;
            way.bytes += parts.values().sum::<f64>();
            way.highest = Some(way.highest.map_or(rate, |highest| highest.max(rate)));
            if open.peak.is_some_and(|peak| rate > FULL * peak) {
                way.full_ns = way.full_ns.map(|full| full + length_ns);
                for (who, bytes) in parts {
                    *open.filled.entry(who).or_default() += bytes;
                }
            }
        }
    }

    fn finish(mut self) -> Vec<Way> {
        self.end_window();
        let names = self.names;
        let done = self.ways.into_iter().filter(|open| open.way.known_ns + open.way.unknown_ns > 0);
        done.map(|Open { mut way, filled, .. }| {
            let some = filled.into_iter().filter(|(_, bytes)| *bytes > 0.0);
            way.fillers = some.map(|(who, bytes)| (names[who].clone(), bytes)).collect();
            // Of a link of which nothing is known it is not known how full it was.
            way.full_ns = way.full_ns.filter(|_| way.known_ns > 0);
            way.fillers.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            way
        })
        .collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sample::{Broken, INTACT, Sample, link, peak, plan};
    use super::*;
    use crate::schema::link::{Counted, Link, Source};
    use crate::schema::metadata;

    /// 64 MB/s, of which the second half of the time is at twice that.
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
            let peaks = vec![peak(Source::Sysfs, 150e6)];
            pairs.insert(metadata::PLAN.to_owned(), plan(vec![link(peaks)]));
        },
        ..INTACT
    };

    pub(super) fn ways(broken: &Broken) -> (Links, Vec<Way>) {
        let sample = Sample::new(false, broken);
        let recording = sample.open();
        let links = Links::of(&recording).unwrap();
        let question = Question { by: By::Cgroup, from: None, to: None, cgroup_depth: None };
        let ways = headroom(&recording, &links, &question).unwrap();
        (links, ways)
    }

    #[test]
    fn time_near_the_peak_and_who_filled_it() {
        let (links, ways) = ways(&LOADED);
        let [way] = ways.as_slice() else { panic!("{ways:#?}") };
        assert_eq!((way.link, way.direction), (0, Direction::In));
        // 300 windows, of which the first 10 are not known and the last 150 are at 128 MB/s.
        assert_eq!((way.known_ns, way.unknown_ns), (2_900_000_000, 100_000_000));
        assert_eq!(way.full_ns, Some(1_500_000_000));
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-6 * expected;
        assert!(near(way.highest.unwrap(), 128e6), "{way:?}");
        assert!(near(way.average().unwrap(), (1.4 * 64e6 + 1.5 * 128e6) / 2.9), "{way:?}");
        let parts: Vec<f64> = way.fillers.iter().map(|(_, bytes)| bytes / (1.5 * 128e6)).collect();
        let expected = [0.5, 0.25, 0.125, 0.125];
        assert!(parts.iter().zip(expected).all(|(part, expected)| near(*part, expected)));
        assert_eq!(way.fillers[0].0, "/tenant\u{1b}[2J");
        assert!(near(way.limit(&links).unwrap().part(way.highest.unwrap()), 128.0 / 150.0));
    }

    #[test]
    fn a_long_window_of_one_link_is_not_one_of_the_other() {
        let of = |counter| Link {
            counters: vec![Counted { counter, direction: Direction::In }],
            ..link(vec![peak(Source::Sysfs, 100e6)])
        };
        let links = Links::new(vec![of(0), of(1)]);
        let mut fill = Filling::new(&links);
        let who = fill.who("/a".to_owned());
        for end_ns in [10_000_000, 20_000_000] {
            fill.add(end_ns, 10_000_000, (0, Direction::In), who, Some(500_000.0));
        }
        // A counter that failed at the begin has one row at the end.
        fill.add(20_000_000, 20_000_000, (1, Direction::In), who, None);
        let ways = fill.finish();
        let [first, second] = ways.as_slice() else { panic!("{ways:#?}") };
        assert_eq!((first.known_ns, first.average()), (20_000_000, Some(50e6)));
        assert_eq!((second.known_ns, second.unknown_ns), (0, 20_000_000));
        assert_eq!((first.full_ns, second.full_ns), (Some(0), None));
    }

    #[test]
    fn without_a_peak_nothing_is_said_of_full() {
        let no_peak = Broken {
            metadata: |pairs| {
                pairs.insert(metadata::PLAN.to_owned(), plan(vec![link(Vec::new())]));
            },
            ..LOADED
        };
        let (links, shown) = ways(&no_peak);
        assert_eq!((shown[0].full_ns, shown[0].fillers.len()), (None, 0));
        assert_eq!(shown[0].limit(&links), None);
        let (_, none) = ways(&INTACT);
        assert_eq!(none, []);
    }
}
