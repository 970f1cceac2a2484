//! Which task runs on a CPU that has not switched for a while.
//!
//! A CPU's state says which thread it switched to, and procfs describes that thread. A thread that
//! leaves the CPU sends a record. So if procfs does not know the thread, or reports it as sleeping,
//! its record is waited for. The wait is limited, because a switch may have been missed, and it is
//! skipped once the programs are detached.

use std::collections::HashMap;

use crate::drain::{Peek, Task};
use crate::identity::names::{self, TaskNames};

/// The last task seen on each CPU before the programs were detached.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// By CPU: the time since which the task runs, and the task.
    last: HashMap<u32, (u64, Task)>,
}

/// The result of a look.
#[derive(Debug)]
pub(super) struct Look {
    /// The CPU's unsent state.
    pub peek: Peek,
    /// The task that runs there.
    pub task: Task,
    /// `false` if the task sleeps: its switch was missed, or the record is about to arrive.
    pub surely: bool,
}

impl Looks {
    /// Looks at a CPU; `None` while it switches, or if the task has exited.
    pub(super) fn look(
        &self,
        cpu: u32,
        names: &TaskNames,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> Option<Look> {
        let state = peek(cpu)?;
        let (since, tid) = (state.run.end, state.next_tid);
        let known = self.last.get(&cpu).filter(|(then, _)| *then == since);
        let (task, surely) = match (tid, known) {
            (0, _) => (names::idle_task(cpu), true),
            (_, Some(&(_, task))) => (task, true),
            (_, None) => {
                let (task, runs) = names.running_task(tid)?;
                // The task may have left after the peek: it ran until then.
                (task, runs || peek(cpu)?.run.end != since)
            }
        };
        Some(Look { peek: state, task, surely })
    }

    /// Remembers the task that runs on `cpu` now; `false` if it cannot be determined.
    pub(super) fn remember(
        &mut self,
        cpu: u32,
        names: &TaskNames,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let Some(look) = self.look(cpu, names, peek).filter(|look| look.surely) else {
            return false;
        };
        self.last.insert(cpu, (look.peek.run.end, look.task));
        true
    }
}
