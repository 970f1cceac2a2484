//! A comparison as a page for a browser: the summary, then for each link or event a plot with both
//! rates of each tenant.
//!
//! Guarantees: those of [`super::super::html`]; sentences and verdicts are those of
//! [`super::text`]; a value that is not known is null.

use std::io::{self, Write};

use anyhow::{Context as _, Result};

use super::super::html::json::Json;
use super::super::html::{self, Page};
use super::super::render::TextStyle;
use super::rate::{RateChange, SideRate};
use super::summary::{summary, tenant_label};
use super::text::{describe_change, describe_hidden, shown_tenants, verdict_text};
use super::{Diff, DiffSubject, SpanFacts};
use crate::text::printable;
use crate::units;

/// Default number of tenants of each link or event in a page.
pub const TENANTS: usize = 50;

const PAGE: Page = Page {
    document: include_str!("page.html"),
    styles: &[include_str!("page.css")],
    libraries: &[],
    scripts: &[include_str!("picture.js"), include_str!("page.js")],
};

/// Sentences of a page are not shortened: a browser breaks lines.
const WHOLE: TextStyle = TextStyle { ascii: false, width: None };

/// Writes the page, with the names of the two sides, and for each link or event the `top`
/// largest differences.
///
/// # Errors
///
/// `writer` fails.
pub fn write_page(
    diff: &Diff,
    side_names: [&str; 2],
    top: usize,
    writer: &mut dyn Write,
) -> Result<()> {
    html::write_document(writer, &PAGE, |json| {
        json.write_key("answer")?.write_value(&summary(diff, WHOLE))?;
        json.write_key("sides")?.write_list(
            [
                ("Before", side_names[0], &diff.before_facts),
                ("After", side_names[1], &diff.after_facts),
            ],
            write_side,
        )?;
        json.write_key("notes")?
            .write_list(&diff.notes, |json, note| json.write_value(&printable(note)))?;
        json.write_key("by")?.write_value(diff.grouping.name())?;
        json.write_key("ways")?.write_list(&diff.subjects, |json, subject| {
            json.write_object(|json| write_subject(json, subject, top))
        })
    })
    .context("cannot write the page")
}

fn write_side(
    json: &mut Json<'_>,
    (word, side_name, facts): (&str, &str, &SpanFacts),
) -> io::Result<()> {
    let lacks = facts.incomplete.as_ref().map(|lacks| lacks.summary_line(facts.start_ns));
    json.write_object(|json| {
        json.write_key("word")?.write_value(word)?;
        json.write_key("called")?.write_value(&printable(side_name))?;
        json.write_key("length")?.write_value(&units::human(facts.length_s() * 1e9, "ns"))?;
        json.write_key("lacks")?.write_value(&lacks.map(|lacks| printable(&lacks).into_owned()))
    })
}

fn write_subject(json: &mut Json<'_>, subject: &DiffSubject, top: usize) -> io::Result<()> {
    let shown = shown_tenants(subject, Some(top));
    json.write_key("name")?.write_value(&printable(&subject.name))?;
    json.write_key("unit")?.write_value(&printable(&subject.unit))?;
    json.write_key("peak")?.write_number(subject.peak)?;
    json.write_key("said")?.write_value(&describe_change(&subject.total, &subject.unit))?;
    json.write_key("notes")?
        .write_list(&subject.notes, |json, note| json.write_value(&printable(note)))?;
    json.write_key("total")?.write_object(|json| write_change(json, &subject.total))?;
    json.write_key("rest")?.write_value(describe_hidden(subject, shown.len()).trim())?;
    json.write_key("tenants")?.write_list(shown, |json, tenant| {
        json.write_object(|json| {
            json.write_key("name")?.write_value(&tenant_label(tenant))?;
            write_change(json, &tenant.change)
        })
    })
}

/// Members of an object: rates in the unit per second. The intervals of the two rates contain both
/// errors, so rates are `more` or `less` exactly if their intervals do not overlap.
fn write_change(json: &mut Json<'_>, change: &RateChange) -> io::Result<()> {
    let interval = change.difference_interval();
    json.write_key("before")?.write_object(|json| write_rate(json, &change.before_rate))?;
    json.write_key("after")?.write_object(|json| write_rate(json, &change.after_rate))?;
    json.write_key("difference")?.write_number(change.difference_per_s())?;
    json.write_key("low")?.write_number(interval.map(|reach| reach.low))?;
    json.write_key("high")?.write_number(interval.map(|reach| reach.high))?;
    json.write_key("ratio")?.write_number(change.rate_ratio())?;
    json.write_key("verdict")?.write_value(&verdict_text(change))?;
    json.write_key("beyond")?.write_value(&change.is_beyond_error())
}

fn write_rate(json: &mut Json<'_>, side_rate: &SideRate) -> io::Result<()> {
    let interval = side_rate.combined_interval();
    json.write_key("rate")?.write_number(side_rate.per_s())?;
    json.write_key("low")?.write_number(interval.map(|reach| reach.low))?;
    json.write_key("high")?.write_number(interval.map(|reach| reach.high))
}

#[cfg(test)]
mod tests {
    use super::super::super::html::checks;
    use super::PAGE;

    #[test]
    fn the_page_of_a_comparison_is_whole_and_loads_no_resource() {
        checks::is_whole_and_loads_nothing(&PAGE);
    }
}
