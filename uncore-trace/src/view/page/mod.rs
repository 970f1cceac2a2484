//! A recording as a page for a browser: which tenant filled which link, when, and how sure that is.
//!
//! ```text
//! survey  what was counted, by whom -.
//! grid    buckets of time ----------- series  values over time -.
//! notices, about, sql ------------------------------------------ data, json -> html
//! ```
//!
//! Guarantees: a page needs no other file and no network; memory grows with the number of its
//! points, not with the length of the recording; text is escaped twice: for terminals and readers
//! ([`crate::text::printable`]), and for browsers.

mod about;
mod data;
mod grid;
mod html;
mod notices;
mod planned;
mod series;
mod sql;
mod survey;
mod total;

#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::{Context as _, Result, bail};

use self::data::Data;
use self::grid::Grid;
use self::notices::Notices;
use self::planned::Planned;
use self::survey::Survey;
use super::answer::answer;
use super::headroom::headroom;
use super::incomplete::Incomplete;
use super::links::Links;
use super::span::SelectedTime;
use super::tenants::common_grouping;
use super::usage::Question;
use crate::schema::fabric;
use crate::tables::reader::Recording;
use crate::text::printable;

/// Default number of tenants with areas in each plot.
pub const TENANTS: usize = 30;

/// Most points over time.
const POINTS: usize = 4000;
/// Most points of all areas together: a browser draws them within two seconds.
const ALL_POINTS: usize = 1_500_000;
/// Least number of points over time, however many areas there are.
const LEAST_POINTS: usize = 200;

/// Options of a page.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// Grouping and time; `links` is ignored, because a page has links and other events.
    pub question: Question<'a>,
    /// Number of tenants with areas in each plot.
    pub tenants: usize,
    /// The recording as the user typed it.
    pub path: &'a str,
}

/// Writes the page of a recording.
///
/// # Errors
///
/// The recording cannot be read, nothing was recorded in the selected time, or `out` fails.
pub fn write(recording: &Recording, asked: &Asked<'_>, out: &mut dyn Write) -> Result<()> {
    let table = recording.open_table(&fabric::TABLE)?;
    let pairs = table.metadata_pairs();
    let plan = Planned::of(pairs);
    let links = Links::of_metadata(pairs)?;
    let Question { from, to, cgroup_depth, .. } = asked.question.clone();
    let is_limited = from.is_some() || to.is_some();
    let Some(span) = SelectedTime::between_moments(recording, &table, from.as_ref(), to.as_ref())? else {
        bail!("{} has no rows: there is nothing to show", recording.recording_path().display());
    };
    let (start_ns, mut events) = survey::events(recording, plan.as_ref(), &links, &asked.question)?;
    let by = common_grouping(&asked.question, &events);
    let question = Question { by, is_chosen: true, ..asked.question.clone() };
    let ways = headroom(recording, &links, &question)?;
    let answer = answer(&events, &links, &ways);
    // A tenant has one colour in all plots, so all of them have one grouping.
    if events.iter().any(|event| event.by != by) {
        (_, events) = survey::events(recording, plan.as_ref(), &links, &question)?;
    }
    let survey = Survey::new(start_ns, events, by, asked.tenants);
    let areas: usize = survey.plots.iter().map(|plot| plot.areas.len()).sum();
    let points = (ALL_POINTS / areas.max(1)).clamp(LEAST_POINTS, POINTS);
    let grid = Grid::new(&span, pairs, points);
    let series = series::fill(recording, (&survey, &links), &question, (&span, grid))?;
    let notices = Notices::of(recording, pairs, &span)?;
    let incomplete = Incomplete::of(recording)?;
    let incomplete = incomplete.map(|it| printable(&it.line(survey.start_ns)).into_owned());
    let wall_ns = about::clock(pairs).map(|clock| clock.wall_at(survey.start_ns));
    let event = plan.as_ref().and_then(|plan| most_counted(&survey, plan, &links));
    let queries = sql::queries(recording, asked.path, event);
    let data = Data {
        survey: &survey,
        links: &links,
        ways: &ways,
        grid,
        series: &series,
        notices: &notices,
    };
    super::html::write(out, &html::PAGE, |json| {
        json.key("host")?.value(&about::host(pairs))?;
        json.key("wall_ms")?.value(&wall_ns.map(|ns| ns as f64 / 1e6))?;
        json.key("path")?.value(&printable(asked.path))?;
        json.key("by")?.value(by.name())?;
        json.key("limited")?.value(&is_limited)?;
        json.key("depth")?.value(&cgroup_depth)?;
        json.key("answer")?.value(&answer)?;
        json.key("incomplete")?.value(&incomplete)?;
        data.write(json)?;
        json.key("facts")?.value(&about::facts(pairs, plan.as_ref()))?;
        let notes = plan.iter().flat_map(|plan| plan.warnings.iter().chain(&plan.notes));
        json.key("notes")?.list(notes, |json, note| json.value(&printable(note)))?;
        json.key("counters")?;
        match &plan {
            Some(plan) => about::counters(json, plan, &links)?,
            None => json.value(&())?,
        }
        json.key("queries")?.value(&queries)
    })
    .context("cannot write the page")
}

/// An event of the first plot that has any value.
fn most_counted<'a>(survey: &Survey, plan: &'a Planned, links: &Links) -> Option<&'a str> {
    let event = &survey.plots.iter().find(|plot| plot.event.total > 0.0)?.event;
    let is_of = |its: &&planned::Counter| match event.link {
        Some(way) => its.way(links) == Some(way),
        // The filter of an event is in brackets after its name.
        None => event.name.split('[').next() == Some(&its.event),
    };
    plan.counters.iter().find(is_of).map(|its| its.event.as_str())
}
