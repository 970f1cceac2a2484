//! Counts of several counters over time: a sum of step functions.
//!
//! One total is often read by several counters, one per CPU or channel, whose windows need not
//! coincide: after a missing reading, a window is longer than those of others. A count is assumed
//! to be even within its window, so rates are constant between any two ends of windows, and the sum
//! changes only there.
//!
//! Guarantees: rate x length over all stretches is the sum of the counts; the sum is unknown while
//! one of the counters has no value, or was waited for in vain; memory holds at most [`PATIENCE`]
//! windows of each counter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::counts::TenantShare;
use super::survey::SurveyedCounter;

/// Number of windows of other counters that wait for a counter with a longer window: at 10 ms, a
/// CPU without readings for a second.
const PATIENCE: i64 = 128;

/// A time span with constant rates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateStretch {
    /// Index in `ExportNames::counts`.
    pub count_index: usize,
    /// Begin, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    /// End, `CLOCK_MONOTONIC`, ns.
    pub end_ns: i64,
    /// The rates; `None` if not known.
    pub rates: Option<LineRates>,
}

/// Rates, in the unit of the count per second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineRates {
    /// Rate of the total.
    pub total: f64,
    /// Rate of each line; the rates of all lines sum to the total.
    pub lines: Vec<f64>,
}

/// The sums of all totals.
#[derive(Debug)]
pub(super) struct StretchSums {
    sums: Vec<StretchSum>,
    /// The windows that end at `end_ns` and may get more rows, by counter and length.
    open_windows: BTreeMap<(i32, i64), (usize, WindowRates)>,
    end_ns: i64,
    patience_ns: i64,
}

/// The sum of one total.
#[derive(Debug)]
struct StretchSum {
    counters: BTreeMap<i32, SummedCounter>,
    lines: usize,
    /// End of the time that was passed on, ns.
    passed_ns: i64,
}

/// A counter of a sum.
#[derive(Debug)]
struct SummedCounter {
    counter: SurveyedCounter,
    windows: VecDeque<WindowRates>,
    /// End of the time for which its counts are known, ns.
    known_ns: i64,
}

/// The count of a counter in a window.
#[derive(Debug)]
struct WindowRates {
    begin_ns: i64,
    end_ns: i64,
    rates: Option<LineRates>,
}

impl StretchSums {
    /// No rows yet, for these counters; `lines` has the number of lines of each total.
    pub(super) fn for_counters(
        counters: &BTreeMap<i32, SurveyedCounter>,
        lines: impl Iterator<Item = usize>,
        window_ns: i64,
    ) -> Self {
        let empty_sum =
            |lines| StretchSum { counters: BTreeMap::new(), lines, passed_ns: i64::MAX };
        let mut sums: Vec<StretchSum> = lines.map(empty_sum).collect();
        for (id, counter) in counters {
            let sum = &mut sums[counter.count_index];
            sum.passed_ns = sum.passed_ns.min(counter.begin_ns);
            let (counter, windows) = (counter.clone(), VecDeque::new());
            let known_ns = counter.begin_ns;
            sum.counters.insert(*id, SummedCounter { counter, windows, known_ns });
        }
        let patience_ns = window_ns.saturating_mul(PATIENCE);
        Self { sums, open_windows: BTreeMap::new(), end_ns: i64::MIN, patience_ns }
    }

