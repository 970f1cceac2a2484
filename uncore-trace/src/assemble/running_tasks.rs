//! Which task runs on a CPU that has not switched for a while.
//!
//! A CPU's state says which thread it switched to, and procfs describes that thread. A thread that
//! leaves the CPU sends a record. So if procfs does not know the thread, or reports it as sleeping,
//! its record is waited for. The wait is limited, because a switch may have been missed, and it is
//! skipped once the programs are detached.

use std::collections::HashMap;

use crate::drain::{Peek, TaskIdentity};
use crate::identity::names::{self, TaskNames};

/// The last task seen on each CPU before the programs were detached.
#[derive(Debug, Default)]
pub(super) struct RunningTasks {
    /// By CPU: the time since which the task runs, and the task.
    last_tasks: HashMap<u32, (u64, TaskIdentity)>,
}

/// The task that runs on a CPU, with the CPU's unsent state.
#[derive(Debug)]
pub(super) struct RunningTask {
    /// The CPU's unsent state.
    pub peek: Peek,
    /// The task that runs there.
    pub task: TaskIdentity,
    /// `false` if the task sleeps: its switch was missed, or the record is about to arrive.
    pub is_certain: bool,
}

impl RunningTasks {
    /// Finds the task that runs on a CPU; `None` while it switches, or if the task has exited.
    pub(super) fn find_running(
        &self,
        cpu: u32,
        names: &TaskNames,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> Option<RunningTask> {
        let state = peek(cpu)?;
        let (since_ns, tid) = (state.run.end, state.next_tid);
        let known = self.last_tasks.get(&cpu).filter(|(known_since, _)| *known_since == since_ns);
        let (task, surely) = match (tid, known) {
            (0, _) => (names::idle_task(cpu), true),
            (_, Some(&(_, task))) => (task, true),
            (_, None) => {
                let (task, runs) = names.running_task(tid)?;
                // The task may have left after the peek: it ran until then.
                (task, runs || peek(cpu)?.run.end != since_ns)
            }
        };
        Some(RunningTask { peek: state, task, is_certain: surely })
    }

    /// Remembers the task that runs on `cpu` now; `false` if it cannot be determined.
    pub(super) fn remember_running(
        &mut self,
        cpu: u32,
        names: &TaskNames,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let Some(running) = self.find_running(cpu, names, peek).filter(|look| look.is_certain)
        else {
            return false;
        };
        self.last_tasks.insert(cpu, (running.peek.run.end, running.task));
        true
    }
}
