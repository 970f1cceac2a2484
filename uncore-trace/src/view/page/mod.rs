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

use self::data::PageData;
use self::grid::PageGrid;
use self::notices::PageNotices;
use self::planned::PagePlan;
use self::series::SeriesFilling;
use self::survey::PageSurvey;
use super::answer::answer;
use super::headroom::headroom;
use super::incomplete::Incomplete;
use super::links::Links;
use super::question::ReportQuestion;
use super::tenants::common_grouping;
use crate::schema::{fabric, metadata};
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
pub struct PageOptions<'a> {
    /// Grouping and time; `links` is ignored, because a page has links and other events.
    pub question: ReportQuestion<'a>,
    /// Number of tenants with areas in each plot.
    pub tenants: usize,
    /// The recording as the user typed it.
    pub path: &'a str,
}

/// Writes the page of a recording.
///
/// # Errors
///
/// The recording cannot be read, nothing was recorded in the selected time, or `output` fails.
pub fn write_page(
    recording: &Recording,
    options: &PageOptions<'_>,
    output: &mut dyn Write,
) -> Result<()> {
    let table = recording.open_table(&fabric::TABLE)?;
    let pairs = table.metadata_pairs();
    let plan = PagePlan::from_metadata(pairs);
    let links = Links::from_metadata(pairs)?;
    let is_limited = options.question.begin.is_some() || options.question.end.is_some();
    let Some(span) = options.question.selected_time(recording, &table)? else {
        bail!("{} has no rows: there is nothing to show", recording.recording_path().display());
    };
    let (start_ns, mut events) =
        survey::plotted_events(recording, plan.as_ref(), &links, &options.question)?;
    let grouping = common_grouping(&options.question, &events);
    let question = ReportQuestion { grouping, is_chosen: true, ..options.question.clone() };
    let ways = headroom(recording, &links, &question)?;
    let answer = answer(&events, &links, &ways);
    // A tenant has one colour in all plots, so all of them have one grouping.
    if events.iter().any(|event| event.grouping != grouping) {
        (_, events) = survey::plotted_events(recording, plan.as_ref(), &links, &question)?;
    }
    let survey = PageSurvey::new(start_ns, events, grouping, options.tenants);
    let areas: usize = survey.plots.iter().map(|plot| plot.areas.len()).sum();
    let points = (ALL_POINTS / areas.max(1)).clamp(LEAST_POINTS, POINTS);
    let grid = PageGrid::new(&span, pairs, points);
    let series =
        SeriesFilling::new(&survey, &links, grid).read_rows(recording, &question, &span)?;
    let notices = PageNotices::read_notices(recording, pairs, &span)?;
    let incomplete = Incomplete::from_recording(recording)?;
    let incomplete = incomplete.map(|known_incomplete| {
        printable(&known_incomplete.summary_line(survey.start_ns)).into_owned()
    });
    let wall_ns = about::clocks_at_begin(pairs).map(|clock| clock.wall_at(survey.start_ns));
    let event = plan.as_ref().and_then(|plan| most_counted(&survey, plan, &links));
    let misfits = metadata::misfits(pairs)?;
    let queries = sql::build_queries(recording, options.path, event);
    let data = PageData {
        survey: &survey,
        links: &links,
        ways: &ways,
        grid,
        series: &series,
        notices: &notices,
    };
    super::html::write_document(output, &html::PAGE, |json| {
        json.write_key("host")?.write_value(&about::host_name(pairs))?;
        json.write_key("wall_ms")?.write_value(&wall_ns.map(|ns| ns as f64 / 1e6))?;
        json.write_key("path")?.write_value(&printable(options.path))?;
        json.write_key("by")?.write_value(grouping.name())?;
        json.write_key("limited")?.write_value(&is_limited)?;
        json.write_key("depth")?.write_value(&question.cgroup_depth)?;
        json.write_key("answer")?.write_value(&answer)?;
        json.write_key("incomplete")?.write_value(&incomplete)?;
        data.write_json(json)?;
        json.write_key("facts")?.write_value(&about::recording_facts(pairs, plan.as_ref()))?;
        let notes = plan.iter().flat_map(|plan| plan.warnings.iter().chain(&plan.notes));
        let notes = notes.chain(&misfits);
        json.write_key("notes")?
            .write_list(notes, |json, note| json.write_value(&printable(note)))?;
        json.write_key("counters")?;
        match &plan {
            Some(plan) => about::write_counters(json, plan, &links)?,
            None => json.write_value(&())?,
        }
        json.write_key("queries")?.write_value(&queries)
    })
    .context("cannot write the page")
}

/// An event of the first plot that has any value.
fn most_counted<'a>(survey: &PageSurvey, plan: &'a PagePlan, links: &Links) -> Option<&'a str> {
    let event = &survey.plots.iter().find(|plot| plot.event.total > 0.0)?.event;
    let is_of = |counter: &&planned::PlannedCounter| match event.link {
        Some(link_and_direction) => counter.link_and_direction(links) == Some(link_and_direction),
        // The filter of an event is in brackets after its name.
        None => event.name.split('[').next() == Some(&counter.event),
    };
    plan.counters.iter().find(is_of).map(|matching| matching.event.as_str())
}
