//! Changes of the CPUs and of the counters that are read: CPUs that go offline or come online,
//! counters that move with them, and counters that are retired.
//!
//! Guarantee: a change applies to what is sent after it. So it waits until everything that was sent
//! before it is fed, and one change is made per drain.

use std::collections::VecDeque;

use anyhow::Result;

use super::open_part::RetiredCounter;
use super::side_sources::{RetiredCounters, SideSources};
use super::state::{RecorderState, read_unsent_state};
use crate::clock::mono_ns;
use crate::count::Count;
use crate::open::{CpuSetChange, OnlineCpus, PlacementHints, Stopped};

/// The CPUs that were online at one time.
#[derive(Debug)]
struct OnlineList {
    time_ns: u64,
    cpus: Vec<u32>,
}

/// The changes that are to be applied.
#[derive(Debug)]
pub(super) struct CpuChanges {
    online: OnlineCpus,
    /// Lists of the CPUs that were online, oldest first. A list is applied once all records sent
    /// before its time have been fed, which include all records of CPUs that went offline.
    lists: VecDeque<OnlineList>,
    /// When counters last changed their reader CPUs, ns.
    changed_ns: u64,
    /// The number of timers that had moved when the counters were last followed.
    followed_moves: u64,
}

impl CpuChanges {
    pub(super) const fn new(online: OnlineCpus) -> Self {
        Self { online, lists: VecDeque::new(), changed_ns: 0, followed_moves: 0 }
    }

    /// Lists the CPUs that are online. Called before the rings are read: a CPU that is offline in
    /// the list has sent all its records before, so they are fed by the same drain.
    pub(super) fn list_online_cpus(&mut self, now_ns: u64) -> Result<()> {
        let online = self.online.read_cpus()?;
        // Every change is queued, not only the latest list: a CPU that leaves and returns while the
        // ring is behind was offline all the same.
        if self.lists.back().is_none_or(|latest| latest.cpus != online) {
            self.lists.push_back(OnlineList { time_ns: now_ns, cpus: online.to_vec() });
        }
        Ok(())
    }

    /// Applies the oldest change if all records from before it have been fed. `timer_moves` is the
    /// number of timers that the kernel has moved to another CPU.
    pub(super) fn apply_due_change(
        &mut self,
        state: &mut RecorderState<'_>,
        sources: &mut SideSources<'_>,
        timer_moves: u64,
    ) -> Result<()> {
        let fed_ns = state.fed_ns;
        let has_all_of_offline = self.has_all_of_offline(state);
        let due_list = self.lists.pop_front_if(|list| list.time_ns <= fed_ns && has_all_of_offline);
        let has_changed = match due_list {
            Some(list) => self.follow_cpus(&list.cpus, state, timer_moves)?,
            // The previous change of reader CPUs is complete: all records that were sent before it
            // have been fed.
            None if fed_ns >= self.changed_ns => {
                let session = &mut state.session;
                let retired = sources.each_source().find_map(|source| source.find_retired(session));
                if let Some(retired) = &retired {
                    retire_counters(state, retired)?;
                }
                retired.is_some()
            }
            None => false,
        };
        if has_changed {
            // Records sent until now describe the CPUs before the next change.
            self.changed_ns = mono_ns() as u64;
            self.lists.iter_mut().for_each(|list| list.time_ns = self.changed_ns);
        }
        Ok(())
    }

    /// Applies the changes of CPUs and counters since the last look, at the end of the recording.
    /// `counts` are the counts of the counters at `now_ns`.
    pub(super) fn apply_last_change(
        &mut self,
        state: &mut RecorderState<'_>,
        stopped: Vec<Stopped>,
        counts: &[(u32, Count)],
        now_ns: u64,
    ) -> Result<()> {
        let offline = state.session.take_offline(self.online.read_cpus()?);
        state.apply_change(
            &CpuSetChange { went_offline: offline, stopped, ..CpuSetChange::default() },
            now_ns,
        )?;
        self.lists.clear();
        let live = &mut state.open_parts.live;
        live.timeline.log_last_counts(counts, now_ns, &mut live.sink);
        Ok(())
    }

    /// Whether all records were fed of those CPUs that are offline in both the next and the last
    /// look.
    fn has_all_of_offline(&self, state: &RecorderState<'_>) -> bool {
        let Some((next, last)) = self.lists.front().zip(self.lists.back()) else {
            return true;
        };
        let is_offline = |cpu| !next.cpus.contains(&cpu) && !last.cpus.contains(&cpu);
        let mut peek_cpu = |cpu| read_unsent_state(&state.session, cpu).ok()?;
        let timeline = &state.open_parts.live.timeline;
        timeline.has_all_records_of(is_offline, state.fed_ns, &mut peek_cpu)
    }

    /// Finds counters whose CPU went offline. `true` if a counter is read elsewhere from now on.
    fn follow_cpus(
        &mut self,
        online: &[u32],
        state: &mut RecorderState<'_>,
        timer_moves: u64,
    ) -> Result<bool> {
        let mut counter_moved = false;
        for open_part in state.open_parts.oldest_first() {
            counter_moved |= open_part.timeline.take_counter_moved();
        }
        let hints =
            PlacementHints { counter_moved, timer_moved: self.followed_moves < timer_moves };
        self.followed_moves = timer_moves;
        // The time is taken before the change: a CPU may read some of its new counters before all
        // are placed.
        let before_ns = mono_ns() as u64;
        let root = &state.common.machine.root;
        let Some(mut change) = state.session.follow_cpus(online, root, hints)? else {
            return Ok(false);
        };
        if !change.went_offline.is_empty() {
            // A CPU that is back online writes its state again, so its short absence is counted as
            // idle time.
            let online_again = self.online.read_cpus()?;
            change.went_offline.retain(|cpu| !online_again.contains(cpu));
        }
        state.apply_change(&change, before_ns)?;
        Ok(true)
    }
}

/// Reads these counters no longer, and enters that as losses of all parts that take records.
fn retire_counters(state: &mut RecorderState<'_>, retired: &RetiredCounters) -> Result<()> {
    let now_ns = mono_ns() as u64;
    let change = state.session.retire_counters(&retired.counter_ids)?;
    let why = format!("not read from now on: {}", retired.why);
    for id in &retired.counter_ids {
        for open_part in state.open_parts.oldest_first() {
            let ledger = &mut open_part.timeline.ledger;
            ledger.add_explained(retired.cause, now_ns, Some(*id), &why);
        }
        state.common.opened.remove(id);
        state.common.retired.insert(*id, RetiredCounter { cause: retired.cause, why: why.clone() });
    }
    state.apply_change(&change, now_ns)
}
