//! The 90 % interval of a sum of shares: it contains the true value in nine of ten cases, if the
//! confidences of the rows are right. Bills should show it beside the amount.
//!
//! # One row
//!
//! The half width follows from the confidence ([`crate::schema::confidence`]). The truth of a row is
//! between 0 and the window's total, so the interval is cut there. With a confidence of 0, or
//! without one, it is this whole range.
//!
//! # A sum
//!
//! The half width of a sum depends on which errors are correlated. The cause of an error is a name
//! on a socket. Half widths of rows with one cause are added, in any window and of any counter;
//! those of different causes are added in squares.
//!
//! - In lines of whole cgroups (by cgroup, container, pod, kind of owner): the cgroup, or the owner
//!   if it has none. Its rows have the confidence `cgroup_confidence`. The confidence of a row is
//!   low where the division between the processes of its cgroup is not known, and where rates
//!   change from window to window. The sum of a cgroup over many windows has neither error. So
//!   `cgroup_confidence` is of those errors only that last: the estimated rate of the cgroup, which
//!   is wrong for some time, and by which all counters of a socket are divided. Such errors add up.
//!   Rows that lack it, as of older recordings, have their `confidence` instead.
//!
//!   A sum over a short span has the other errors too. They are what the half widths of the rows'
//!   own confidences have beyond those of `cgroup_confidence`, as a difference of squares. Within
//!   [`CORRELATION_NS`] they are added: a rate is corrected by the counts of this time, so its
//!   errors are alike. Over more time they are added in squares. So the interval of one window is
//!   that of `confidence`, and that of a long sum approaches that of `cgroup_confidence`.
//! - In lines that divide cgroups (by process, by name): the program. Its rows have the confidence
//!   `confidence`. Processes of one name in one line have one cause: if 200 of them live for 50 ms
//!   each, all begin with the same prior. This is too wide if errors change from window to window.
//! - Different cgroups, programs and sockets are independent. Others ran beside each of them, and
//!   their rates are estimated separately. If the share of one of two is too large, that of the
//!   other is mostly too small.
//! - Rows whose interval reaches 0 (a confidence below 0.146) do not even show that there was any
//!   traffic. Their errors are shared: shares by CPU time are too large for all tenants that move
//!   little. Nothing shows that such errors are independent, so their half widths are added,
//!   whatever they belong to.
//!
//! A row of a roll-up has its own interval, that of the rows that it sums. It is used instead of a
//! confidence.
//!
//! A sum is at least 0, and at most the total of its counters in the windows in which it has rows.
//! The other lines of a window are not used: if all of them have a high confidence, the remainder
//! would be narrower than this interval. If a line sums all owners, nothing was divided, and the
//! interval is the value ([`super::report_sums::ReportLine::value_interval`]).

use std::collections::HashMap;

use crate::schema::confidence::relative_half_width;

/// For how long errors that do not last are alike, ns. A rate is corrected by the counts around it,
/// with weights that fall by `exp(-t / 1 s)` on both sides (`attribute::learner::block_rates`), and
/// the sum of such weights is that of 2 s.
const CORRELATION_NS: f64 = 2e9;

/// Recorded confidences are in hundredths. A process whose part of its cgroup is hardly known may
/// have 0, but the sum of its cgroup is no less known for that.
const LEAST_CONFIDENCE: f32 = 0.01;

/// A 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end, at least 0.
    pub low: f64,
    /// The higher end, at most the total of the counters.
    pub high: f64,
}

/// The value of a share and its uncertainty.
#[derive(Debug, Clone, Copy)]
pub(super) struct UncertainShare {
    /// Counter, and the end and length of its window.
    pub(super) window_key: (i32, i64, i64),
    /// The share.
    pub(super) value: f64,
    /// The counter's total in the window.
    pub(super) total: f64,
    /// Confidence of the share.
    pub(super) confidence: Option<f32>,
    /// The confidence that its half width is made of: that of its cgroup in lines of whole cgroups,
    /// its own in others.
    pub(super) width_confidence: Option<f32>,
    /// Interval of the row; only in roll-ups.
    pub(super) interval: Option<Interval>,
}

