//! Where windows of a roll-up begin and end, and how a row of `fabric` is spread over them.
//!
//! Guarantees: windows do not overlap, also where their length changes; the parts of a row lie in
//! the windows that they are in, so that the known time of a window is at most its length.

use crate::clock::TimeSpan;

/// Changes of the length that are remembered, for rows that come late.
const CHANGES: usize = 16;

/// The windows: they end at multiples of their length on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone)]
pub(super) struct RollupGrid {
    window_ns: i64,
    /// Earlier lengths, and the ends of the last windows that had them, ns.
    earlier: Vec<(i64, i64)>,
}

/// The portion of a row of `fabric` that is in one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RowPortion {
    /// The window of the roll-up.
    pub window: TimeSpan<i64>,
    /// The time of the row in it; of no length where the windows of the row are written already.
    pub time: TimeSpan<i64>,
    /// The fraction of the row's count.
    pub fraction: f64,
}

impl RollupGrid {
    pub(super) fn new(window_ns: i64) -> Self {
        Self { window_ns: window_ns.max(1), earlier: Vec::new() }
    }

    /// Changes the length of the windows after the one with `newest_ns`. The first of them is
    /// shorter if that one does not end at a multiple of the new length.
    pub(super) fn set_window_length(&mut self, window_ns: i64, newest_ns: Option<i64>) {
        let window_ns = window_ns.max(1);
        let old_window_ns = std::mem::replace(&mut self.window_ns, window_ns);
        let Some(newest_ns) = newest_ns.filter(|_| old_window_ns != window_ns) else { return };
        if self.earlier.last().is_some_and(|(until_ns, _)| newest_ns <= *until_ns) {
            return;
        }
        self.earlier.push((round_up(newest_ns, old_window_ns), old_window_ns));
        if self.earlier.len() > CHANGES {
            self.earlier.remove(0);
        }
    }

    /// The window that has the moment before `time_ns`.
    pub(super) fn window_at(&self, time_ns: i64) -> TimeSpan<i64> {
        let mut previous_end_ns = i64::MIN;
        for &(until_ns, length_ns) in &self.earlier {
            if time_ns <= until_ns {
                return window_of_length(time_ns, length_ns, previous_end_ns);
            }
            previous_end_ns = until_ns;
        }
        window_of_length(time_ns, self.window_ns, previous_end_ns)
    }

    /// Spreads a row over the windows that it covers, in proportion to time, the last window first.
    /// Windows up to `written_ns` cannot take any of it: what was counted in them is in the next
    /// ones. Windows without room, by `has_room`, cannot either, but for the last one.
    pub(super) fn spread_row(
        &self,
        row: TimeSpan<i64>,
        written_ns: i64,
        has_room: impl Fn(i64, usize) -> bool,
        portions: &mut Vec<RowPortion>,
    ) {
        portions.clear();
        let begin_ns = row.begin_ns.max(written_ns);
        let mut portion_end_ns = row.end_ns;
        while begin_ns < portion_end_ns {
            let window = self.window_at(portion_end_ns);
            if !portions.is_empty() && !has_room(window.end_ns, portions.len()) {
                break;
            }
            let portion_begin_ns = begin_ns.max(window.begin_ns);
            portions.push(RowPortion {
                window,
                time: TimeSpan::new(portion_begin_ns, portion_end_ns),
                fraction: 1.0,
            });
            portion_end_ns = portion_begin_ns;
        }
        let spread_ns = row.end_ns.saturating_sub(portion_end_ns) as f64;
        match portions.as_mut_slice() {
            [] => {
                let unwritten_ns = row.end_ns.max(written_ns.saturating_add(1));
                portions.push(RowPortion {
                    window: self.window_at(unwritten_ns),
                    time: TimeSpan::new(row.end_ns, row.end_ns),
                    fraction: 1.0,
                });
            }
            [_] => {}
            several => several.iter_mut().for_each(|portion| {
                portion.fraction = portion.time.len_ns() as f64 / spread_ns;
            }),
        }
    }
}

