//! Watches the witnesses that `--method auto` opened. They must not cost more than
//! `--witness-budget`, nor keep a core PMU counter that another tool needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::count::Count;
use crate::discover::CpuList;
use crate::open::{Meter, Session};
use crate::plan::Plan;
use crate::plan::allowance::{MOST_READINGS, READ_NS, percent};

/// Time between two checks, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// Witnesses are dropped if they cost too much in this many checks in a row, so that a burst
/// passes.
const LOOKS: u32 = 3;

/// Witnesses are dropped at once at this multiple of the budget: the ring may be full before the
/// next check.
const AT_ONCE: f64 = 5.0;

/// Witnesses are dropped after this many drains in a row that did not empty the ring. The ring
/// holds more than arrives in that time.
const DRAINS: u32 = 3;

/// Such a drain has at least this many readings.
const LEAST_READINGS: u64 = 1000;

/// A counter whose time running is below this part of its time enabled shares its hardware with
/// others.
const ALONE: f64 = 0.98;

/// Witnesses that must be dropped.
#[derive(Debug, PartialEq)]
pub(super) struct Dropped {
    /// Their counters.
    pub ids: Vec<u32>,
    /// The reason, in one line.
    pub why: String,
}

/// The witnesses that may be dropped.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    plan: &'a Plan,
    /// `--witness-budget`, in percent.
    budget: f64,
    /// The remaining witnesses: CPU and counter.
    left: BTreeMap<u32, u32>,
    gone: BTreeSet<u32>,
    cost: Cost,
    turns: Turns,
    /// Measures the hook's run time until the first check.
    meter: Option<Meter>,
    backlog: Backlog,
    /// Witnesses that must be dropped and were not yet.
    found: Option<Dropped>,
}

/// The cost of readings.
#[derive(Debug)]
struct Cost {
    read_ns: f64,
    /// Readings by CPU since the last check.
    readings: BTreeMap<u32, u64>,
    since: u64,
    /// Number of checks in a row that found the cost too high.
    over: u32,
}

/// Whether readings keep the recorder from emptying the ring, before other records are lost.
#[derive(Debug, Default)]
struct Backlog {
    /// Number of readings in this drain.
    readings: u64,
    /// Number of drains in a row that had mostly readings and did not empty the ring.
    drains: u32,
}

/// Whether witnesses are multiplexed: their counts at the last check.
#[derive(Debug, Default)]
struct Turns(BTreeMap<u32, Count>);

impl<'a> Watch<'a> {
    /// Watches the witnesses of `plan` from `now`, ns, on, except those in `unopened`.
    pub(super) fn new(
        plan: &'a Plan,
        budget: f64,
        unopened: &BTreeSet<u32>,
        session: &mut Session,
        now: u64,
    ) -> Self {
        let open = plan.witnesses().filter(|its| !unopened.contains(&its.id));
        let left: BTreeMap<u32, u32> = open.map(|its| (its.cpu, its.id)).collect();
        let meter = if left.is_empty() { None } else { session.meter() };
        let mut watch = Self {
            plan,
            budget,
            left,
            gone: unopened.clone(),
            cost: Cost { read_ns: READ_NS, readings: BTreeMap::new(), since: now, over: 0 },
            turns: Turns::default(),
            meter,
            backlog: Backlog::default(),
            found: None,
        };
        watch.find(BTreeSet::new(), "others that their counters need could not be opened");
        watch
    }

    /// Counts a reading of `cpu`.
    pub(super) fn read(&mut self, cpu: u32) {
        if self.left.contains_key(&cpu) {
            *self.cost.readings.entry(cpu).or_default() += 1;
            self.backlog.readings += 1;
        }
    }

    /// Notes the end of a drain of `records` records, which emptied the ring if `emptied`.
    pub(super) fn drained(&mut self, records: u64, emptied: bool) {
        if self.backlog.drained(records, emptied) {
            let all = self.left.values().copied().collect();
            self.find(all, "the recorder cannot drain its readings as fast as they come");
        }
    }

