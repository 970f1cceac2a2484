//! The content of one screen as plain data: a line for each link and each tenant.
//!
//! Guarantees: lines of tenants sum to each link's rate; shares refer to the selected link; an
//! unknown value is `None`, never 0.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::frame::{ClosedFrame, WatchedDirection, directions_of};
use super::{LiveFrames, WatchedCount};
use crate::schema::link::Direction;
use crate::schema::owner;
use crate::view::grouping::GroupBy;
use crate::view::links::limit;
use crate::view::sums::Confidence;
use crate::view::tenants::DOMINANT;

/// Options of a screen.
#[derive(Debug, Clone, Copy)]
pub struct ScreenOptions<'a> {
    /// Grouping of the lines of owners.
    pub grouping: GroupBy,
    /// Index of the selected link or event, to which shares, confidences and histories of owners
    /// refer.
    pub watched_index: usize,
    /// Only owners whose name contains this text.
    pub filter: &'a str,
    /// Only processes of this owner: grouping and name.
    pub within: Option<(GroupBy, &'a str)>,
    /// Order of the lines of owners.
    pub order: OwnerOrder,
}

/// Orders of the lines of owners; the largest value is first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerOrder {
    /// The rate on the selected link or event.
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
pub struct LiveScreen {
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
    pub links: Vec<WatchedLine>,
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

/// A group of links or events whose rates are summed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupHead {
    /// Name of the group.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
}

/// How full a link is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkFullness {
    /// Fraction of its peak; may be above 1.
    pub part: f64,
    /// Fraction of another source's peak, if the two are in conflict.
    pub other: Option<f64>,
}

/// The line of a link or event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchedLine {
    /// Name of the link or event.
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
    pub full: Option<LinkFullness>,
    /// Rate of the owner to which lines are restricted, per second; null without such an owner.
    pub within_per_s: Option<f64>,
    /// `per_s` of each frame of the last minute, the oldest first.
    pub history: Vec<Option<f64>>,
}

/// The line of an owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnerLine {
    /// Name of the owner, as recorded: not escaped.
    pub name: String,
    /// Kind of the owner: task, irq, idle, ...
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

impl LiveFrames {
    /// The screen of the last complete frame.
    pub fn last_screen(&self, options: &ScreenOptions<'_>) -> LiveScreen {
        let last_frame = self.frames.back();
        let selected = options.watched_index.min(self.watched.len().saturating_sub(1));
        let clamped = ScreenOptions { watched_index: selected, ..*options };
        let groups = self.group_heads();
        let within = clamped
            .within
            .map(|(within_grouping, name)| self.owners.ids_with_name(within_grouping, name));
        let within = within.as_ref();
        LiveScreen {
            time: last_frame.and_then(|frame| Timestamp::from_microsecond(frame.wall_us).ok()),
            begin_ns: last_frame.map(|frame| frame.begin_ns),
            end_ns: last_frame.map(|frame| frame.end_ns),
            frame_ns: self.frame_ns,
            links: (0..self.watched.len())
                .map(|line_index| self.watched_line(line_index, within))
                .collect(),
            owners: last_frame.map_or_else(Vec::new, |frame_shown| {
                self.owner_lines(frame_shown, &groups, &clamped, within)
            }),
            groups,
            by: clamped.grouping.name(),
            selected,
        }
    }

    /// The grouping of the owners of a link or event if the user chose none: see
    /// [`crate::view::tenants`]. It is that of the last minute, so that lines do not change with
    /// each frame.
    pub fn default_grouping(&self, watched_index: usize) -> GroupBy {
        let mut by_cgroup: HashMap<&str, f64> = HashMap::new();
        for frame in &self.frames {
            for (owner, per_s) in owner_rates(frame, watched_index) {
                let tasks = [owner::TASK, owner::OTHER_TASKS];
                let Some(known) = self.owners.find_owner(*owner) else { continue };
                if tasks.contains(&known.owner_kind.as_str()) {
                    *by_cgroup.entry(known.name_in(GroupBy::Cgroup)).or_default() += per_s;
                }
            }
        }
        let of_tasks: f64 = by_cgroup.values().sum();
        by_cgroup.remove(owner::OTHER_TASKS);
        let is_dominant = by_cgroup.into_values().any(|per_s| per_s > DOMINANT * of_tasks);
        if is_dominant { GroupBy::Comm } else { GroupBy::Cgroup }
    }

    /// The links, or the events if there are no links.
    pub fn watched_counts(&self) -> &[WatchedCount] {
        &self.watched
    }

    fn group_heads(&self) -> Vec<GroupHead> {
        let mut groups: Vec<GroupHead> = Vec::new();
        for watched in &self.watched {
            if groups.iter().all(|group| group.name != watched.group) {
                groups.push(GroupHead { name: watched.group.clone(), unit: watched.unit.clone() });
            }
        }
        groups
    }

