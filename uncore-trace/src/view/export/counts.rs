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
use arrow::array::{Float64Array, Int32Array, Int64Array, RecordBatch};

use super::SelectedRows;
use crate::schema::columns::{self, BitsColumn, WordColumn, nullable_value};
use crate::schema::owner;
use crate::tables::reader::{OpenTable, Recording};
use crate::text::printable;
use crate::view::key::{self, GroupBy};
use crate::view::links::Links;
use crate::view::report_sums::ReportQuestion;

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
    /// How tenants are grouped, if not by cgroup, and the columns that it needs.
    tenant_grouping: Option<(ReportQuestion<'static>, Vec<&'static str>)>,
    links: Links,
    counts: Interned<CountDescription>,
    tenants: Interned<ExportTenant>,
    /// Index of each counter's count.
    count_by_counter: HashMap<i32, usize>,
}

#[derive(Debug)]
struct Interned<T> {
    values: Vec<T>,
    indices: HashMap<T, usize>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    fn intern(&mut self, value: T) -> usize {
        *self.indices.entry(value).or_insert_with_key(|new_value| {
            self.values.push(new_value.clone());
            self.values.len() - 1
        })
    }
}

impl ExportNames {
    /// No names yet. Tenants are cgroups.
    ///
    /// # Errors
    ///
    /// The plan in the metadata cannot be read.
    pub(super) fn new(fabric: &OpenTable) -> Result<Self> {
        let links = Links::from_metadata(fabric.metadata_pairs())?;
        let (counts, tenants) = (Interned::default(), Interned::default());
        Ok(Self { tenant_grouping: None, links, counts, tenants, count_by_counter: HashMap::new() })
    }

    /// Groups the tenants as the lines of a report are.
    pub(super) fn group_tenants_by(mut self, grouping: GroupBy, recording: &Recording) -> Self {
        let question = ReportQuestion::grouped_by(grouping);
        let columns = question.columns_to_read(recording);
        self.tenant_grouping = (grouping != GroupBy::Cgroup).then_some((question, columns));
        self
    }

    /// The counts, in the order of appearance.
    pub(super) fn counts(&self) -> &[CountDescription] {
        &self.counts.values
    }

    /// The tenants, in the order of appearance.
    pub(super) fn tenants(&self) -> &[ExportTenant] {
        &self.tenants.values
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
        let Self {
            tenant_grouping: grouping_and_columns,
            links,
            counts: known_counts,
            tenants: known_tenants,
            count_by_counter: index_by_counter,
        } = self;
        let extra_columns =
            grouping_and_columns.iter().flat_map(|(_, grouping_columns)| grouping_columns);
        let more_columns = extra_columns.copied().filter(|column| !COLUMNS.contains(column));
        let columns_to_read: Vec<&str> = COLUMNS.into_iter().chain(more_columns).collect();
        for batch in fabric.batches(&columns_to_read)? {
            let batch = batch?;
            let columns = ShareColumns::from_batch(&batch)?;
            let opened_columns = grouping_and_columns
                .as_ref()
                .map(|(question, _)| key::FabricColumns::new(&batch, question));
            let key_columns_read = opened_columns.transpose()?;
            // Within a batch, dictionary keys identify a tenant without comparing strings.
            let mut tenants: HashMap<[i64; 3], usize> = HashMap::new();
            for row in 0..batch.num_rows() {
                let id = columns.counter.value(row);
                let count_index = *index_by_counter
                    .entry(id)
                    .or_insert_with(|| known_counts.intern(columns.describe_count(row, links)));
                let dictionary_keys = key_columns_read.as_ref().map_or_else(
                    || columns.tenant_keys(row),
                    |keyed_columns| keyed_columns.tenant_key(row),
                );
                let tenant = *tenants.entry(dictionary_keys).or_insert_with(|| {
                    let tenant = columns.describe_tenant(row);
                    known_tenants.intern(match &key_columns_read {
                        Some(tenant_columns) if tenant.is_task() => {
                            let name = printable(&tenant_columns.line_key(row)).into_owned();
                            ExportTenant { owner: tenant.owner, cgroup: name }
                        }
                        _ => tenant,
                    })
                });
                on_share(&TenantShare {
                    counter: id,
                    count_index,
                    tenant,
                    end_ns: columns.mono_ns.value(row),
                    length_ns: columns.window_ns.value(row).max(1),
                    value: nullable_value(columns.value, row),
                    total: nullable_value(columns.total, row),
                })?;
            }
        }
        Ok(())
    }
}

