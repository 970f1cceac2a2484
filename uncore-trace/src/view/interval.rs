//! The 90 % interval of a sum of shares: from where to where the truth lies in nine cases of ten, as
//! far as the rows' confidences say. A bill needs it beside its amount.
//!
//! # One row
//!
//! A confidence is the chance that a share is within [`RIGHT_WITHIN`] of the truth. Relative errors have a
//! logistic distribution, of which the part `tanh(x / 2s)` is within `x`. So the confidence `p` gives
//! the scale `s`, and the scale gives how far [`LEVEL`] of the errors reach, as a part of the value:
//!
//! ```text
//! RIGHT_WITHIN x atanh(LEVEL) / atanh(p)
//! ```
//!
//! That is 8 % at a confidence of 0.94, 10 % at 0.9, 27 % at 0.5, and nothing at 1. The truth of a row
//! lies between nothing and the window's total, so no row reaches further than that. With a confidence
//! of 0, or none, it reaches that far.
//!
//! # A sum
//!
//! How far a sum reaches depends on which of its errors are the same.
//!
//! - Rows of one program on one socket, in any window and by any counter: the same. They come from the
//!   rate of the program, which is wrong for as long as it is. Counters of one event on one socket count
//!   the same traffic in turns (channels, slices), and are divided by the same times. Processes of one
//!   name in one line do the same, and what is not known of one is not known of the others: where 200 of
//!   them live for 50 ms each, all begin with the same assumption. Their reaches add up. That is too wide
//!   where errors change from window to window, as those of `io`.
//! - Different programs, and different sockets: independent. Others ran beside each of them, and their
//!   rates are learnt apart. What one of two programs has too much, the other mostly has too little.
//!   Their reaches add in squares.
//! - Rows that reach down to nothing (a confidence below 0.146) do not even say that there was anything.
//!   What is wrong with them is wrong with all that share it: shares by CPU time are too large for all
//!   who move little. Nothing says that such errors are independent, so these reaches add up, whatever
//!   they are of.
//!
//! A row of a roll-up has an interval of its own: that of the rows that it is the sum of. It counts in place
//! of a confidence.
//!
//! A sum is at least 0, and at most what its counters counted in the windows in which it has rows. What
//! the other lines of a window say is not used: where all of them are sure, what they leave is narrower
//! than this interval. Where a line is of all owners, nothing was divided: the interval is the value
//! ([`super::usage::Line::interval`]).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::schema::fabric::RIGHT_WITHIN;

/// The part of the cases in which the truth is in the interval.
const LEVEL: f64 = 0.9;

/// From where to where the truth lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end, at least 0.
    pub low: f64,
    /// The higher end, at most the counters' total.
    pub high: f64,
}

/// What a row says of its share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    /// Counter, and the end and length of its window.
    pub(super) of: (i32, i64, i64),
    /// The share.
    pub(super) value: f64,
    /// The counter's count in the window.
    pub(super) total: f64,
    /// How sure it is.
    pub(super) confidence: Option<f32>,
    /// Its interval, where the row has one: that of a roll-up.
    pub(super) interval: Option<Interval>,
}

impl Claim {
    /// Of a row without an interval of its own.
    pub(super) fn new(
        of: (i32, i64, i64),
        value: f64,
        total: f64,
        confidence: Option<f32>,
    ) -> Self {
        Self { of, value, total, confidence, interval: None }
    }
}

/// How far the truth may be below and above a value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Reach {
    down: f64,
    up: f64,
}

impl Reach {
    fn add(&mut self, other: Self) {
        self.down += other.down;
        self.up += other.up;
    }
}

/// How far the truth of one line may be from its value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Width {
    /// Of each cause: a program on a socket.
    causes: Vec<Reach>,
    /// Where a cause is in `causes`.
    index: HashMap<(Option<i16>, String), usize>,
    /// Of the rows that do not even say that there was anything.
    unknown: Reach,
    /// Sum over the causes of other lines that were joined with this, in squares.
    squares: Reach,
    /// What the counters counted in the windows in which the line has rows.
    most: f64,
    /// The last that was added to `most`.
    last: Option<(i32, i64, i64)>,
}

impl Width {
    /// The number of the cause of a row's error.
    pub(super) fn cause(&mut self, socket: Option<i16>, program: &str) -> usize {
        *self.index.entry((socket, program.to_owned())).or_insert_with(|| {
            self.causes.push(Reach::default());
            self.causes.len() - 1
        })
    }

