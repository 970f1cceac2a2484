//! What the counters of a recording learn from its ticks, and when they do.
//!
//! A tick goes through four stages, each of which needs what the one before has made:
//!
//! 1. [`Learning::count_ticks`], at least every [`LEARN_INTERVAL_NS`](super::schedule): the use of
//!    the tick is added to the histories, and its counts to the methods.
//! 2. A review, at each learning tick: columns are given to the sources with the most use, ticks
//!    are summed up, and each method learns the ticks that were reviewed. A column may only change
//!    its owner between two reviews, when every method has learnt the ticks before.
//! 3. A job ([`LearningJob`]), which each counter has once in some learning ticks
//!    ([`LearnSchedule`]): its method solves the rates, and divides the windows that have waited
//!    long enough.
//! 4. What no method needs any longer is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashSet, HashSetExt};

use super::counter::TrackedCounter;
use super::device_bytes::{DeviceBytes, DeviceDirections};
use super::device_source::{DeviceSource, DeviceSourceSetup, SocketOfSet, TrafficNumbers};
use super::device_sources::create_device_sources;
use super::history::Histories;
use super::learning_job::LearningJob;
use super::method::Method;
use super::owner_names::OwnerNames;
use super::peer_rates::PeerRates;
use super::ports::Ports;
use super::schedule::LearnSchedule;
use super::usage::{CpuSet, TickUse};
use super::waiting::{WaitingWindows, WindowState};
use super::windows::DividedWindow;
use super::witnesses::Witnesses;
use super::workers;
use crate::entries::{DeviceTransfer, Owner};
use crate::plan::Plan;

/// Largest number of owners that are known to run virtual machines.
const MAX_GUESTS: usize = 1 << 16;

/// The end of a tick at which counters learn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LearnMoment {
    /// The tick.
    pub tick: u64,
    /// Whether the recording ends with it: nothing waits any longer.
    pub is_last: bool,
}

/// What a counter does at a learning tick.
#[derive(Clone, Copy, Debug)]
struct JobPlan {
    /// Whether it solves its rates.
    solves_rates: bool,
    /// The last tick that it divides.
    last_tick: u64,
}

/// What the counters of a recording learn from.
#[derive(Debug)]
pub(super) struct Learning {
    tick_ns: u64,
    /// The sets of CPUs that the counters see.
    sets: Vec<CpuSet>,
    /// The use of each set of CPUs, if a counter that sees the set learns from it.
    histories: Vec<Option<Histories>>,
    witnesses: Witnesses,
    /// Owners that run virtual machines whose misses are not counted.
    guests: HashSet<Owner>,
    ports: Ports,
    /// What devices moved; empty if no counter that learns counts bytes of devices too.
    device_sources: Vec<Box<dyn DeviceSource>>,
    traffic_numbers: TrafficNumbers,
    /// The sets that such a counter sees, with their sockets.
    device_sets: Vec<(usize, SocketOfSet)>,
    peer_rates: PeerRates,
    schedule: LearnSchedule,
    /// Number of threads that learn and divide.
    threads: usize,
}

/// What [`Learning`] is made from.
#[derive(Debug)]
pub(super) struct LearningSetup<'a> {
    /// The plan of the recording.
    pub plan: &'a Plan,
    /// The sets of CPUs that the counters see.
    pub sets: Vec<CpuSet>,
    /// Whether a counter that sees the set learns from ticks, for each set.
    pub has_learners: &'a [bool],
    /// When counters learn.
    pub schedule: LearnSchedule,
    /// The tick at which the recording begins.
    pub start_tick: u64,
    /// Number of threads that learn and divide.
    pub threads: usize,
}

impl Learning {
    /// Before the first tick of these counters.
    pub(super) fn new(setup: LearningSetup<'_>, tracks: &mut [TrackedCounter]) -> Self {
        let LearningSetup { plan, sets, has_learners, schedule, start_tick, threads } = setup;
        let tick_ns = plan.tick_ns;
        let mut has_misses = vec![false; sets.len()];
        for track in tracks.iter().filter(|track| track.planned_method == Method::Misses) {
            has_misses[track.set] = true;
        }
        let ports = Ports::new(tracks, &sets, start_tick);
        let create_histories = |(set, (learns, has_misses)): (usize, (&bool, &bool))| {
            let histories = learns.then(|| Histories::new(tick_ns, *has_misses))?;
            Some(if ports.divides_set(set) { histories.with_ports() } else { histories })
        };
        let of_sets = has_learners.iter().zip(&has_misses).enumerate();
        let device_sets = find_device_sets(plan, tracks);
        let mut traffic_numbers = TrafficNumbers::default();
        let device_sources = if device_sets.is_empty() {
            Vec::new()
        } else {
            create_device_sources(&mut DeviceSourceSetup {
                plan,
                tracks,
                numbers: &mut traffic_numbers,
            })
        };
        Self {
            tick_ns,
            histories: of_sets.map(create_histories).collect(),
            witnesses: Witnesses::find_witnesses(tracks, has_misses.contains(&true)),
            sets,
            guests: HashSet::new(),
            ports,
            device_sources,
            traffic_numbers,
            device_sets,
            peer_rates: PeerRates::new(tracks),
            schedule,
            threads,
        }
    }

