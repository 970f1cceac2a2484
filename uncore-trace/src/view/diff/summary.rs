//! The summary of a comparison, in one line.

use std::borrow::Cow;

use super::super::render::Style;
use super::rate::Change;
use super::{Diff, Tenant, Way};
use crate::terminal::{mark, shorten};
use crate::text::printable;
use crate::units::{self, Shared};

/// Tenants that are named.
const NAMED: usize = 2;

/// What changed most, which tenants caused it, and whether anything else changed. Escaped; if the
/// style has a width, names are shortened to a part of it.
pub fn summary(diff: &Diff, style: Style) -> String {
    let all = || diff.ways.iter().flat_map(Way::changes).filter(|it| it.says_something());
    let is_changed = |change: &Change| change.is_beyond_error() == Some(true);
    let changed = all().filter(|change| is_changed(change)).count();
    let unknown = all().filter(|change| change.is_beyond_error().is_none()).count();
    let of_total = diff.ways.iter().find(|way| is_changed(&way.total));
    let of_any = || diff.ways.iter().find(|way| way.changes().any(is_changed));
    let rest = match unknown {
        0 => String::new(),
        1 => " (of one it is not known)".to_owned(),
        count => format!(" (of {count} it is not known)"),
    };
    let Some(way) = of_total.or_else(of_any) else {
        return unchanged(diff, unknown > 0 && all().count() == unknown, &rest, style);
    };
    let named = named(way, of_total.is_some());
    let parts: Vec<String> = named.iter().map(|tenant| part(way, tenant, style)).collect();
    let parts = parts.join(" and ");
    let head = match (of_total.is_some(), parts.is_empty()) {
        (true, true) => from_to(way, style),
        (true, false) => format!("{}, of which {parts}", from_to(way, style)),
        (false, _) => format!("{}: {parts}", short(&printable(&way.name), style)),
    };
    let others = changed - named.len() - usize::from(of_total.is_some());
    match others {
        0 => format!("{head}; nothing else changed by more than its error{rest}"),
        1 => format!("{head}; one other changed by more than its error{rest}"),
        others => format!("{head}; {others} others changed by more than their error{rest}"),
    }
}

impl Way {
    /// The change of the total, then those of the tenants.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        std::iter::once(&self.total).chain(self.tenants.iter().map(|tenant| &tenant.change))
    }
}

/// The tenants that changed most by more than their error; if the total did so too, only those that
/// changed in the same direction.
fn named(way: &Way, with_total: bool) -> Vec<&Tenant> {
    let grew = way.total.difference().is_some_and(|difference| difference > 0.0);
    let counts = |tenant: &&Tenant| {
        let same = tenant.change.difference().is_some_and(|it| (it > 0.0) == grew);
        tenant.change.is_beyond_error() == Some(true) && (same || !with_total)
    };
    way.tenants.iter().filter(counts).take(NAMED).collect()
}

fn part(way: &Way, tenant: &Tenant, style: Style) -> String {
    let difference = tenant.change.difference().unwrap_or(0.0);
    let sign = if difference > 0.0 { "+" } else { "" };
    format!(
        "{} {sign}{}",
        short(&name(tenant), style),
        units::rate(difference, &printable(&way.unit))
    )
}

/// Name of a tenant; other owners are in parentheses.
pub(super) fn name(tenant: &Tenant) -> String {
    let key = printable(&tenant.key);
    if tenant.key == tenant.owner { format!("({key})") } else { key.into_owned() }
}

/// The name, shortened so that the line has room for numbers.
fn short(name: &str, style: Style) -> Cow<'_, str> {
    style.width.map_or(Cow::Borrowed(name), |width| shorten(name, width / 2, mark(style.ascii)))
}

/// `memory 0 in: 12.3 -> 18.9 GB/s`
fn from_to(way: &Way, style: Style) -> String {
    format!("{}: {}", short(&printable(&way.name), style), rates(&way.total, &way.unit))
}

/// `12.3 -> 18.9 GB/s`
pub fn rates(change: &Change, unit: &str) -> String {
    let unit = printable(unit);
    let both = [change.before.per_s(), change.after.per_s()];
    let shared = Shared::of(both.into_iter().flatten(), &unit);
    let figure = |rate: Option<f64>| {
        rate.map_or_else(
            || "not known".to_owned(),
            |rate| shared.figure(rate).trim_end().to_owned(),
        )
    };
    let name = shared.rate_name();
    let space = if name.starts_with('/') && shared.name().is_empty() { " " } else { "" };
    let [before, after] = both.map(figure);
    format!("{before} -> {after} {space}{name}").replace("  ", " ")
}

/// The sentence if nothing changed by more than its error.
fn unchanged(diff: &Diff, is_unknown: bool, rest: &str, style: Style) -> String {
    let largest = diff.ways.iter().find(|way| way.total.difference().is_some());
    match largest {
        None if diff.ways.is_empty() => "nothing was counted".to_owned(),
        None => "nothing that both counted can be compared".to_owned(),
        Some(way) if is_unknown => {
            format!("{}; whether that is more than the error is not known", from_to(way, style))
        }
        Some(way) => format!(
            "nothing changed by more than its error{rest}; the largest difference: {}",
            from_to(way, style)
        ),
    }
}