fn round_up(time_ns: i64, length_ns: i64) -> i64 {
    time_ns.saturating_add(length_ns - 1).div_euclid(length_ns) * length_ns
}

/// The window of this length with the moment before `time_ns`, which begins after or at
/// `earliest_ns`.
fn window_of_length(time_ns: i64, length_ns: i64, earliest_ns: i64) -> TimeSpan<i64> {
    let end_ns = round_up(time_ns, length_ns);
    TimeSpan::new(end_ns.saturating_sub(length_ns).max(earliest_ns), end_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread(grid: &RollupGrid, row: (i64, i64), written_ns: i64, most: usize) -> Vec<RowPortion> {
        let mut parts = Vec::new();
        grid.spread_row(
            TimeSpan::new(row.0, row.1),
            written_ns,
            |_, parts| parts < most,
            &mut parts,
        );
        parts
    }

    #[test]
    fn a_row_is_spread_over_its_windows_and_those_that_are_not_written() {
        let grid = RollupGrid::new(10);
        let span = |(begin_ns, end_ns)| TimeSpan { begin_ns, end_ns };
        let part = |window, time, fraction| RowPortion {
            window: span(window),
            time: span(time),
            fraction,
        };
        let whole = [part((10, 20), (12, 20), 1.0)];
        assert_eq!(spread(&grid, (12, 20), i64::MIN, 9), whole);
        let parts = [part((20, 30), (20, 25), 0.5), part((10, 20), (15, 20), 0.5)];
        assert_eq!(spread(&grid, (15, 25), i64::MIN, 9), parts);
        // What was counted in a window that is written, or for which there is no room, is in
        // others.
        let last = [part((20, 30), (20, 25), 1.0)];
        assert_eq!(spread(&grid, (15, 25), 20, 9), last);
        assert_eq!(spread(&grid, (-500, 25), i64::MIN, 1), last);
        assert_eq!(spread(&grid, (15, 25), 40, 9), [part((40, 50), (25, 25), 1.0)]);
        assert_eq!(spread(&grid, (25, 25), i64::MIN, 9), [part((20, 30), (25, 25), 1.0)]);
    }

    #[test]
    fn a_new_length_begins_where_the_last_window_of_the_old_one_ends() {
        let mut grid = RollupGrid::new(10);
        grid.set_window_length(7, None);
        assert_eq!(grid.window_at(8), TimeSpan::new(7, 14));
        grid.set_window_length(7, Some(8));
        assert_eq!(grid.earlier, []);
        grid.set_window_length(10, Some(15));
        // Before the last window of 7 has ended.
        grid.set_window_length(15, Some(20));
        let windows = [8, 21, 22, 30, 31, 60].map(|time| {
            let window = grid.window_at(time);
            (window.begin_ns, window.end_ns)
        });
        assert_eq!(windows, [(7, 14), (14, 21), (21, 30), (21, 30), (30, 45), (45, 60)]);
    }

    proptest! {
        #[test]
        fn parts_cover_the_row_and_lie_in_windows_that_do_not_overlap(
            lengths in prop::collection::vec((1_i64..40, 0_i64..60), 1..5),
            begin in 0_i64..200, length in 1_i64..200,
        ) {
            let mut grid = RollupGrid::new(lengths[0].0);
            let mut newest = 0;
            for (length, later) in lengths {
                newest += later;
                grid.set_window_length(length, Some(newest));
            }
            let parts = spread(&grid, (begin, begin + length), i64::MIN, usize::MAX);
            let sum: f64 = parts.iter().map(|part| part.fraction).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            let mut end = begin + length;
            for part in &parts {
                prop_assert_eq!(part.time.end_ns, end);
                prop_assert!(part.window.begin_ns <= part.time.begin_ns && part.time.end_ns <= part.window.end_ns);
                end = part.time.begin_ns;
            }
            prop_assert_eq!(end, begin);
            prop_assert!(parts.windows(2).all(|two| two[1].window.end_ns <= two[0].window.begin_ns));
        }
    }
}
