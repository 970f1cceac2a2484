//! The use of one set of CPUs in each tick: the predictors from which learners explain counts.
//!
//! The use of an owner is CPU time or, if witnesses are read, misses or bytes at ports
//! ([`Predictor`]).
//! One [`History`] of each serves all counters that see the same CPUs ([`Histories`]): who ran is
//! summed once for all of them. It holds the last ticks only, and a bounded number of columns
//! ([`super::columns`]).

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::{HashMap, HashSet};

use super::calibration::{MissesByTime, calibrate_misses};
use super::cgroups::cgroup_of_owner;
use super::columns::{self, BASELINE, RateColumns, SHARED_NEAR};
use super::device_bytes::{BytePlacement, DeviceBytes, DeviceShares};
use super::matrix::DenseMatrix;
use super::port_confidence::PortConfidence;
use super::predictor::Predictor;
use super::sibling_cost::{ContrastSums, SiblingCost};
use super::sums::{Design, sum_by_slot};
use super::traffic_source::{SourceUse, TickMisses, TrafficSource};
use super::use_entry::UseEntry;
use super::use_row::{ScaledRow, SlotAmount, UseRow};
use crate::entries::Owner;

/// Forgetting factor of a source's use, per review of 100 ms: the memory is about 10 s.
const FORGETTING_FACTOR: f64 = 0.99;

/// The smallest use for a column, in ticks of one CPU.
const MIN_COLUMN_TICKS: f64 = 2.0;

/// A source is forgotten below this use, in ticks of one CPU or misses. Where sources are many,
/// those are forgotten that cannot keep a column.
const MIN_SOURCE_USE: f64 = 0.05;

/// Gain per tick of the moving averages of a source's use.
const MOMENTS_GAIN: f64 = 0.002;

/// Number of ticks whose products are added to a block at once. Sums of `f32` are rounded after each
/// addition, and rates are corrected by what the products in `f64` of use and count differ from the
/// expected ones: with 100 ticks at once, rates that few ticks tell apart are off by 1.6 times as
/// much. Fewer ticks take more time.
const BATCH_TICKS: usize = 32;

/// Length of blocks whose rates are corrected together, ns.
const BLOCK_NS: u64 = 100_000_000;

/// Counts are read some ten microseconds after the tick boundary at which time is divided. This is
/// the uncertainty of an owner's time, ns.
const EDGE_NS: f64 = 15_000.0;

/// Bytes of a device for each unit of its use. About what it moves in a tick, so that its use is of
/// the size of CPU time: sums of both are in one matrix of f32.
pub(super) const DEVICE_UNIT: f64 = 1_048_576.0;

/// Number of blocks of a long block.
pub(super) const LONG_BLOCK_LEN: u64 = 5;

/// Number of long blocks before and after one from which its rates are corrected.
const LONG_BLOCKS_AROUND: u64 = 4;

/// The state of a source.
#[derive(Clone, Debug)]
struct SourceState {
    number: u32,
    /// Use in about the last 10 s.
    recent_use: f64,
    /// The last tick in which it ran.
    last_tick: u64,
    slot: u16,
    moments: UseMoments,
}

/// Moving averages of a source's use per tick and of its square.
#[derive(Clone, Debug, Default)]
struct UseMoments {
    ticks: f64,
    mean: f64,
    mean_square: f64,
    /// The tick of the last update.
    updated_tick: u64,
}

impl UseMoments {
    /// Adds the use of `tick`. The use of the ticks between the last update and `tick` was 0.
    fn add_tick(&mut self, tick: u64, amount: f64) {
        if self.ticks > 0.0 {
            let idle = tick.saturating_sub(self.updated_tick + 1) as f64;
            let memory_ticks = 1.0 / MOMENTS_GAIN;
            let decay = if self.ticks + idle <= memory_ticks {
                self.ticks / (self.ticks + idle)
            } else {
                libm::exp(-idle * MOMENTS_GAIN)
            };
            self.ticks += idle;
            self.mean *= decay;
            self.mean_square *= decay;
        }
        self.ticks += 1.0;
        let gain = MOMENTS_GAIN.max(1.0 / self.ticks);
        self.mean += gain * (amount - self.mean);
        self.mean_square += gain * (amount * amount - self.mean_square);
        self.updated_tick = tick;
    }

    fn variance(&self) -> f64 {
        self.mean_square - self.mean * self.mean
    }
}

