//! The links of a recording, from its plan: the counters on each, and its peak.
//!
//! Guarantees: sources of a peak that disagree are never averaged; a rate above the peak is a
//! fraction above 1.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::schema::link::Direction;
use crate::schema::link::{Link, PeakRate};
use crate::schema::{fabric, metadata};
use crate::tables::reader::Recording;

/// Sources of a peak are in conflict if they differ by more than this fraction of the larger.
pub const CONFLICT: f64 = 0.2;

/// The fields of the plan that are used.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LinkPlan {
    links: Vec<Link>,
    counters: Vec<PlanCounter>,
}

/// The fields of a counter that are used.
#[derive(Deserialize)]
struct PlanCounter {
    #[serde(default)]
    part_of: Option<u32>,
}

/// The links and their counters.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// In the order of the plan.
    pub links: Vec<Link>,
    /// Link and direction of each counter.
    link_of_counter: HashMap<u32, (usize, Direction)>,
    /// Links whose functions have links of their own, too.
    wholes: BTreeSet<usize>,
}

/// The peak of a link in one direction, or of both together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakLimit<'a> {
    /// The peak for percentages: of the source that is nearest to this machine.
    pub peak: &'a PeakRate,
    /// The peak of another source, if the two are in conflict.
    pub conflicting_peak: Option<&'a PeakRate>,
}

impl PeakLimit<'_> {
    /// `bytes_per_s` as a fraction of the peak; above 1 if it is more.
    pub fn fraction_of_peak(&self, bytes_per_s: f64) -> f64 {
        bytes_per_s / self.peak.bytes_per_s
    }

    /// `bytes_per_s` as a fraction of the peak of the source in conflict.
    pub fn fraction_of_conflicting_peak(&self, bytes_per_s: f64) -> Option<f64> {
        self.conflicting_peak.map(|peak| bytes_per_s / peak.bytes_per_s)
    }
}

impl Links {
    /// The links with these definitions.
    pub fn new(links: Vec<Link>) -> Self {
        let counters = links.iter().enumerate().flat_map(|(link_index, link)| {
            link.counters
                .iter()
                .map(move |counter| (counter.counter, (link_index, counter.direction)))
        });
        let link_of_counter = counters.collect();
        Self { links, link_of_counter, wholes: BTreeSet::new() }
    }

    /// The links of a recording; none if its plan has none.
    ///
    /// # Errors
    ///
    /// The plan in its metadata cannot be read.
    pub fn from_recording(recording: &Recording) -> Result<Self> {
        Self::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())
    }

    /// The links of the plan in the metadata; none without a plan.
    ///
    /// # Errors
    ///
    /// As [`Self::from_recording`].
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Result<Self> {
        let Some(text) = pairs.get(metadata::PLAN) else { return Ok(Self::default()) };
        let plan: LinkPlan =
            serde_json::from_str(text).context("cannot read the plan in the metadata")?;
        let mut links = Self::new(plan.links);
        let wholes =
            plan.counters.iter().filter_map(|counter| links.link_of_counter.get(&counter.part_of?));
        links.wholes = wholes.map(|(link_index, _)| *link_index).collect();
        Ok(links)
    }

    /// Name of a link in one direction: `memory 0 in`.
    pub fn direction_label(&self, link_index: usize, direction: Direction) -> String {
        let name = self.links.get(link_index).map_or("?", |link| link.name.as_str());
        match direction {
            Direction::Both => name.to_owned(),
            direction => format!("{name} {}", direction.direction_name()),
        }
    }

    /// Whether functions of a link have links of their own, which count a part of its bytes again.
    pub fn has_function_links(&self, link_index: usize) -> bool {
        self.wholes.contains(&link_index)
    }

    /// The peak of a link, by its index, in one direction.
    pub fn peak_limit(&self, (link_index, direction): (usize, Direction)) -> Option<PeakLimit<'_>> {
        limit(self.links.get(link_index)?, direction)
    }

    /// Index of a counter's link, and the direction of the bytes that it counts.
    pub fn link_of(&self, counter: i32) -> Option<(usize, Direction)> {
        self.link_of_counter.get(&u32::try_from(counter).ok()?).copied()
    }
}

/// The peak of a link in one direction, or of the sum of both; `None` if no source has one.
pub fn limit(link: &Link, direction: Direction) -> Option<PeakLimit<'_>> {
    let is_in_direction = |peak: &&PeakRate| peak.direction == direction;
    let peak = link.peaks.iter().filter(is_in_direction).min_by_key(|peak| peak.source)?;
    let is_in_conflict = |candidate: &&PeakRate| {
        let (peak_per_s, candidate_per_s) = (peak.bytes_per_s, candidate.bytes_per_s);
        (peak_per_s - candidate_per_s).abs() > CONFLICT * peak_per_s.max(candidate_per_s)
    };
    Some(PeakLimit {
        peak,
        conflicting_peak: link.peaks.iter().filter(is_in_direction).find(is_in_conflict),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{sample_link, sample_peak};
    use super::*;
    use crate::schema::link::PeakSource;

    #[test]
    fn counters_have_a_link_and_a_direction() {
        let links = Links::new(vec![sample_link(Vec::new())]);
        assert_eq!(links.link_of(0), Some((0, Direction::In)));
        assert_eq!((links.link_of(1), links.link_of(-1)), (None, None));
    }

    #[test]
    fn sources_that_disagree_are_a_conflict_and_never_averaged() {
        let (sysfs, measured) =
            (sample_peak(PeakSource::Sysfs, 100.0), sample_peak(PeakSource::Calibrated, 79.0));
        let apart = sample_link(vec![sysfs.clone(), measured]);
        let peak_of = |link| limit(link, Direction::In).unwrap();
        assert_eq!(peak_of(&apart).peak.source, PeakSource::Calibrated);
        assert_eq!(
            peak_of(&apart).conflicting_peak.map(|peak| peak.source),
            Some(PeakSource::Sysfs)
        );
        assert!((peak_of(&apart).fraction_of_peak(158.0) - 2.0).abs() < 1e-12);
        let near = sample_link(vec![sysfs, sample_peak(PeakSource::Calibrated, 80.0)]);
        assert_eq!(peak_of(&near).conflicting_peak, None);
        assert_eq!(limit(&near, Direction::Both), None);
        assert_eq!(limit(&sample_link(Vec::new()), Direction::In), None);
    }
}
