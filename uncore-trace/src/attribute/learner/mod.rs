//! Learns each owner's traffic per unit of use from the counts of ticks. The use is CPU time or
//! counted misses, or bytes at ports ([`Predictor`]).
//!
//! Count of a tick = baseline + sum over columns of rate x use. Rates are learnt from the last
//! minute ([`posterior`]), from sums that all counters of a set of CPUs share ([`super::sums`]). In
//! each block of 100 ms they are corrected by the counts around it ([`block_rates`]). A link
//! that is
//! nearly full counts less ([`bend`]). A count is divided in proportion to rate x use.
//!
//! The order of the stages, for each counter:
//!
//! 1. [`Learner::observe_count`]: counts are kept as they come. Nothing is learnt from them yet,
//!    because their ticks have no columns before the review ([`super::learning`]).
//! 2. [`Learner::learn_counts`]: first, what was learnt of a slot is forgotten if the review gave
//!    it to another column; the new column must not begin with the counts of the old one. Then
//!    the counts are straightened and summed up, by the rates of the last solution: the sums must
//!    be complete up to the end of the review, like those of the use, which they are solved with.
//! 3. [`Learner::update_rates`]: the bend is updated before the rates are solved, with the ticks
//!    that were compared with the old rates. New rates invalidate those of the last block.
//! 4. [`Learner::divide_counts`]: the oldest count first, because the rates of a block begin from
//!    those of the block before, and the noise is learnt from the residuals of the counts that were
//!    divided. A lag later than stage 2, so that a block is corrected by the counts after it, too.
//!    Last, the blocks that no undivided count needs are dropped.

mod bend;
mod block_rates;
mod contributions;
mod fit;
mod limit;
mod measured_rates;
mod observation;
mod posterior;
mod solve_schedule;

use std::collections::{BTreeSet, VecDeque};

use self::bend::Bend;
pub(super) use self::block_rates::Variance;
use self::block_rates::{BlockCounts, BlockRates, CorrectionBasis, PriorScales};
pub(super) use self::contributions::{Contributions, DividedCount};
use self::fit::ModelFit;
use self::limit::LinkLimit;
use self::measured_rates::MeasuredRates;
pub(super) use self::observation::Observation;
use self::observation::ObservationQueue;
pub(super) use self::posterior::FAR_LOG_SD;
use self::posterior::{PriorBasis, RateModel, RateSolution, SolveOptions};
use self::solve_schedule::SolveSchedule;
use super::columns::{BASELINE, RateColumns};
use super::device_bytes::DeviceDirections;
use super::history::History;
use super::measured_part::MeasuredPart;
use super::misfit::Misfit;
use super::near_rates::{NearRate, NearRates};
use super::predictor::Predictor;
use super::sibling_cost::{ContrastFit, ContrastSums, ContrastTick};
use super::statistics::sample_variance;
use super::sums::{CountSums, add_row, expected_count};
use super::traffic_source::TrafficSource;
use super::use_row::SlotAmount;
use crate::entries::Relief;
use crate::schema::fabric::part_of_somebody;

/// How thoroughly rates are solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Start from the last solution, as `record` does
    #[default]
    Live,
    /// Improve the solution until it stays the same
    Full,
}

impl Effort {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Full => "full",
        }
    }
}

/// Variances of relative errors that the model does not know of.
#[derive(Clone, Copy, Debug)]
pub(super) struct MisfitVariances {
    /// Of a rate, because the link is full.
    pub full_link: f64,
    /// Of a count, because bytes come late.
    pub late: f64,
    /// Of all rates together.
    pub common: f64,
    /// Of a count, because its baseline is larger than is expected.
    pub of_somebody: f64,
    /// The part of the prior variance of the baseline that the ticks have not removed, 0 to 1.
    pub unknown_baseline: f64,
}

/// The variance of a tick around what the rates of its block make expect, relative to the square of
/// that.
#[derive(Debug, Default)]
struct Noise {
    residuals: Vec<f64>,
    variance: f64,
}

impl Noise {
    /// Number of ticks whose mean is left out: only what differs within them is noise.
    const TICKS: usize = 8;

    /// Gain per tick.
    const GAIN: f64 = 5e-4;

    /// Least variance, relative to that around the learnt rates.
    const MIN_RATIO: f64 = 0.02;

    /// Adds the residual of some ticks: their count less the expected count.
    fn add_residual(&mut self, residual: f64, ticks: u64) {
        if ticks != 1 {
            self.residuals.clear();
            return;
        }
        self.residuals.push(residual);
        if self.residuals.len() < Self::TICKS {
            return;
        }
        let variance = sample_variance(self.residuals.iter().copied());
        self.residuals.clear();
        let gain = if self.variance > 0.0 { Self::TICKS as f64 * Self::GAIN } else { 1.0 };
        self.variance += gain * (variance - self.variance);
    }