    /// Adds a row, with the line to which it belongs; rows come in the order of their windows'
    /// ends. Passes stretches that are complete to `on_stretch`: for each total in the order of
    /// time, without gaps.
    pub(super) fn add_share<E>(
        &mut self,
        share: &TenantShare,
        line: Option<usize>,
        on_stretch: impl FnMut(&RateStretch) -> Result<(), E>,
    ) -> Result<(), E> {
        if share.end_ns != self.end_ns {
            self.close_windows(on_stretch)?;
            self.end_ns = share.end_ns;
        }
        let lines = self.sums[share.count_index].lines;
        let (_, window) =
            self.open_windows.entry((share.counter, share.length_ns)).or_insert_with(|| {
                let rates = Some(LineRates { total: 0.0, lines: vec![0.0; lines] });
                (
                    share.count_index,
                    WindowRates { begin_ns: share.begin_ns(), end_ns: share.end_ns, rates },
                )
            });
        let per_second = 1e9 / share.length_ns as f64;
        match (&mut window.rates, share.value.zip(share.total).zip(line)) {
            (Some(rates), Some(((value, total), line))) => {
                rates.total = total * per_second;
                rates.lines[line] += value * per_second;
            }
            (rates, _) => *rates = None,
        }
        Ok(())
    }

    /// Passes the remaining stretches to `on_stretch`.
    pub(super) fn finish<E>(
        mut self,
        mut on_stretch: impl FnMut(&RateStretch) -> Result<(), E>,
    ) -> Result<(), E> {
        self.close_windows(&mut on_stretch)?;
        for (count_index, sum) in self.sums.iter_mut().enumerate() {
            let end_ns = sum.counters.values().map(|summed| summed.known_ns).max();
            sum.pass_stretches(count_index, end_ns.unwrap_or(i64::MIN), &mut on_stretch)?;
        }
        Ok(())
    }

    /// Adds the open windows to the sums: all rows of their end time have come.
    fn close_windows<E>(
        &mut self,
        mut on_stretch: impl FnMut(&RateStretch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut touched = BTreeSet::new();
        for ((counter, _), (count_index, window)) in std::mem::take(&mut self.open_windows) {
            let sum = &mut self.sums[count_index];
            touched.insert(count_index);
            if let Some(summed) = sum.counters.get_mut(&counter) {
                summed.add_window(window, sum.passed_ns);
            }
        }
        let earliest_ns = self.end_ns.saturating_sub(self.patience_ns);
        for touched_index in touched {
            let sum = &mut self.sums[touched_index];
            let has_later_windows =
                |candidate: &&SummedCounter| candidate.known_ns < candidate.counter.end_ns;
            let known_until_ns = sum
                .counters
                .values()
                .filter(has_later_windows)
                .map(|unfinished| unfinished.known_ns)
                .min();
            let until_ns = known_until_ns.unwrap_or(self.end_ns).max(earliest_ns).min(self.end_ns);
            sum.pass_stretches(touched_index, until_ns, &mut on_stretch)?;
        }
        Ok(())
    }
}

/// The contribution of a counter at a time.
enum Contribution<'a> {
    /// The counter does not count.
    Nothing,
    /// Known rates.
    Rates(&'a LineRates),
    /// The counter counts, but its value is not known.
    Unknown,
}

impl SummedCounter {
    /// Adds a window; the part before `passed_ns` was already passed on and is cut off.
    fn add_window(&mut self, mut window: WindowRates, passed_ns: i64) {
        window.begin_ns = window.begin_ns.max(self.known_ns).max(passed_ns);
        self.known_ns = self.known_ns.max(window.end_ns);
        let hole = self.counter.holes.iter().find(|hole| hole.begin_ns == self.known_ns);
        self.known_ns = hole.map_or(self.known_ns, |hole| hole.end_ns);
        if window.begin_ns < window.end_ns {
            self.windows.push_back(window);
        }
    }

