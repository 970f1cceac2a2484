//! The time span of a time line, from its first tick to its last.

/// The time span of a time line; its ticks end within it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Begin of the first tick, ns.
    pub start: u64,
    /// End of the last tick, ns, once that is known.
    pub stop: Option<u64>,
}

impl Span {
    /// Whether an event at `time` belongs to this time line. An event at a boundary belongs to
    /// exactly one of the time lines that meet there.
    pub(super) fn has(&self, time: u64) -> bool {
        self.start < time && self.stop.is_none_or(|stop| time <= stop)
    }

    /// Whether a part of `begin` to `end` lies in the span.
    pub(super) fn overlaps(&self, begin: u64, end: u64) -> bool {
        self.start < end && self.stop.is_none_or(|stop| begin < stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_follow_each_other_share_nothing_and_lack_nothing() {
        let first = Span { start: 10, stop: Some(20) };
        let next = Span { start: 20, stop: None };
        for time in 11..40 {
            assert_ne!(first.has(time), next.has(time), "{time}");
        }
        assert!(!first.has(10));
        assert!(first.overlaps(5, 11) && first.overlaps(19, 30) && next.overlaps(19, 30));
        assert!(!first.overlaps(5, 10) && !first.overlaps(20, 30) && !next.overlaps(10, 20));
    }
}