impl UncertainShare {
    /// Of a row without an interval of its own, whose confidence also gives the half width.
    #[inline]
    pub(super) fn new(
        window_key: (i32, i64, i64),
        value: f64,
        total: f64,
        confidence: Option<f32>,
    ) -> Self {
        Self { window_key, value, total, confidence, width_confidence: confidence, interval: None }
    }
}

/// Half widths of an interval, below and above its value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct HalfWidths {
    below: f64,
    above: f64,
}

impl HalfWidths {
    fn add(&mut self, widths: Self) {
        self.below += widths.below;
        self.above += widths.above;
    }
}

/// The half widths of the rows with one cause of error.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct CauseWidths {
    /// The sum of those of errors that last.
    lasting: HalfWidths,
    /// The sum of those of all errors.
    all: HalfWidths,
    /// Length of the windows in which there are rows, ns.
    windows_ns: f64,
    /// The end of the last of these windows, and its length, ns.
    last_window_ns: Option<(i64, i64)>,
}

impl CauseWidths {
    fn add_row(&mut self, lasting: HalfWidths, all: HalfWidths, (end_ns, length_ns): (i64, i64)) {
        self.lasting.add(lasting);
        self.all.add(all);
        // The rows of windows that end together are consecutive, and the longest counts. If they are
        // not, errors count as those of more time.
        let counted_ns = match self.last_window_ns {
            Some((last_end_ns, length_ns)) if last_end_ns == end_ns => length_ns,
            _ => 0,
        };
        let longest_ns = counted_ns.max(length_ns);
        self.windows_ns += (longest_ns - counted_ns) as f64;
        self.last_window_ns = Some((end_ns, longest_ns));
    }

    fn unite(&mut self, other: &Self) {
        self.lasting.add(other.lasting);
        self.all.add(other.all);
        // Both may have rows in the same windows.
        self.windows_ns = self.windows_ns.max(other.windows_ns);
        self.last_window_ns = self.last_window_ns.max(other.last_window_ns);
    }

    /// The squares of the half widths of the sum.
    fn squares(&self) -> HalfWidths {
        let spans = (self.windows_ns / CORRELATION_NS).max(1.0);
        let square = |lasting: f64, all: f64| {
            let lasting_square = lasting * lasting;
            lasting_square + (all * all - lasting_square).max(0.0) / spans
        };
        HalfWidths {
            below: square(self.lasting.below, self.all.below),
            above: square(self.lasting.above, self.all.above),
        }
    }
}

/// The uncertainty of the sum of one line: its half widths, by cause of error.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LineUncertainty {
    /// For each cause: a cgroup or a program on a socket.
    cause_widths: Vec<CauseWidths>,
    /// Index of a cause in `cause_widths`.
    cause_index: HashMap<(Option<i16>, String), usize>,
    /// Sum over rows whose interval reaches 0.
    unknown_widths: HalfWidths,
    /// Sum of squares over the causes of lines that were joined with this one.
    joined_squares: HalfWidths,
    /// Total of the counters in the windows in which the line has rows.
    windows_total: f64,
    /// Counter and window that were last added to `windows_total`.
    last_window: Option<(i32, i64, i64)>,
}

impl LineUncertainty {
    /// The number of a cause of error.
    pub(super) fn cause_number(&mut self, socket: Option<i16>, name: &str) -> usize {
        *self.cause_index.entry((socket, name.to_owned())).or_insert_with(|| {
            self.cause_widths.push(CauseWidths::default());
            self.cause_widths.len() - 1
        })
    }

