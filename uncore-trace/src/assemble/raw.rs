//! Rows of the raw tables that say who used the CPUs.

use super::sink::Sink;
use crate::assemble::cpu::CpuBin;
use crate::drain::CpuContext;
use crate::entries::{Owner, OwnerFields, softirq_label};
use crate::identity::irqs::IrqNames;
use crate::schema::{irqs, owner, runtime};

/// Writes the rows of one bin of one CPU. `owners` are those of the bin's tasks, in order. The
/// times of the rows sum to the length of the bin.
pub(super) fn append_usage_rows(
    cpu: u32,
    bin: &CpuBin,
    owners: &[Owner],
    irq_names: &mut IrqNames,
    sink: &mut Sink,
) {
    let (mono_ns, tick_ns, cpu) = (bin.end_ns as i64, bin.len_ns as i64, cpu as i32);
    for (slot, owner) in bin.tasks.iter().zip(owners) {
        let comm = slot.task.comm.to_text();
        let OwnerFields { kind: owner_kind, process, cgroup_id, .. } = owner.to_columns();
        sink.rows.runtime.append(&runtime::Row {
            mono_ns,
            tick_ns,
            cpu,
            owner: owner_kind,
            tid: slot.task.tid as i32,
            pid: slot.task.pid as i32,
            comm: &comm,
            cgroup_id: slot.task.cgroup_id,
            run_ns: slot.wall_ns as i64,
            slices: slot.slices as i32,
            process: process.as_deref(),
            owner_cgroup_id: cgroup_id,
        });
    }
    for (owner_kind, ns) in
        [(owner::UNATTRIBUTED, bin.unknown_ns), (runtime::OFFLINE, bin.offline_ns)]
    {
        if ns > 0 {
            sink.rows.runtime.append(&runtime::Row {
                mono_ns,
                tick_ns,
                cpu,
                owner: owner_kind,
                run_ns: ns as i64,
                ..runtime::Row::default()
            });
        }
    }
    for irq in &bin.irqs {
        let softirq_name;
        let (owner_kind, number, name) = match irq.source {
            CpuContext::Irq(number) => (owner::IRQ, number, irq_names.irq_name(number)),
            CpuContext::Softirq(vector) => {
                softirq_name = softirq_label(vector);
                (owner::SOFTIRQ, vector, softirq_name.as_str())
            }
            CpuContext::Task => continue,
        };
        sink.rows.irqs.append(&irqs::Row {
            mono_ns,
            tick_ns,
            cpu,
            owner: owner_kind,
            number: number as i32,
            name,
            ns: irq.ns as i64,
            count: irq.count as i32,
        });
    }
}
