//! What is asked of the table `fabric`.

use anyhow::Result;

use super::grouping::GroupBy;
use super::links::Links;
use super::selected::ReportSelection;
use super::span::{SelectedTime, TimePoint};
use crate::tables::reader::{OpenTable, Recording};

/// What is asked of the table `fabric`.
#[derive(Debug, Clone, Default)]
pub struct ReportQuestion<'a> {
    /// Grouping of lines.
    pub grouping: GroupBy,
    /// Whether the user chose it: see [`super::tenants`].
    pub is_chosen: bool,
    /// Sum by direction of these links; `None`: by event.
    pub links: Option<&'a Links>,
    /// Begin; `None`: that of the recording.
    pub begin: Option<TimePoint>,
    /// End; `None`: that of the recording.
    pub end: Option<TimePoint>,
    /// Cgroups deeper than this are summed in their ancestor of this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// Which events and cgroups.
    pub selected: ReportSelection,
}

impl ReportQuestion<'_> {
    /// All events of a recording, grouped by `grouping`.
    pub fn grouped_by(grouping: GroupBy) -> Self {
        Self { grouping, is_chosen: true, ..Self::default() }
    }

    /// The selected time of `table`, the table `fabric` of `recording`: see
    /// [`SelectedTime::between_moments`].
    pub(super) fn selected_time(
        &self,
        recording: &Recording,
        table: &OpenTable,
    ) -> Result<Option<SelectedTime>> {
        let (begin, end) = (self.begin.as_ref(), self.end.as_ref());
        SelectedTime::between_moments(recording, table, begin, end)
    }

    /// The columns of `fabric` that are read; others are not decoded.
    pub(super) fn columns_to_read(&self, recording: &Recording) -> Vec<&'static str> {
        let mut columns = self.grouping.wanted_columns(recording);
        if self.selected.has_cgroups() && !columns.contains(&"cgroup") {
            columns.push("cgroup");
        }
        columns
    }
}
