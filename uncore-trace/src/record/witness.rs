//! Watches the witnesses that `--method auto` opened. They must not cost more than
//! `--witness-budget`, nor keep a core PMU counter that another tool needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::side_sources::{
    FedRecords, Preparation, RetiredCounters, SideSetup, SideSource, StopPoint,
};
use super::state::RecorderState;
use crate::clock::mono_ns;
use crate::count::Count;
use crate::discover::CpuList;
use crate::open::{HookMeter, Session};
use crate::plan::Plan;
use crate::plan::allowance::{MOST_READINGS, READ_NS, percent};
use crate::schema::loss::LossCause;

/// Time between two checks, ns.
const CHECK_NS: u64 = 1_000_000_000;

/// Witnesses are dropped if they cost too much in this many checks in a row, so that a burst
/// passes.
const COSTLY_CHECKS: u32 = 3;

/// Witnesses are dropped at once at this multiple of the budget: the ring may be full before the
/// next check.
const AT_ONCE: f64 = 5.0;

/// Witnesses are dropped after this many drains in a row that did not empty the ring. The ring
/// holds more than arrives in that time.
const FULL_DRAINS: u32 = 3;

/// Such a drain has at least this many readings.
const LEAST_READINGS: u64 = 1000;

/// A counter whose time running is below this part of its time enabled shares its hardware with
/// others.
const ALONE: f64 = 0.98;

/// Prepares the watch, if witnesses may be dropped.
pub(super) fn prepare_source<'a>(preparation: &Preparation<'_, 'a>) -> Option<SideSetup<'a>> {
    let plan = preparation.plan;
    let budget = preparation.options.witness_budget?;
    Some(SideSetup::new(move |begun| {
        let unopened = begun.session.unopened().iter().map(|unopened| unopened.counter).collect();
        Some(Box::new(WitnessWatch::new(plan, budget, &unopened, begun.session, mono_ns() as u64)))
    }))
}

/// The witnesses that may be dropped.
#[derive(Debug)]
struct WitnessWatch<'a> {
    plan: &'a Plan,
    /// `--witness-budget`, in percent.
    budget: f64,
    /// The remaining witnesses: CPU and counter.
    remaining: BTreeMap<u32, u32>,
    unavailable: BTreeSet<u32>,
    cost: ReadingCost,
    multiplexing: Multiplexing,
    /// Measures the hook's run time until the first check.
    meter: Option<HookMeter>,
    backlog: Backlog,
    /// Witnesses that must be dropped and were not yet.
    to_drop: Option<RetiredCounters>,
}

/// The cost of readings.
#[derive(Debug)]
struct ReadingCost {
    read_ns: f64,
    /// Readings by CPU since the last check.
    readings: BTreeMap<u32, u64>,
    checked_ns: u64,
    /// Number of checks in a row that found the cost too high.
    costly_checks: u32,
}

/// Whether readings keep the recorder from emptying the ring, before other records are lost.
#[derive(Debug, Default)]
struct Backlog {
    /// Number of drains in a row that had mostly readings and did not empty the ring.
    full_drains: u32,
}

/// The counts of witnesses at the last check, which tell whether they are multiplexed.
#[derive(Debug, Default)]
struct Multiplexing(BTreeMap<u32, Count>);

impl<'a> WitnessWatch<'a> {
    /// Watches the witnesses of `plan` from `now_ns` on, except those in `unopened`.
    fn new(
        plan: &'a Plan,
        budget: f64,
        unopened: &BTreeSet<u32>,
        session: &mut Session,
        now_ns: u64,
    ) -> Self {
        let open = plan.only_witnesses().filter(|witness| !unopened.contains(&witness.id));
        let witness_by_cpu: BTreeMap<u32, u32> =
            open.map(|witness| (witness.cpu, witness.id)).collect();
        let meter = if witness_by_cpu.is_empty() { None } else { session.start_meter() };
        let mut watch = Self {
            plan,
            budget,
            remaining: witness_by_cpu,
            unavailable: unopened.clone(),
            cost: ReadingCost {
                read_ns: READ_NS,
                readings: BTreeMap::new(),
                checked_ns: now_ns,
                costly_checks: 0,
            },
            multiplexing: Multiplexing::default(),
            meter,
            backlog: Backlog::default(),
            to_drop: None,
        };
        watch.mark_to_drop(BTreeSet::new(), "others that their counters need could not be opened");
        watch
    }

