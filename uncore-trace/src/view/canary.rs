//! How well the canary was credited: the bytes that `fabric` gives to its cgroup on each link, over
//! the bytes that it says it moved there.
//!
//! Guarantee: what cannot be compared has no number and a reason, never 0.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::key::By;
use super::links::Links;
use super::usage::{ReportLine, UsageQuestion, Usage, usage};
use crate::schema::canary::{CanarySummary, CanaryKind, LinkDirection};
use crate::schema::link::Direction;
use crate::schema::{fabric, owner};
use crate::tables::reader::Recording;
use crate::text::{count_noun, printable};
use crate::units::percent;

/// What the canary moved in one direction of a link, and what it was credited there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Credit {
    /// What was moved.
    pub kind: CanaryKind,
    /// The link; `None` if no counter counts it.
    pub link: Option<String>,
    /// Direction on the link.
    pub direction: Option<Direction>,
    /// Number of bursts.
    pub bursts: u64,
    /// Bytes of these bursts.
    pub moved_bytes: u64,
    /// Bytes that it was credited; `None` if that is not known.
    pub credited_bytes: Option<f64>,
    /// Credited over moved.
    pub credited: Option<f64>,
    /// Why there is no number.
    pub why: Option<String>,
    /// Kind of the link in the catalog.
    #[serde(skip)]
    link_kind: String,
}

/// What the canary of a recording was credited; `None` if it had no canary.
///
/// # Errors
///
/// The recording cannot be read, or its metadata are damaged.
pub fn credits(recording: &Recording) -> Result<Option<Vec<Credit>>> {
    let Some(canary) = CanarySummary::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())? else {
        return Ok(None);
    };
    let links = Links::of(recording)?;
    let question = UsageQuestion { links: Some(&links), ..UsageQuestion::grouped_by(By::Cgroup) };
    let usage = usage(recording, &question)?;
    Ok(Some(compared(&canary, &links, &usage)))
}

fn compared(canary: &CanarySummary, links: &Links, usage: &Usage) -> Vec<Credit> {
    let mut moved: BTreeMap<(CanaryKind, Option<&LinkDirection>), (u64, u64)> = BTreeMap::new();
    for its in &canary.moved {
        let ways = its.links.iter().map(Some);
        // Bytes that no counter counts are said too.
        let none = its.links.is_empty().then_some(None);
        for way in ways.chain(none) {
            let (bursts, bytes) = moved.entry((its.kind, way)).or_default();
            *bursts += its.bursts;
            *bytes += its.bytes;
        }
    }
    let is_own = |line: &&ReportLine| line.key == canary.cgroup && line.owner == owner::TASK;
    let has_rows = usage.events.iter().any(|event| event.lines.iter().any(|line| is_own(&line)));
    let compare = |((kind, way), (bursts, bytes)): ((CanaryKind, Option<&LinkDirection>), (u64, u64))| {
        let place = way.and_then(|way| links.links.iter().position(|its| its.name == way.link));
        let event = place.zip(way).and_then(|(place, way)| {
            usage.events.iter().find(|event| event.link == Some((place, way.direction)))
        });
        let value = event.filter(|_| has_rows).and_then(|event| {
            let own = event.lines.iter().find(is_own);
            // Other owners have all of it, if the link was counted at all.
            own.map_or_else(|| (event.known_s() > 0.0).then_some(0.0), ReportLine::known_value)
        });
        let why = match (way, value) {
            (_, Some(_)) => None,
            (None, None) => Some("no counter counts it"),
            (Some(_), None) if !has_rows => Some("its cgroup has no rows of its own"),
            (Some(_), None) => Some("the link was not counted"),
        };
        Credit {
            kind,
            link: way.map(|way| way.link.clone()),
            direction: way.map(|way| way.direction),
            bursts,
            moved_bytes: bytes,
            credited_bytes: value,
            credited: value.map(|value| value / bytes as f64).filter(|ratio| ratio.is_finite()),
            why: why.map(str::to_owned),
            link_kind: place.map_or_else(String::new, |place| links.links[place].kind.clone()),
        }
    };
    let mut credits: Vec<Credit> = moved.into_iter().map(compare).collect();
    let without = |kind: CanaryKind, why: String| Credit {
        kind,
        link: None,
        direction: None,
        bursts: 0,
        moved_bytes: 0,
        credited_bytes: None,
        credited: None,
        why: Some(why),
        link_kind: String::new(),
    };
    credits.extend(canary.skipped.iter().map(|skipped| without(skipped.kind, skipped.why.clone())));
    for kind in CanaryKind::ALL {
        if !credits.iter().any(|credit| credit.kind == kind) {
            credits.push(without(kind, "it had no burst".to_owned()));
        }
    }
    credits.sort_by_key(|credit| credit.kind);
    credits
}

/// The sum over the links of one kind.
#[derive(Debug, Default)]
struct Sum<'a> {
    kind: &'a str,
    credited: f64,
    moved: u64,
    /// Number of bursts on each link.
    bursts: BTreeMap<&'a str, u64>,
}