    /// Checks the cost once a second. Returns the witnesses that must be dropped.
    pub(super) fn look(&mut self, session: &mut Session, now: u64) -> Option<Dropped> {
        if self.found.is_none() && !self.left.is_empty() {
            self.look_at(session, now);
        }
        self.found.take()
    }

    fn look_at(&mut self, session: &mut Session, now: u64) {
        if now.saturating_sub(self.cost.since) < LOOK_NS {
            return;
        }
        if let Some(meter) = self.meter.take()
            && let Some(read_ns) = session.hook_ns(&meter)
        {
            log::info!("the hook of sched_switch takes {read_ns:.0} ns where it reads a witness");
            self.cost.read_ns = read_ns;
        }
        let ids: Vec<u32> = self.left.values().copied().collect();
        let shared = self.turns.shared(session.counts_of(&ids));
        if !shared.is_empty() {
            let why = "the core PMU counts it only a part of the time: others use its counters too";
            self.find(shared, why);
        } else if let Some((cpus, why)) = self.cost.look(now, self.budget) {
            let ids = self.left.iter().filter(|(cpu, _)| cpus.contains(**cpu));
            self.find(ids.map(|(_, id)| *id).collect(), &why);
        }
    }

    /// Marks these witnesses for dropping, and those that are useless without them.
    fn find(&mut self, ids: BTreeSet<u32>, why: &str) {
        self.gone.extend(&ids);
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.extend(self.plan.useless_witnesses(&self.gone));
        ids.retain(|id| self.left.values().any(|left| left == id));
        self.gone.extend(&ids);
        self.left.retain(|_, id| !ids.contains(id));
        if !ids.is_empty() {
            ids.sort_unstable();
            self.found = Some(Dropped { ids, why: why.to_owned() });
        }
    }
}

impl Cost {
    /// The CPUs on which readings cost more than `budget` percent of the CPU's time in enough
    /// checks, and the reason with the measured cost.
    fn look(&mut self, now: u64, budget: f64) -> Option<(CpuList, String)> {
        let seconds = now.saturating_sub(self.since) as f64 * 1e-9;
        self.since = now;
        let rate = |readings: u64| readings as f64 / seconds;
        let readings = std::mem::take(&mut self.readings);
        let all = rate(readings.values().sum());
        let cost = |readings: u64| percent(rate(readings), self.read_ns);
        let most = readings.values().map(|its| cost(*its)).fold(0.0, f64::max);
        let too_much = most > budget || all > MOST_READINGS;
        self.over = if too_much { self.over + 1 } else { 0 };
        let at_once = most > AT_ONCE * budget || all > 2.0 * MOST_READINGS;
        if self.over < LOOKS && !at_once {
            return None;
        }
        if all > MOST_READINGS {
            let why = format!(
                "{all:.0} readings a second are more than the recorder takes, {MOST_READINGS:.0}"
            );
            return Some((readings.into_keys().collect(), why));
        }
        let why = format!(
            "its readings take {most:.1} % of the time of a CPU, and --witness-budget is {budget} %"
        );
        let over = readings.iter().filter(|(_, its)| cost(**its) > budget);
        Some((over.map(|(cpu, _)| *cpu).collect(), why))
    }
}

impl Backlog {
    /// Notes the end of a drain. `true` if there are too many readings.
    fn drained(&mut self, records: u64, emptied: bool) -> bool {
        let readings = std::mem::take(&mut self.readings);
        // A recorder that did not get the CPU drains few records, whatever they are.
        let is_behind = !emptied && 2 * readings > records && readings >= LEAST_READINGS;
        self.drains = if is_behind { self.drains + 1 } else { 0 };
        self.drains == DRAINS
    }
}

