//! What the parts of a count by cgroup need of a batch of the timeline.

use anyhow::Result;
use arrow::array::RecordBatch;

use crate::schema::columns;

/// A counter as the timeline names it: PMU, event, filter, CPU.
pub type Identity = (String, String, String, i32);

/// The columns of one batch that matter here.
pub struct Columns<'a> {
    pub mono_ns: &'a arrow::array::Int64Array,
    pub window_ns: &'a arrow::array::Int64Array,
    pub cpu: &'a arrow::array::Int32Array,
    pub pmu: columns::Words<'a>,
    pub event: columns::Words<'a>,
    pub filter: columns::Words<'a>,
    pub owner: columns::Words<'a>,
    pub cgroup: columns::Words<'a>,
    pub value: &'a arrow::array::Float64Array,
    pub running: &'a arrow::array::Float32Array,
    pub method: columns::Words<'a>,
    pub confidence: &'a arrow::array::Float32Array,
}

impl<'a> Columns<'a> {
    /// Those of `batch`.
    ///
    /// # Errors
    ///
    /// One of them is not there, or of another type.
    pub fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            mono_ns: columns::i64s(batch, "mono_ns")?,
            window_ns: columns::i64s(batch, "window_ns")?,
            cpu: columns::i32s(batch, "cpu")?,
            pmu: columns::words(batch, "pmu")?,
            event: columns::words(batch, "event")?,
            filter: columns::words(batch, "filter")?,
            owner: columns::words(batch, "owner")?,
            cgroup: columns::words(batch, "cgroup")?,
            value: columns::f64s(batch, "value")?,
            running: columns::f32s(batch, "running")?,
            method: columns::words(batch, "method")?,
            confidence: columns::f32s(batch, "confidence")?,
        })
    }

    /// The counter that `row` is of.
    pub fn identity(&self, row: usize) -> Identity {
        let word = |words: &columns::Words<'_>| words.get(row).unwrap_or_default().to_owned();
        (word(&self.pmu), word(&self.event), word(&self.filter), self.cpu.value(row))
    }
}