impl Sum<'_> {
    fn words(&self) -> String {
        let part = percent(self.credited / self.moved as f64);
        let bursts = count_noun(self.bursts.values().sum::<u64>() as usize, "burst");
        format!("{part} of its bytes of {} ({bursts})", self.kind)
    }
}

/// The credits in a sentence: a number for each kind of link, and the kinds without one.
pub fn sentence(credits: &[Credit]) -> String {
    let mut sums: Vec<Sum<'_>> = Vec::new();
    for credit in credits {
        let Some(credited) = credit.credited_bytes.filter(|_| credit.credited.is_some()) else {
            continue;
        };
        let kind = credit.link_kind.as_str();
        let place = sums.iter().position(|its| its.kind == kind).unwrap_or_else(|| {
            sums.push(Sum { kind, ..Sum::default() });
            sums.len() - 1
        });
        let sum = &mut sums[place];
        sum.credited += credited;
        sum.moved += credit.moved_bytes;
        // A burst may be in both directions of a link.
        let bursts = sum.bursts.entry(credit.link.as_deref().unwrap_or_default()).or_default();
        *bursts = credit.bursts.max(*bursts);
    }
    let parts: Vec<String> = sums.iter().map(Sum::words).collect();
    let mut without: Vec<String> = Vec::new();
    for credit in credits.iter().filter(|credit| credit.credited.is_none()) {
        let why = credit.why.as_deref().unwrap_or("it moved nothing");
        let its = format!("{} ({})", credit.kind.kind_name(), printable(why));
        if !without.contains(&its) {
            without.push(its);
        }
    }
    let credited = match parts.as_slice() {
        [] => "The canary has no number".to_owned(),
        [one] => format!("The canary was credited {one}"),
        [first @ .., last] => {
            format!("The canary was credited {} and {last}", first.join(", "))
        }
    };
    match (without.is_empty(), parts.is_empty()) {
        (true, _) => format!("{credited}."),
        (false, true) => format!("{credited}: {}.", without.join(", ")),
        (false, false) => format!("{credited}; no number for {}.", without.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Broken, INTACT, SampleRecording, sample_link, sample_plan};
    use super::*;
    use crate::schema::canary::Skipped;
    use crate::schema::metadata;

    /// A canary in the cgroup of a process of the sample, which moved this many bytes.
    fn recorded(cgroup: &str, links: &[LinkDirection]) -> (CanarySummary, SampleRecording) {
        let mut canary = CanarySummary { cgroup: cgroup.to_owned(), ..CanarySummary::default() };
        canary.skipped = vec![Skipped { kind: CanaryKind::Disk, why: "no\u{1b}[2J disk".to_owned() }];
        canary.add_burst(CanaryKind::Memory, links, 40_000_000);
        canary.add_burst(CanaryKind::Memory, links, 60_000_000);
        let sample = SampleRecording::new(
            false,
            &Broken {
                metadata: |pairs| {
                    pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(Vec::new())]));
                },
                ..INTACT
            },
        );
        (canary, sample)
    }

    fn of(canary: &CanarySummary, sample: &SampleRecording) -> Vec<Credit> {
        let recording = sample.open();
        let links = Links::of(&recording).unwrap();
        let question = UsageQuestion { links: Some(&links), ..UsageQuestion::grouped_by(By::Cgroup) };
        compared(canary, &links, &usage(&recording, &question).unwrap())
    }

    fn memory() -> Vec<LinkDirection> {
        vec![LinkDirection { link: "memory 0".to_owned(), direction: Direction::In }]
    }

    #[test]
    fn what_was_credited_is_compared_with_what_was_moved() {
        // A quarter of the 192 MB of the link.
        let (canary, sample) = recorded("/other", &memory());
        let credits = of(&canary, &sample);
        let its = &credits[0];
        assert_eq!((its.bursts, its.moved_bytes), (2, 100_000_000));
        assert!((its.credited.unwrap() - 0.48).abs() < 1e-9, "{its:?}");
        assert_eq!(
            sentence(&credits),
            "The canary was credited 48 % of its bytes of memory (2 bursts); no number for disk \
             (no\\u{1b}[2J disk), network (it had no burst)."
        );
    }

    #[test]
    fn what_cannot_be_compared_has_no_number() {
        let (canary, sample) = recorded("/nowhere", &memory());
        let credits = of(&canary, &sample);
        assert_eq!((credits[0].credited, credits[0].credited_bytes), (None, None));
        assert_eq!(credits[0].why.as_deref(), Some("its cgroup has no rows of its own"));
        let (canary, sample) = recorded("/other", &[]);
        let credits = of(&canary, &sample);
        assert_eq!(credits[0].why.as_deref(), Some("no counter counts it"));
        let text = sentence(&credits);
        assert!(text.starts_with("The canary has no number: memory (no counter counts it), disk"));
        assert!(super::credits(&sample.open()).unwrap().is_none());
    }
}
