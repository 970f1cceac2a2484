//! Who time and counts are given to.

use std::borrow::Cow;

use crate::drain::Comm;

/// An owner: what a share can belong to. Small and `Copy`, so that it is its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// A process under the name it had then.
    Task {
        /// Process id; 0, without a name, where only the cgroup is known.
        pid: u32,
        /// The process's name.
        comm: Comm,
        /// Its cgroup in the v2 hierarchy.
        cgroup_id: u64,
    },
    /// All tasks outside the cgroups that were asked for.
    OtherTasks,
    /// The handler of an interrupt.
    Irq(u32),
    /// The softirq of a vector.
    Softirq(u32),
    /// The idle task.
    Idle,
    /// A device that moved data by itself.
    Device,
    /// Time or counts that were not seen.
    Unknown,
}

/// What is in the place of a process's name where the owner is none. Longer than a name can be, so
/// that no process can call itself that.
const OTHERS: &str = "(tasks of other cgroups)";
const DEVICE: &str = "(a device by itself)";
const UNSEEN: &str = "(nobody was seen)";
const IRQ: &str = "(handler of interrupt) ";
const SOFTIRQ: &str = "(softirq of vector) ";

impl Who {
    /// The owner as a word of a raw table, beside the pid and cgroup of its task.
    pub fn word(self) -> Cow<'static, str> {
        match self {
            Self::Task { comm, .. } => comm.text().into_owned().into(),
            Self::OtherTasks => OTHERS.into(),
            Self::Irq(number) => format!("{IRQ}{number}").into(),
            Self::Softirq(vector) => format!("{SOFTIRQ}{vector}").into(),
            Self::Idle => "".into(),
            Self::Device => DEVICE.into(),
            Self::Unknown => UNSEEN.into(),
        }
    }

    /// The owner of such a word.
    pub fn of_word(word: &str, tid: u32, pid: u32, cgroup_id: u64) -> Self {
        let number = |prefix| word.strip_prefix(prefix).and_then(|number| number.parse().ok());
        if let Some(number) = number(IRQ) {
            return Self::Irq(number);
        }
        if let Some(vector) = number(SOFTIRQ) {
            return Self::Softirq(vector);
        }
        match word {
            OTHERS => Self::OtherTasks,
            DEVICE => Self::Device,
            UNSEEN => Self::Unknown,
            _ if tid == 0 => Self::Idle,
            _ => Self::Task { pid, comm: Comm::from_bytes(word.as_bytes()), cgroup_id },
        }
    }

    /// The word for the `owner` column.
    pub const fn owner(self) -> &'static str {
        match self {
            Self::Task { .. } | Self::OtherTasks => "task",
            Self::Irq(_) => "irq",
            Self::Softirq(_) => "softirq",
            Self::Idle => "idle",
            Self::Device => "device",
            Self::Unknown => "unattributed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_its_owner_again() {
        let broken = Comm::from_bytes(b"caf\xc3\xa9-\xff-caf\xc3\xa9-x").clean();
        let task = Who::Task { pid: 7, comm: broken, cgroup_id: 9 };
        for who in [task, Who::OtherTasks, Who::Irq(3), Who::Softirq(1), Who::Device, Who::Unknown]
        {
            assert_eq!(Who::of_word(&who.word(), 8, 7, 9), who);
        }
        assert_eq!(Who::of_word(&Who::Idle.word(), 0, 0, 1), Who::Idle);
    }
}
