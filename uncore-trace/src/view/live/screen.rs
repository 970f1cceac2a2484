//! The content of one screen as plain data: a line for each link and each tenant.
//!
//! Guarantees: lines of tenants sum to each link's rate; shares refer to the selected link; an
//! unknown value is `None`, never 0.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::frame::{Closed, Way, ways_of};
use super::{Live, Thing};
use crate::schema::link::Direction;
use crate::schema::owner;
use crate::view::key::By;
use crate::view::links::limit;
use crate::view::sums::Confidence;
use crate::view::tenants::DOMINANT;

/// Options of a screen.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Grouping of the lines of owners.
    pub by: By,
    /// Index of the selected thing, to which shares, confidences and histories of owners refer.
    pub thing: usize,
    /// Only owners whose name contains this text.
    pub filter: &'a str,
    /// Only processes of this owner: grouping and name.
    pub within: Option<(By, &'a str)>,
    /// Order of the lines of owners.
    pub sort: Sort,
}

/// Orders of the lines of owners; the largest value is first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// The rate of the selected thing.
    #[default]
    Share,
    /// The rate of a group, by its index.
    Group(usize),
    /// CPU time.
    Cpu,
    /// The name, from a to z.
    Name,
}

/// One screen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Screen {
    /// Wall time of the end of the last frame; null before the first.
    #[serde(serialize_with = "time")]
    pub time: Option<Timestamp>,
    /// Begin of the last frame, `CLOCK_MONOTONIC`, ns; null before the first.
    pub begin_ns: Option<i64>,
    /// End of the last frame, `CLOCK_MONOTONIC`, ns; null before the first.
    pub end_ns: Option<i64>,
    /// Wanted length of a frame, ns.
    pub frame_ns: i64,
    /// The links, or the events if there are no links.
    pub links: Vec<ThingLine>,
    /// The columns of rates in `owners`: subsystems, or events.
    pub groups: Vec<GroupHead>,
    /// Grouping of the lines of owners.
    pub by: &'static str,
    /// Index in `links` of the selected link.
    pub selected: usize,
    /// The owners.
    pub owners: Vec<OwnerLine>,
}

/// Writes a time as `2026-01-31T12:00:00.000Z`.
#[expect(clippy::ref_option, reason = "serde passes the field so")]
fn time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| format!("{time:.3}")).serialize(serializer)
}

/// A group of things whose rates are summed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupHead {
    /// Its name.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
}

/// How full a link is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Full {
    /// Fraction of its peak; may be above 1.
    pub part: f64,
    /// Fraction of another source's peak, if the two are in conflict.
    pub other: Option<f64>,
}

/// The line of a link or event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThingLine {
    /// Its name.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
    /// Rate towards the CPUs, per second; null if not counted or not known.
    pub in_per_s: Option<f64>,
    /// Rate from the CPUs, per second; null if not counted or not known.
    pub out_per_s: Option<f64>,
    /// Rate of both directions together or of an event, per second; null if a part is not known.
    pub per_s: Option<f64>,
    /// Whether a counter of it has no value.
    pub unknown: bool,
    /// Of the fuller direction; null if no peak is known.
    pub full: Option<Full>,
    /// Rate of the owner to which lines are restricted, per second; null without such an owner.
    pub within_per_s: Option<f64>,
    /// `per_s` of each frame of the last minute, the oldest first.
    pub history: Vec<Option<f64>>,
}

/// The line of an owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnerLine {
    /// Its name, as recorded: not escaped.
    pub name: String,
    /// Its kind: task, irq, idle, ...
    pub owner: String,
    /// Rate in each group, per second; null if a part of the group is not known.
    pub per_s: Vec<Option<f64>>,
    /// Rate on the selected link, per second; null if not known.
    pub link_per_s: Option<f64>,
    /// Fraction of the selected link, 0 to 1; null if the link's rate is not known or 0.
    pub share: Option<f64>,
    /// Confidence of the share, 0 to 1, weighted by rate; null if there is none.
    pub confidence: Option<f64>,
    /// Number of CPUs used; null if it is no task, and in a recording without the table `runtime`.
    pub cpus: Option<f64>,
    /// Rate on the selected link in each frame, the oldest first; null if not known.
    pub history: Vec<Option<f64>>,
}

