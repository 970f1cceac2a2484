//! The summary of a comparison, in one line.

use std::borrow::Cow;

use super::super::answer::owner_label;
use super::super::render::TextStyle;
use super::rate::RateChange;
use super::{ComparedTenant, Diff, DiffSubject};
use crate::terminal::{mark, shorten};
use crate::text::printable;
use crate::units::{self, SharedUnit};

/// Tenants that are named.
const NAMED: usize = 2;

/// What changed most, which tenants caused it, and whether anything else changed. Escaped; if the
/// style has a width, names are shortened to a part of it.
pub fn summary(diff: &Diff, style: TextStyle) -> String {
    let all_changes = || {
        diff.subjects
            .iter()
            .flat_map(DiffSubject::all_changes)
            .filter(|rate_change| rate_change.says_something())
    };
    let is_changed = |change: &RateChange| change.is_beyond_error() == Some(true);
    let changed_count = all_changes().filter(|change| is_changed(change)).count();
    let unknown_count = all_changes().filter(|change| change.is_beyond_error().is_none()).count();
    let changed_in_total = diff.subjects.iter().find(|subject| is_changed(&subject.total));
    let changed_in_any =
        || diff.subjects.iter().find(|subject| subject.all_changes().any(is_changed));
    let unknown_note = match unknown_count {
        0 => String::new(),
        1 => " (of one it is not known)".to_owned(),
        count => format!(" (of {count} it is not known)"),
    };
    let Some(subject) = changed_in_total.or_else(changed_in_any) else {
        return describe_unchanged(
            diff,
            unknown_count > 0 && all_changes().count() == unknown_count,
            &unknown_note,
            style,
        );
    };
    let named_tenants = select_named_tenants(subject, changed_in_total.is_some());
    let tenant_texts: Vec<String> =
        named_tenants.iter().map(|tenant| describe_tenant(subject, tenant, style)).collect();
    let tenant_list = tenant_texts.join(" and ");
    let head = match (changed_in_total.is_some(), tenant_list.is_empty()) {
        (true, true) => describe_total(subject, style),
        (true, false) => format!("{}, of which {tenant_list}", describe_total(subject, style)),
        (false, _) => format!("{}: {tenant_list}", shorten_name(&printable(&subject.name), style)),
    };
    let other_count = changed_count - named_tenants.len() - usize::from(changed_in_total.is_some());
    match other_count {
        0 => format!("{head}; nothing else changed by more than its error{unknown_note}"),
        1 => format!("{head}; one other changed by more than its error{unknown_note}"),
        other_count => {
            format!("{head}; {other_count} others changed by more than their error{unknown_note}")
        }
    }
}

impl DiffSubject {
    /// The change of the total, then those of the tenants.
    pub(super) fn all_changes(&self) -> impl Iterator<Item = &RateChange> {
        std::iter::once(&self.total).chain(self.tenants.iter().map(|tenant| &tenant.change))
    }
}

/// The tenants that changed most by more than their error; if the total did so too, only those that
/// changed in the same direction.
fn select_named_tenants(subject: &DiffSubject, is_total_named: bool) -> Vec<&ComparedTenant> {
    let total_grew = subject.total.difference_per_s().is_some_and(|difference| difference > 0.0);
    let is_named = |tenant: &&ComparedTenant| {
        let is_same_direction = tenant
            .change
            .difference_per_s()
            .is_some_and(|tenant_difference| (tenant_difference > 0.0) == total_grew);
        tenant.change.is_beyond_error() == Some(true) && (is_same_direction || !is_total_named)
    };
    subject.tenants.iter().filter(is_named).take(NAMED).collect()
}

fn describe_tenant(subject: &DiffSubject, tenant: &ComparedTenant, style: TextStyle) -> String {
    let difference = tenant.change.difference_per_s().unwrap_or(0.0);
    let sign = if difference > 0.0 { "+" } else { "" };
    format!(
        "{} {sign}{}",
        shorten_name(&tenant_label(tenant), style),
        units::human_rate(difference, &printable(&subject.unit))
    )
}

/// The name of a tenant in reports; owners that are no task stand in parentheses.
pub(super) fn tenant_label(tenant: &ComparedTenant) -> String {
    owner_label(&tenant.key, &tenant.owner).into_owned()
}

/// The name, shortened so that the line has room for numbers.
fn shorten_name(name: &str, style: TextStyle) -> Cow<'_, str> {
    style.width.map_or(Cow::Borrowed(name), |width| shorten(name, width / 2, mark(style.ascii)))
}

/// `memory 0 in: 12.3 -> 18.9 GB/s`
fn describe_total(subject: &DiffSubject, style: TextStyle) -> String {
    format!(
        "{}: {}",
        shorten_name(&printable(&subject.name), style),
        format_rates(&subject.total, &subject.unit)
    )
}

/// `12.3 -> 18.9 GB/s`
pub fn format_rates(change: &RateChange, unit: &str) -> String {
    let unit = printable(unit);
    let rates_per_s = [change.before_rate.per_s(), change.after_rate.per_s()];
    let shared = SharedUnit::for_values(rates_per_s.into_iter().flatten(), &unit);
    let figure = |rate: Option<f64>| {
        rate.map_or_else(
            || "not known".to_owned(),
            |rate| shared.format_figure(rate).trim_end().to_owned(),
        )
    };
    let name = shared.rate_name();
    let space = if name.starts_with('/') && shared.unit_name().is_empty() { " " } else { "" };
    let [before_text, after_text] = rates_per_s.map(figure);
    format!("{before_text} -> {after_text} {space}{name}").replace("  ", " ")
}

/// The sentence if nothing changed by more than its error.
fn describe_unchanged(
    diff: &Diff,
    is_unknown: bool,
    unknown_note: &str,
    style: TextStyle,
) -> String {
    let largest = diff.subjects.iter().find(|subject| subject.total.difference_per_s().is_some());
    match largest {
        None if diff.subjects.is_empty() => "nothing was counted".to_owned(),
        None => "nothing that both counted can be compared".to_owned(),
        Some(subject) if is_unknown => {
            format!(
                "{}; whether that is more than the error is not known",
                describe_total(subject, style)
            )
        }
        Some(subject) => format!(
            "nothing changed by more than its error{unknown_note}; the largest difference: {}",
            describe_total(subject, style)
        ),
    }
}