    fn watched_line(&self, watched_index: usize, within: Option<&HashSet<u32>>) -> WatchedLine {
        let WatchedCount { name, unit, link, .. } = self.watched[watched_index].clone();
        let last_frame = self.frames.back();
        let rate = |direction| {
            last_frame.and_then(|frame| *frame.direction_rates.get(&(watched_index, direction))?)
        };
        let (in_per_s, out_per_s) = (rate(Direction::In), rate(Direction::Out));
        WatchedLine {
            per_s: last_frame.and_then(|frame| rate_of_both(frame, watched_index)),
            unknown: last_frame.is_some_and(|frame| is_unknown(frame, watched_index)),
            within_per_s: last_frame
                .zip(within)
                .and_then(|(frame, owner_ids)| rate_of_owners(frame, watched_index, owner_ids)),
            full: link.and_then(|link| self.fullness(link, watched_index)),
            history: self.frames.iter().map(|frame| rate_of_both(frame, watched_index)).collect(),
            name,
            unit,
            in_per_s,
            out_per_s,
        }
    }

    /// The fullest of a link's directions, with both together if the sum has a peak.
    fn fullness(&self, link: usize, watched_index: usize) -> Option<LinkFullness> {
        let frame = self.frames.back()?;
        let link = self.links.links.get(link)?;
        let fullness_of = |direction| {
            let rate = if direction == Direction::Both {
                rate_of_both(frame, watched_index)?
            } else {
                (*frame.direction_rates.get(&(watched_index, direction))?)?
            };
            let link_peak = limit(link, direction)?;
            Some(LinkFullness {
                part: link_peak.fraction_of_peak(rate),
                other: link_peak.fraction_of_conflicting_peak(rate),
            })
        };
        let fullness_by_direction =
            [Direction::In, Direction::Out, Direction::Both].into_iter().filter_map(fullness_of);
        fullness_by_direction.max_by(|a, b| a.part.total_cmp(&b.part))
    }

    fn owner_lines(
        &self,
        last_frame: &ClosedFrame,
        groups: &[GroupHead],
        options: &ScreenOptions<'_>,
        within: Option<&HashSet<u32>>,
    ) -> Vec<OwnerLine> {
        let mut lines = OwnerLineIndex {
            live: self,
            options,
            within,
            line_of_owner: HashMap::default(),
            line_of_name: BTreeMap::new(),
        };
        let mut sums: Vec<OwnerLineSums> = Vec::new();
        let group_of: Vec<usize> = self
            .watched
            .iter()
            .map(|watched| groups.iter().position(|group| group.name == watched.group).unwrap_or(0))
            .collect();
        for ((watched_index, direction), rates) in &last_frame.rates {
            let confidences = last_frame
                .confidences
                .get(&(*watched_index, *direction))
                .map(Vec::as_slice)
                .unwrap_or_default();
            for (rate_index, (owner, per_s)) in rates.iter().enumerate() {
                let Some(line) = lines.line_number(*owner) else { continue };
                if line == sums.len() {
                    sums.push(OwnerLineSums {
                        groups: vec![0.0; groups.len()],
                        ..OwnerLineSums::default()
                    });
                }
                let line_sums = &mut sums[line];
                line_sums.groups[group_of[*watched_index]] += per_s;
                if *watched_index == options.watched_index {
                    line_sums.link += per_s;
                    line_sums
                        .confidence
                        .add_sum(&confidences.get(rate_index).copied().unwrap_or_default());
                }
            }
        }
        let mut cpus: HashMap<(String, String), f64> = HashMap::new();
        for (task, used) in &last_frame.cpus {
            if let Some(owner) = self.owners.of_task(task) {
                *cpus.entry(owner.kind_and_name(options.grouping)).or_default() += used;
            }
        }
        let mut unknown = vec![false; groups.len()];
        for (watched_index, group) in group_of.iter().enumerate() {
            unknown[*group] |= is_unknown(last_frame, watched_index);
        }
        let known = |(rate, unknown): (f64, &bool)| (!unknown).then_some(rate);
        for (line_number, rates) in self.owner_histories(options, &mut lines) {
            // A line of earlier frames only is not shown.
            if let Some(known_sums) = sums.get_mut(line_number) {
                known_sums.history = rates;
            }
        }
        let known_total = rate_of_both(last_frame, options.watched_index);
        let total = known_total.filter(|total| *total > 0.0);
        // In the order of their names, so that equal lines stay where they are.
        let count = sums.len();
        let shown = lines.line_of_name.into_iter().filter(|(_, shown_line)| *shown_line < count);
        let mut owners: Vec<OwnerLine> = shown
            .map(|(key, sums_index)| {
                let shown_sums = std::mem::take(&mut sums[sums_index]);
                OwnerLine {
                    per_s: shown_sums.groups.into_iter().zip(&unknown).map(known).collect(),
                    link_per_s: known_total.map(|_| shown_sums.link),
                    share: total.map(|total| shown_sums.link / total),
                    confidence: shown_sums.confidence.mean_confidence(),
                    cpus: (self.has_run && key.0 == "task")
                        .then(|| cpus.get(&key).copied().unwrap_or_default()),
                    history: shown_sums.history,
                    owner: key.0,
                    name: key.1,
                }
            })
            .collect();
        owners.retain(|line| !line.is_nothing());
        sort_owners(&mut owners, options.order);
        owners
    }