impl OwnerLine {
    /// Whether all its values are 0 now and in the last minute.
    fn is_nothing(&self) -> bool {
        self.per_s.iter().all(|rate| rate.is_none_or(|rate| rate == 0.0))
            && self.link_per_s.is_none_or(|rate| rate == 0.0)
            && self.history.iter().flatten().all(|rate| *rate == 0.0)
            && self.cpus.is_none_or(|cpus| cpus == 0.0)
    }
}

impl Live {
    /// The screen of the last complete frame.
    pub fn screen(&self, ask: &Ask<'_>) -> Screen {
        let last = self.frames.back();
        let thing = ask.thing.min(self.things.len().saturating_sub(1));
        let ask = Ask { thing, ..*ask };
        let groups = self.groups();
        let within = ask.within.map(|(by, name)| self.owners.named(by, name));
        let within = within.as_ref();
        Screen {
            time: last.and_then(|frame| Timestamp::from_microsecond(frame.wall_us).ok()),
            begin_ns: last.map(|frame| frame.begin_ns),
            end_ns: last.map(|frame| frame.end_ns),
            frame_ns: self.frame_ns,
            links: (0..self.things.len()).map(|place| self.thing(place, within)).collect(),
            owners: last.map_or_else(Vec::new, |last| self.owners(last, &groups, &ask, within)),
            groups,
            by: ask.by.name(),
            selected: thing,
        }
    }

    /// The grouping of a thing's owners if the user chose none: see [`crate::view::tenants`]. It is that
    /// of the last minute, so that lines do not change with each frame.
    pub fn default_grouping(&self, thing: usize) -> By {
        let mut by_cgroup: HashMap<&str, f64> = HashMap::new();
        for frame in &self.frames {
            let rates = frame.rates.range(ways_of(thing)).flat_map(|(_, rates)| rates);
            for (owner, per_s) in rates {
                let tasks = [owner::TASK, owner::OTHER_TASKS];
                let Some(known) = self.owners.get(*owner) else { continue };
                if tasks.contains(&known.kind.as_str()) {
                    *by_cgroup.entry(known.key(By::Cgroup)).or_default() += per_s;
                }
            }
        }
        let of_tasks: f64 = by_cgroup.values().sum();
        by_cgroup.remove(owner::OTHER_TASKS);
        let is_dominant = by_cgroup.into_values().any(|per_s| per_s > DOMINANT * of_tasks);
        if is_dominant { By::Comm } else { By::Cgroup }
    }

    /// The things, links or events.
    pub fn things(&self) -> &[Thing] {
        &self.things
    }

    fn groups(&self) -> Vec<GroupHead> {
        let mut groups: Vec<GroupHead> = Vec::new();
        for thing in &self.things {
            if groups.iter().all(|group| group.name != thing.group) {
                groups.push(GroupHead { name: thing.group.clone(), unit: thing.unit.clone() });
            }
        }
        groups
    }

    fn thing(&self, place: usize, within: Option<&HashSet<u32>>) -> ThingLine {
        let Thing { name, unit, link, .. } = self.things[place].clone();
        let last = self.frames.back();
        let rate = |direction| last.and_then(|frame| *frame.ways.get(&(place, direction))?);
        let (in_per_s, out_per_s) = (rate(Direction::In), rate(Direction::Out));
        ThingLine {
            per_s: last.and_then(|frame| both(frame, place)),
            unknown: last.is_some_and(|frame| is_unknown(frame, place)),
            within_per_s: last.zip(within).and_then(|(frame, its)| of_owners(frame, place, its)),
            full: link.and_then(|link| self.full(link, place)),
            history: self.frames.iter().map(|frame| both(frame, place)).collect(),
            name,
            unit,
            in_per_s,
            out_per_s,
        }
    }