    /// The variance; `max_variance` is that around the learnt rates.
    fn variance_within(&self, max_variance: f64) -> f64 {
        if self.variance > 0.0 {
            self.variance.clamp(Self::MIN_RATIO * max_variance, max_variance)
        } else {
            max_variance
        }
    }
}

/// What the rates of the current block are made of, besides the learnt ones.
#[derive(Debug)]
struct CurrentBlock {
    /// Products of use and count, by block.
    counts: VecDeque<BlockCounts>,
    prior_scales: PriorScales,
    noise: Noise,
    /// The rates of the block that was divided last.
    rates: Option<BlockRates>,
}

/// What the ticks say of the model, beside the rates.
#[derive(Debug)]
struct ModelEvidence {
    bend: Bend,
    limit: LinkLimit,
    fit: ModelFit,
    contrast_fit: ContrastFit,
}

/// What was divided since it was last taken.
#[derive(Debug, Default)]
struct DivisionResults {
    contributions: Contributions,
    /// If they are kept: each count that was divided.
    divided_counts: Option<Vec<DividedCount>>,
    /// The last tick whose count was divided.
    last_tick: u64,
}

impl DivisionResults {
    /// Adds a count, if counts are kept; its amounts are made when they are needed.
    fn keep_count(&mut self, make_count: impl FnOnce() -> DividedCount) {
        if let Some(divided_counts) = &mut self.divided_counts {
            divided_counts.push(make_count());
        }
    }
}

/// The rates of one counter.
#[derive(Debug)]
pub(super) struct Learner {
    model: RateModel,
    effort: Effort,
    observations: ObservationQueue,
    count_sums: CountSums,
    /// The next tick to learn from; 0: none yet.
    next_tick: u64,
    /// The counts that were assumed for ticks that were not read.
    assumed_count: f64,
    schedule: SolveSchedule,
    /// The number of the column of each slot.
    column_numbers: Vec<Option<u64>>,
    solution: RateSolution,
    measured_rates: MeasuredRates,
    block: CurrentBlock,
    evidence: ModelEvidence,
    /// What was true since rates were well known.
    past_misfits: BTreeSet<Misfit>,
    results: DivisionResults,
    /// What is left out.
    relief: Relief,
}

impl Learner {
    /// A learner for ticks of `tick_ns`.
    pub(super) fn new(predictor: Predictor, tick_ns: u64, effort: Effort) -> Self {
        Self {
            model: RateModel { predictor, devices: DeviceDirections::default() },
            effort,
            observations: ObservationQueue::new(tick_ns),
            count_sums: CountSums::default(),
            next_tick: 0,
            assumed_count: 0.0,
            schedule: SolveSchedule::new(tick_ns),
            column_numbers: Vec::new(),
            solution: RateSolution::default(),
            measured_rates: MeasuredRates::default(),
            block: CurrentBlock {
                counts: VecDeque::new(),
                prior_scales: PriorScales::new(predictor),
                noise: Noise::default(),
                rates: None,
            },
            evidence: ModelEvidence {
                bend: Bend::default(),
                limit: LinkLimit::default(),
                fit: ModelFit::default(),
                contrast_fit: ContrastFit::default(),
            },
            past_misfits: BTreeSet::new(),
            results: DivisionResults::default(),
            relief: Relief::None,
        }
    }

    /// Adds the count since the last count; `tick` is the last tick of it. `None` if there is no
    /// reading at its end.
    pub(super) fn observe_count(&mut self, tick: u64, count: Option<f64>) {
        self.observations.push_count(tick, count);
    }

    /// Learns from bytes of devices in these directions, too.
    pub(super) const fn use_devices(&mut self, devices: DeviceDirections) {
        self.model.devices = devices;
    }

    /// Sets what is left out from now on.
    pub(super) fn set_relief(&mut self, relief: Relief) {
        self.relief = relief;
        self.block.rates = None;
    }

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    pub(super) const fn note_restart(&mut self) {
        self.observations.note_restart();
    }

    /// Whether rates were solved.
    const fn has_rates(&self) -> bool {
        !self.solution.rates.is_empty()
    }

    /// Whether rates are known.
    pub(super) fn is_ready(&self) -> bool {
        self.schedule.has_enough_ticks() && self.has_rates()
    }