/// The use of one set of CPUs.
#[derive(Debug)]
pub struct Histories {
    /// CPU time.
    pub time: History,
    /// Misses, if each CPU has a witness and a method learns from them.
    pub misses: Option<History>,
    /// Bytes at ports, if ports count each CPU and a method learns from them. Its last tick is the
    /// last that all ports have divided.
    pub ports: Option<History>,
    /// How sure the ports are, for windows that are not divided yet.
    pub port_confidence: BTreeMap<u64, PortConfidence>,
    /// Whose bytes devices moved, by window that is not divided yet.
    pub device_shares: BTreeMap<u64, DeviceShares>,
}

impl Histories {
    /// Empty histories for ticks of `tick_ns`.
    pub fn new(tick_ns: u64, has_misses: bool) -> Self {
        let misses = has_misses.then(|| History::new(Predictor::Misses, tick_ns));
        let time = History::new(Predictor::Time, tick_ns);
        Self {
            time,
            misses,
            ports: None,
            port_confidence: BTreeMap::new(),
            device_shares: BTreeMap::new(),
        }
    }

    /// The same with bytes at ports.
    pub(super) fn with_ports(self) -> Self {
        let ports = History::new(Predictor::Ports, self.time.tick_ns);
        Self { ports: Some(ports), ..self }
    }

    /// Adds bytes at ports in a tick by source. The flag says whether they are complete; if not,
    /// the rest comes with the next tick.
    pub(super) fn push_port_bytes(
        &mut self,
        tick: u64,
        bytes_by_source: BTreeMap<TrafficSource, f64>,
        is_complete: bool,
    ) {
        let Some(history) = &mut self.ports else { return };
        // The ports of CPUs divide a tick some time after devices' bytes are known.
        let device_bytes: Vec<_> = self.time.device_use(tick).collect();
        let uses = bytes_by_source.into_iter().map(|(source, bytes)| SourceUse::new(source, bytes));
        history.push_amounts(tick, uses);
        history.add_device_use(tick, device_bytes.into_iter());
        if !is_complete {
            history.mark_incomplete();
        }
    }

    /// Adds a tick in which a virtual machine ran whose misses are not counted.
    pub(super) fn push_blind(&mut self, tick: u64, times: &[SourceUse<u64>]) {
        self.time.push(tick, times);
        if let Some(history) = &mut self.misses {
            history.push(tick, &[]);
            history.blind_ticks.push_back(tick);
        }
    }

    /// Adds a tick: nanoseconds and, if used, misses by source, each source at most once.
    pub(super) fn push(
        &mut self,
        tick: u64,
        times: &[SourceUse<u64>],
        misses: impl FnOnce() -> TickMisses,
    ) {
        self.time.push(tick, times);
        let Some(history) = &mut self.misses else { return };
        let TickMisses { by_source, is_complete } = misses();
        history.push(tick, &by_source);
        if !is_complete {
            history.mark_incomplete();
        }
    }

    /// Adds bytes that devices moved in the last tick that was added.
    pub(super) fn add_device_bytes(&mut self, tick: u64, bytes: &[DeviceBytes]) {
        if bytes.is_empty() {
            return;
        }
        let device_use: Vec<_> = bytes.iter().map(|moved| self.time.locate_bytes(moved)).collect();
        self.time.add_device_use(tick, device_use.iter().copied());
        if let Some(misses) = &mut self.misses
            && !misses.is_blind(tick..=tick)
        {
            misses.add_device_use(tick, device_use.into_iter());
        }
    }

    /// The history of a kind of use, if there is one.
    pub(super) const fn history_of(&self, predictor: Predictor) -> Option<&History> {
        match predictor {
            Predictor::Time => Some(&self.time),
            Predictor::Misses => self.misses.as_ref(),
            Predictor::Ports => self.ports.as_ref(),
        }
    }

    /// Assigns columns to the sources with the largest use, and calibrates misses.
    pub(super) fn review_use(&mut self) {
        if let Some(misses) = &mut self.misses {
            let first_tick = misses.review_end_tick;
            let use_of_tick = |tick| {
                let mut use_by_source = MissesByTime::new();
                if misses.is_blind(tick..=tick) {
                    return use_by_source;
                }
                for time in self.time.use_by_source(tick) {
                    use_by_source.entry(time.source).or_default().time = time.amount;
                }
                for missed in misses.use_by_source(tick) {
                    use_by_source.entry(missed.source).or_default().misses = missed.amount;
                }
                use_by_source
            };
            let mut ticks: Vec<MissesByTime> =
                (first_tick..=misses.last_tick()).map(use_of_tick).collect();
            calibrate_misses(&mut ticks);
            for (tick, use_by_source) in (first_tick..).zip(ticks) {
                let calibrated = use_by_source.into_iter();
                misses.replace_use(
                    tick,
                    calibrated.map(|(source, used)| SourceUse::new(source, used.misses)),
                );
            }
            misses.review_use();
        }
        self.ports.iter_mut().for_each(History::review_use);
        self.time.review_use();
    }

