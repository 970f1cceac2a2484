//! Decodes the columns of a raw table that name an owner.

use anyhow::{Context as _, Result};
use arrow::array::{Int32Array, RecordBatch};

use crate::entries::{Owner, OwnerFields};
use crate::schema::columns::{self, BitsColumn, WordColumn, nullable_value};

/// The columns of a batch that name an owner.
#[derive(Debug)]
pub(super) struct OwnerColumns<'a> {
    table: &'static str,
    owner_kinds: WordColumn<'a>,
    pid: &'a Int32Array,
    process: WordColumn<'a>,
    cgroup_id: BitsColumn<'a>,
    number: Option<&'a Int32Array>,
}

impl<'a> OwnerColumns<'a> {
    /// The columns `owner`, `pid` and, if the table has it, `number`, with the columns of these
    /// names for the owner's process and cgroup.
    pub(super) fn from_batch(
        table: &'static str,
        batch: &'a RecordBatch,
        process: &str,
        cgroup_id: &str,
    ) -> Result<Self> {
        Ok(Self {
            table,
            owner_kinds: columns::word_column(batch, "owner")?,
            pid: columns::i32_column(batch, "pid")?,
            process: columns::word_column(batch, process)?,
            cgroup_id: columns::bits_column(batch, cgroup_id)?,
            number: columns::i32_column(batch, "number").ok(),
        })
    }

    /// The kind of the owner of a row; `None` if the row has no owner.
    pub(super) fn owner_kind(&self, row: usize) -> Option<&'a str> {
        self.owner_kinds.get(row)
    }

    /// The owner of a row.
    ///
    /// # Errors
    ///
    /// The columns name no valid owner.
    pub(super) fn row_owner(&self, row: usize) -> Result<Owner> {
        let owner_kind = self.owner_kind(row).unwrap_or_default();
        let columns = OwnerFields {
            kind: owner_kind,
            pid: nullable_value(self.pid, row),
            process: self.process.get(row).map(Into::into),
            cgroup_id: self.cgroup_id.get(row),
            number: self.number.and_then(|number| nullable_value(number, row)),
        };
        let owner = Owner::from_columns(&columns);
        owner.with_context(|| format!("{} has an owner {owner_kind:?}", self.table))
    }
}
