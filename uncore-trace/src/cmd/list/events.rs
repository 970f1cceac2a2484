//! The events of each kind of PMU.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;

use super::{CellColumn, View, cell_text, draw_rows};
use crate::catalog::source::TrafficCause;
use crate::discover::name;
use crate::plan::pmus::PmuIndex;
use crate::table::ColumnFit;
use crate::text::wrapped;
use crate::units;

/// One event of all instances of a PMU.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Without the instance suffix: as `-e` takes it for all instances.
    pmu: String,
    event: String,
    unit: String,
    scale: f64,
    /// `perf_event_attr.type`, if it is not that of the PMU.
    attr_type: Option<u32>,
    encoding: String,
    /// Description, if the catalog has one.
    about: Option<String>,
    /// The possible causes of the traffic, if known.
    causes: BTreeSet<TrafficCause>,
    /// Whether nothing says the causes.
    #[serde(skip)]
    unknown: bool,
    /// Whether only the vendor's event list names it.
    vendor: bool,
}

/// Every event, once for all instances of its PMU.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let (mut seen, mut vocabularies) = (BTreeSet::new(), BTreeSet::new());
    let mut rows = Vec::new();
    for &words in pmus.all_pmus() {
        if !vocabularies.insert(pmus.vocabulary_of(words)) {
            continue;
        }
        let pmu = words.pmu;
        let driver_events = words.all_events().map(|event| (event, false));
        for (event, vendor) in driver_events.chain(words.vendor_events().map(|event| (event, true)))
        {
            let stem = name::stem(&pmu.name);
            if !seen.insert((stem, event.name)) {
                continue;
            }
            let (unit, scale) = words.event_unit(Some(event));
            let causes = words.causes_by_name(event);
            rows.push(Row {
                pmu: stem.to_owned(),
                event: event.name.to_owned(),
                unit,
                scale,
                attr_type: (event.attr_type != pmu.attr_type).then_some(event.attr_type),
                encoding: event.alias.terms_text(),
                about: words.event_description(event.name).map(str::to_owned),
                unknown: causes.is_none(),
                causes: causes.unwrap_or_default(),
                vendor,
            });
        }
    }
    rows
}

impl Row {
    /// The name for `-e`, for all instances. Vendor events and software events of the kernel need
    /// no PMU.
    pub(super) fn option_name(&self) -> String {
        let Self { pmu, event, .. } = self;
        let alone = self.vendor || pmu == "software";
        if alone { event.clone() } else { format!("{pmu}/{event}/") }
    }
}

/// The rows as a table.
pub(super) fn render(rows: &[Row], view: View) -> String {
    let encoding = |row: &Row| {
        row.attr_type.map_or_else(String::new, |type_number| format!("type {type_number}: "))
            + &cell_text(Some(&row.encoding))
    };
    let columns: [CellColumn<'_, Row>; 7] = [
        ("PMU", ColumnFit::Whole, &|row| cell_text(Some(&row.pmu))),
        ("event", ColumnFit::Whole, &|row| cell_text(Some(&row.event))),
        ("unit", ColumnFit::Drop(4), &|row| cell_text(Some(&row.unit))),
        ("scale", ColumnFit::Count(1), &|row| units::format_factor(row.scale)),
        ("cause", ColumnFit::Drop(3), &|row| cell_text(causes_text(row).as_deref())),
        ("encoding", ColumnFit::Drop(2), &encoding),
        ("what it counts", ColumnFit::Wrap, &|row| cell_text(row.about.as_deref())),
    ];
    let shows = |row: &&Row| view.shows_all || !row.vendor;
    let mut text = draw_rows(rows.iter().filter(shows), &columns, view);
    let hidden = rows.iter().filter(|row| !shows(row)).count();
    if hidden > 0 {
        let note = format!("{hidden} more by the vendor's names: `list events --all` shows them");
        text.push_str(&wrapped("", &note, view.width));
    }
    text
}

fn causes_text(row: &Row) -> Option<String> {
    if row.unknown {
        return Some("unknown".to_owned());
    }
    let causes: Vec<_> = row.causes.iter().map(TrafficCause::to_string).collect();
    (!causes.is_empty()).then(|| causes.join(", "))
}