    /// Ends a review, whose ticks all methods have learnt. `profiles` has their rates for a
    /// predictor, by slot.
    pub(super) fn finish_review(&mut self, profiles: impl Fn(Predictor) -> Vec<Vec<f64>>) {
        self.time.finish_review(&profiles(Predictor::Time));
        self.misses
            .iter_mut()
            .for_each(|misses| misses.finish_review(&profiles(Predictor::Misses)));
        self.ports.iter_mut().for_each(|ports| ports.finish_review(&profiles(Predictor::Ports)));
    }

    /// Drops the ticks before `oldest_tick`.
    pub(super) fn forget_before(&mut self, oldest_tick: u64) {
        self.time.forget_before(oldest_tick);
        self.misses.iter_mut().for_each(|misses| misses.forget_before(oldest_tick));
        self.ports.iter_mut().for_each(|ports| ports.forget_before(oldest_tick));
        self.port_confidence.retain(|tick, _| *tick >= oldest_tick);
        self.device_shares.retain(|tick, _| *tick >= oldest_tick);
    }
}

/// The ticks of one set of CPUs, for one predictor.
#[derive(Debug)]
pub struct History {
    predictor: Predictor,
    tick_ns: u64,
    source_states: HashMap<TrafficSource, SourceState>,
    sources: HashMap<u32, TrafficSource>,
    next_source: u32,
    /// The tick of the first row.
    first_tick: u64,
    rows: VecDeque<Box<[UseEntry]>>,
    /// The rows by slot, with the baseline.
    rows_by_slot: VecDeque<UseRow>,
    /// The expected count of each reviewed tick, relative to the mean.
    sizes: VecDeque<f32>,
    /// Ticks whose use is incomplete: the rest is in a later tick. Ascending.
    incomplete_ticks: VecDeque<u64>,
    /// Ticks in which there was use that no witness counts. Ascending.
    blind_ticks: VecDeque<u64>,
    /// Columns are assigned in the rows before this tick.
    review_end_tick: u64,
    columns: RateColumns,
    /// Cgroups that ran more on far CPUs than on near ones, if devices' bytes are known.
    far_cgroups: HashSet<u64>,
    /// Use of CPUs in about the last 10 s.
    total_use: f64,
    design: Design,
    blocks: VecDeque<Block>,
    /// What a busy sibling thread costs.
    sibling_cost: SiblingCost,
    shared: Mutex<SharedSums>,
}

/// The use in the ticks of a block, each weighed by one over its expected count.
#[derive(Debug)]
pub(super) struct Block {
    /// Its last tick, divided by the length of a block, rounded up.
    pub number: u64,
    /// Products of use and use.
    pub products: Arc<DenseMatrix<f32>>,
}

/// Which sum of blocks a Gram matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GramKey {
    /// The stage, which has the weights of the blocks by their distance.
    pub stage_index: usize,
    /// The block, or the long block, from which distances count.
    pub middle: u64,
}

/// Sums that all counters of a set of CPUs need, made when the first one asks.
#[derive(Debug, Default)]
struct SharedSums {
    /// Sums of blocks.
    grams_around: HashMap<GramKey, Arc<DenseMatrix<f32>>>,
    /// By the tick after which the window begins, and its last tick.
    windows: BTreeMap<(u64, u64), Arc<WindowUse>>,
}

/// The use of an owner in a window, on near or on far CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerUse {
    /// The owner.
    pub source: TrafficSource,
    /// The slot of its column.
    pub slot: u16,
    /// The amount.
    pub amount: f64,
    /// The fraction of its use's variance that the edges of ticks explain, 0 to 1; 0 for witnesses.
    pub edge_fraction: f64,
}

/// The use in a window.
#[derive(Debug)]
pub(super) struct WindowUse {
    /// By cgroup, then by owner.
    pub owners: Vec<OwnerUse>,
    /// Amounts by slot.
    pub by_slot: Vec<f64>,
}

impl History {
    /// An empty history for ticks of `tick_ns`.
    fn new(predictor: Predictor, tick_ns: u64) -> Self {
        Self {
            predictor,
            tick_ns,
            source_states: HashMap::default(),
            sources: HashMap::default(),
            next_source: 1,
            first_tick: 0,
            rows: VecDeque::new(),
            rows_by_slot: VecDeque::new(),
            sizes: VecDeque::new(),
            incomplete_ticks: VecDeque::new(),
            blind_ticks: VecDeque::new(),
            review_end_tick: 0,
            columns: RateColumns::new(),
            far_cgroups: HashSet::default(),
            total_use: 0.0,
            design: Design::default(),
            blocks: VecDeque::new(),
            sibling_cost: SiblingCost::default(),
            shared: Mutex::default(),
        }
    }