    /// The fullest of a link's directions, with both together if the sum has a peak.
    fn full(&self, link: usize, place: usize) -> Option<Full> {
        let frame = self.frames.back()?;
        let link = self.links.links.get(link)?;
        let of = |direction| {
            let rate = match direction {
                Direction::Both => both(frame, place),
                way => *frame.ways.get(&(place, way))?,
            }?;
            let limit = limit(link, direction)?;
            Some(Full { part: limit.part(rate), other: limit.other_part(rate) })
        };
        let ways = [Direction::In, Direction::Out, Direction::Both].into_iter().filter_map(of);
        ways.max_by(|a, b| a.part.total_cmp(&b.part))
    }

    fn owners(
        &self,
        last: &Closed,
        groups: &[GroupHead],
        ask: &Ask<'_>,
        within: Option<&HashSet<u32>>,
    ) -> Vec<OwnerLine> {
        let mut lines =
            Lines { live: self, ask, within, places: HashMap::default(), index: BTreeMap::new() };
        let mut sums: Vec<Sums> = Vec::new();
        let group_of: Vec<usize> = self
            .things
            .iter()
            .map(|thing| groups.iter().position(|group| group.name == thing.group).unwrap_or(0))
            .collect();
        for ((thing, direction), rates) in &last.rates {
            let sure = last.sure.get(&(*thing, *direction)).map(Vec::as_slice).unwrap_or_default();
            for (place, (owner, per_s)) in rates.iter().enumerate() {
                let Some(line) = lines.place(*owner) else { continue };
                if line == sums.len() {
                    sums.push(Sums { groups: vec![0.0; groups.len()], ..Sums::default() });
                }
                let sums = &mut sums[line];
                sums.groups[group_of[*thing]] += per_s;
                if *thing == ask.thing {
                    sums.link += per_s;
                    sums.sure.add_sum(&sure.get(place).copied().unwrap_or_default());
                }
            }
        }
        let mut cpus: HashMap<(String, String), f64> = HashMap::new();
        for (task, used) in &last.cpus {
            let owner = self.owners.of_task(task);
            if let Some(key) = owner.map(|owner| line(&owner.kind, owner.key(ask.by))) {
                *cpus.entry(key).or_default() += used;
            }
        }
        let unknown: Vec<bool> = (0..groups.len())
            .map(|group| {
                let mut its = (0..self.things.len()).filter(|thing| group_of[*thing] == group);
                its.any(|thing| is_unknown(last, thing))
            })
            .collect();
        let known = |(rate, unknown): (f64, &bool)| (!unknown).then_some(rate);
        for (place, rates) in self.histories(ask, &mut lines) {
            // A line of earlier frames only is not shown.
            if let Some(sums) = sums.get_mut(place) {
                sums.history = rates;
            }
        }
        let known_total = both(last, ask.thing);
        let total = known_total.filter(|total| *total > 0.0);
        // In the order of their names, so that equal lines stay where they are.
        let count = sums.len();
        let shown = lines.index.into_iter().filter(|(_, place)| *place < count);
        let mut owners: Vec<OwnerLine> = shown
            .map(|(key, place)| {
                let sums = std::mem::take(&mut sums[place]);
                OwnerLine {
                    per_s: sums.groups.into_iter().zip(&unknown).map(known).collect(),
                    link_per_s: known_total.map(|_| sums.link),
                    share: total.map(|total| sums.link / total),
                    confidence: sums.sure.mean_confidence(),
                    cpus: (self.has_run && key.0 == "task")
                        .then(|| cpus.get(&key).copied().unwrap_or_default()),
                    history: sums.history,
                    owner: key.0,
                    name: key.1,
                }
            })
            .collect();
        owners.retain(|line| !line.is_nothing());
        sort(&mut owners, ask.sort);
        owners
    }

