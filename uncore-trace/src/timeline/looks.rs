//! Who runs on a CPU that has not switched for a while.
//!
//! A CPU's state tells which thread it switched to, and procfs what that thread is. One that leaves
//! sends a record, so a thread that procfs no longer knows, or says to sleep, is waited for; but not
//! when the programs are gone before it is, and not for ever: a switch may not have been seen.

use std::collections::HashMap;

use crate::{
    align::names::{self, Names, Running},
    drain::{Peek, Task},
};

/// The last looks at each CPU before the programs went.
#[derive(Debug, Default)]
pub struct Looks {
    /// By CPU: since when it runs, and what.
    last: HashMap<u32, (u64, Task)>,
}

impl Looks {
    /// What a CPU has not sent, and the task that runs there; `None` while it switches, or if the
    /// task has gone. One that sleeps has gone too, unless what it sent would be here: `lost`.
    pub fn look(
        &self,
        cpu: u32,
        names: &Names,
        lost: bool,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> Option<(Peek, Task)> {
        let state = peek(cpu)?;
        let before = || self.last.get(&cpu).filter(|(since, _)| *since == state.run.end);
        let task = match state.next_tid {
            0 => names::idle(cpu),
            tid => match (names.running(tid), before()) {
                (Some(Running::Surely(task)), _) | (_, Some(&(_, task))) => task,
                (Some(Running::Hardly(task)), None) if lost => task,
                _ => return None,
            },
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
        let Some((state, task)) = self.look(cpu, names, false, peek) else {
            return false;
        };
        self.last.insert(cpu, (state.run.end, task));
        true
    }
}
