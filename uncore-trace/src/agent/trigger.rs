//! Conditions of triggers: a rate is above a level for some time. They are evaluated at each tick.
//!
//! ```text
//! SUBJECT > LEVEL [for TIME]
//! pcie in > 80% for 5ms          any PCIe link, what goes in
//! memory 0 > 100GB/s             one link, both ways together
//! pcie_read_bandwidth > 80%      the links that a metric measures
//! page-faults > 50000/s for 1s   an event that is of no link
//! ```
//!
//! Guarantee: a condition that cannot be evaluated on this machine (an unknown subject, a
//! percentage without a known peak) is an error before anything is recorded.

mod watch;

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::catalog::Catalog;
use crate::clock::duration_ns;
use crate::plan::Plan;
use crate::schema::link::{Direction, Link};
use crate::suggest::{did_you_mean, list_names};
use crate::units::parse_duration;
use crate::view::links::limit;

pub use self::watch::ConditionWatch;

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The condition as typed.
    text: String,
    /// The rates that are compared; the condition is true when one of them is above its level.
    meters: Vec<WatchedRate>,
    /// How long a rate must be above its level, ns.
    lasting_ns: i64,
}

/// A sum of counters and its level.
#[derive(Debug, Clone, PartialEq)]
struct WatchedRate {
    /// Counter, and the factor from its counts to the unit of the level.
    counters: Vec<(u32, f64)>,
    /// In units per second.
    level: f64,
}

/// A level as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TriggerLevel {
    /// Fraction of the peak.
    OfPeak(f64),
    /// Units per second.
    Rate(f64),
}

impl Condition {
    /// Parses `text` for the counters of a plan.
    ///
    /// # Errors
    ///
    /// The text is no condition, or the condition cannot be evaluated with this plan.
    pub fn new(text: &str, plan: &Plan) -> Result<Self> {
        let usage = || {
            anyhow!(
                "{text:?} is not a condition: write SUBJECT > LEVEL for TIME, e.g. pcie in > 80% \
                 for 5ms"
            )
        };
        let (subject, level_and_time) = split_condition(text).ok_or_else(usage)?;
        let (level, time) = match level_and_time.split_once(" for ") {
            Some((level, time)) => (level, Some(time)),
            None => (level_and_time, None),
        };
        let lasting = time.map_or(Ok(Duration::ZERO), |time| {
            parse_duration(time.trim(), Duration::from_millis(1))
        });
        let lasting = lasting.map_err(|error| anyhow!("{text:?}: {error}"))?;
        ensure!(lasting <= Duration::from_mins(1), "{text:?}: choose at most 1min");
        let level = parse_level(level.trim()).with_context(|| format!("{text:?}"))?;
        let meters = parse_meters(subject, level, plan).with_context(|| format!("{text:?}"))?;
        Ok(Self { text: text.to_owned(), meters, lasting_ns: duration_ns(lasting) })
    }
}

/// The metric of the catalog that the condition names, if any: it must be recorded too.
pub fn metric_of<'a>(text: &'a str, catalog: &Catalog) -> Option<&'a str> {
    let (subject, _) = split_condition(text)?;
    let mut metrics = catalog.families.iter().flat_map(|family| &family.metrics);
    metrics.any(|metric| metric.name == subject).then_some(subject)
}

/// Subject, level and time of a condition, as text.
fn split_condition(text: &str) -> Option<(&str, &str)> {
    text.split_once('>').map(|(subject, level_and_time)| (subject.trim(), level_and_time))
}

fn parse_level(text: &str) -> Result<TriggerLevel> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().context("the level before % is not a number")?;
        ensure!(percent > 0.0 && percent <= 1000.0, "choose a level above 0%");
        return Ok(TriggerLevel::OfPeak(percent / 100.0));
    }
    let Some(amount) = text.strip_suffix("/s") else {
        bail!("write the level as 80%, 5GB/s or 1000/s");
    };
    let unit_begin = amount.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(amount.len());
    let (number, unit) = amount.split_at(unit_begin);
    let number: f64 = number.trim().parse().context("the level is not a number")?;
    ensure!(number > 0.0 && number.is_finite(), "choose a level above 0");
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        unknown => {
            bail!("{unknown:?} is not a unit of a level: write kB/s, MB/s, GB/s, TB/s or /s")
        }
    };
    Ok(TriggerLevel::Rate(number * factor))
}