    /// Rates of each line on the selected thing, over the frames.
    fn histories(&self, ask: &Ask<'_>, lines: &mut Lines<'_>) -> HashMap<usize, Vec<Option<f64>>> {
        let none: Vec<Option<f64>> =
            self.frames.iter().map(|frame| both(frame, ask.thing).map(|_| 0.0)).collect();
        let mut histories: HashMap<usize, Vec<Option<f64>>> = HashMap::new();
        for (place, frame) in self.frames.iter().enumerate() {
            for (owner, per_s) in of_thing(frame, ask.thing) {
                let Some(line) = lines.place(*owner) else { continue };
                let history = histories.entry(line).or_insert_with(|| none.clone());
                history[place] = history[place].map(|sum| sum + per_s);
            }
        }
        histories
    }
}

/// The lines of owners. Names are compared once for each owner, not for each of its rates: there may be
/// hundreds of links.
struct Lines<'a> {
    live: &'a Live,
    ask: &'a Ask<'a>,
    within: Option<&'a HashSet<u32>>,
    /// By owner, the number of its line; `None` if it is filtered out.
    places: HashMap<u32, Option<usize>, RandomState>,
    /// Numbers of the lines, by kind and name.
    index: BTreeMap<(String, String), usize>,
}

impl Lines<'_> {
    /// The number of an owner's line; `None` if it is filtered out.
    fn place(&mut self, owner: u32) -> Option<usize> {
        if let Some(place) = self.places.get(&owner) {
            return *place;
        }
        let place = self.key(owner).map(|key| {
            let next = self.index.len();
            *self.index.entry(key).or_insert(next)
        });
        self.places.insert(owner, place);
        place
    }

    fn key(&self, number: u32) -> Option<(String, String)> {
        let owner = self.live.owners.get(number)?;
        if self.within.is_some_and(|within| !within.contains(&number)) {
            return None;
        }
        let key = owner.key(self.ask.by);
        key.contains(self.ask.filter).then(|| line(&owner.kind, key))
    }
}

fn line(kind: &str, key: &str) -> (String, String) {
    (kind.to_owned(), key.to_owned())
}

/// The sums of a line.
#[derive(Default)]
struct Sums {
    /// Rate in each group, per second.
    groups: Vec<f64>,
    /// Rate on the selected thing, per second.
    link: f64,
    sure: Confidence,
    history: Vec<Option<f64>>,
}

/// Rates of owners on a thing, in each of its directions.
fn of_thing(frame: &Closed, thing: usize) -> impl Iterator<Item = &(u32, f64)> {
    frame.rates.range(ways_of(thing)).flat_map(|(_, rates)| rates)
}

/// Rate of these owners on a thing; `None` if a part of the thing is not known.
fn of_owners(frame: &Closed, thing: usize, owners: &HashSet<u32>) -> Option<f64> {
    both(frame, thing)?;
    let its = of_thing(frame, thing).filter(|(owner, _)| owners.contains(owner));
    Some(its.map(|(_, per_s)| per_s).sum())
}

/// Whether a counter of a thing has no value.
fn is_unknown(frame: &Closed, thing: usize) -> bool {
    frame.ways.range(ways_of(thing)).any(|(_, rate)| rate.is_none())
}

/// Rate of both directions of a thing together; `None` if a part is not known.
fn both(frame: &Closed, thing: usize) -> Option<f64> {
    let mut ways = frame.ways.range(ways_of(thing)).peekable();
    ways.peek()?;
    ways.try_fold(0.0, |sum, (_, rate): (&Way, &Option<f64>)| Some(sum + (*rate)?))
}

fn sort(owners: &mut [OwnerLine], by: Sort) {
    let of = |owner: &OwnerLine| match by {
        Sort::Share | Sort::Name => owner.link_per_s.unwrap_or_default(),
        Sort::Group(place) => owner.per_s.get(place).copied().flatten().unwrap_or_default(),
        Sort::Cpu => owner.cpus.unwrap_or(-1.0),
    };
    owners.sort_by(|a, b| {
        let by_value = of(b).total_cmp(&of(a)).then_with(|| a.name.cmp(&b.name));
        if by == Sort::Name { a.name.cmp(&b.name) } else { by_value }
    });
}