    /// The predictor.
    pub const fn predictor(&self) -> Predictor {
        self.predictor
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// The uncertainty of an owner's time, in ticks: a span has two ends.
    pub(super) fn edge_ticks(&self) -> f64 {
        2.0 * EDGE_NS / self.tick_ns as f64
    }

    /// The source with this number, as long as a stored tick refers to it.
    pub(super) fn source_of_number(&self, number: u32) -> Option<TrafficSource> {
        self.sources.get(&number).copied()
    }

    /// The last tick.
    pub(super) fn last_tick(&self) -> u64 {
        (self.first_tick + self.rows.len() as u64).saturating_sub(1)
    }

    /// The entries of a tick, by source; none if the tick was dropped.
    pub(super) fn tick_entries(&self, tick: u64) -> &[UseEntry] {
        let stored_row =
            tick.checked_sub(self.first_tick).and_then(|index| self.rows.get(index as usize));
        stored_row.map_or(&[], |row| row)
    }

    /// The use in a tick by slot, with the baseline; empty if the tick was dropped.
    pub(super) fn row_by_slot(&self, tick: u64) -> &[SlotAmount] {
        let stored_row = tick
            .checked_sub(self.first_tick)
            .and_then(|index| self.rows_by_slot.get(index as usize));
        stored_row.map_or(&[], |row| row)
    }

    /// The use of each source in a tick.
    fn use_by_source(&self, tick: u64) -> impl Iterator<Item = SourceUse> {
        self.tick_entries(tick).iter().filter_map(|entry| {
            Some(SourceUse::new(self.source_of_number(entry.source)?, f64::from(entry.amount)))
        })
    }

    /// Replaces the amounts of a tick that was not reviewed yet.
    fn replace_use(&mut self, tick: u64, use_by_source: impl Iterator<Item = SourceUse>) {
        let states = &self.source_states;
        let make_entry = |SourceUse { source, amount, beside_busy }: SourceUse| {
            let state = states.get(&source).filter(|_| amount > 0.0)?;
            Some(UseEntry {
                source: state.number,
                slot: state.slot,
                amount: amount as f32,
                beside_busy: beside_busy as f32,
            })
        };
        let row: Box<[UseEntry]> = use_by_source.filter_map(make_entry).collect();
        let Some(index) = tick.checked_sub(self.first_tick).map(|offset| offset as usize) else {
            return;
        };
        if let (Some(stored_row), Some(stored_by_slot)) =
            (self.rows.get_mut(index), self.rows_by_slot.get_mut(index))
        {
            *stored_by_slot = sum_entries_by_slot(&row);
            *stored_row = row;
        }
    }

    /// The fraction of the variance of a source's use between ticks that the uncertainty of tick
    /// boundaries can explain, if each is known to `edge`; 0 to 1.
    fn edge_fraction(&self, source: TrafficSource, edge: f64) -> f64 {
        let variance =
            self.source_states.get(&source).map_or(0.0, |state| state.moments.variance());
        if variance > 0.0 { (edge * edge / variance).min(1.0) } else { 1.0 }
    }

    /// Adds a tick: nanoseconds or misses by source, each source at most once. Idle time is left
    /// out, because it explains nothing; misses of an idle CPU are kept.
    fn push(&mut self, tick: u64, use_by_source: &[SourceUse<u64>]) {
        let (unit, explains_idle) = match self.predictor {
            Predictor::Time => (1.0 / self.tick_ns as f64, false),
            Predictor::Misses | Predictor::Ports => (1.0, true),
        };
        let cost = self.sibling_cost.cost();
        let effective_use = |raw: &SourceUse<u64>| {
            let beside_busy = raw.beside_busy as f64 * unit;
            let amount = raw.amount as f64 * unit - cost * beside_busy;
            let explains = explains_idle || raw.source.owner != Owner::Idle;
            explains.then_some(SourceUse { source: raw.source, amount, beside_busy })
        };
        self.push_amounts(tick, use_by_source.iter().filter_map(effective_use));
    }

    /// Improves the cost of a busy sibling by what all counters have learnt of it.
    pub(super) fn update_sibling_cost(&mut self, sums: impl Iterator<Item = ContrastSums>) {
        self.sibling_cost.update_cost(sums);
    }

    /// What a busy sibling costs.
    pub(super) const fn sibling_cost(&self) -> &SiblingCost {
        &self.sibling_cost
    }

    /// Adds a tick: the use of each source, each source at most once.
    fn push_amounts(&mut self, tick: u64, use_by_source: impl Iterator<Item = SourceUse>) {
        if self.rows.is_empty() {
            (self.first_tick, self.review_end_tick) = (tick, tick);
        }
        // Ticks without data.
        while self.first_tick + (self.rows.len() as u64) < tick {
            self.rows.push_back(Box::default());
            self.rows_by_slot.push_back(sum_entries_by_slot(&[]));
        }
        let positive = use_by_source.filter(|source_use| source_use.amount > 0.0);
        let row: Box<[UseEntry]> =
            positive.map(|source_use| self.record_use(tick, source_use)).collect();
        self.rows_by_slot.push_back(sum_entries_by_slot(&row));
        self.rows.push_back(row);
    }

    /// The use of a device by its bytes. A kernel allocates memory on the node of the CPU that first
    /// touches it, so the bytes of a tenant are in the memory of the CPUs on which it runs, unless
    /// it is known to which socket the device moves them.
    fn locate_bytes(&self, moved: &DeviceBytes) -> SourceUse {
        let DeviceBytes { traffic, owner, bytes, placement } = *moved;
        let is_far = match placement {
            BytePlacement::Socket { is_far } => is_far,
            BytePlacement::OfOwner => {
                cgroup_of_owner(&owner).is_some_and(|cgroup| self.far_cgroups.contains(&cgroup))
            }
        };
        let source = TrafficSource { owner, is_far, device: Some(traffic) };
        SourceUse::new(source, bytes / DEVICE_UNIT)
    }

    /// Adds what devices moved to the use of the last tick.
    fn add_device_use(&mut self, tick: u64, use_by_source: impl Iterator<Item = SourceUse>) {
        if self.rows.is_empty() || self.last_tick() != tick {
            return;
        }
        let mut device_entries = Vec::new();
        for source_use in use_by_source.filter(|source_use| source_use.amount > 0.0) {
            let Some(traffic) = source_use.source.device else { continue };
            self.columns.require_device_slot(traffic, source_use.source.is_far);
            device_entries.push(self.record_use(tick, source_use));
        }
        let Some(row) = self.rows.back_mut().filter(|_| !device_entries.is_empty()) else { return };
        let mut entries = std::mem::take(row).into_vec();
        entries.extend(device_entries);
        *row = entries.into();
        if let Some((by_slot, row)) = self.rows_by_slot.back_mut().zip(self.rows.back()) {
            *by_slot = sum_entries_by_slot(row);
        }
    }

    /// What devices moved in a tick.
    fn device_use(&self, tick: u64) -> impl Iterator<Item = SourceUse> {
        let has_devices = self.columns.has_devices();
        self.use_by_source(tick).filter(move |used| has_devices && used.source.device.is_some())
    }

    /// Finds the cgroups that ran more on far CPUs.
    fn find_far_cgroups(&mut self, use_by_source: &[SourceUse]) {
        let mut balance: HashMap<u64, f64> = HashMap::default();
        for SourceUse { source, amount, beside_busy: _ } in use_by_source {
            let Some(cgroup) = cgroup_of_owner(&source.owner) else { continue };
            *balance.entry(cgroup).or_default() += if source.is_far { -amount } else { *amount };
        }
        self.far_cgroups =
            balance.into_iter().filter(|(_, near)| *near < 0.0).map(|(cgroup, _)| cgroup).collect();
    }

    /// Notes that the use of the last tick is incomplete; the rest comes in a later tick.
    fn mark_incomplete(&mut self) {
        self.incomplete_ticks.push_back(self.last_tick());
    }

    /// Whether all use up to the end of the tick is known.
    pub(super) fn is_complete(&self, tick: u64) -> bool {
        self.incomplete_ticks.binary_search(&tick).is_err()
    }

    /// Whether there was use in these ticks that no witness counts.
    pub(super) fn is_blind(&self, ticks: RangeInclusive<u64>) -> bool {
        let index = self.blind_ticks.partition_point(|tick| tick < ticks.start());
        self.blind_ticks.get(index).is_some_and(|tick| ticks.contains(tick))
    }

    fn record_use(&mut self, tick: u64, source_use: SourceUse) -> UseEntry {
        let SourceUse { source, amount, beside_busy } = source_use;
        let (next_number, sources, columns) =
            (&mut self.next_source, &mut self.sources, &self.columns);
        let state = self.source_states.entry(source).or_insert_with(|| {
            // Numbers are used again after 2^32 sources; 0 is that of the baseline.
            while sources.contains_key(next_number) {
                *next_number = next_number.checked_add(1).unwrap_or(1);
            }
            let number = *next_number;
            *next_number = next_number.checked_add(1).unwrap_or(1);
            sources.insert(number, source);
            SourceState {
                number,
                recent_use: 0.0,
                last_tick: tick,
                slot: columns.slot_of_source(source),
                moments: UseMoments::default(),
            }
        });
        state.recent_use += amount;
        state.last_tick = tick;
        state.moments.add_tick(tick, amount);
        UseEntry {
            source: state.number,
            slot: state.slot,
            amount: amount as f32,
            beside_busy: beside_busy as f32,
        }
    }

    /// Assigns columns to the sources with the largest use, and sums up the ticks since the last
    /// review. Learners see ticks only after this.
    pub(super) fn review_use(&mut self) {
        // First: some of them are the products of blocks, which change.
        self.lock_shared().grams_around.clear();
        // Devices have columns from their first bytes on.
        let on_cpus = |(source, state): (&TrafficSource, &SourceState)| {
            source.device.is_none().then(|| SourceUse::new(*source, state.recent_use))
        };
        let mut use_by_source: Vec<SourceUse> =
            self.source_states.iter().filter_map(on_cpus).collect();
        use_by_source.sort_unstable_by_key(|used| used.source);
        if self.columns.has_devices() {
            self.find_far_cgroups(&use_by_source);
        }
        self.total_use = use_by_source.iter().map(|used| used.amount).sum();
        let min_use = match self.predictor {
            Predictor::Time => MIN_COLUMN_TICKS,
            Predictor::Misses | Predictor::Ports => 0.0,
        };
        for slot in
            self.columns.assign_columns(&use_by_source, min_use, self.first_tick..=self.last_tick())
        {
            self.design.clear_slot(usize::from(slot));
            self.sibling_cost.clear_slot(usize::from(slot));
            for block in &mut self.blocks {
                Arc::make_mut(&mut block.products).clear_row_and_column(usize::from(slot));
            }
        }
        let mut slot_of_number: HashMap<u32, u16> = HashMap::default();
        for (source, state) in &mut self.source_states {
            state.recent_use *= FORGETTING_FACTOR;
            state.slot = self.columns.slot_of_source(*source);
            slot_of_number.insert(state.number, state.slot);
        }
        let mut rows: Vec<ScaledRow> = Vec::new();
        let mut block_number = 0;
        let first_index = self.review_end_tick.saturating_sub(self.first_tick) as usize;
        for index in first_index..self.rows.len() {
            let mut has_moved = false;
            for entry in &mut self.rows[index] {
                let column_slot = slot_of_number.get(&entry.source).copied().unwrap_or(SHARED_NEAR);
                has_moved |= column_slot != entry.slot;
                entry.slot = column_slot;
            }
            if has_moved {
                self.rows_by_slot[index] = sum_entries_by_slot(&self.rows[index]);
            }
            if self.predictor == Predictor::Time {
                self.sibling_cost.add_tick(&self.rows[index]);
            }
            let row = Arc::clone(&self.rows_by_slot[index]);
            let size = self.design.next_relative_size(&row);
            self.sizes.push_back(size as f32);
            let number = self.block_of(self.first_tick + index as u64);
            if number != block_number {
                self.add_to_block(block_number, &mut rows);
                block_number = number;
            }
            rows.push(ScaledRow { row: Arc::clone(&row), factor: size.sqrt().recip() });
            self.design.push(row, size);
        }
        self.add_to_block(block_number, &mut rows);
        self.review_end_tick = self.first_tick + self.rows.len() as u64;
    }

    /// Adds ticks, which are removed from `rows`, to the last block or to the one after it.
    fn add_to_block(&mut self, number: u64, rows: &mut Vec<ScaledRow>) {
        if rows.is_empty() {
            return;
        }
        if self.blocks.back().is_none_or(|block| block.number < number) {
            let products = DenseMatrix::zero(self.columns.len(), self.columns.len());
            self.blocks.push_back(Block { number, products: Arc::new(products) });
        }
        if let Some(block) = self.blocks.back_mut() {
            for batch in rows.chunks(BATCH_TICKS) {
                let products = Arc::make_mut(&mut block.products);
                products.add_products(&DenseMatrix::from_use(batch));
            }
        }
        rows.clear();
    }

    fn lock_shared(&self) -> std::sync::MutexGuard<'_, SharedSums> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the block of a tick.
    pub(super) fn block_of(&self, tick: u64) -> u64 {
        tick.div_ceil(self.block_ticks())
    }

    /// Number of ticks of a block.
    pub(super) fn block_ticks(&self) -> u64 {
        (BLOCK_NS / self.tick_ns).max(1)
    }

    /// The number of the first block that is needed to correct rates at `tick`.
    pub(super) fn needed_block(&self, tick: u64) -> u64 {
        self.block_of(tick).div_ceil(LONG_BLOCK_LEN).saturating_sub(LONG_BLOCKS_AROUND + 1)
            * LONG_BLOCK_LEN
            + 1
    }

    /// The Gram matrix: the sum of blocks with these weights by number.
    pub(super) fn gram_around(
        &self,
        key: GramKey,
        weight: impl Fn(u64) -> Option<f64>,
    ) -> Arc<DenseMatrix<f32>> {
        let compute_gram = || {
            let count = self.columns.len();
            let blocks = self.blocks.iter();
            let blocks: Vec<(&Block, f32)> =
                blocks.filter_map(|block| Some((block, weight(block.number)? as f32))).collect();
            match blocks[..] {
                [(block, 1.0)] if block.products.column_count() == count => {
                    Arc::clone(&block.products)
                }
                _ => {
                    let addends = blocks.iter().map(|(block, weight)| (&*block.products, *weight));
                    Arc::new(DenseMatrix::weighted_sum(count, &addends.collect::<Vec<_>>()))
                }
            }
        };
        Arc::clone(self.lock_shared().grams_around.entry(key).or_insert_with(compute_gram))
    }

    /// The use in the window of the ticks after `after_tick` up to `last_tick`.
    pub(super) fn window_use(&self, after_tick: u64, last_tick: u64) -> Arc<WindowUse> {
        let compute_use = || Arc::new(self.sum_window_use(after_tick, last_tick));
        Arc::clone(
            self.lock_shared().windows.entry((after_tick, last_tick)).or_insert_with(compute_use),
        )
    }

    fn sum_window_use(&self, after_tick: u64, last_tick: u64) -> WindowUse {
        let mut amounts: HashMap<(u32, u16), f64> = HashMap::default();
        let mut by_slot = vec![0.0; self.columns.len()];
        for entry in (after_tick + 1..=last_tick).flat_map(|tick| self.tick_entries(tick)) {
            let amount = f64::from(entry.amount);
            *amounts.entry((entry.source, entry.slot)).or_default() += amount;
            if let Some(sum) = by_slot.get_mut(usize::from(entry.slot)) {
                *sum += amount;
            }
        }
        let edge = self.edge_ticks();
        let owner_use = |((source, slot), amount): ((u32, u16), f64)| {
            let source = self.source_of_number(source)?;
            let edge_fraction = if self.predictor == Predictor::Time && source.device.is_none() {
                self.edge_fraction(source, edge)
            } else {
                0.0
            };
            Some(OwnerUse { source, slot, amount, edge_fraction })
        };
        let mut owners: Vec<_> = amounts.into_iter().filter_map(owner_use).collect();
        owners.sort_unstable_by_key(|owner| {
            (cgroup_of_owner(&owner.source.owner), owner.source, owner.slot)
        });
        WindowUse { owners, by_slot }
    }

    /// The block with this number.
    pub(super) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.iter().find(|block| block.number == number)
    }

