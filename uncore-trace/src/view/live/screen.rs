//! What one screen says: a line for each link and for each tenant, as plain data.
//!
//! Guarantees: lines of tenants sum to each link's rate; shares are of the selected link; what is not
//! known is none, never 0.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::frame::{Closed, Rate, Way};
use super::{Live, Thing};
use crate::schema::link::Direction;
use crate::view::key::By;
use crate::view::links::limit;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What lines of owners are by.
    pub by: By,
    /// The selected thing, by its place: shares, confidences and histories of owners are of it.
    pub thing: usize,
    /// Only owners whose name has this text.
    pub filter: &'a str,
    /// Only processes of this owner: its `by` and its name.
    pub within: Option<(By, &'a str)>,
    /// What lines of owners are sorted by.
    pub sort: Sort,
}

/// What lines of owners are sorted by, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// The rate of the selected thing.
    #[default]
    Share,
    /// The rate of a group, by its place.
    Group(usize),
    /// CPU time.
    Cpu,
    /// The name, from a to z.
    Name,
}

/// One screen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Screen {
    /// End of the last frame, `CLOCK_MONOTONIC` ns; null before the first.
    pub end_ns: Option<i64>,
    /// Length of a frame, ns.
    pub frame_ns: i64,
    /// The links, or the events where there are none.
    pub links: Vec<ThingLine>,
    /// What the columns of `owners` are of: subsystems, or events.
    pub groups: Vec<GroupHead>,
    /// What lines of owners are by.
    pub by: &'static str,
    /// The link that shares are of, by its place in `links`.
    pub selected: usize,
    /// The owners.
    pub owners: Vec<OwnerLine>,
}

/// A group of things whose rates add up.
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
    /// Part of its peak; above 1 where it is more than that.
    pub part: f64,
    /// Of another source's peak, where the two are in conflict.
    pub other: Option<f64>,
}

/// The line of a thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThingLine {
    /// Its name.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
    /// A second, towards the CPUs; null where that is not counted or not known.
    pub in_per_s: Option<f64>,
    /// A second, from the CPUs.
    pub out_per_s: Option<f64>,
    /// A second, both ways together or of an event; null where a part is not known.
    pub per_s: Option<f64>,
    /// Whether a part of it has no value.
    pub unknown: bool,
    /// Of the fuller direction; null where no peak is known.
    pub full: Option<Full>,
    /// A second, of the owner that lines are within; null where they are within none.
    pub within_per_s: Option<f64>,
    /// `per_s` of each frame of the last minute, the oldest first.
    pub history: Vec<Option<f64>>,
}

/// The line of an owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnerLine {
    /// Its name, as recorded (not fit to print).
    pub name: String,
    /// Its kind: task, irq, idle, ...
    pub owner: String,
    /// A second, of each group; null where a part of the group is not known.
    pub per_s: Vec<Option<f64>>,
    /// A second, of the selected link; null where that is not known.
    pub link_per_s: Option<f64>,
    /// Part of the selected link, 0 to 1; null where the link's rate is not known or 0.
    pub share: Option<f64>,
    /// How far to trust that, 0 to 1: mean by rate; null where nothing is claimed.
    pub confidence: Option<f64>,
    /// CPUs it used; null where it is no task.
    pub cpus: Option<f64>,
    /// Rate of the selected link in each frame, the oldest first; null where that is not known.
    pub history: Vec<Option<f64>>,
}

impl OwnerLine {
    /// Whether it has nothing now, and had nothing in the last minute.
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
        Screen {
            end_ns: last.map(|frame| frame.end_ns),
            frame_ns: self.frame_ns,
            links: (0..self.things.len()).map(|place| self.thing(place, &ask)).collect(),
            owners: last.map_or_else(Vec::new, |last| self.owners(last, &groups, &ask)),
            groups,
            by: ask.by.name(),
            selected: thing,
        }
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

    fn thing(&self, place: usize, ask: &Ask<'_>) -> ThingLine {
        let Thing { name, unit, link, .. } = self.things[place].clone();
        let last = self.frames.back();
        let rate = |direction| last.and_then(|frame| *frame.ways.get(&(place, direction))?);
        let (in_per_s, out_per_s) = (rate(Direction::In), rate(Direction::Out));
        ThingLine {
            per_s: last.and_then(|frame| both(frame, place)),
            unknown: last.is_some_and(|frame| is_unknown(frame, place)),
            within_per_s: last.and_then(|frame| self.within(frame, place, ask)),
            full: link.and_then(|link| self.full(link, place)),
            history: self.frames.iter().map(|frame| both(frame, place)).collect(),
            name,
            unit,
            in_per_s,
            out_per_s,
        }
    }