    /// Adds a row with this cause.
    #[inline]
    pub(super) fn add_row(&mut self, cause: usize, share: UncertainShare) {
        // The rows of a window and counter are consecutive. If not, the total only becomes larger.
        if self.last_window.replace(share.window_key) != Some(share.window_key) {
            self.windows_total += share.total;
        }
        let value = share.value.max(0.0);
        let room_above = (share.total - value).max(0.0);
        let of_confidence = |confidence: Option<f32>| match relative_half_width(confidence) {
            Some(relative_width) => {
                let half_width = value * relative_width;
                let widths =
                    HalfWidths { below: half_width.min(value), above: half_width.min(room_above) };
                (widths, relative_width < 1.0)
            }
            None => (HalfWidths { below: value, above: room_above }, false),
        };
        let (lasting, is_known) = match share.interval {
            Some(Interval { low, high }) => {
                let below = (value - low).clamp(0.0, value);
                (HalfWidths { below, above: (high - value).clamp(0.0, room_above) }, true)
            }
            None => of_confidence(share.width_confidence),
        };
        let all = match (share.interval, share.confidence) {
            (None, Some(confidence)) => of_confidence(Some(confidence.max(LEAST_CONFIDENCE))).0,
            _ => lasting,
        };
        let (_, end_ns, length_ns) = share.window_key;
        match self.cause_widths.get_mut(cause).filter(|_| is_known) {
            Some(widths) => widths.add_row(lasting, all, (end_ns, length_ns)),
            None => self.unknown_widths.add(lasting),
        }
    }

    /// Removes all rows, but keeps the numbers of the causes.
    pub(super) fn clear_rows(&mut self) {
        self.cause_widths.fill(CauseWidths::default());
        (self.unknown_widths, self.joined_squares) = (HalfWidths::default(), HalfWidths::default());
        (self.windows_total, self.last_window) = (0.0, None);
    }

    /// Adds a line of other owners. If both have rows in the same windows, the total only becomes
    /// larger.
    pub(super) fn join_line(&mut self, other_line: &Self) {
        self.unknown_widths.add(other_line.unknown_widths);
        self.joined_squares.add(other_line.sum_of_squares());
        self.windows_total += other_line.windows_total;
    }

    /// Adds a line with the same causes: the result is that of one line with all rows.
    pub(super) fn unite_line(&mut self, other_line: &Self) {
        let mut ordered_causes: Vec<_> = other_line.cause_index.iter().collect();
        // The result must not depend on the order of a hash map.
        ordered_causes.sort_by_key(|(_, position)| **position);
        for ((socket, name), position) in ordered_causes {
            let own_number = self.cause_number(*socket, name);
            self.cause_widths[own_number].unite(&other_line.cause_widths[*position]);
        }
        self.unknown_widths.add(other_line.unknown_widths);
        self.joined_squares.add(other_line.joined_squares);
        self.windows_total += other_line.windows_total;
    }

    /// The interval of a sum; `total` is the total of the event.
    pub(super) fn sum_interval(&self, value: f64, total: f64) -> Interval {
        let squares = self.sum_of_squares();
        let low = value - self.unknown_widths.below - squares.below.sqrt();
        let high = value + self.unknown_widths.above + squares.above.sqrt();
        // Rounding may make a sum of shares larger than the sum of totals.
        Interval {
            low: low.max(0.0).min(value),
            high: high.min(self.windows_total.min(total)).max(value),
        }
    }

