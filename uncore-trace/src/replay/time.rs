//! Reads who used each CPU from the tables `runtime` and `irqs`, tick by tick.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use arrow::array::RecordBatch;

use super::ReplayLog;
use super::owners::OwnerColumns;
use super::rows::TableRows;
use crate::entries::{LogEntry, Owner, OwnerFields};
use crate::schema::{columns, irqs, runtime};
use crate::tables::reader::Recording;

/// The rows of both tables that were not used yet.
#[derive(Debug)]
pub(super) struct StoredTimes {
    runtime: TableRows<OwnerTime>,
    irqs: TableRows<OwnerTime>,
}

/// Time of one owner on one CPU in one tick.
#[derive(Debug)]
struct OwnerTime {
    tick_end_ns: u64,
    cpu: u32,
    /// `None` for time without an owner, such as that of an offline CPU.
    owner: Option<Owner>,
    ns: u64,
    /// How many of its slices ended.
    slices: u64,
    /// Name of an interrupt.
    name: Option<String>,
}

impl StoredTimes {
    /// Opens the tables.
    pub(super) fn open_tables(recording: &Recording) -> Result<Self> {
        let wanted =
            ["mono_ns", "cpu", "owner", "pid", "process", "owner_cgroup_id", "run_ns", "slices"];
        let runtime = recording.open_table(&runtime::TABLE)?.scan_columns(&wanted)?;
        let irqs = recording.open_table(&irqs::TABLE)?;
        let irqs = irqs.scan_columns(&["mono_ns", "cpu", "owner", "number", "name", "ns"])?;
        Ok(Self {
            runtime: TableRows::new(runtime, decode_runtime),
            irqs: TableRows::new(irqs, decode_irqs),
        })
    }

    /// Whether all rows were used.
    pub(super) fn is_over(&mut self) -> Result<bool> {
        Ok(self.runtime.peek_row()?.is_none() && self.irqs.peek_row()?.is_none())
    }

    /// Adds the rows of the tick that ends at `tick_end_ns`.
    pub(super) fn feed_tick(&mut self, tick_end_ns: u64, log: &mut ReplayLog) -> Result<()> {
        let mut by_cpu: BTreeMap<u32, Vec<(Owner, u64)>> = BTreeMap::new();
        let mut switches: BTreeMap<u32, Vec<(Owner, u64)>> = BTreeMap::new();
        for rows in [&mut self.runtime, &mut self.irqs] {
            while let Some(owner_time) =
                rows.next_if(|candidate| candidate.tick_end_ns <= tick_end_ns)?
            {
                if owner_time.tick_end_ns < tick_end_ns {
                    bail!(
                        "runtime or irqs is not in the order of time at mono_ns {}",
                        owner_time.tick_end_ns
                    );
                }
                if let (Some(Owner::Irq(number)), Some(name)) = (owner_time.owner, &owner_time.name)
                {
                    log.log_entry(LogEntry::Interrupt { number, name })?;
                }
                let owner_times = by_cpu.entry(owner_time.cpu).or_default();
                owner_times.extend(owner_time.owner.map(|owner| (owner, owner_time.ns)));
                let owner = owner_time.owner.filter(|_| owner_time.slices > 0);
                if let Some(owner) = owner {
                    switches.entry(owner_time.cpu).or_default().push((owner, owner_time.slices));
                }
            }
        }
        for (cpu, slices_by_owner) in &switches {
            log.log_entry(LogEntry::Switches { cpu: *cpu, switches: slices_by_owner })?;
        }
        for (cpu, times_by_owner) in &by_cpu {
            log.log_entry(LogEntry::Usage { cpu: *cpu, usage: times_by_owner })?;
        }
        Ok(())
    }
}

fn decode_runtime(batch: &RecordBatch) -> Result<Vec<OwnerTime>> {
    let (tick_ends, cpu) =
        (columns::i64_column(batch, "mono_ns")?, columns::i32_column(batch, "cpu")?);
    let owners = OwnerColumns::from_batch("runtime", batch, "process", "owner_cgroup_id")?;
    let run_ns = columns::i64_column(batch, "run_ns")?;
    let slices = columns::i32_column(batch, "slices")?;
    let row = |row| {
        let is_offline = owners.owner_kind(row) == Some(runtime::OFFLINE);
        let owner = if is_offline { None } else { Some(owners.row_owner(row)?) };
        let ns = run_ns.value(row) as u64;
        let (tick_end_ns, cpu) = (tick_ends.value(row) as u64, cpu.value(row) as u32);
        let slices = u64::try_from(slices.value(row)).unwrap_or(0);
        Ok(OwnerTime { tick_end_ns, cpu, owner, ns, slices, name: None })
    };
    (0..batch.num_rows()).map(row).collect()
}

fn decode_irqs(batch: &RecordBatch) -> Result<Vec<OwnerTime>> {
    let (tick_ends, cpu) =
        (columns::i64_column(batch, "mono_ns")?, columns::i32_column(batch, "cpu")?);
    let (kinds, name) =
        (columns::word_column(batch, "owner")?, columns::word_column(batch, "name")?);
    let (number, ns) = (columns::i32_column(batch, "number")?, columns::i64_column(batch, "ns")?);
    let row = |row| {
        let owner_kind = kinds.get(row).unwrap_or_default();
        let columns = OwnerFields {
            kind: owner_kind,
            number: Some(number.value(row)),
            ..OwnerFields::default()
        };
        let owner = Owner::from_columns(&columns);
        let owner = owner.with_context(|| format!("irqs has an owner {owner_kind:?}"))?;
        let (tick_end_ns, cpu) = (tick_ends.value(row) as u64, cpu.value(row) as u32);
        let name = name.get(row).map(str::to_owned);
        let ns = ns.value(row) as u64;
        Ok(OwnerTime { tick_end_ns, cpu, owner: Some(owner), ns, slices: 0, name })
    };
    (0..batch.num_rows()).map(row).collect()
}
