//! Owners of time and counts.

use std::borrow::Cow;

use crate::drain::{Comm, CpuContext};
use crate::schema::owner::{DEVICE, IDLE, IRQ, OTHER_TASKS, SOFTIRQ, TASK, UNATTRIBUTED};

/// The owner of a share. Small and `Copy`, so that it can be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A process, with the name that it had at the time.
    Task {
        /// Process id; 0, with an empty name, for several processes or if only the cgroup is known.
        pid: u32,
        /// Name of the process.
        comm: Comm,
        /// Id of its cgroup in the v2 hierarchy.
        cgroup_id: u64,
    },
    /// All tasks outside the selected cgroups, and of small cgroups.
    OtherTasks,
    /// The handler of the interrupt with this number.
    Irq(u32),
    /// The softirq of this vector.
    Softirq(u32),
    /// The idle task.
    Idle,
    /// A device that moved data on its own.
    Device,
    /// Time or counts of an unknown owner.
    Unattributed,
}

/// An owner in the columns of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerFields<'a> {
    /// One of [`crate::schema::owner::KINDS`].
    pub kind: &'a str,
    /// Process id of a task, if known.
    pub pid: Option<i32>,
    /// Name of a task's process; empty if only its cgroup is known.
    pub process: Option<Cow<'a, str>>,
    /// Cgroup of a task.
    pub cgroup_id: Option<u64>,
    /// Number of an interrupt or softirq.
    pub number: Option<i32>,
}

impl Owner {
    /// The owner of what happens in an interrupt; `None` in a task.
    pub const fn of_interrupt(context: CpuContext) -> Option<Self> {
        match context {
            CpuContext::Irq(number) => Some(Self::Irq(number)),
            CpuContext::Softirq(vector) => Some(Self::Softirq(vector)),
            CpuContext::Task => None,
        }
    }

    /// The columns that identify the owner.
    pub fn to_columns(&self) -> OwnerFields<'_> {
        let of_kind = |kind| OwnerFields { kind, ..OwnerFields::default() };
        match self {
            Self::Task { pid, comm, cgroup_id } => OwnerFields {
                pid: (*pid != 0).then_some(*pid as i32),
                process: Some(comm.to_text()),
                cgroup_id: Some(*cgroup_id),
                ..of_kind(TASK)
            },
            Self::OtherTasks => of_kind(OTHER_TASKS),
            Self::Irq(number) => OwnerFields { number: Some(*number as i32), ..of_kind(IRQ) },
            Self::Softirq(vector) => {
                OwnerFields { number: Some(*vector as i32), ..of_kind(SOFTIRQ) }
            }
            Self::Idle => of_kind(IDLE),
            Self::Device => of_kind(DEVICE),
            Self::Unattributed => of_kind(UNATTRIBUTED),
        }
    }

    /// The owner that these columns identify; `None` for an unknown kind or a missing number.
    pub fn from_columns(columns: &OwnerFields<'_>) -> Option<Self> {
        let number = columns.number.map(|number| number as u32);
        Some(match columns.kind {
            TASK => Self::Task {
                pid: columns.pid.unwrap_or(0) as u32,
                comm: Comm::from_bytes(columns.process.as_deref().unwrap_or_default().as_bytes()),
                cgroup_id: columns.cgroup_id?,
            },
            OTHER_TASKS => Self::OtherTasks,
            IRQ => Self::Irq(number?),
            SOFTIRQ => Self::Softirq(number?),
            IDLE => Self::Idle,
            DEVICE => Self::Device,
            UNATTRIBUTED => Self::Unattributed,
            _ => return None,
        })
    }
}

/// Softirq vectors, `enum` in include/linux/interrupt.h, Linux 6.1 to 7.2.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// `softirq:VECTOR`: the name of a softirq in the tables.
pub fn softirq_label(vector: u32) -> String {
    SOFTIRQS
        .get(vector as usize)
        .map_or_else(|| format!("softirq:{vector}"), |name| format!("softirq:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_name_their_owner() {
        let broken = Comm::from_bytes(b"caf\xc3\xa9-\xff-caf\xc3\xa9-x").to_table_form();
        let task = Owner::Task { pid: 7, comm: broken, cgroup_id: 9 };
        let of_cgroup = Owner::Task { pid: 0, comm: Comm::default(), cgroup_id: 9 };
        let impostor =
            Owner::Task { pid: 7, comm: Comm::from_bytes(b"unattributed"), cgroup_id: 9 };
        for owner in [
            task,
            of_cgroup,
            impostor,
            Owner::OtherTasks,
            Owner::Irq(3),
            Owner::Softirq(1),
            Owner::Idle,
            Owner::Device,
            Owner::Unattributed,
        ] {
            assert_eq!(Owner::from_columns(&owner.to_columns()), Some(owner));
        }
    }

    #[test]
    fn columns_that_name_nobody_are_found() {
        for kind in ["", "tasks", IRQ, SOFTIRQ, TASK] {
            assert_eq!(
                Owner::from_columns(&OwnerFields { kind, ..OwnerFields::default() }),
                None,
                "{kind}"
            );
        }
    }

    #[test]
    fn softirqs_have_the_names_of_their_vectors() {
        assert_eq!(softirq_label(3), "softirq:NET_RX");
        assert_eq!(softirq_label(77), "softirq:77");
    }
}