    /// Adds a row with this cause.
    pub(super) fn add(&mut self, cause: usize, claim: Claim) {
        // The rows of a window and counter come one after the other. Where they do not, the most that
        // is possible is only higher.
        if self.last.replace(claim.of) != Some(claim.of) {
            self.most += claim.total;
        }
        let value = claim.value.max(0.0);
        let room = (claim.total - value).max(0.0);
        let (reach, is_known) = match (claim.interval, part(claim.confidence)) {
            (Some(Interval { low, high }), _) => {
                let reach = Reach { down: value - low, up: high - value };
                (Reach { down: reach.down.clamp(0.0, value), up: reach.up.clamp(0.0, room) }, true)
            }
            (None, Some(part)) => {
                let far = value * part;
                (Reach { down: far.min(value), up: far.min(room) }, part < 1.0)
            }
            (None, None) => (Reach { down: value, up: room }, false),
        };
        match self.causes.get_mut(cause).filter(|_| is_known) {
            Some(sum) => sum.add(reach),
            None => self.unknown.add(reach),
        }
    }

    /// Forgets all rows, and keeps the numbers of the causes.
    pub(super) fn clear(&mut self) {
        self.causes.fill(Reach::default());
        (self.unknown, self.squares) = (Reach::default(), Reach::default());
        (self.most, self.last) = (0.0, None);
    }

    /// Adds another line's, which is of other owners. That both may have rows of the same windows
    /// makes the most that is possible only higher.
    pub(super) fn join(&mut self, other: &Self) {
        self.unknown.add(other.unknown);
        self.squares.add(other.squares());
        self.most += other.most;
    }

    /// Adds another line's, whose programs are the same: as if both had been one line.
    pub(super) fn unite(&mut self, other: &Self) {
        let mut causes: Vec<_> = other.index.iter().collect();
        // Sums do not depend on the order of a map.
        causes.sort_by_key(|(_, place)| **place);
        for ((socket, program), place) in causes {
            let own = self.cause(*socket, program);
            self.causes[own].add(other.causes[*place]);
        }
        self.unknown.add(other.unknown);
        self.squares.add(other.squares);
        self.most += other.most;
    }

    /// The interval of a sum, of which the event has `total` in all.
    pub(super) fn interval(&self, value: f64, total: f64) -> Interval {
        let squares = self.squares();
        let low = value - self.unknown.down - squares.down.sqrt();
        let high = value + self.unknown.up + squares.up.sqrt();
        // A sum of shares may be above the sum of totals by what is rounded.
        Interval { low: low.max(0.0).min(value), high: high.min(self.most.min(total)).max(value) }
    }

    fn squares(&self) -> Reach {
        let mut sum = self.squares;
        for cause in &self.causes {
            sum.add(Reach { down: cause.down * cause.down, up: cause.up * cause.up });
        }
        sum
    }
}

/// How far nine errors in ten reach, as a part of the value; none where nothing is known.
fn part(confidence: Option<f32>) -> Option<f64> {
    // The comparison also refuses what is not a number. The inverse of 1 is infinite: no error.
    let confidence = confidence.filter(|it| *it > 0.0)?.min(1.0);
    let hundredths = (confidence * 100.0).round();
    // What is recorded is in hundredths, and the inverse is slow.
    if (hundredths / 100.0).to_bits() == confidence.to_bits() {
        return PARTS.get(hundredths as usize).copied();
    }
    Some(part_of(confidence))
}

/// [`part`] of each hundredth.
static PARTS: LazyLock<[f64; 101]> =
    LazyLock::new(|| std::array::from_fn(|hundredths| part_of(hundredths as f32 / 100.0)));