    fn sum_of_squares(&self) -> HalfWidths {
        let mut sum = self.joined_squares;
        for cause in &self.cause_widths {
            sum.add(cause.squares());
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row: window, counter's socket, program, value, value of the others, confidence.
    type Drawn = (i64, Option<i16>, usize, f64, f64, Option<f32>);

    const TOTAL: f64 = 100.0;

    /// The interval of rows with a confidence, each in its own window with the total `TOTAL`.
    fn interval_of_rows(rows: &[(&str, Option<i16>, f64, f32)]) -> (f64, f64) {
        let mut width = LineUncertainty::default();
        for (window, &(program, socket, value, confidence)) in rows.iter().enumerate() {
            let cause = width.cause_number(socket, program);
            let window_key = (0, window as i64, 1);
            width.add_row(cause, UncertainShare::new(window_key, value, TOTAL, Some(confidence)));
        }
        let value = rows.iter().map(|row| row.2).sum();
        let Interval { low, high } = width.sum_interval(value, TOTAL * rows.len() as f64);
        (low, high)
    }

    #[test]
    fn a_row_reaches_as_far_as_its_confidence_says() {
        for (confidence, (low, high)) in [
            (1.0, (50.0, 50.0)),
            (f32::from_bits(1.0_f32.to_bits() - 1), (49.1, 50.9)),
            (0.94, (45.8, 54.2)),
            (0.9, (45.0, 55.0)),
            (0.5, (36.6, 63.4)),
            (0.2, (13.7, 86.3)),
            (0.1, (0.0, 100.0)),
            (0.0, (0.0, 100.0)),
            (-1.0, (0.0, 100.0)),
            (2.0, (50.0, 50.0)),
            (f32::NAN, (0.0, 100.0)),
            (f32::MIN_POSITIVE, (0.0, 100.0)),
        ] {
            let interval = interval_of_rows(&[("a", None, 50.0, confidence)]);
            let off = (interval.0 - low).abs().max((interval.1 - high).abs());
            assert!(off < 0.1, "{confidence}: {interval:?}");
        }
        let small = interval_of_rows(&[("a", None, 1.0, 0.1)]);
        assert!(small.0.abs() < 1e-9 && (small.1 - 2.467).abs() < 1e-2, "{small:?}");
        assert_eq!(interval_of_rows(&[("a", None, 0.0, 0.0)]), (0.0, TOTAL));
    }

    #[test]
    fn errors_of_one_cause_add_up_and_others_in_squares() {
        let widths_of_two = |second: (&'static str, i16), confidence: f32| {
            let row = |(program, socket)| (program, Some(socket), 30.0, confidence);
            let (low, high) = interval_of_rows(&[row(("a", 0)), row(second)]);
            (60.0 - low, high - 60.0)
        };
        let assert_widths = |widths: (f64, f64), expected: f64| {
            assert!(
                (widths.0 - expected).abs() < 1e-5 && (widths.1 - expected).abs() < 1e-5,
                "{widths:?}"
            );
        };
        assert_widths(widths_of_two(("a", 0), 0.9), 6.0);
        assert_widths(widths_of_two(("b", 0), 0.9), 18_f64.sqrt());
        assert_widths(widths_of_two(("a", 1), 0.9), 18_f64.sqrt());
        // Both are unknown, so they are added whatever the program and socket.
        for second in [("a", 0), ("b", 0), ("a", 1)] {
            assert_eq!(widths_of_two(second, 0.0), (60.0, 140.0));
        }
    }

    #[test]
    fn a_claim_reaches_as_far_as_its_lasting_confidence_says() {
        let mut width = LineUncertainty::default();
        let cause = width.cause_number(None, "/a");
        for process in 0..20 {
            // Windows of an hour.
            let window = (0, process / 10, 3_600_000_000_000);
            let claim = UncertainShare::new(window, 5.0, 1000.0, Some(0.05));
            width.add_row(cause, UncertainShare { width_confidence: Some(0.6), ..claim });
        }
        let Interval { low, high } = width.sum_interval(100.0, 2000.0);
        let far = 100.0 * 0.1 * 0.9_f64.atanh() / 0.6_f64.atanh();
        assert!((100.0 - low - far).abs() < 0.1, "{low}");
        // What a row alone may be more is 3 times its value, and lasts for 2 s of two hours.
        let alone = 100.0 * 0.1 * 0.9_f64.atanh() / 0.05_f64.atanh();
        let far_above = (far * far + (alone * alone - far * far) / 3600.0).sqrt();
        assert!((high - 100.0 - far_above).abs() < 0.1, "{high}");
    }

    #[test]
    fn errors_that_do_not_last_count_in_short_sums_only() {
        // Windows of 0.1 s, whose rows are less sure than their cgroup is.
        let width_of = |windows: i64| {
            let mut width = LineUncertainty::default();
            let cause = width.cause_number(None, "/a");
            for window in 1..=windows {
                let key = (0, window * 100_000_000, 100_000_000);
                let claim = UncertainShare::new(key, 10.0, 1000.0, Some(0.4));
                width.add_row(cause, UncertainShare { width_confidence: Some(0.8), ..claim });
            }
            let value = 10.0 * windows as f64;
            (value - width.sum_interval(value, 1e9).low) / value
        };
        let relative = |confidence: f64| 0.1 * 0.9_f64.atanh() / confidence.atanh();
        let (momentary, lasting) = (relative(0.4), relative(0.8));
        assert!((width_of(1) - momentary).abs() < 1e-5, "{}", width_of(1));
        assert!((width_of(20) - momentary).abs() < 1e-5, "{}", width_of(20));
        // Of 20 s there are ten independent parts.
        let of_long =
            (lasting * lasting + (momentary * momentary - lasting * lasting) / 10.0).sqrt();
        assert!((width_of(200) - of_long).abs() < 1e-5, "{}", width_of(200));
    }

    #[test]
    fn a_sum_is_at_most_what_its_windows_counted() {
        let mut width = LineUncertainty::default();
        // Two counters, with two rows of the first.
        for (counter, program) in [(0, "a"), (0, "b"), (1, "a")] {
            let cause = width.cause_number(None, program);
            let claim = UncertainShare::new((counter, 9, 1), 1.0, 10.0, None);
            width.add_row(cause, claim);
        }
        assert_eq!(width.sum_interval(3.0, 1000.0), Interval { low: 0.0, high: 20.0 });
        assert_eq!(width.sum_interval(3.0, 12.0), Interval { low: 0.0, high: 12.0 });
    }

    fn uncertainty_of_rows(rows: &[Drawn]) -> LineUncertainty {
        let mut width = LineUncertainty::default();
        for &(window, socket, program, value, others, confidence) in rows {
            let cause = width.cause_number(socket, ["a", "b", "c"][program]);
            let window_key = (0, window, 1);
            width
                .add_row(cause, UncertainShare::new(window_key, value, value + others, confidence));
        }
        width
    }

    fn any_row() -> impl Strategy<Value = Drawn> {
        let socket = prop::option::of(0_i16..2);
        let value = prop_oneof![Just(0.0), 0.0..1e-6, 0.0..1e12];
        let sure =
            prop_oneof![Just(0_f32), Just(1_f32), 0_f32..1e-30, 0.999_999_f32..1.0, 0_f32..1.0];
        (0_i64..9, socket, 0_usize..3, value, 0.0..1e12, prop::option::weighted(0.9, sure))
    }

    proptest! {
        #[test]
        fn the_value_is_inside_and_more_confidence_is_never_wider(
            mut rows in prop::collection::vec(any_row(), 1..40),
            at in any::<prop::sample::Index>(),
            more in 0_f32..=1.0,
            cut in any::<prop::sample::Index>(),
        ) {
            let value: f64 = rows.iter().map(|row| row.3).sum();
            let total: f64 = rows.iter().map(|row| row.3 + row.4).sum();
            let holds = |interval: Interval| 0.0 <= interval.low && interval.low <= value && value <= interval.high && interval.high <= total;
            let wide = uncertainty_of_rows(&rows).sum_interval(value, total);
            prop_assert!(holds(wide), "{wide:?} of {value} in {total}");

            // Two joined lines are as independent, but the total may be larger.
            let (first, second) = rows.split_at(cut.index(rows.len()));
            let mut joined = uncertainty_of_rows(first);
            joined.join_line(&uncertainty_of_rows(second));
            let joined = joined.sum_interval(value, total);
            prop_assert!(holds(joined), "{joined:?} of {value} in {total}");

            // Two united lines of the same causes equal one line.
            let mut united = uncertainty_of_rows(first);
            united.unite_line(&uncertainty_of_rows(second));
            let united = united.sum_interval(value, total);
            prop_assert!(holds(united), "{united:?} of {value} in {total}");
            let is_near = |a: f64, b: f64| (a - b).abs() <= total * 1e-9;
            prop_assert!(is_near(united.low, wide.low), "{united:?} {wide:?}");

            let row_index = at.index(rows.len());
            let row = &mut rows[row_index];
            row.5 = Some(row.5.unwrap_or(0.0).max(more));
            let narrow = uncertainty_of_rows(&rows).sum_interval(value, total);
            let rounding = total * 1e-12;
            prop_assert!(wide.low <= narrow.low + rounding, "{wide:?} {narrow:?}");
            prop_assert!(narrow.high <= wide.high + rounding, "{wide:?} {narrow:?}");
        }
    }
}
