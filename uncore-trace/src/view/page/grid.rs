//! Divides the time of a page into buckets.

use std::collections::BTreeMap;

use super::super::span::SelectedTime;
use super::super::sums::TimeSteps;
use crate::clock::TimeSpan;
use crate::schema::metadata;

/// Consecutive buckets of equal length. If windows have the length that the metadata say, a bucket
/// is a whole number of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageGrid {
    /// Begin of the first bucket, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    /// End of the shown time, `CLOCK_MONOTONIC`, ns; at most that of the last bucket.
    pub end_ns: i64,
    /// Length of a bucket, ns.
    pub bucket_ns: i64,
    /// Number of buckets.
    pub count: usize,
    /// Length of a window, ns.
    pub window_ns: i64,
}

impl PageGrid {
    /// At most `max_buckets` buckets for the windows of `span`, whose length is in `pairs`, the
    /// metadata.
    pub(super) fn new(
        span: &SelectedTime,
        pairs: &BTreeMap<String, String>,
        max_buckets: usize,
    ) -> Self {
        let max_count = i64::try_from(max_buckets.max(1)).unwrap_or(i64::MAX);
        let length = span.end_ns.saturating_sub(span.begin_ns).max(1);
        let recorded_ns = pairs.get(metadata::INTERVAL_NS).and_then(|text| text.parse().ok());
        let window_ns = recorded_ns.filter(|ns| (1..=length).contains(ns)).unwrap_or(length);
        // Windows end on multiples of their length. The window in which the span begins belongs to
        // it, if it ends in it.
        let begin_ns = match recorded_ns {
            Some(_) => span.begin_ns.div_euclid(window_ns).saturating_mul(window_ns),
            None => span.begin_ns,
        };
        let length = span.end_ns.saturating_sub(begin_ns).max(1);
        let windows = length.unsigned_abs().div_ceil(window_ns.unsigned_abs());
        let windows_per_bucket = windows.div_ceil(max_count.unsigned_abs()).cast_signed();
        // The length of windows is not known: the buckets are as short as the page allows.
        let finest = length.unsigned_abs().div_ceil(max_count.unsigned_abs()).cast_signed();
        let bucket_ns = if recorded_ns.is_some() { windows_per_bucket * window_ns } else { finest };
        let count = length.unsigned_abs().div_ceil(bucket_ns.unsigned_abs());
        Self { begin_ns, end_ns: span.end_ns, bucket_ns, count: count as usize, window_ns }
    }

    /// The bucket in which a window ends.
    pub(super) fn ends_in(&self, end_ns: i64) -> usize {
        self.bucket_at(end_ns.saturating_sub(1))
    }

    /// The bucket that contains a time, or the nearest one.
    fn bucket_at(&self, ns: i64) -> usize {
        let nearest = ns.saturating_sub(self.begin_ns).max(0) / self.bucket_ns;
        usize::try_from(nearest).unwrap_or(usize::MAX).min(self.count.saturating_sub(1))
    }

    /// Divides a time span over the buckets: each bucket, and the time in it, ns. Time before the
    /// first or after the last bucket is left out, unless the whole span is outside: then all of it
    /// is in the nearest bucket.
    fn bucket_times(&self, begin_ns: i64, end_ns: i64) -> impl Iterator<Item = (usize, i64)> {
        let (first_bucket, last_bucket) =
            (self.bucket_at(begin_ns), self.ends_in(end_ns).max(self.bucket_at(begin_ns)));
        let grid = *self;
        (first_bucket..=last_bucket).map(move |bucket| {
            let bucket_begin_ns = grid.begin_ns.saturating_add(bucket as i64 * grid.bucket_ns);
            let from_ns =
                if bucket == first_bucket { begin_ns.max(grid.begin_ns) } else { bucket_begin_ns };
            let to_ns = if bucket == last_bucket {
                end_ns
            } else {
                bucket_begin_ns.saturating_add(grid.bucket_ns)
            };
            (bucket, to_ns.saturating_sub(from_ns).max(1))
        })
    }
}

impl TimeSteps for PageGrid {
    fn step_count(&self) -> usize {
        self.count
    }

    fn split_time(&self, span: TimeSpan<i64>, mut add_to_step: impl FnMut(usize, f64)) {
        let bucket_times = || self.bucket_times(span.begin_ns, span.end_ns);
        let total_ns: i64 = bucket_times().map(|(_, ns)| ns).sum();
        bucket_times().for_each(|(step, ns)| add_to_step(step, ns as f64 / total_ns as f64));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(start_ns: i64, begin_ns: i64, end_ns: i64) -> SelectedTime {
        SelectedTime { start_ns, wall_ns: 0, wanted: i64::MIN..=i64::MAX, begin_ns, end_ns }
    }

    fn grid(begin: i64, end: i64, window: Option<i64>, most: usize) -> PageGrid {
        let pairs = window.map(|ns| (metadata::INTERVAL_NS.to_owned(), ns.to_string()));
        PageGrid::new(&span(1000, begin, end), &pairs.into_iter().collect(), most)
    }

    #[test]
    fn a_bucket_is_a_whole_number_of_windows() {
        let of = |grid: PageGrid| (grid.begin_ns, grid.bucket_ns, grid.count);
        // The recording began in the middle of a window.
        assert_eq!(of(grid(1003, 4000, Some(10), 4000)), (1000, 10, 300));
        assert_eq!(of(grid(1003, 4000, Some(10), 100)), (1000, 30, 100));
        assert_eq!(of(grid(1003, 4000, None, 100)), (1003, 30, 100));
        assert_eq!(of(grid(1000, 4000, Some(10), 4000)), (1000, 10, 300));
        assert_eq!(of(grid(1000, 4000, Some(10), 100)), (1000, 30, 100));
        assert_eq!(of(grid(1000, 4001, Some(10), 100)), (1000, 40, 76));
        // The window from 1050 to 1060 ends in the shown time.
        assert_eq!(of(grid(1055, 1100, Some(10), 100)), (1050, 10, 5));
        assert_eq!(of(grid(1000, 4000, None, 100)), (1000, 30, 100));
        assert_eq!(of(grid(1000, 1004, Some(10), 100)), (1000, 4, 1));
    }

    #[test]
    fn windows_divide_over_the_buckets_that_they_are_in() {
        let grid = grid(1000, 1100, Some(10), 10);
        let parts = |begin, end| grid.bucket_times(begin, end).collect::<Vec<_>>();
        assert_eq!(parts(1010, 1020), [(1, 10)]);
        assert_eq!(parts(1005, 1025), [(0, 5), (1, 10), (2, 5)]);
        assert_eq!(parts(990, 1010), [(0, 10)]);
        assert_eq!(parts(1095, 1105), [(9, 10)]);
        assert_eq!(grid.ends_in(1010), 0);
    }

    proptest! {
        #[test]
        fn times_of_buckets_sum_to_the_window(
            window in 1_i64..50, most in 1_usize..60, begin in 0_i64..900, length in 1_i64..300,
        ) {
            let grid = grid(1000, 2000, Some(window), most);
            prop_assert!(grid.count <= most && grid.count > 0);
            let (begin, end) = (1000 + begin, 1000 + begin + length);
            prop_assert_eq!(grid.bucket_times(begin, end).map(|(_, ns)| ns).sum::<i64>(), length);
            prop_assert!(grid.bucket_times(begin, end).all(|(bucket, _)| bucket < grid.count));
        }
    }
}