fn part_of(confidence: f32) -> f64 {
    RIGHT_WITHIN * LEVEL.atanh() / f64::from(confidence).atanh()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row: window, counter's socket, program, value, what the others have, confidence.
    type Drawn = (i64, Option<i16>, usize, f64, f64, Option<f32>);

    const TOTAL: f64 = 100.0;

    /// The interval of rows with a confidence, each of a window of its own that counted `TOTAL`.
    fn interval(rows: &[(&str, Option<i16>, f64, f32)]) -> (f64, f64) {
        let mut width = Width::default();
        for (window, &(program, socket, value, confidence)) in rows.iter().enumerate() {
            let cause = width.cause(socket, program);
            let of = (0, window as i64, 1);
            width.add(cause, Claim::new(of, value, TOTAL, Some(confidence)));
        }
        let value = rows.iter().map(|row| row.2).sum();
        let Interval { low, high } = width.interval(value, TOTAL * rows.len() as f64);
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
            let found = interval(&[("a", None, 50.0, confidence)]);
            let off = (found.0 - low).abs().max((found.1 - high).abs());
            assert!(off < 0.1, "{confidence}: {found:?}");
        }
        let small = interval(&[("a", None, 1.0, 0.1)]);
        assert!(small.0.abs() < 1e-9 && (small.1 - 2.467).abs() < 1e-2, "{small:?}");
        assert_eq!(interval(&[("a", None, 0.0, 0.0)]), (0.0, TOTAL));
    }

    #[test]
    fn errors_of_one_cause_add_up_and_others_in_squares() {
        let of = |second: (&'static str, i16), confidence: f32| {
            let row = |(program, socket)| (program, Some(socket), 30.0, confidence);
            let (low, high) = interval(&[row(("a", 0)), row(second)]);
            (60.0 - low, high - 60.0)
        };
        let near = |found: (f64, f64), far: f64| {
            assert!((found.0 - far).abs() < 1e-5 && (found.1 - far).abs() < 1e-5, "{found:?}");
        };
        near(of(("a", 0), 0.9), 6.0);
        near(of(("b", 0), 0.9), 18_f64.sqrt());
        near(of(("a", 1), 0.9), 18_f64.sqrt());
        // Nothing is known of either, so nothing of how they differ.
        for second in [("a", 0), ("b", 0), ("a", 1)] {
            assert_eq!(of(second, 0.0), (60.0, 140.0));
        }
    }

    #[test]
    fn a_sum_is_at_most_what_its_windows_counted() {
        let mut width = Width::default();
        // Two counters, and two rows of the first.
        for (counter, program) in [(0, "a"), (0, "b"), (1, "a")] {
            let cause = width.cause(None, program);
            let claim = Claim::new((counter, 9, 1), 1.0, 10.0, None);
            width.add(cause, claim);
        }
        assert_eq!(width.interval(3.0, 1000.0), Interval { low: 0.0, high: 20.0 });
        assert_eq!(width.interval(3.0, 12.0), Interval { low: 0.0, high: 12.0 });
    }

    fn width(rows: &[Drawn]) -> Width {
        let mut width = Width::default();
        for &(window, socket, program, value, others, confidence) in rows {
            let cause = width.cause(socket, ["a", "b", "c"][program]);
            let of = (0, window, 1);
            width.add(cause, Claim::new(of, value, value + others, confidence));
        }
        width
    }

    fn row() -> impl Strategy<Value = Drawn> {
        let socket = prop::option::of(0_i16..2);
        let some = prop_oneof![Just(0.0), 0.0..1e-6, 0.0..1e12];
        let sure =
            prop_oneof![Just(0_f32), Just(1_f32), 0_f32..1e-30, 0.999_999_f32..1.0, 0_f32..1.0];
        (0_i64..9, socket, 0_usize..3, some, 0.0..1e12, prop::option::weighted(0.9, sure))
    }

    proptest! {
        #[test]
        fn the_value_is_inside_and_more_confidence_is_never_wider(
            mut rows in prop::collection::vec(row(), 1..40),
            at in any::<prop::sample::Index>(),
            more in 0_f32..=1.0,
            cut in any::<prop::sample::Index>(),
        ) {
            let value: f64 = rows.iter().map(|row| row.3).sum();
            let total: f64 = rows.iter().map(|row| row.3 + row.4).sum();
            let holds = |it: Interval| 0.0 <= it.low && it.low <= value && value <= it.high && it.high <= total;
            let wide = width(&rows).interval(value, total);
            prop_assert!(holds(wide), "{wide:?} of {value} in {total}");

            // Two lines as one: as independent, but no less is possible.
            let (first, second) = rows.split_at(cut.index(rows.len()));
            let mut joined = width(first);
            joined.join(&width(second));
            let joined = joined.interval(value, total);
            prop_assert!(holds(joined), "{joined:?} of {value} in {total}");

            // Two lines of the same programs: as if they had been one.
            let mut united = width(first);
            united.unite(&width(second));
            let united = united.interval(value, total);
            prop_assert!(holds(united), "{united:?} of {value} in {total}");
            let near = |a: f64, b: f64| (a - b).abs() <= total * 1e-9;
            prop_assert!(near(united.low, wide.low), "{united:?} {wide:?}");

            let at = at.index(rows.len());
            let row = &mut rows[at];
            row.5 = Some(row.5.unwrap_or(0.0).max(more));
            let narrow = width(&rows).interval(value, total);
            let rounding = total * 1e-12;
            prop_assert!(wide.low <= narrow.low + rounding, "{wide:?} {narrow:?}");
            prop_assert!(narrow.high <= wide.high + rounding, "{wide:?} {narrow:?}");
        }
    }
}