    /// What the owner that lines are within has of a thing.
    fn within(&self, frame: &Closed, place: usize, ask: &Ask<'_>) -> Option<f64> {
        let (by, name) = ask.within?;
        both(frame, place)?;
        let its = |owner: u32| self.owners.get(owner).is_some_and(|owner| owner.key(by) == name);
        let rates = frame.rates.iter();
        let rates = rates.filter(|((thing, _), owner, _)| *thing == place && its(*owner));
        Some(rates.map(|(_, _, rate)| rate.per_s).sum())
    }

    /// Of the fullest of a link's directions, and of both together where that has a peak.
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

    fn owners(&self, last: &Closed, groups: &[GroupHead], ask: &Ask<'_>) -> Vec<OwnerLine> {
        let mut lines: BTreeMap<(String, String), Sums> = BTreeMap::new();
        let group_of: Vec<usize> = self
            .things
            .iter()
            .map(|thing| groups.iter().position(|group| group.name == thing.group).unwrap_or(0))
            .collect();
        for ((thing, _), owner, rate) in &last.rates {
            let Some(key) = self.line_of(*owner, ask) else { continue };
            let sums = lines.entry(key).or_insert_with(|| Sums::new(groups.len()));
            sums.groups[group_of[*thing]] += rate.per_s;
            if *thing == ask.thing {
                sums.link.per_s += rate.per_s;
                sums.link.sure.join(&rate.sure);
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
        let mut histories = self.histories(ask);
        let known_total = both(last, ask.thing);
        let total = known_total.filter(|total| *total > 0.0);
        let mut owners: Vec<OwnerLine> = lines
            .into_iter()
            .map(|(key, sums)| OwnerLine {
                per_s: sums.groups.into_iter().zip(&unknown).map(known).collect(),
                link_per_s: known_total.map(|_| sums.link.per_s),
                share: total.map(|total| sums.link.per_s / total),
                confidence: sums.link.sure.mean(),
                cpus: (key.0 == "task").then(|| cpus.get(&key).copied().unwrap_or_default()),
                history: histories.remove(&key).unwrap_or_default(),
                owner: key.0,
                name: key.1,
            })
            .collect();
        owners.retain(|line| !line.is_nothing());
        sort(&mut owners, ask.sort);
        owners
    }

    /// The rates of the selected thing of each line over the frames.
    fn histories(&self, ask: &Ask<'_>) -> HashMap<(String, String), Vec<Option<f64>>> {
        let none: Vec<Option<f64>> =
            self.frames.iter().map(|frame| both(frame, ask.thing).map(|_| 0.0)).collect();
        let mut histories: HashMap<(String, String), Vec<Option<f64>>> = HashMap::new();
        for (place, frame) in self.frames.iter().enumerate() {
            for ((thing, _), owner, rate) in &frame.rates {
                if *thing != ask.thing {
                    continue;
                }
                let Some(key) = self.line_of(*owner, ask) else { continue };
                let history = histories.entry(key).or_insert_with(|| none.clone());
                history[place] = history[place].map(|sum| sum + rate.per_s);
            }
        }
        histories
    }

    /// The line of an owner: its kind and name; none where it is not asked for.
    fn line_of(&self, owner: u32, ask: &Ask<'_>) -> Option<(String, String)> {
        let owner = self.owners.get(owner)?;
        if let Some((by, name)) = ask.within
            && owner.key(by) != name
        {
            return None;
        }
        let key = owner.key(ask.by);
        key.contains(ask.filter).then(|| line(&owner.kind, key))
    }
}

fn line(kind: &str, key: &str) -> (String, String) {
    (kind.to_owned(), key.to_owned())
}

struct Sums {
    groups: Vec<f64>,
    link: Rate,
}

impl Sums {
    fn new(groups: usize) -> Self {
        Self { groups: vec![0.0; groups], link: Rate::default() }
    }
}

/// Whether a counter of a thing has no value.
fn is_unknown(frame: &Closed, thing: usize) -> bool {
    frame.ways.iter().any(|((of, _), rate)| *of == thing && rate.is_none())
}

/// What goes both ways of a thing together; none where a part is not known.
fn both(frame: &Closed, thing: usize) -> Option<f64> {
    let mut ways = frame.ways.iter().filter(|((of, _), _)| *of == thing).peekable();
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
