//! Sums the time of each CPU by kind of owner, from the copied rows.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::cut_source::PartToCut;
use crate::assemble::CpuTimeSplit;
use crate::schema::columns::{i32_column, i64_column, word_column};
use crate::schema::owner::{IDLE, SOFTIRQ, UNATTRIBUTED};
use crate::schema::{TableDef, irqs, metadata, runtime};

/// Sums by CPU.
#[derive(Debug, Default)]
pub(super) struct CopiedCpuTimes(BTreeMap<u32, CpuTimeSplit>);

impl CopiedCpuTimes {
    /// Adds the rows of tables that hold CPU time.
    pub(super) fn add_rows(&mut self, def: &TableDef, batch: &RecordBatch) -> Result<()> {
        let column = match def.name {
            name if name == runtime::TABLE.name => "run_ns",
            name if name == irqs::TABLE.name => "ns",
            _ => return Ok(()),
        };
        let (ends, lengths) = (i64_column(batch, "mono_ns")?, i64_column(batch, "tick_ns")?);
        let (cpus, durations) = (i32_column(batch, "cpu")?, i64_column(batch, column)?);
        let owners = word_column(batch, "owner")?;
        for row in 0..batch.num_rows() {
            let cpu = cpus.value(row).max(0).unsigned_abs();
            let row_end_ns = ends.value(row).max(0).unsigned_abs();
            let row_begin_ns = row_end_ns.saturating_sub(lengths.value(row).max(0).unsigned_abs());
            let new = CpuTimeSplit {
                cpu,
                begin_ns: row_begin_ns,
                end_ns: row_end_ns,
                ..CpuTimeSplit::default()
            };
            let time = self.0.entry(cpu).or_insert(new);
            time.begin_ns = time.begin_ns.min(row_begin_ns);
            time.end_ns = time.end_ns.max(row_end_ns);
            let summed_ns = match (column, owners.get(row)) {
                ("ns", Some(SOFTIRQ)) => &mut time.softirq_ns,
                ("ns", _) => &mut time.irq_ns,
                (_, Some(IDLE)) => &mut time.idle_ns,
                (_, Some(UNATTRIBUTED)) => &mut time.unattributed_ns,
                (_, Some(runtime::OFFLINE)) => &mut time.offline_ns,
                _ => &mut time.task_ns,
            };
            *summed_ns += durations.value(row).max(0).unsigned_abs();
        }
        Ok(())
    }

    /// The times of all CPUs. The largest error of a window is taken from the copied recordings.
    pub(super) fn into_cpu_times(
        mut self,
        source_parts: &[PartToCut],
    ) -> Result<Vec<CpuTimeSplit>> {
        for source_part in source_parts {
            let recorded: Option<Vec<CpuTimeSplit>> =
                metadata::parse_json(&source_part.pairs, metadata::CPU_TIME)?;
            for recorded_cpu in recorded.into_iter().flatten() {
                if let Some(time) = self.0.get_mut(&recorded_cpu.cpu) {
                    let worst = &mut time.worst_window_error_ns;
                    *worst = (*worst).max(recorded_cpu.worst_window_error_ns);
                }
            }
        }
        Ok(self.0.into_values().collect())
    }
}