/// The meters for a subject.
fn parse_meters(subject: &str, level: TriggerLevel, plan: &Plan) -> Result<Vec<WatchedRate>> {
    let (name, direction) = match subject.rsplit_once(' ') {
        Some((name, "in")) => (name.trim(), Some(Direction::In)),
        Some((name, "out")) => (name.trim(), Some(Direction::Out)),
        Some((name, "both")) => (name.trim(), None),
        _ => (subject, None),
    };
    let is_named = |link: &&Link| link.name == name || link.subsystem == name;
    let links: Vec<&Link> = plan.links.iter().filter(is_named).collect();
    if !links.is_empty() {
        let meters = links.into_iter().map(|link| link_meter(plan, link, direction, None, level));
        return meters.collect();
    }
    let measured: Vec<u32> = plan
        .metrics
        .iter()
        .filter(|metric| metric.name == subject)
        .flat_map(|metric| metric.inputs.iter().filter_map(|input| input.counter))
        .collect();
    if !measured.is_empty() {
        let is_measured = |link: &&Link| {
            link.counters.iter().any(|link_counter| measured.contains(&link_counter.counter))
        };
        let links: Vec<&Link> = plan.links.iter().filter(is_measured).collect();
        ensure!(
            !links.is_empty(),
            "the metric {subject} does not measure a link: name a link or an event"
        );
        let meters =
            links.into_iter().map(|link| link_meter(plan, link, None, Some(&measured), level));
        return meters.collect();
    }
    let of_event: Vec<(u32, f64)> = plan
        .counters
        .iter()
        .filter(|counter| counter.event == subject)
        .map(|counter| (counter.id, counter.scale))
        .collect();
    if of_event.is_empty() {
        let links =
            plan.links.iter().flat_map(|link| [link.name.as_str(), link.subsystem.as_str()]);
        let metrics = plan.metrics.iter().map(|metric| metric.name.as_str());
        let events = plan.counters.iter().map(|counter| counter.event.as_str());
        let mut known: Vec<&str> = links.chain(metrics).chain(events).collect();
        known.sort_unstable();
        known.dedup();
        bail!(
            "{subject} is not a link, metric or event that is recorded{}; there are: {}",
            did_you_mean(subject, &known),
            list_names(&known)
        );
    }
    match level {
        TriggerLevel::Rate(level) => Ok(vec![WatchedRate { counters: of_event, level }]),
        TriggerLevel::OfPeak(_) => {
            bail!("the peak of {subject} is not known: write the level as a rate, e.g. 5GB/s")
        }
    }
}

/// The counters of a link in one direction, or in both if `None`, as far as the plan has them.
fn link_meter(
    plan: &Plan,
    link: &Link,
    direction: Option<Direction>,
    measured: Option<&[u32]>,
    level: TriggerLevel,
) -> Result<WatchedRate> {
    let traffic_counters = link.counters.iter().filter(|link_counter| {
        direction.is_none_or(|direction| link_counter.direction == direction)
            && measured.is_none_or(|ids| ids.contains(&link_counter.counter))
    });
    let traffic_counters: Vec<_> = traffic_counters.collect();
    ensure!(
        !traffic_counters.is_empty(),
        "no counter counts this traffic of {}: name another direction, or record more events",
        link.name
    );
    let directions: Vec<Direction> =
        traffic_counters.iter().map(|link_counter| link_counter.direction).collect();
    let level = match level {
        TriggerLevel::Rate(level) => level,
        TriggerLevel::OfPeak(fraction) => {
            let is_single = directions.iter().all(|direction| *direction == directions[0]);
            let joint_direction = if is_single { directions[0] } else { Direction::Both };
            let limit = limit(link, joint_direction).with_context(|| {
                format!(
                    "the peak of {} {} is not known: write the level as a rate, e.g. 5GB/s, or run \
                     `uncore-trace calibrate`",
                    link.name,
                    joint_direction.direction_name()
                )
            })?;
            fraction * limit.peak.bytes_per_s
        }
    };
    let scale = |id: u32| {
        plan.counters.iter().find(|counter| counter.id == id).map(|planned| planned.scale)
    };
    let counters = traffic_counters
        .iter()
        .filter_map(|link_counter| Some((link_counter.counter, scale(link_counter.counter)?)));
    Ok(WatchedRate { counters: counters.collect(), level })
}

#[cfg(test)]
mod tests;
