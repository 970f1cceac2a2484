//! From the first tick of a time line to its last.

/// The time that a time line is of: ticks end within it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Begin of the first tick, ns.
    pub start: u64,
    /// End of the last tick, ns, once that is known.
    pub stop: Option<u64>,
}

impl Span {
    /// Whether what happened at `time` belongs to it. The time line that begins where this one stops has
    /// the rest: nothing is in both.
    pub(super) fn has(&self, time: u64) -> bool {
        self.start < time && self.stop.is_none_or(|stop| time <= stop)
    }

    /// Whether what went on from `begin` to `end` has a part in it.
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