    /// Rates of each line on the selected link or event, over the frames.
    fn owner_histories(
        &self,
        options: &ScreenOptions<'_>,
        lines: &mut OwnerLineIndex<'_>,
    ) -> HashMap<usize, Vec<Option<f64>>> {
        let none: Vec<Option<f64>> = self
            .frames
            .iter()
            .map(|frame| rate_of_both(frame, options.watched_index).map(|_| 0.0))
            .collect();
        let mut histories: HashMap<usize, Vec<Option<f64>>> = HashMap::new();
        for (frame_index, frame) in self.frames.iter().enumerate() {
            for (owner, per_s) in owner_rates(frame, options.watched_index) {
                let Some(line) = lines.line_number(*owner) else { continue };
                let history = histories.entry(line).or_insert_with(|| none.clone());
                history[frame_index] = history[frame_index].map(|sum| sum + per_s);
            }
        }
        histories
    }
}

/// The lines of owners. Names are compared once for each owner, not for each of its rates: there
/// may be hundreds of links.
struct OwnerLineIndex<'a> {
    live: &'a LiveFrames,
    options: &'a ScreenOptions<'a>,
    within: Option<&'a HashSet<u32>>,
    /// By owner, the number of its line; `None` if it is filtered out.
    line_of_owner: HashMap<u32, Option<usize>, RandomState>,
    /// Numbers of the lines, by kind and name.
    line_of_name: BTreeMap<(String, String), usize>,
}

impl OwnerLineIndex<'_> {
    /// The number of an owner's line; `None` if it is filtered out.
    fn line_number(&mut self, owner: u32) -> Option<usize> {
        if let Some(known_line) = self.line_of_owner.get(&owner) {
            return *known_line;
        }
        let owner_line = self.line_key(owner).map(|key| {
            let next_line = self.line_of_name.len();
            *self.line_of_name.entry(key).or_insert(next_line)
        });
        self.line_of_owner.insert(owner, owner_line);
        owner_line
    }

    fn line_key(&self, owner_id: u32) -> Option<(String, String)> {
        let owner = self.live.owners.find_owner(owner_id)?;
        if self.within.is_some_and(|within| !within.contains(&owner_id)) {
            return None;
        }
        let key = owner.kind_and_name(self.options.grouping);
        key.1.contains(self.options.filter).then_some(key)
    }
}

/// The sums of a line.
#[derive(Default)]
struct OwnerLineSums {
    /// Rate in each group, per second.
    groups: Vec<f64>,
    /// Rate on the selected link or event, per second.
    link: f64,
    confidence: Confidence,
    history: Vec<Option<f64>>,
}

/// Rates of owners on a link or event, in each of its directions.
fn owner_rates(frame: &ClosedFrame, watched_index: usize) -> impl Iterator<Item = &(u32, f64)> {
    frame.rates.range(directions_of(watched_index)).flat_map(|(_, rates)| rates)
}

/// Rate of these owners on a link or event; `None` if a part of its rate is not known.
fn rate_of_owners(frame: &ClosedFrame, watched_index: usize, owners: &HashSet<u32>) -> Option<f64> {
    rate_of_both(frame, watched_index)?;
    let wanted_rates =
        owner_rates(frame, watched_index).filter(|(owner, _)| owners.contains(owner));
    Some(wanted_rates.map(|(_, per_s)| per_s).sum())
}

/// Whether a counter of a link or event has no value.
fn is_unknown(frame: &ClosedFrame, watched_index: usize) -> bool {
    frame.direction_rates.range(directions_of(watched_index)).any(|(_, rate)| rate.is_none())
}

/// Rate of both directions of a link or event together; `None` if a part is not known.
fn rate_of_both(frame: &ClosedFrame, watched_index: usize) -> Option<f64> {
    let mut directions = frame.direction_rates.range(directions_of(watched_index)).peekable();
    directions.peek()?;
    directions
        .try_fold(0.0, |sum, (_, rate): (&WatchedDirection, &Option<f64>)| Some(sum + (*rate)?))
}

fn sort_owners(owners: &mut [OwnerLine], order: OwnerOrder) {
    let sort_value = |owner: &OwnerLine| match order {
        OwnerOrder::Share | OwnerOrder::Name => owner.link_per_s.unwrap_or_default(),
        OwnerOrder::Group(group_index) => {
            owner.per_s.get(group_index).copied().flatten().unwrap_or_default()
        }
        OwnerOrder::Cpu => owner.cpus.unwrap_or(-1.0),
    };
    owners.sort_by(|a, b| {
        let by_value = sort_value(b).total_cmp(&sort_value(a)).then_with(|| a.name.cmp(&b.name));
        if order == OwnerOrder::Name { a.name.cmp(&b.name) } else { by_value }
    });
}
