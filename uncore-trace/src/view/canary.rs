//! How well the canary was credited: the bytes that `fabric` gives to its cgroup on each link, over
//! the bytes that it says it moved there.
//!
//! Guarantee: what cannot be compared has no number and a reason, never 0.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::grouping::GroupBy;
use super::links::Links;
use super::question::ReportQuestion;
use super::report_sums::{ReportLine, ReportSums, sum_report};
use crate::schema::canary::{CanaryKind, CanarySummary, LinkDirection};
use crate::schema::link::Direction;
use crate::schema::{fabric, owner};
use crate::tables::reader::Recording;
use crate::text::{count_noun, printable};
use crate::units::percent;

/// What the canary moved in one direction of a link, and what it was credited there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryCredit {
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
pub fn read_credits(recording: &Recording) -> Result<Option<Vec<CanaryCredit>>> {
    let Some(canary) =
        CanarySummary::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())?
    else {
        return Ok(None);
    };
    let links = Links::from_recording(recording)?;
    let question =
        ReportQuestion { links: Some(&links), ..ReportQuestion::grouped_by(GroupBy::Cgroup) };
    Ok(Some(compare_credits(&canary, &links, &sum_report(recording, &question)?)))
}

fn compare_credits(canary: &CanarySummary, links: &Links, usage: &ReportSums) -> Vec<CanaryCredit> {
    let mut moved: BTreeMap<(CanaryKind, Option<&LinkDirection>), (u64, u64)> = BTreeMap::new();
    for movement in &canary.moved {
        let link_directions = movement.links.iter().map(Some);
        // Bytes that no counter counts are said too.
        let uncounted = movement.links.is_empty().then_some(None);
        for link_direction in link_directions.chain(uncounted) {
            let (bursts, bytes) = moved.entry((movement.kind, link_direction)).or_default();
            *bursts += movement.bursts;
            *bytes += movement.bytes;
        }
    }
    let is_canary_line =
        |line: &&ReportLine| line.key == canary.cgroup && line.owner == owner::TASK;
    let has_rows =
        usage.events.iter().any(|event| event.lines.iter().any(|line| is_canary_line(&line)));
    let compare = |((traffic_kind, link_direction), (bursts, bytes)): (
        (CanaryKind, Option<&LinkDirection>),
        (u64, u64),
    )| {
        let link_index = link_direction.and_then(|wanted| {
            links.links.iter().position(|candidate| candidate.name == wanted.link)
        });
        let event = link_index.zip(link_direction).and_then(|(index, wanted)| {
            usage.events.iter().find(|event| event.link == Some((index, wanted.direction)))
        });
        let value = event.filter(|_| has_rows).and_then(|event| {
            let own_line = event.lines.iter().find(is_canary_line);
            // Other owners have all of it, if the link was counted at all.
            own_line.map_or_else(|| (event.known_s() > 0.0).then_some(0.0), ReportLine::known_value)
        });
        let why = match (link_direction, value) {
            (_, Some(_)) => None,
            (None, None) => Some("no counter counts it"),
            (Some(_), None) if !has_rows => Some("its cgroup has no rows of its own"),
            (Some(_), None) => Some("the link was not counted"),
        };
        CanaryCredit {
            kind: traffic_kind,
            link: link_direction.map(|wanted| wanted.link.clone()),
            direction: link_direction.map(|wanted| wanted.direction),
            bursts,
            moved_bytes: bytes,
            credited_bytes: value,
            credited: value.map(|value| value / bytes as f64).filter(|ratio| ratio.is_finite()),
            why: why.map(str::to_owned),
            link_kind: link_index.map_or_else(String::new, |index| links.links[index].kind.clone()),
        }
    };
    let mut all_credits: Vec<CanaryCredit> = moved.into_iter().map(compare).collect();
    let without_number = |traffic_kind: CanaryKind, why: String| CanaryCredit {
        kind: traffic_kind,
        link: None,
        direction: None,
        bursts: 0,
        moved_bytes: 0,
        credited_bytes: None,
        credited: None,
        why: Some(why),
        link_kind: String::new(),
    };
    all_credits.extend(
        canary.skipped.iter().map(|skipped| without_number(skipped.kind, skipped.why.clone())),
    );
    for traffic_kind in CanaryKind::ALL {
        if !all_credits.iter().any(|credit| credit.kind == traffic_kind) {
            all_credits.push(without_number(traffic_kind, "it had no burst".to_owned()));
        }
    }
    all_credits.sort_by_key(|credit| credit.kind);
    all_credits
}

/// The sum over the links of one kind.
#[derive(Debug, Default)]
struct KindCredit<'a> {
    link_kind: &'a str,
    credited: f64,
    moved: u64,
    /// Number of bursts on each link.
    bursts: BTreeMap<&'a str, u64>,
}

impl KindCredit<'_> {
    fn describe_share(&self) -> String {
        let percentage = percent(self.credited / self.moved as f64);
        let bursts = count_noun(self.bursts.values().sum::<u64>() as usize, "burst");
        format!("{percentage} of its bytes of {} ({bursts})", self.link_kind)
    }
}