impl Turns {
    /// The counters that were multiplexed since the last check.
    fn shared(&mut self, counts: Vec<(u32, Count)>) -> BTreeSet<u32> {
        let mut shared = BTreeSet::new();
        for (id, count) in counts {
            let before = self.0.insert(id, count).unwrap_or_default();
            let enabled = count.enabled.saturating_sub(before.enabled);
            let running = count.running.saturating_sub(before.running);
            if (running as f64) < ALONE * enabled as f64 {
                shared.insert(id);
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn cost(read_ns: f64) -> Cost {
        Cost { read_ns, readings: BTreeMap::new(), since: 0, over: 0 }
    }

    #[test]
    fn what_costs_too_much_for_some_seconds_is_dropped() {
        let mut cost = cost(1000.0);
        let mut look = |second: u64, readings: [u64; 2]| {
            cost.readings = [(3, readings[0]), (5, readings[1])].into();
            cost.look(second * SECOND, 2.0)
        };
        // 20 000 readings of 1 us are 2 %.
        assert_eq!(look(1, [10_000, 19_999]), None);
        assert_eq!(look(2, [10_000, 30_000]), None);
        assert_eq!(look(3, [10_000, 30_000]), None);
        // A burst that passes.
        assert_eq!(look(4, [10_000, 100]), None);
        assert_eq!(look(5, [10_000, 30_000]), None);
        assert_eq!(look(6, [10_000, 30_000]), None);
        let (cpus, why) = look(7, [10_000, 30_000]).unwrap();
        assert_eq!(cpus, CpuList::from_iter([5]));
        assert_eq!(
            why,
            "its readings take 3.0 % of the time of a CPU, and --witness-budget is 2 %"
        );
    }

    #[test]
    fn what_costs_many_times_the_budget_is_dropped_at_once() {
        let mut cost = cost(1000.0);
        cost.readings = [(0, 100), (1, 110_000)].into();
        assert_eq!(cost.look(SECOND, 2.0).unwrap().0, CpuList::from_iter([1]));
    }

    #[test]
    fn a_late_look_is_no_higher_rate() {
        let mut cost = cost(1000.0);
        cost.readings = [(0, 150_000)].into();
        assert_eq!(cost.look(10 * SECOND, 2.0), None);
        assert_eq!(cost.over, 0);
    }

    #[test]
    fn more_readings_than_the_recorder_takes_are_too_many_however_cheap() {
        let mut cost = cost(1.0);
        for second in 1..=3 {
            cost.readings = (0..100).map(|cpu| (cpu, 3000)).collect();
            let found = cost.look(second * SECOND, 2.0);
            assert_eq!(found.is_some(), second == 3);
            assert!(found.is_none_or(|(cpus, _)| cpus.len() == 100));
        }
    }

    #[test]
    fn readings_that_come_faster_than_they_are_drained_are_too_many() {
        let mut backlog = Backlog::default();
        let mut drained = |readings, records, emptied| {
            backlog.readings = readings;
            backlog.drained(records, emptied)
        };
        assert!(!drained(5000, 6000, false) && !drained(5000, 6000, false));
        assert!(!drained(5000, 6000, true));
        assert!(!drained(5000, 6000, false) && !drained(5000, 6000, false));
        // Most records are of another kind, or the recorder hardly ran.
        assert!(!drained(5000, 20_000, false));
        assert!(!drained(5000, 6000, false) && !drained(5000, 6000, false));
        assert!(!drained(200, 210, false));
        assert!(!drained(5000, 6000, false) && !drained(5000, 6000, false));
        assert!(drained(5000, 6000, false));
    }

    #[test]
    fn a_counter_that_takes_turns_is_found() {
        let mut turns = Turns::default();
        let count = |enabled, running| Count { value: 7, enabled, running };
        let none = BTreeSet::new();
        assert_eq!(turns.shared(vec![(1, count(100, 100)), (2, count(100, 99))]), none);
        assert_eq!(turns.shared(vec![(1, count(200, 200)), (2, count(200, 149))]), [2].into());
        // A counter that stands still, as on an offline CPU, is not multiplexed.
        assert_eq!(turns.shared(vec![(1, count(200, 200))]), none);
        // The counter was never on its hardware.
        assert_eq!(turns.shared(vec![(3, count(100, 0))]), [3].into());
    }
}