    /// Takes what a device moved in the current tick.
    pub(super) fn take_transfer(&mut self, moved: &DeviceTransfer) {
        for source in &mut self.device_sources {
            source.take_transfer(moved, &mut self.traffic_numbers);
        }
    }

    /// Ends the current tick, whose counts may be known later.
    pub(super) fn end_tick(&mut self, tick: u64) {
        self.device_sources.iter_mut().for_each(|source| source.end_tick(tick));
    }

    /// Notes whose the bytes of devices are in the window that a counter has divided.
    pub(super) fn note_device_shares(&mut self, counter_index: usize, divided: &DividedWindow) {
        for (set, _) in self.device_sets.iter().filter(|_| !divided.shares.is_empty()) {
            let Some(Some(histories)) = self.histories.get_mut(*set) else { continue };
            let known = histories.device_shares.entry(divided.end_tick).or_default();
            for source in &self.device_sources {
                source.note_shares(counter_index, &divided.shares, known);
            }
        }
    }

    /// Whether any method learns from ticks.
    pub(super) fn has_learners(&self) -> bool {
        self.histories.iter().any(Option::is_some)
    }

    /// Whether windows wait for later ticks.
    pub(super) const fn has_lag(&self) -> bool {
        self.schedule.has_lag()
    }

    /// Whether counters learn at the end of `tick`, if any do.
    pub(super) const fn is_learn_tick(&self, tick: u64) -> bool {
        self.schedule.is_learn_tick(tick)
    }

    /// Notes that an owner runs a virtual machine whose misses are not counted.
    pub(super) fn add_guest(&mut self, owner: Owner) {
        if self.guests.len() >= MAX_GUESTS {
            self.guests.clear();
        }
        self.guests.insert(owner);
    }

    /// The use of a set of CPUs, if a counter that sees it learns from it.
    pub(super) fn histories_of(&self, set: usize) -> Option<&Histories> {
        self.histories.get(set).and_then(Option::as_ref)
    }

    /// The use of each set of CPUs from which a counter learns.
    #[cfg(test)]
    pub(super) fn all_histories(&self) -> impl Iterator<Item = &Histories> {
        self.histories.iter().flatten()
    }

    /// Notes how sure a port is of the windows that it has divided; for other counters nothing.
    pub(super) fn note_port_confidence(
        &mut self,
        counter_index: usize,
        track: &mut TrackedCounter,
    ) {
        self.ports.note_confidence(counter_index, track, &mut self.histories);
    }

    /// Gives the methods the use and the counts of the ticks since the last call.
    pub(super) fn count_ticks(&mut self, ticks: &[TickUse], tracks: &mut [TrackedCounter]) {
        for TickUse { tick, times } in ticks {
            // The misses of a tick are a part of its use, so witnesses are read before the use is
            // added, and the use is there when the counters get their counts of the tick.
            self.witnesses.take_tick(*tick, tracks);
            let sets = self.histories.iter_mut().zip(times).zip(&self.sets);
            for ((histories, times), set) in sets {
                let Some(histories) = histories else { continue };
                if times.iter().any(|used| self.guests.contains(&used.source.owner)) {
                    histories.push_blind(*tick, times);
                } else {
                    histories.push(*tick, times, || self.witnesses.misses_of_set(set));
                }
            }
            self.add_device_bytes(*tick, tracks);
            for track in tracks.iter_mut().filter(|track| track.learns) {
                if let Some(Some(histories)) = self.histories.get(track.set) {
                    track.observe_tick(*tick, histories);
                }
            }
        }
    }

