//! The lines of a recording whose windows have rows of the largest owners only: their sums are of
//! the table `sums`, which has all owners, and their shapes of `fabric`.
//!
//! Guarantee: a line has the sum of all of its owner's shares.

use std::collections::HashMap;

use super::{LinesByOwner, ReportEvent, ReportLine, ShareSum, add_to_owner, merge_lines};

/// The largest part of a line that `fabric` may lack if its shape is that of `fabric`.
const MISSING_FROM_SHAPE: f64 = 0.01;

/// Gives the events of `fabric` the lines of `parts`: the sums of consecutive times.
pub(super) fn replace_lines(events: &mut [ReportEvent], parts: Vec<Vec<ReportEvent>>) {
    let mut lines_by_event: HashMap<(String, String), LinesByOwner> = HashMap::new();
    for event in parts.into_iter().flatten() {
        let lines = lines_by_event.entry((event.name, event.unit)).or_default();
        for line in event.lines {
            add_to_owner(lines, line, add_later_line);
        }
    }
    for event in events {
        let Some(mut lines) = lines_by_event.remove(&(event.name.clone(), event.unit.clone()))
        else {
            continue;
        };
        for shape in event.lines.drain(..) {
            if let Some(line) = lines.get_mut(&(shape.owner.clone(), shape.key.clone())) {
                take_shape(line, shape);
            }
        }
        event.lines = lines.into_values().collect();
        event.finish_lines();
    }
}

/// Adds the same line of another time.
fn add_later_line(line: ReportLine, later: ReportLine) -> ReportLine {
    let highest = line.peak.into_iter().chain(later.peak).reduce(f64::max);
    ReportLine { peak: highest, ..merge_lines(line, later, ShareSum::add_same_owner) }
}

/// Gives a line the shape that `fabric` has of it, unless that lacks much of the line.
fn take_shape(line: &mut ReportLine, shape: ReportLine) {
    let missing = line.sum.value - shape.sum.value;
    if missing.abs() <= MISSING_FROM_SHAPE * line.sum.value.abs() {
        (line.heat, line.active) = (shape.heat, shape.active);
    }
    // Its windows are shorter than a second.
    line.peak = shape.peak.or(line.peak);
    line.methods.extend(shape.methods);
}
