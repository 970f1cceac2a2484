//! Reads `fabric` as parts of counts: link or event, tenant, window, value.
//!
//! This is the only place that defines the tracks of Perfetto. A [`CountDescription`] is the bytes
//! over a link in one direction, or an event of a PMU instance with its filter, summed over all
//! CPUs on which it is read. An [`ExportTenant`] is a cgroup, or a kind of owner other than task.
//!
//! Guarantee: names are escaped ([`printable`]), and equal names are one item.

use std::collections::HashMap;
use std::hash::Hash;

use anyhow::Result;

use super::SelectedRows;
use crate::schema::columns::{f64_column, nullable_value, word_column};
use crate::schema::owner;
use crate::tables::reader::{OpenTable, Recording};
use crate::text::printable;
use crate::view::grouping::GroupBy;
use crate::view::key::{FabricColumns, name_event};
use crate::view::links::Links;
use crate::view::names::NameNumbers;
use crate::view::question::ReportQuestion;

/// A count: a direction of a link, or an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CountDescription {
    /// The group of its tracks: a link, or a PMU instance.
    pub group: String,
    /// Name of the count in the group: a direction, or an event with its filter in brackets.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
    /// Counts with equal values here are one quantity, on any link or PMU; tenants are ranked by
    /// it.
    pub quantity: [String; 2],
}

/// The owner of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ExportTenant {
    /// Kind of the owner, one of [`owner::KINDS`].
    pub owner: String,
    /// Path of a task's cgroup, or another name of it if that is not known; empty for other owners.
    pub cgroup: String,
}

impl ExportTenant {
    /// Whether the tenant is a task: other owners always have series of their own.
    pub(super) fn is_task(&self) -> bool {
        self.owner == owner::TASK
    }

    /// Name of the tenant: its cgroup, or the kind of owner in brackets.
    pub(super) fn display_name(&self) -> String {
        if self.is_task() { self.cgroup.clone() } else { format!("({})", self.owner) }
    }
}

/// The share of a tenant in a window of a counter: one row of `fabric`.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantShare {
    /// Id of the counter.
    pub counter: i32,
    /// Index in [`ExportNames::counts`].
    pub count_index: usize,
    /// Index in [`ExportNames::tenants`].
    pub tenant: usize,
    /// End of the window, `CLOCK_MONOTONIC`, ns.
    pub end_ns: i64,
    /// Length of the window, ns.
    pub length_ns: i64,
    /// The tenant's part; `None` if not known.
    pub value: Option<f64>,
    /// The total; `None` if not known.
    pub total: Option<f64>,
}

impl TenantShare {
    /// Begin of the window, `CLOCK_MONOTONIC`, ns.
    pub(super) fn begin_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.length_ns)
    }
}

/// All counts and tenants, without duplicates.
#[derive(Debug)]
pub(super) struct ExportNames {
    /// How tenants are grouped.
    question: ReportQuestion<'static>,
    /// The columns that are read.
    columns: Vec<&'static str>,
    links: Links,
    counts: NameNumbers<CountDescription>,
    tenants: NameNumbers<ExportTenant>,
    /// Index of each counter's count.
    count_by_counter: HashMap<i32, usize>,
}

impl ExportNames {
    /// No names yet. Tenants are grouped as the lines of a report are.
    ///
    /// # Errors
    ///
    /// The plan in the metadata cannot be read.
    pub(super) fn new(
        fabric: &OpenTable,
        grouping: GroupBy,
        recording: &Recording,
    ) -> Result<Self> {
        let links = Links::from_metadata(fabric.metadata_pairs())?;
        let question = ReportQuestion::grouped_by(grouping);
        let mut columns = question.columns_to_read(recording);
        for column in ["pmu", "owner", "total"] {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let (counts, tenants) = (NameNumbers::default(), NameNumbers::default());
        Ok(Self { question, columns, links, counts, tenants, count_by_counter: HashMap::new() })
    }

    /// The counts, in the order of appearance.
    pub(super) fn counts(&self) -> &[CountDescription] {
        &self.counts.names
    }

    /// The tenants, in the order of appearance.
    pub(super) fn tenants(&self) -> &[ExportTenant] {
        &self.tenants.names
    }

    /// Passes every row to `on_share`, in the order of the windows' ends.
    ///
    /// # Errors
    ///
    /// The table cannot be read, or an error of `on_share`.
    pub(super) fn each_share(
        &mut self,
        fabric: &SelectedRows<'_>,
        mut on_share: impl FnMut(&TenantShare) -> Result<()>,
    ) -> Result<()> {
        let Self { question, columns: wanted, links, counts, tenants, count_by_counter } = self;
        for batch in fabric.batches(wanted)? {
            let batch = batch?;
            let columns = FabricColumns::new(&batch, question)?;
            let words = |name| word_column(&batch, name);
            let count_words = [words("pmu")?, words("event")?, words("filter")?, words("unit")?];
            let (owners, totals) = (words("owner")?, f64_column(&batch, "total")?);
            // Within a batch, dictionary keys identify a tenant without comparing strings.
            let mut tenant_of_key: HashMap<[i64; 3], usize> = HashMap::new();
            for row in 0..columns.rows {
                let counter = columns.counter.value(row);
                let count_index = *count_by_counter.entry(counter).or_insert_with(|| {
                    let texts = count_words.map(|words| printable_or_empty(words.get(row)));
                    counts.number_of(describe_count(counter, texts, links))
                });
                let tenant = *tenant_of_key.entry(columns.tenant_key(row)).or_insert_with(|| {
                    let owner = printable_or_empty(owners.get(row));
                    let mut tenant = ExportTenant { owner, ..ExportTenant::default() };
                    if tenant.is_task() {
                        tenant.cgroup = printable(&columns.line_key(row)).into_owned();
                    }
                    tenants.number_of(tenant)
                });
                on_share(&TenantShare {
                    counter,
                    count_index,
                    tenant,
                    end_ns: columns.mono_ns.value(row),
                    length_ns: columns.window_ns.value(row).max(1),
                    value: nullable_value(columns.value, row),
                    total: nullable_value(totals, row),
                })?;
            }
        }
        Ok(())
    }
}

/// What a counter counts; the texts are its PMU, event, filter and unit.
fn describe_count(
    counter: i32,
    [pmu, event, filter, unit]: [String; 4],
    links: &Links,
) -> CountDescription {
    let link = links.link_of(counter).and_then(|(link_index, direction)| {
        Some((links.links.get(link_index)?, direction.direction_name()))
    });
    if let Some((link, direction)) = link {
        let (group, name) = (printable(&link.name).into_owned(), direction.to_owned());
        let quantity = [printable(&link.kind).into_owned(), direction.to_owned()];
        return CountDescription { group, name, unit, quantity };
    }
    let name = name_event(&event, &filter);
    CountDescription { group: pmu, name, quantity: [event, unit.clone()], unit }
}

fn printable_or_empty(text: Option<&str>) -> String {
    text.map(|text| printable(text).into_owned()).unwrap_or_default()
}