    /// The contribution from `begin_ns` on, and until when it holds.
    fn contribution_at(&mut self, begin_ns: i64) -> (Contribution<'_>, i64) {
        while self.windows.front().is_some_and(|window| window.end_ns <= begin_ns) {
            self.windows.pop_front();
        }
        let next_window_ns = match self.windows.front() {
            Some(window) if window.begin_ns <= begin_ns => {
                let rates = window.rates.as_ref();
                return (rates.map_or(Contribution::Unknown, Contribution::Rates), window.end_ns);
            }
            Some(window) => window.begin_ns,
            None => i64::MAX,
        };
        let SurveyedCounter { begin_ns: first_begin_ns, end_ns: last_end_ns, holes, .. } =
            &self.counter;
        if begin_ns < *first_begin_ns {
            return (Contribution::Nothing, *first_begin_ns);
        }
        if begin_ns >= *last_end_ns {
            return (Contribution::Nothing, i64::MAX);
        }
        match holes.iter().find(|hole| (hole.begin_ns..hole.end_ns).contains(&begin_ns)) {
            Some(hole) => (Contribution::Nothing, hole.end_ns),
            None => (Contribution::Unknown, next_window_ns),
        }
    }
}

impl StretchSum {
    /// Passes on all stretches before `until_ns`.
    fn pass_stretches<E>(
        &mut self,
        count_index: usize,
        until_ns: i64,
        on_stretch: &mut impl FnMut(&RateStretch) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.passed_ns < until_ns {
            let begin_ns = self.passed_ns;
            let mut end_ns = until_ns;
            let mut sum: Option<LineRates> = None;
            let mut is_known = true;
            for summed in self.counters.values_mut() {
                let (contribution, contribution_end_ns) = summed.contribution_at(begin_ns);
                end_ns = end_ns.min(contribution_end_ns);
                match contribution {
                    Contribution::Nothing => {}
                    Contribution::Rates(rates) => match &mut sum {
                        Some(sum) => sum.add_rates(rates),
                        None => sum = Some(rates.clone()),
                    },
                    Contribution::Unknown => is_known = false,
                }
            }
            let rates = sum.filter(|_| is_known);
            on_stretch(&RateStretch { count_index, begin_ns, end_ns, rates })?;
            self.passed_ns = end_ns;
        }
        Ok(())
    }
}

impl LineRates {
    fn add_rates(&mut self, rates: &Self) {
        self.total += rates.total;
        for (sum, rate) in self.lines.iter_mut().zip(&rates.lines) {
            *sum += rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::TimeSpan;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    /// A window: counter, begin, end (ms), value of each line.
    type Given = (i32, i64, i64, Option<[f64; 2]>);

    /// A stretch: begin, end (ms), total and rates per ms.
    type StretchMs = (i64, i64, Option<(f64, Vec<f64>)>);

    fn stretches(windows: &[Given]) -> Vec<StretchMs> {
        let mut windows = windows.to_vec();
        windows.sort_by_key(|(_, _, end, _)| *end);
        let mut counters: BTreeMap<i32, SurveyedCounter> = BTreeMap::new();
        for (id, begin, end, _) in &windows {
            let (begin_ns, end_ns) = (begin * MS, end * MS);
            let new = SurveyedCounter { count_index: 0, begin_ns, end_ns, holes: Vec::new() };
            let counter = counters.entry(*id).or_insert(new);
            if begin_ns > counter.end_ns {
                counter.holes.push(TimeSpan::new(counter.end_ns, begin_ns));
            }
            counter.end_ns = end_ns;
        }
        let mut collected = Vec::new();
        let mut take = |stretch: &RateStretch| {
            let rates = stretch.rates.clone();
            let rates = rates.map(|rates| {
                (rates.total / 1e3, rates.lines.iter().map(|rate| rate / 1e3).collect())
            });
            collected.push((stretch.begin_ns / MS, stretch.end_ns / MS, rates));
            Ok::<(), Infallible>(())
        };
        let mut sums = StretchSums::for_counters(&counters, [2].into_iter(), 10 * MS);
        for (counter, begin, end, values) in windows {
            let total = values.map(|[a, b]| a + b);
            for line in 0..2 {
                let part = TenantShare {
                    counter,
                    count_index: 0,
                    tenant: line,
                    end_ns: end * MS,
                    length_ns: (end - begin) * MS,
                    value: values.map(|values| values[line]),
                    total,
                };
                sums.add_share(&part, Some(line), &mut take).unwrap();
            }
        }
        sums.finish(&mut take).unwrap();
        collected
    }

    #[test]
    fn windows_that_do_not_agree_are_cut_at_each_others_ends() {
        let joined = stretches(&[
            (0, 0, 10, Some([10.0, 0.0])),
            (0, 10, 20, Some([0.0, 20.0])),
            (0, 20, 30, Some([30.0, 0.0])),
            (1, 0, 10, Some([10.0, 0.0])),
            (1, 10, 30, Some([40.0, 20.0])),
        ]);
        assert_eq!(
            joined,
            [
                (0, 10, Some((2.0, vec![2.0, 0.0]))),
                (10, 20, Some((5.0, vec![2.0, 3.0]))),
                (20, 30, Some((6.0, vec![5.0, 1.0]))),
            ]
        );
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_not_known() {
        let joined = stretches(&[
            (0, 0, 10, Some([10.0, 0.0])),
            (1, 0, 10, None),
            (0, 10, 20, Some([10.0, 0.0])),
            (1, 10, 20, Some([10.0, 0.0])),
        ]);
        assert_eq!(joined, [(0, 10, None), (10, 20, Some((2.0, vec![2.0, 0.0])))]);
    }

    #[test]
    fn a_counter_that_is_off_adds_nothing_and_is_not_waited_for() {
        let mut windows: Vec<Given> =
            (0..500).map(|index| (0, index * 10, index * 10 + 10, Some([10.0, 0.0]))).collect();
        windows.extend([(1, 0, 10, Some([0.0, 10.0])), (1, 4900, 5000, Some([0.0, 100.0]))]);
        let joined = stretches(&windows);
        assert_eq!(joined.len(), 500);
        for (begin, _, rates) in joined {
            let b = if begin == 0 || begin >= 4900 { 1.0 } else { 0.0 };
            assert_eq!(rates, Some((1.0 + b, vec![1.0, b])), "{begin}");
        }
    }

    #[test]
    fn a_counter_that_is_waited_for_in_vain_makes_the_sum_unknown() {
        let mut windows: Vec<Given> =
            (0..500).map(|index| (0, index * 10, index * 10 + 10, Some([10.0, 0.0]))).collect();
        windows.extend([(1, 0, 10, Some([0.0, 10.0])), (1, 10, 5000, Some([0.0, 4990.0]))]);
        let joined = stretches(&windows);
        let rates_at = |time_ns: i64| {
            joined
                .iter()
                .find(|(begin, end, _)| (*begin..*end).contains(&time_ns))
                .unwrap()
                .2
                .clone()
        };
        let all = Some((2.0, vec![1.0, 1.0]));
        assert_eq!(
            (rates_at(5), rates_at(15), rates_at(2000), rates_at(4990)),
            (all.clone(), None, None, all)
        );
    }

    proptest! {
        /// Windows of counters that begin and end at any time, all with values.
        #[test]
        fn values_are_kept_and_the_lines_sum_to_the_total(
            lengths in prop::collection::vec(prop::collection::vec(1_i64..40, 1..20), 1..4),
            begins in prop::collection::vec(0_i64..30, 4),
        ) {
            let mut windows: Vec<Given> = Vec::new();
            for (id, lengths) in lengths.iter().enumerate() {
                let mut begin = begins[id];
                for length in lengths {
                    let values = Some([*length as f64 * 3.0, (id as f64) + 1.0]);
                    windows.push((id as i32, begin, begin + length, values));
                    begin += length;
                }
            }
            let given: f64 = windows.iter().flat_map(|(_, _, _, values)| values.unwrap()).sum();
            let joined = stretches(&windows);
            let mut sum = 0.0;
            let mut end = joined[0].0;
            for (from, to, rates) in joined {
                prop_assert_eq!(from, end);
                end = to;
                let Some((total, lines)) = rates else { continue };
                prop_assert!((lines.iter().sum::<f64>() - total).abs() < 1e-9 * total.abs());
                sum += total * (to - from) as f64;
            }
            prop_assert!((sum - given).abs() < 1e-9 * given, "{} of {}", sum, given);
        }
    }
}