    /// Adds what was measured of the count of a window, with the use of owners in it.
    pub(super) fn learn_measured(
        &mut self,
        mut parts: Vec<MeasuredPart>,
        owner_use: impl Iterator<Item = (TrafficSource, f64)>,
        window: &Observation,
    ) {
        let Observation { after_tick, last_tick, count, .. } = *window;
        let straightened = self.evidence.bend.straighten_count(count, last_tick - after_tick);
        for part in &mut parts {
            part.value *= straightened / count;
        }
        self.measured_rates.add_window(parts, owner_use, last_tick);
    }

    /// Adds the counts of the ticks that were reviewed since the last call.
    ///
    /// A tick that was not read counts as what its use makes expect, which teaches nothing, and the
    /// next count has the rest.
    pub(super) fn learn_counts(&mut self, history: &History) {
        self.follow_columns(history);
        let mut groups = history.design().groups().iter();
        let first_tick = if self.next_tick == 0 { history.first_tick() } else { self.next_tick };
        for tick in first_tick..history.review_end_tick() {
            let row = history.row_by_slot(tick);
            let observation = self.observations.pop_unlearnt(tick);
            let count = if let Some(Observation {
                after_tick: count_begin,
                last_tick: count_end,
                count,
                restarts: false,
            }) = observation
            {
                let ticks = (count_end - count_begin).max(1);
                let column_count = self.solution.active_slots.len() as u64;
                let mut straightened = self.evidence.bend.straighten_count(count, ticks);
                let expected = self.expected_count(row);
                if ticks == 1
                    && column_count > 0
                    && self.schedule.learnt_ticks > bend::TICKS_PER_COLUMN * column_count
                {
                    // Misses and bytes at ports are what was carried; only time asks for more.
                    let demand = (self.model.predictor == Predictor::Time)
                        .then(|| self.evidence.limit.add_tick(count, expected))
                        .flatten();
                    self.evidence.bend.add_tick(expected, demand.unwrap_or(count));
                    straightened = demand.unwrap_or(straightened);
                    self.evidence.fit.add_tick(expected, straightened - expected);
                }
                if ticks == 1 && history.sibling_cost().is_observed() {
                    self.observe_contrast(tick, straightened, expected, history);
                }
                (straightened - std::mem::take(&mut self.assumed_count)).max(0.0)
            } else {
                let expected = self.expected_count(row);
                self.assumed_count =
                    if observation.is_some() { 0.0 } else { self.assumed_count + expected };
                expected
            };
            self.schedule.learnt_ticks += 1;
            self.count_sums.push_count(count, &mut groups);
            let block_number = history.block_of(tick);
            if self.block.counts.back().is_none_or(|block| block.number < block_number) {
                self.block
                    .counts
                    .push_back(BlockCounts { number: block_number, products: Vec::new() });
            }
            if let Some(block) = self.block.counts.back_mut() {
                add_row(&mut block.products, row, count / history.relative_size(tick));
            }
        }
        self.next_tick = history.review_end_tick();
    }

    /// Adds what a tick says of busy sibling threads, relative to the expected count.
    fn observe_contrast(&mut self, tick: u64, count: f64, expected: f64, history: &History) {
        let rates = &self.solution.rates;
        if rates.is_empty() {
            return;
        }
        let contrast = history.sibling_cost().contrast(history.tick_entries(tick), rates);
        let size = history.relative_size(tick);
        self.evidence.contrast_fit.add_tick(ContrastTick {
            residual: (count - expected) / size,
            contrast: contrast / size,
            expected: expected / size,
        });
    }

    /// What the ticks since the last call say of busy sibling threads.
    pub(super) fn take_contrasts(&mut self) -> ContrastSums {
        self.evidence.contrast_fit.take_sums()
    }

    /// Forgets what was learnt of slots that have a new column. Until the next solution, its rate
    /// is that of the slot where the use was before.
    fn follow_columns(&mut self, history: &History) {
        let columns = history.columns();
        self.column_numbers.resize(columns.len(), None);
        let rates = &mut self.solution.rates;
        if !rates.is_empty() {
            rates.resize(columns.len(), 0.0);
        }
        let mut new_slots = Vec::new();
        for (slot, known_number) in self.column_numbers.iter_mut().enumerate() {
            // Stored ticks may refer to a slot without a column: it keeps what was learnt.
            let Some(column) = columns.get(slot) else { continue };
            if known_number.replace(column.number) != Some(column.number) {
                self.count_sums.clear_slot(slot);
                self.block.counts.iter_mut().for_each(|block| block.clear_slot(slot));
                rates.get_mut(slot).into_iter().for_each(|rate| *rate = 0.0);
                self.block.rates = None;
                self.solution.renewed_slots.push(slot);
                new_slots.push(slot);
            }
        }
        for slot in new_slots {
            let rate_of_slot =
                |parent_slot: u16| rates.get(usize::from(parent_slot)).copied().unwrap_or(0.0);
            let column_and_device =
                columns.get(slot).and_then(|column| Some((column, column.device()?)));
            let initial_rate = match column_and_device {
                Some((column, traffic)) if self.model.devices.contain(traffic.direction) => {
                    posterior::expected_device_rate(column, self.model.devices)
                }
                Some(_) => 0.0,
                None => columns
                    .previous_slot(slot, |parent| rate_of_slot(parent) > 0.0)
                    .map_or(0.0, rate_of_slot),
            };
            rates.get_mut(slot).into_iter().for_each(|rate| *rate = initial_rate);
        }
    }

