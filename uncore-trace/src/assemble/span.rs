//! Spans of time, and the span of a time line from its first tick to its last.

/// `whole` x `numerator` / `denominator`, rounded down; 0 if nothing is divided.
pub(super) fn proportion(whole: u64, numerator: u64, denominator: u64) -> u64 {
    if denominator == 0 {
        0
    } else {
        (u128::from(whole) * u128::from(numerator) / u128::from(denominator)) as u64
    }
}

/// A tick, and a time in it or at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TickTime {
    /// The tick.
    pub tick: u64,
    /// The time, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// The time span of a time line; its ticks end within it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimelineSpan {
    /// Begin of the first tick, ns.
    pub start_ns: u64,
    /// End of the last tick, ns, once that is known.
    pub stop_ns: Option<u64>,
}

impl TimelineSpan {
    /// Whether an event at `time_ns` belongs to this time line. An event at a boundary belongs to
    /// exactly one of the time lines that meet there.
    pub(super) fn contains_time(&self, time_ns: u64) -> bool {
        self.start_ns < time_ns && self.stop_ns.is_none_or(|stop| time_ns <= stop)
    }

    /// Whether an event at `time_ns` is after the last tick. One from before the first tick may
    /// say what goes on in it.
    pub(super) fn ended_before(&self, time_ns: u64) -> bool {
        self.stop_ns.is_some_and(|stop| time_ns > stop)
    }

    /// Whether a part of `begin_ns` to `end_ns` lies in the span.
    pub(super) fn overlaps_span(&self, begin_ns: u64, end_ns: u64) -> bool {
        self.start_ns < end_ns && self.stop_ns.is_none_or(|stop| begin_ns < stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_follow_each_other_share_nothing_and_lack_nothing() {
        let first = TimelineSpan { start_ns: 10, stop_ns: Some(20) };
        let next = TimelineSpan { start_ns: 20, stop_ns: None };
        for time in 11..40 {
            assert_ne!(first.contains_time(time), next.contains_time(time), "{time}");
        }
        assert!(!first.contains_time(10));
        assert!(
            first.overlaps_span(5, 11) && first.overlaps_span(19, 30) && next.overlaps_span(19, 30)
        );
        assert!(
            !first.overlaps_span(5, 10)
                && !first.overlaps_span(20, 30)
                && !next.overlaps_span(10, 20)
        );
    }
}