    /// The tick after the last that was reviewed.
    pub(super) const fn review_end_tick(&self) -> u64 {
        self.review_end_tick
    }

    /// The expected count of a reviewed tick, relative to the mean.
    pub(super) fn relative_size(&self, tick: u64) -> f64 {
        let stored_size =
            tick.checked_sub(self.first_tick).and_then(|index| self.sizes.get(index as usize));
        stored_size.map_or(1.0, |size| f64::from(*size))
    }

    /// The sums.
    pub(super) const fn design(&self) -> &Design {
        &self.design
    }

    /// The first stored tick.
    pub(super) const fn first_tick(&self) -> u64 {
        self.first_tick
    }

    fn finish_review(&mut self, profiles: &[Vec<f64>]) {
        self.design.clear_groups();
        let mut mean = vec![0.0; self.columns.len()];
        for profile in profiles {
            mean.iter_mut().zip(profile).for_each(|(mean, rate)| *mean += rate);
        }
        if !profiles.is_empty() {
            self.design.set_profile(mean);
        }
    }

    /// The columns.
    pub(super) const fn columns(&self) -> &RateColumns {
        &self.columns
    }

    /// Drops the ticks before `oldest_tick`.
    pub(super) fn forget_before(&mut self, oldest_tick: u64) {
        while self.first_tick < oldest_tick && self.rows.pop_front().is_some() {
            self.rows_by_slot.pop_front();
            self.sizes.pop_front();
            self.first_tick += 1;
        }
        for ticks in [&mut self.incomplete_ticks, &mut self.blind_ticks] {
            while ticks.pop_front_if(|tick| *tick < oldest_tick).is_some() {}
        }
        let needed = self.needed_block(self.first_tick);
        while self.blocks.pop_front_if(|block| block.number < needed).is_some() {}
        let (first_tick, total_use) = (self.first_tick, self.total_use);
        self.lock_shared().windows.retain(|(_, last_tick), _| *last_tick >= first_tick);
        let sources = &mut self.sources;
        self.source_states.retain(|source, state| {
            let min_fraction = match source.owner {
                Owner::Task { .. } => columns::MIN_PROCESS_FRACTION,
                _ => columns::MIN_GROUP_FRACTION,
            };
            let min_cpu_use = columns::DROP_FRACTION * min_fraction * total_use;
            let min_use = match source.device {
                Some(_) => MIN_SOURCE_USE,
                None => min_cpu_use.max(MIN_SOURCE_USE),
            };
            let is_kept = state.last_tick >= first_tick || state.recent_use > min_use;
            if !is_kept {
                sources.remove(&state.number);
            }
            is_kept
        });
    }
}