    /// The count that the use in a tick makes expect.
    fn expected_count(&self, row: &[SlotAmount]) -> f64 {
        if self.solution.rates.is_empty() {
            return self.count_sums.sum / self.schedule.learnt_ticks.max(1) as f64;
        }
        expected_count(&self.solution.rates, row)
    }

    /// Solves the rates from the counts so far.
    pub(super) fn update_rates(&mut self, history: &History, peer_rates: &[&NearRates]) {
        let is_known = self.has_rates();
        if !self.schedule.is_solve_due(is_known, self.relief) {
            return;
        }
        self.schedule.note_solve();
        self.evidence.bend.update_factor();
        let (sums, groups) = history.design().with_open_means();
        let counts = self.count_sums.with_groups(groups);
        let options = SolveOptions {
            max_steps: match self.effort {
                _ if !is_known => 80,
                Effort::Live => 8,
                Effort::Full => 40,
            },
            keeps_covariance: !self.schedule.is_covariance_due(is_known, self.relief),
        };
        let rate_measurements = self.measured_rates.measure_columns(
            history.columns(),
            &sums.total_use,
            history.review_end_tick(),
        );
        let new_solution = posterior::solve_rates(
            sums,
            &counts,
            &rate_measurements,
            &PriorBasis { model: self.model, columns: history.columns(), peer_rates },
            &self.solution,
            options,
        );
        if let Some(solution) = new_solution {
            self.solution = solution;
            self.evidence.limit.note_new_rates();
            if !options.keeps_covariance {
                self.schedule.note_covariance();
            }
        }
        self.block.rates = None;
        if self.schedule.is_settled() {
            self.past_misfits.extend(self.current_misfits());
        }
    }

    /// The learnt rates of cgroups and their processes on near CPUs.
    pub(super) fn near_rates(&self, columns: &RateColumns) -> NearRates {
        let solution = &self.solution;
        let near_rate = |(index, slot): (usize, &usize)| {
            let column = columns.get(*slot)?;
            let rate = solution.rates.get(*slot).copied().unwrap_or(0.0);
            let is_known = rate > 0.0 && !solution.renewed_slots.contains(slot);
            let variance = f64::from(solution.covariance.entry(index, index));
            (is_known && column.cgroup().is_some() && !column.is_far())
                .then(|| (column.subject, NearRate { log_rate: libm::log(rate), variance }))
        };
        NearRates(solution.active_slots.iter().enumerate().filter_map(near_rate).collect())
    }

    /// The rates over the sum of the counts.
    pub(super) fn rate_profile(&self) -> Option<Vec<f64>> {
        let rates = &self.solution.rates;
        let sum = self.count_sums.sum;
        (!rates.is_empty() && sum > 0.0).then(|| rates.iter().map(|rate| rate / sum).collect())
    }

    /// Divides the counts of the ticks up to `up_to_tick`.
    pub(super) fn divide_counts(&mut self, history: &History, up_to_tick: u64) {
        while let Some(observation) =
            self.observations.undivided.pop_front_if(|oldest| oldest.last_tick <= up_to_tick)
        {
            let last_tick = observation.last_tick;
            self.results.last_tick = last_tick;
            if observation.restarts {
                self.results.contributions.restart_counts();
                self.results.keep_count(|| DividedCount { tick: last_tick, amounts: None });
                continue;
            }
            if !self.has_rates() || self.relief >= Relief::Residency {
                self.results.contributions.unknown += observation.count;
                self.results.keep_count(|| DividedCount::divide_by_use(&observation, history));
                continue;
            }
            let tick_variance =
                self.block.noise.variance_within(self.solution.residual_variances[0]);
            let current_rates = self.rates_of_block(history, last_tick, tick_variance);
            let mut amounts = self.results.divided_counts.is_some().then(Vec::new);
            let expected = self.results.contributions.add_count(
                &observation,
                history,
                &current_rates,
                tick_variance,
                amounts.as_mut(),
            );
            self.results.keep_count(|| DividedCount { tick: last_tick, amounts });
            let ticks = last_tick - observation.after_tick;
            let straightened = self.evidence.bend.straighten_count(observation.count, ticks);
            let residual = (straightened - expected) / history.relative_size(last_tick);
            self.block.noise.add_residual(residual, ticks);
            self.block.rates = Some(current_rates);
        }
        if let Some(current_rates) = &self.block.rates {
            self.results.contributions.variance.clone_from(&current_rates.variance);
        }
        let needed_tick = self.oldest_needed_tick().min(self.next_tick);
        let needed = history.needed_block(needed_tick);
        while self.block.counts.pop_front_if(|block| block.number < needed).is_some() {}
    }

