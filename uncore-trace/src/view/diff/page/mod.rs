//! A comparison as a page for a browser: the summary, then for each link or event a plot with both
//! rates of each tenant.
//!
//! Guarantees: those of [`super::super::html`]; sentences and verdicts are those of
//! [`super::text`]; a value that is not known is null.

use std::io::{self, Write};

use anyhow::{Context as _, Result};

use super::super::html::json::Json;
use super::super::html::{self, Page};
use super::super::render::Style;
use super::rate::{Change, SideRate};
use super::summary::{name, summary};
use super::text::{rest, said, tenants, verdict};
use super::{About, Diff, Way};
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
const WHOLE: Style = Style { ascii: false, width: None };

/// Writes the page, with the names `called` of the two, and for each link or event the `top`
/// largest differences.
///
/// # Errors
///
/// `out` fails.
pub fn write(diff: &Diff, called: [&str; 2], top: usize, out: &mut dyn Write) -> Result<()> {
    html::write(out, &PAGE, |json| {
        json.key("answer")?.value(&summary(diff, WHOLE))?;
        json.key("sides")?
            .list([("Before", called[0], &diff.before), ("After", called[1], &diff.after)], side)?;
        json.key("notes")?.list(&diff.notes, |json, note| json.value(&printable(note)))?;
        json.key("by")?.value(diff.by.name())?;
        json.key("ways")?.list(&diff.ways, |json, it| json.object(|json| way(json, it, top)))
    })
    .context("cannot write the page")
}

fn side(json: &mut Json<'_>, (word, called, about): (&str, &str, &About)) -> io::Result<()> {
    let lacks = about.incomplete.as_ref().map(|lacks| lacks.line(about.start_ns));
    json.object(|json| {
        json.key("word")?.value(word)?;
        json.key("called")?.value(&printable(called))?;
        json.key("length")?.value(&units::human(about.seconds() * 1e9, "ns"))?;
        json.key("lacks")?.value(&lacks.map(|lacks| printable(&lacks).into_owned()))
    })
}

fn way(json: &mut Json<'_>, way: &Way, top: usize) -> io::Result<()> {
    let shown = tenants(way, Some(top));
    json.key("name")?.value(&printable(&way.name))?;
    json.key("unit")?.value(&printable(&way.unit))?;
    json.key("peak")?.number(way.peak)?;
    json.key("said")?.value(&said(&way.total, &way.unit))?;
    json.key("notes")?.list(&way.notes, |json, note| json.value(&printable(note)))?;
    json.key("total")?.object(|json| change(json, &way.total))?;
    json.key("rest")?.value(rest(way, shown.len()).trim())?;
    json.key("tenants")?.list(shown, |json, tenant| {
        json.object(|json| {
            json.key("name")?.value(&name(tenant))?;
            change(json, &tenant.change)
        })
    })
}

/// Members of an object: rates in the unit per second. The intervals of the two rates contain both
/// errors, so rates are `more` or `less` exactly if their intervals do not overlap.
fn change(json: &mut Json<'_>, change: &Change) -> io::Result<()> {
    let reach = change.reach();
    json.key("before")?.object(|json| found(json, &change.before))?;
    json.key("after")?.object(|json| found(json, &change.after))?;
    json.key("difference")?.number(change.difference())?;
    json.key("low")?.number(reach.map(|reach| reach.low))?;
    json.key("high")?.number(reach.map(|reach| reach.high))?;
    json.key("ratio")?.number(change.ratio())?;
    json.key("verdict")?.value(&verdict(change))?;
    json.key("beyond")?.value(&change.is_beyond_error())
}

fn found(json: &mut Json<'_>, found: &SideRate) -> io::Result<()> {
    let reach = found.reach();
    json.key("rate")?.number(found.per_s())?;
    json.key("low")?.number(reach.map(|reach| reach.low))?;
    json.key("high")?.number(reach.map(|reach| reach.high))
}

#[cfg(test)]
mod tests {
    use super::super::super::html::checks;
    use super::PAGE;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        checks::is_whole_and_loads_nothing(&PAGE);
    }
}