/// The use by column, with the baseline, which is always there.
fn sum_entries_by_slot(entries: &[UseEntry]) -> UseRow {
    let amounts = entries.iter().map(|entry| (entry.slot, f64::from(entry.amount)));
    sum_by_slot(iter::once((BASELINE, 1.0)).chain(amounts))
}

#[cfg(test)]
mod tests {
    use super::super::columns::SHARED_FAR;
    use super::*;

    const TICK: u64 = 1_000_000;

    const fn near(number: u32) -> TrafficSource {
        TrafficSource::from_cpus(Owner::Irq(number), false)
    }

    fn run(history: &mut History, ticks: u64, times: &[SourceUse<u64>]) {
        for _ in 0..ticks {
            let tick = history.first_tick + history.rows.len() as u64;
            history.push(tick, times);
            if tick.is_multiple_of(100) {
                history.review_use();
                history.forget_before(tick.saturating_sub(2000));
            }
        }
    }

    /// The owners that have columns of their own.
    fn owners_with_columns(history: &History, tick: u64) -> Vec<u32> {
        let irq_number = |entry: &UseEntry| {
            let source = history.source_of_number(entry.source).unwrap();
            let Owner::Irq(number) = source.owner else { panic!("{source:?}") };
            number
        };
        let row = history.tick_entries(tick).iter();
        let mut own: Vec<u32> =
            row.filter(|entry| entry.slot > SHARED_FAR).map(irq_number).collect();
        own.sort_unstable();
        own
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut history = History::new(Predictor::Time, TICK);
        run(
            &mut history,
            201,
            &[
                SourceUse::new(near(1), TICK),
                SourceUse::new(TrafficSource::from_cpus(Owner::Idle, false), TICK),
            ],
        );
        assert_eq!(owners_with_columns(&history, 150), [1]);
        run(&mut history, 100_000, &[SourceUse::new(near(2), TICK)]);
        assert_eq!(history.source_states.len(), 1);
        assert_eq!(history.sources.len(), 1);
        assert!(history.rows.len() <= 2101);
    }

    #[test]
    fn only_time_that_differs_by_more_than_its_edges_tells() {
        let mut history = History::new(Predictor::Time, TICK);
        let edge = 0.03;
        assert!(history.edge_fraction(near(1), edge) > 0.99);
        for tick in 0..1000 {
            let odd = tick % 2;
            let times = [
                SourceUse::new(near(1), odd * TICK),
                SourceUse::new(near(2), TICK * 97 / 100 + odd * TICK / 33),
            ];
            history.push(tick, &times);
        }
        assert!(history.edge_fraction(near(1), edge) < 0.01);
        assert!(history.edge_fraction(near(2), edge) > 0.99);
    }

    #[test]
    fn ticks_that_were_not_seen_are_empty() {
        let mut history = History::new(Predictor::Time, TICK);
        history.push(5, &[SourceUse::new(near(1), TICK)]);
        history.push(8, &[SourceUse::new(near(1), TICK)]);
        assert_eq!([4, 5, 6, 8, 9].map(|tick| history.tick_entries(tick).len()), [0, 1, 0, 1, 0]);
        assert_eq!(history.last_tick(), 8);
    }
}