    /// Adds what devices moved in a tick to the use of each set whose counters count it.
    fn add_device_bytes(&mut self, tick: u64, tracks: &mut [TrackedCounter]) {
        for source in &mut self.device_sources {
            source.take_tick(tick, tracks);
        }
        for (set, socket) in &self.device_sets {
            let sources = self.device_sources.iter();
            let bytes: Vec<DeviceBytes> =
                sources.flat_map(|source| source.bytes_of_tick(*socket)).collect();
            if let Some(Some(histories)) = self.histories.get_mut(*set) {
                histories.add_device_bytes(tick, &bytes);
            }
        }
    }

    /// Has the counters learn that solve their rates now, and divide windows that need not wait any longer.
    pub(super) fn learn_and_divide(
        &mut self,
        moment: LearnMoment,
        tracks: &mut [TrackedCounter],
        waiting: &mut WaitingWindows,
        names: &OwnerNames,
    ) {
        let port_indexes = self.ports.counter_indexes();
        let has_ports = |set: usize, tracks: &[TrackedCounter]| {
            port_indexes.iter().filter_map(|index| tracks.get(*index)).any(|track| track.set == set)
        };
        // Ports come first, with a review and jobs of their own: what they have divided is the
        // use from which the other counters learn, so it must be there before those are reviewed.
        self.review_sets(tracks, |set, tracks| has_ports(set, tracks));
        if !port_indexes.is_empty() {
            let port_tick = port_indexes
                .iter()
                .filter_map(|index| self.column_count(tracks.get(*index)?))
                .map(|columns| self.last_divisible_tick(columns, moment))
                .min();
            // A tick is gathered when all ports have divided it, so they divide the same ticks.
            let common_tick = port_tick.unwrap_or(moment.tick);
            self.run_jobs_due(moment, tracks, waiting, names, |index| {
                port_indexes.contains(&index).then_some(common_tick)
            });
            self.ports.gather_ticks(common_tick, tracks, &mut self.histories);
        }
        self.review_sets(tracks, |set, tracks| !has_ports(set, tracks));
        let gathered_tick = self.ports.gathered_tick;
        self.run_jobs_due(moment, tracks, waiting, names, |index| {
            (!port_indexes.contains(&index)).then_some(gathered_tick)
        });
        // Last: a window that was divided just now needed the use of its ticks.
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories else { continue };
            let learners = tracks.iter().filter(|track| track.learns && track.set == set);
            let needed_tick = learners.map(TrackedCounter::oldest_needed_tick).min();
            histories.forget_before(needed_tick.unwrap_or(moment.tick).min(moment.tick));
        }
    }

    /// Number of columns of a counter's rates; `None` if it does not learn.
    fn column_count(&self, track: &TrackedCounter) -> Option<usize> {
        Some(self.histories_of(track.set)?.time.columns().len())
    }

    /// The last tick that a counter may divide after it has learnt the rates of this number of
    /// columns.
    fn last_divisible_tick(&self, columns: usize, moment: LearnMoment) -> u64 {
        if moment.is_last {
            moment.tick
        } else {
            self.schedule.last_divisible_tick(moment.tick, columns)
        }
    }

    /// Sums up the ticks since the last call, for the selected sets of CPUs.
    fn review_sets(
        &mut self,
        tracks: &mut [TrackedCounter],
        is_selected: impl Fn(usize, &[TrackedCounter]) -> bool,
    ) {
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories.as_mut().filter(|_| is_selected(set, tracks)) else {
                continue;
            };
            // Columns are assigned before the methods learn, which read the ticks by column. The
            // rates that they have then are the profile by which the next ticks are weighed.
            histories.review_use();
            let learners = tracks.iter_mut().filter(|track| track.learns && track.set == set);
            let histories_now = &*histories;
            workers::run_jobs(self.threads, &mut learners.collect::<Vec<_>>(), |track| {
                track.learn_ticks(histories_now);
            });
            let learners = tracks.iter_mut().filter(|track| track.learns && track.set == set);
            histories.time.update_sibling_cost(learners.filter_map(TrackedCounter::take_contrasts));
            let learners = tracks.iter().filter(|track| track.learns && track.set == set);
            histories.finish_review(|predictor| {
                learners.clone().filter_map(|track| track.rate_profile(predictor)).collect()
            });
        }
    }

    /// Has some counters learn and divide what need not wait, if they are due. `known_tick`
    /// has the last tick that is known at ports, or `None` for a counter that is left out. Ports
    /// divide the ticks up to it each time, because the others wait for them.
    fn run_jobs_due(
        &mut self,
        moment: LearnMoment,
        tracks: &mut [TrackedCounter],
        waiting: &mut WaitingWindows,
        names: &OwnerNames,
        known_tick: impl Fn(usize) -> Option<u64>,
    ) {
        let plans = self.plan_jobs(moment, tracks, known_tick);
        let latest_tick = plans.iter().flatten().map(|plan| plan.last_tick).max();
        let mut windows_by_counter: Vec<Vec<(u64, &mut WindowState)>> =
            plans.iter().map(|_| Vec::new()).collect();
        for window in waiting.windows_up_to(latest_tick.unwrap_or_default()) {
            let states = window.states.iter_mut().zip(&mut windows_by_counter).zip(&plans);
            for ((state, windows), plan) in states {
                if plan.is_some_and(|plan| window.tick <= plan.last_tick) {
                    windows.push((window.tick, state));
                }
            }
        }
        let job =
            |(counter_index, ((track, windows), plan)): (usize, ((_, _), Option<JobPlan>))| {
                let track: &mut TrackedCounter = track;
                let JobPlan { solves_rates, last_tick } = plan?;
                let histories = self.histories.get(track.set)?.as_ref()?;
                Some(LearningJob {
                    track,
                    histories,
                    solves_rates,
                    counter_index,
                    peer_rates: self.peer_rates.rates_of_peers(counter_index),
                    learnt_rates: None,
                    last_tick,
                    windows,
                })
            };
        let planned = tracks.iter_mut().zip(windows_by_counter).zip(plans);
        let mut jobs: Vec<LearningJob<'_>> = planned.enumerate().filter_map(job).collect();
        let tick_ns = self.tick_ns;
        workers::run_jobs(self.threads, &mut jobs, |job| job.run_job(tick_ns, names));
        let learnt_rates =
            jobs.into_iter().filter_map(|job| Some((job.counter_index, job.learnt_rates?)));
        for (counter_index, rates) in learnt_rates.collect::<Vec<_>>() {
            self.peer_rates.note_rates(counter_index, rates);
        }
        for index in self.ports.counter_indexes() {
            self.note_port_confidence(index, &mut tracks[index]);
        }
    }

    /// What each counter does; `None` for one that is left out or not due.
    fn plan_jobs(
        &self,
        moment: LearnMoment,
        tracks: &[TrackedCounter],
        known_tick: impl Fn(usize) -> Option<u64>,
    ) -> Vec<Option<JobPlan>> {
        let mut plans: Vec<Option<JobPlan>> = vec![None; tracks.len()];
        let learners = tracks.iter().enumerate().filter(|(_, track)| track.learns);
        for (position, (index, track)) in learners.enumerate() {
            let (Some(port_tick), Some(columns)) = (known_tick(index), self.column_count(track))
            else {
                continue;
            };
            let divisible_tick = self.last_divisible_tick(columns, moment);
            let solves_rates =
                moment.is_last || self.schedule.is_solve_tick(position, moment.tick, columns);
            let last_tick = match track.planned_method {
                _ if track.counter.is_port() => port_tick,
                _ if !solves_rates => continue,
                Method::Ports if self.ports.divides_set(track.set) => divisible_tick.min(port_tick),
                _ => divisible_tick,
            };
            plans[index] = Some(JobPlan { solves_rates, last_tick });
        }
        plans
    }

    /// Has the ports divide the ticks up to `tick`, if no window waits.
    pub(super) fn divide_ports(&mut self, tick: u64, tracks: &mut [TrackedCounter]) {
        for index in self.ports.counter_indexes() {
            let track = &mut tracks[index];
            if let Some(Some(histories)) = self.histories.get(track.set) {
                track.divide_ticks(histories, tick);
            }
        }
        self.ports.gather_ticks(tick, tracks, &mut self.histories);
    }
}

/// The sets of CPUs that counters see which learn and count bytes of devices, with the socket that
/// these counters have in common.
fn find_device_sets(plan: &Plan, tracks: &[TrackedCounter]) -> Vec<(usize, SocketOfSet)> {
    let mut sets: BTreeMap<usize, BTreeSet<SocketOfSet>> = BTreeMap::new();
    for track in tracks.iter().filter(|track| track.learns) {
        if DeviceDirections::from_counter(plan, &track.counter).are_any() {
            sets.entry(track.set).or_default().insert(track.counter.socket);
        }
    }
    let common_socket = |sockets: BTreeSet<SocketOfSet>| {
        let mut sockets = sockets.into_iter();
        sockets.next().flatten().filter(|_| sockets.next().is_none())
    };
    sets.into_iter().map(|(set, sockets)| (set, common_socket(sockets))).collect()
}