/// The columns that are read.
const COLUMNS: [&str; 12] = [
    "mono_ns",
    "window_ns",
    "counter",
    "pmu",
    "event",
    "filter",
    "unit",
    "owner",
    "cgroup_id",
    "cgroup",
    "value",
    "total",
];

struct ShareColumns<'a> {
    mono_ns: &'a Int64Array,
    window_ns: &'a Int64Array,
    counter: &'a Int32Array,
    pmu: WordColumn<'a>,
    event: WordColumn<'a>,
    filter: WordColumn<'a>,
    unit: WordColumn<'a>,
    owner: WordColumn<'a>,
    cgroup_id: BitsColumn<'a>,
    cgroup: WordColumn<'a>,
    value: &'a Float64Array,
    total: &'a Float64Array,
}

impl<'a> ShareColumns<'a> {
    fn from_batch(batch: &'a RecordBatch) -> Result<Self> {
        let words = |name| columns::word_column(batch, name);
        Ok(Self {
            mono_ns: columns::i64_column(batch, "mono_ns")?,
            window_ns: columns::i64_column(batch, "window_ns")?,
            counter: columns::i32_column(batch, "counter")?,
            pmu: words("pmu")?,
            event: words("event")?,
            filter: words("filter")?,
            unit: words("unit")?,
            owner: words("owner")?,
            cgroup_id: columns::bits_column(batch, "cgroup_id")?,
            cgroup: words("cgroup")?,
            value: columns::f64_column(batch, "value")?,
            total: columns::f64_column(batch, "total")?,
        })
    }

    fn describe_count(&self, row: usize, links: &Links) -> CountDescription {
        let text = |words: &WordColumn<'_>| printable_or_empty(words.get(row));
        let [pmu, event, filter, unit] =
            [&self.pmu, &self.event, &self.filter, &self.unit].map(text);
        let link = links.link_of(self.counter.value(row));
        let link = link.and_then(|(link_index, direction)| {
            Some((links.links.get(link_index)?, direction.direction_name()))
        });
        if let Some((link, direction)) = link {
            let (group, name) = (printable(&link.name).into_owned(), direction.to_owned());
            let quantity = [printable(&link.kind).into_owned(), direction.to_owned()];
            return CountDescription { group, name, unit, quantity };
        }
        let name = match filter.as_str() {
            "" => event.clone(),
            filter => format!("{event}[{filter}]"),
        };
        CountDescription { group: pmu, name, quantity: [event, unit.clone()], unit }
    }

    fn describe_tenant(&self, row: usize) -> ExportTenant {
        let owner = printable_or_empty(self.owner.get(row));
        let is_task = owner == owner::TASK;
        let cgroup = match (is_task, self.cgroup.get(row), self.cgroup_id.get(row)) {
            (false, _, _) => String::new(),
            (true, Some(path), _) => printable(path).into_owned(),
            (true, None, Some(id)) => format!("(cgroup id {id})"),
            (true, None, None) => "(no cgroup)".to_owned(),
        };
        ExportTenant { owner, cgroup }
    }

    fn tenant_keys(&self, row: usize) -> [i64; 3] {
        let cgroup = self.cgroup.dictionary_key(row);
        let id = if cgroup == -1 { self.cgroup_id.value_or_zero(row).cast_signed() } else { 0 };
        [self.owner.dictionary_key(row).into(), cgroup.into(), id]
    }
}

fn printable_or_empty(text: Option<&str>) -> String {
    text.map(|text| printable(text).into_owned()).unwrap_or_default()
}