/// The credits in a sentence: a number for each kind of link, and the kinds without one.
pub fn credits_sentence(canary_credits: &[CanaryCredit]) -> String {
    let mut sums: Vec<KindCredit<'_>> = Vec::new();
    for credit in canary_credits {
        let Some(credited) = credit.credited_bytes.filter(|_| credit.credited.is_some()) else {
            continue;
        };
        let link_kind = credit.link_kind.as_str();
        let sum_index = sums
            .iter()
            .position(|candidate| candidate.link_kind == link_kind)
            .unwrap_or_else(|| {
                sums.push(KindCredit { link_kind, ..KindCredit::default() });
                sums.len() - 1
            });
        let sum = &mut sums[sum_index];
        sum.credited += credited;
        sum.moved += credit.moved_bytes;
        // A burst may be in both directions of a link.
        let bursts = sum.bursts.entry(credit.link.as_deref().unwrap_or_default()).or_default();
        *bursts = credit.bursts.max(*bursts);
    }
    let sum_texts: Vec<String> = sums.iter().map(KindCredit::describe_share).collect();
    let mut kinds_without_number: Vec<String> = Vec::new();
    for credit in canary_credits.iter().filter(|credit| credit.credited.is_none()) {
        let why = credit.why.as_deref().unwrap_or("it moved nothing");
        let kind_and_reason = format!("{} ({})", credit.kind.kind_name(), printable(why));
        if !kinds_without_number.contains(&kind_and_reason) {
            kinds_without_number.push(kind_and_reason);
        }
    }
    let credited = match sum_texts.as_slice() {
        [] => "The canary has no number".to_owned(),
        [single_sum] => format!("The canary was credited {single_sum}"),
        [leading_sums @ .., final_sum] => {
            format!("The canary was credited {} and {final_sum}", leading_sums.join(", "))
        }
    };
    match (kinds_without_number.is_empty(), sum_texts.is_empty()) {
        (true, _) => format!("{credited}."),
        (false, true) => format!("{credited}: {}.", kinds_without_number.join(", ")),
        (false, false) => format!("{credited}; no number for {}.", kinds_without_number.join(", ")),
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
        canary.skipped =
            vec![Skipped { kind: CanaryKind::Disk, why: "no\u{1b}[2J disk".to_owned() }];
        canary.add_burst(CanaryKind::Memory, links, 40_000_000);
        canary.add_burst(CanaryKind::Memory, links, 60_000_000);
        let sample = SampleRecording::new(
            false,
            &Broken {
                metadata: |pairs| {
                    pairs.insert(
                        metadata::PLAN.to_owned(),
                        sample_plan(vec![sample_link(Vec::new())]),
                    );
                },
                ..INTACT
            },
        );
        (canary, sample)
    }

    fn credits_of(canary: &CanarySummary, sample: &SampleRecording) -> Vec<CanaryCredit> {
        let recording = sample.open();
        let links = Links::from_recording(&recording).unwrap();
        let question =
            ReportQuestion { links: Some(&links), ..ReportQuestion::grouped_by(GroupBy::Cgroup) };
        compare_credits(canary, &links, &sum_report(&recording, &question).unwrap())
    }

    fn memory() -> Vec<LinkDirection> {
        vec![LinkDirection { link: "memory 0".to_owned(), direction: Direction::In }]
    }

    #[test]
    fn credited_bytes_are_compared_with_moved_bytes() {
        // A quarter of the 192 MB of the link.
        let (canary, sample) = recorded("/other", &memory());
        let canary_credits = credits_of(&canary, &sample);
        let credit = &canary_credits[0];
        assert_eq!((credit.bursts, credit.moved_bytes), (2, 100_000_000));
        assert!((credit.credited.unwrap() - 0.48).abs() < 1e-9, "{credit:?}");
        assert_eq!(
            credits_sentence(&canary_credits),
            "The canary was credited 48 % of its bytes of memory (2 bursts); no number for disk \
             (no\\u{1b}[2J disk), network (it had no burst)."
        );
    }

    #[test]
    fn a_canary_without_counted_rows_has_a_reason_and_no_number() {
        let (canary, sample) = recorded("/nowhere", &memory());
        let canary_credits = credits_of(&canary, &sample);
        assert_eq!((canary_credits[0].credited, canary_credits[0].credited_bytes), (None, None));
        assert_eq!(canary_credits[0].why.as_deref(), Some("its cgroup has no rows of its own"));
        let (canary, sample) = recorded("/other", &[]);
        let canary_credits = credits_of(&canary, &sample);
        assert_eq!(canary_credits[0].why.as_deref(), Some("no counter counts it"));
        let text = credits_sentence(&canary_credits);
        assert!(text.starts_with("The canary has no number: memory (no counter counts it), disk"));
        assert!(read_credits(&sample.open()).unwrap().is_none());
    }
}