    /// Checks the cost once a second.
    fn check_witnesses(&mut self, session: &mut Session, now_ns: u64) {
        if now_ns.saturating_sub(self.cost.checked_ns) < CHECK_NS {
            return;
        }
        if let Some(meter) = self.meter.take()
            && let Some(read_ns) = session.hook_ns(&meter)
        {
            log::info!("the hook of sched_switch takes {read_ns:.0} ns where it reads a witness");
            self.cost.read_ns = read_ns;
        }
        let ids: Vec<u32> = self.remaining.values().copied().collect();
        let shared = self.multiplexing.find_multiplexed(session.counts_of(&ids));
        if !shared.is_empty() {
            let why = "the core PMU counts it only for a part of the time, because other programs \
                       use its counters too";
            self.mark_to_drop(shared, why);
        } else if let Some((cpus, why)) = self.cost.find_costly_cpus(now_ns, self.budget) {
            let ids = self.remaining.iter().filter(|(cpu, _)| cpus.contains(**cpu));
            self.mark_to_drop(ids.map(|(_, id)| *id).collect(), &why);
        }
    }

    /// Marks these witnesses for dropping, and those that are useless without them.
    fn mark_to_drop(&mut self, ids: BTreeSet<u32>, why: &str) {
        self.unavailable.extend(&ids);
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.extend(self.plan.useless_witnesses(&self.unavailable));
        ids.retain(|id| self.remaining.values().any(|remaining_id| remaining_id == id));
        self.unavailable.extend(&ids);
        self.remaining.retain(|_, id| !ids.contains(id));
        if !ids.is_empty() {
            ids.sort_unstable();
            self.to_drop = Some(RetiredCounters {
                counter_ids: ids,
                cause: LossCause::WitnessLost,
                why: why.to_owned(),
            });
        }
    }
}

impl SideSource for WitnessWatch<'_> {
    /// Counts the readings of witnesses in a drain, and notes whether it was too long for them.
    fn follow_records(
        &mut self,
        _state: &mut RecorderState<'_>,
        fed: FedRecords<'_>,
    ) -> Result<()> {
        let mut drained_readings = 0;
        for cpu in self.remaining.keys() {
            let readings = fed.samples_by_cpu.get(*cpu as usize).copied().unwrap_or(0);
            if readings > 0 {
                *self.cost.readings.entry(*cpu).or_default() += readings;
                drained_readings += readings;
            }
        }
        if self.backlog.note_drain(drained_readings, fed) {
            self.mark_to_drop(
                self.remaining.values().copied().collect(),
                "the recorder cannot drain its readings as fast as they come",
            );
        }
        Ok(())
    }

    /// The witnesses that cost too much, or whose core PMU counters another tool needs.
    fn find_retired(&mut self, session: &mut Session) -> Option<RetiredCounters> {
        if self.to_drop.is_none() && !self.remaining.is_empty() {
            self.check_witnesses(session, mono_ns() as u64);
        }
        let dropped = self.to_drop.take()?;
        log::warn!(
            "the witness of {} CPUs is no longer read: {}; from now on counts are divided without \
             it",
            dropped.counter_ids.len(),
            dropped.why
        );
        Some(dropped)
    }

    /// Nothing is dropped while the last windows close.
    fn stop_point(&self) -> StopPoint {
        StopPoint::BeforeLastTick
    }

    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.remaining.clear();
        (self.to_drop, self.meter) = (None, None);
        Ok(())
    }
}

impl ReadingCost {
    /// The CPUs on which readings cost more than `budget` percent of the CPU's time in enough
    /// checks, and the reason with the measured cost.
    fn find_costly_cpus(&mut self, now_ns: u64, budget: f64) -> Option<(CpuList, String)> {
        let seconds = now_ns.saturating_sub(self.checked_ns) as f64 * 1e-9;
        self.checked_ns = now_ns;
        let rate = |readings: u64| readings as f64 / seconds;
        let readings = std::mem::take(&mut self.readings);
        let all_per_second = rate(readings.values().sum());
        let cost = |readings: u64| percent(rate(readings), self.read_ns);
        let highest_percent =
            readings.values().map(|cpu_readings| cost(*cpu_readings)).fold(0.0, f64::max);
        let too_much = highest_percent > budget || all_per_second > MOST_READINGS;
        self.costly_checks = if too_much { self.costly_checks + 1 } else { 0 };
        let at_once = highest_percent > AT_ONCE * budget || all_per_second > 2.0 * MOST_READINGS;
        if self.costly_checks < COSTLY_CHECKS && !at_once {
            return None;
        }
        if all_per_second > MOST_READINGS {
            let why = format!(
                "{all_per_second:.0} readings a second are more than the recorder takes, \
                 {MOST_READINGS:.0}"
            );
            return Some((readings.into_keys().collect(), why));
        }
        let why = format!(
            "its readings take {highest_percent:.1} % of the time of a CPU, and --witness-budget \
             is {budget} %"
        );
        let costly = readings.iter().filter(|(_, cpu_readings)| cost(**cpu_readings) > budget);
        Some((costly.map(|(cpu, _)| *cpu).collect(), why))
    }
}

