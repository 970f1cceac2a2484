//! Owner runs on a CPU that has not switched for a while.
//!
//! A CPU's state tells which thread it switched to, and procfs what that thread is. One that leaves
//! sends a record, so a thread that procfs no longer knows, or says to sleep, is waited for; but not
//! when the programs are gone before it is, and not for ever: a switch may not have been seen.

use std::collections::HashMap;

use crate::drain::{Peek, Task};
use crate::identity::names::{self, Names};

/// The last looks at each CPU before the programs went.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// By CPU: since when it runs, and what.
    last: HashMap<u32, (u64, Task)>,
}

/// What a look told.
#[derive(Debug)]
pub(super) struct Look {
    /// What the CPU has not sent.
    pub peek: Peek,
    /// The task that runs there.
    pub task: Task,
    /// `false` for one that sleeps: it has left unseen, or its record is near.
    pub surely: bool,
}

impl Looks {
    /// Looks at a CPU; `None` while it switches, or if the task has gone.
    pub(super) fn look(
        &self,
        cpu: u32,
        names: &Names,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> Option<Look> {
        let state = peek(cpu)?;
        let (since, tid) = (state.run.end, state.next_tid);
        let known = self.last.get(&cpu).filter(|(then, _)| *then == since);
        let (task, surely) = match (tid, known) {
            (0, _) => (names::idle(cpu), true),
            (_, Some(&(_, task))) => (task, true),
            (_, None) => {
                let (task, runs) = names.running(tid)?;
                // It may have left after the peek: until then it ran.
                (task, runs || peek(cpu)?.run.end != since)
            }
        };
        Some(Look { peek: state, task, surely })
    }

    /// Remembers who runs on `cpu` now; `false` if that cannot be said.
    pub(super) fn remember(
        &mut self,
        cpu: u32,
        names: &Names,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let Some(look) = self.look(cpu, names, peek).filter(|look| look.surely) else {
            return false;
        };
        self.last.insert(cpu, (look.peek.run.end, look.task));
        true
    }
}