    /// The rates in the block of a tick: those of the last tick, if it was in the same block.
    fn rates_of_block(&mut self, history: &History, tick: u64, tick_variance: f64) -> BlockRates {
        let block_number = history.block_of(tick);
        match self.block.rates.take() {
            Some(same_block) if same_block.number == block_number => same_block,
            _ if self.relief >= Relief::LastRates => BlockRates::from_learnt(
                block_number,
                &self.solution,
                history,
                &self.block.prior_scales,
            ),
            previous => {
                let basis = CorrectionBasis {
                    solution: &self.solution,
                    history,
                    counts: &self.block.counts,
                    tick_variance,
                };
                let corrected = BlockRates::correct_learnt(
                    tick,
                    &basis,
                    &mut self.block.prior_scales,
                    previous,
                );
                let corrections = corrected.group_corrections(&self.solution, history);
                self.evidence.fit.add_block(&corrections, history.block_ticks());
                corrected
            }
        }
    }

    /// How much of the baseline owners may have caused, as a part of the counts. Misses and bytes at
    /// ports have all that CPUs move, so the baseline has nothing of theirs.
    fn part_of_somebody(&self) -> f64 {
        match self.model.predictor {
            Predictor::Time => part_of_somebody(self.solution.baseline_part),
            Predictor::Misses | Predictor::Ports => 0.0,
        }
    }

    /// How large the errors are that the model does not know of.
    pub(super) fn misfit_variances(&self) -> MisfitVariances {
        // Where a link is full, nothing tells how rates differ from those of other times.
        let unknown_change: f64 = self.block.prior_scales.variance();
        MisfitVariances {
            full_link: self.evidence.limit.full_fraction() * unknown_change,
            late: self.evidence.fit.late_part().powi(2),
            common: self.evidence.fit.common_variance(),
            of_somebody: self.part_of_somebody().powi(2),
            unknown_baseline: self.solution.inflated_unknown_part(
                usize::from(BASELINE),
                self.evidence.fit.autocorrelation_factor(),
            ),
        }
    }

    /// The factor for the variance of a learnt rate, because errors last longer than was thought.
    pub(super) fn learnt_factor(&self, slot: usize) -> f64 {
        self.solution.variance_factor(slot, self.evidence.fit.autocorrelation_factor())
    }

    /// What the ticks have said against the model.
    pub(super) fn misfits(&self) -> Vec<Misfit> {
        self.past_misfits.union(&self.current_misfits()).copied().collect()
    }

    /// What the ticks of the last minute say against the model.
    fn current_misfits(&self) -> BTreeSet<Misfit> {
        [
            (self.evidence.limit.is_reached(), Misfit::LinkFull),
            (self.evidence.fit.change_together(), Misfit::ChangeTogether),
            (self.evidence.fit.late_part() > 0.0, Misfit::LateBytes),
            (self.part_of_somebody() > 0.0, Misfit::Unattributed),
        ]
        .into_iter()
        .filter_map(|(is_true, misfit)| is_true.then_some(misfit))
        .collect()
    }

    /// The amounts that were divided since the last call.
    pub(super) fn take_contributions(&mut self) -> Contributions {
        std::mem::take(&mut self.results.contributions)
    }

    /// The last tick whose count was divided.
    pub(super) const fn divided_tick(&self) -> u64 {
        self.results.last_tick
    }

    /// Keeps the amounts of each count from now on.
    pub(super) fn keep_divided_counts(&mut self) {
        self.results.divided_counts = Some(Vec::new());
    }

    /// The counts that were divided since the last call, if they are kept.
    pub(super) fn take_divided_counts(&mut self) -> Vec<DividedCount> {
        self.results.divided_counts.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The oldest tick that is still needed.
    pub(super) fn oldest_needed_tick(&self) -> u64 {
        self.observations.oldest_needed_tick()
    }
}