impl Backlog {
    /// Notes the end of a drain. `true` if there are too many readings.
    fn note_drain(&mut self, readings: u64, fed: FedRecords<'_>) -> bool {
        // A recorder that did not get the CPU drains few records, whatever they are.
        let is_behind =
            !fed.has_emptied && 2 * readings > fed.record_count && readings >= LEAST_READINGS;
        self.full_drains = if is_behind { self.full_drains + 1 } else { 0 };
        self.full_drains == FULL_DRAINS
    }
}

impl Multiplexing {
    /// The counters that were multiplexed since the last check.
    fn find_multiplexed(&mut self, counts: Vec<(u32, Count)>) -> BTreeSet<u32> {
        let mut multiplexed = BTreeSet::new();
        for (id, count) in counts {
            let previous = self.0.insert(id, count).unwrap_or_default();
            let enabled = count.enabled.saturating_sub(previous.enabled);
            let running = count.running.saturating_sub(previous.running);
            if (running as f64) < ALONE * enabled as f64 {
                multiplexed.insert(id);
            }
        }
        multiplexed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn cost(read_ns: f64) -> ReadingCost {
        ReadingCost { read_ns, readings: BTreeMap::new(), checked_ns: 0, costly_checks: 0 }
    }

    #[test]
    fn what_costs_too_much_for_some_seconds_is_dropped() {
        let mut cost = cost(1000.0);
        let mut look = |second: u64, readings: [u64; 2]| {
            cost.readings = [(3, readings[0]), (5, readings[1])].into();
            cost.find_costly_cpus(second * SECOND, 2.0)
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
        assert_eq!(cost.find_costly_cpus(SECOND, 2.0).unwrap().0, CpuList::from_iter([1]));
    }

    #[test]
    fn a_late_look_is_no_higher_rate() {
        let mut cost = cost(1000.0);
        cost.readings = [(0, 150_000)].into();
        assert_eq!(cost.find_costly_cpus(10 * SECOND, 2.0), None);
        assert_eq!(cost.costly_checks, 0);
    }

    #[test]
    fn more_readings_than_the_recorder_takes_are_too_many_however_cheap() {
        let mut cost = cost(1.0);
        for second in 1..=3 {
            cost.readings = (0..100).map(|cpu| (cpu, 3000)).collect();
            let found = cost.find_costly_cpus(second * SECOND, 2.0);
            assert_eq!(found.is_some(), second == 3);
            assert!(found.is_none_or(|(cpus, _)| cpus.len() == 100));
        }
    }

    #[test]
    fn readings_that_come_faster_than_they_are_drained_are_too_many() {
        let mut backlog = Backlog::default();
        let mut drained = |readings, record_count, has_emptied| {
            let fed = FedRecords { record_count, has_emptied, samples_by_cpu: &[] };
            backlog.note_drain(readings, fed)
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
        let mut turns = Multiplexing::default();
        let count = |enabled, running| Count { value: 7, enabled, running };
        let none = BTreeSet::new();
        assert_eq!(turns.find_multiplexed(vec![(1, count(100, 100)), (2, count(100, 99))]), none);
        assert_eq!(
            turns.find_multiplexed(vec![(1, count(200, 200)), (2, count(200, 149))]),
            [2].into()
        );
        // A counter that stands still, as on an offline CPU, is not multiplexed.
        assert_eq!(turns.find_multiplexed(vec![(1, count(200, 200))]), none);
        // The counter was never on its hardware.
        assert_eq!(turns.find_multiplexed(vec![(3, count(100, 0))]), [3].into());
    }
}
