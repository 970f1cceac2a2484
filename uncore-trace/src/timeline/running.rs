//! Who runs on a CPU that has not switched for a while.
//!
//! A CPU's state tells which thread it switched to, and procfs what that thread is. A thread that
//! leaves sends a record, so one that procfs no longer knows is no loss; but not when the programs
//! are gone before it is.

use std::collections::HashMap;

use crate::{
    align::names::{self, Names},
    drain::{Peek, Task},
};

/// What was known of the CPUs just before the programs went.
#[derive(Debug, Default)]
pub struct Running {
    /// By CPU: since when it runs, and what.
    last: HashMap<u32, (u64, Task)>,
}

impl Running {
    /// What a CPU has not sent, and the task that runs there; `None` while it switches, or if the
    /// task has gone.
    pub fn look(
        &self,
        cpu: u32,
        names: &Names,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> Option<(Peek, Task)> {
        let state = peek(cpu)?;
        let last = || self.last.get(&cpu).filter(|(since, _)| *since == state.run.end);
        let task = match state.next_tid {
            0 => names::idle(cpu),
            tid => names.running(tid).or_else(|| last().map(|&(_, task)| task))?,
        };
        Some((state, task))
    }

    /// Remembers who runs on `cpu` now; `false` if that cannot be said.
    pub fn remember(
        &mut self,
        cpu: u32,
        names: &Names,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let Some((state, task)) = self.look(cpu, names, peek) else {
            return false;
        };
        self.last.insert(cpu, (state.run.end, task));
        true
    }
}
