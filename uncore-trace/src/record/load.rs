//! Whether the recorder keeps up, and what it leaves out if it does not.
//!
//! What waits is in the rings, and a ring that is full drops records. So less is divided, and less
//! exactly, before that happens ([`Relief`]).

use crate::entries::Relief;

/// Least time between two steps up, ns.
const STEP_NS: u64 = 250_000_000;

/// The recorder must have kept up for this time before it leaves out less, ns. The time doubles each
/// time this was too early, up to the longest.
const CALM_NS: u64 = 5_000_000_000;
const LONGEST_CALM_NS: u64 = 320_000_000_000;

/// Least delay at which the recorder is late, ns.
const LEAST_LATE_NS: u64 = 1_000_000_000;

/// The state of a recorder.
#[derive(Debug)]
pub struct Load {
    /// The recorder is late if this time has not been drained, ns.
    late_ns: u64,
    relief: Relief,
    /// When it changed, ns; `None` if it never did.
    changed: Option<u64>,
    /// Since when the recorder has kept up.
    calm: Option<u64>,
    calm_ns: u64,
    /// When less was left out for the last time.
    eased: Option<u64>,
}

/// A change of what is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// What was left out before.
    pub before: Relief,
    /// What is left out from now on.
    pub after: Relief,
    /// How long that of before was, ns; 0 at the first change.
    pub span_ns: u64,
}

impl Load {
    /// A recorder whose windows wait for `lag_ns`: it is late if they wait twice as long.
    pub const fn new(lag_ns: u64) -> Self {
        let late_ns = if lag_ns > LEAST_LATE_NS { lag_ns } else { LEAST_LATE_NS };
        Self {
            late_ns,
            relief: Relief::None,
            changed: None,
            calm: None,
            calm_ns: CALM_NS,
            eased: None,
        }
    }

    /// What is left out now.
    pub const fn relief(&self) -> Relief {
        self.relief
    }

    /// Looks at `now`, when what was sent in the last `behind_ns` has not been drained yet.
    /// `is_filling` says that more than half of the rings is in use, and that they were drained late.
    pub fn look(&mut self, now: u64, behind_ns: u64, is_filling: bool) -> Option<Changed> {
        if behind_ns > self.late_ns || is_filling {
            self.calm = None;
            let next = Relief::ALL.into_iter().find(|next| *next > self.relief)?;
            if self.changed.is_some_and(|changed| now < changed + STEP_NS) {
                return None;
            }
            if self.eased.take().is_some_and(|eased| now < eased + 2 * self.calm_ns) {
                self.calm_ns = (2 * self.calm_ns).min(LONGEST_CALM_NS);
            }
            return Some(self.change(now, next));
        }
        if behind_ns > self.late_ns / 4 {
            self.calm = None;
            return None;
        }
        let since = *self.calm.get_or_insert(now);
        let next = Relief::ALL.into_iter().rev().find(|next| *next < self.relief)?;
        if now < since + self.calm_ns {
            return None;
        }
        (self.calm, self.eased) = (Some(now), Some(now));
        Some(self.change(now, next))
    }

    /// Ends the recording at `now`.
    pub fn end(&mut self, now: u64) -> Option<Changed> {
        (self.relief > Relief::None).then(|| self.change(now, Relief::None))
    }

    fn change(&mut self, now: u64, after: Relief) -> Changed {
        let before = std::mem::replace(&mut self.relief, after);
        let span_ns = self.changed.map_or(0, |changed| now.saturating_sub(changed));
        self.changed = Some(now);
        Changed { before, after, span_ns: if before == Relief::None { 0 } else { span_ns } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_recorder_that_stays_late_leaves_out_more_and_more() {
        let mut load = Load::new(1000 * MS);
        assert_eq!(load.look(0, 900 * MS, false), None);
        let mut seen = Vec::new();
        for now in (0..2000).step_by(50) {
            seen.extend(load.look(now * MS, 1100 * MS, false).map(|its| (now, its.after)));
        }
        let steps = [0, 250, 500, 750].into_iter().zip(Relief::ALL.into_iter().skip(1));
        assert_eq!(seen, steps.collect::<Vec<_>>());
        assert_eq!(load.end(3000 * MS).map(|its| its.span_ns), Some(2250 * MS));
        assert_eq!(load.end(3000 * MS), None);
    }

    #[test]
    fn half_a_ring_is_late_and_who_keeps_up_leaves_out_less() {
        let mut load = Load::new(0);
        let first = load.look(0, 0, true);
        assert_eq!(first.map(|its| (its.after, its.span_ns)), Some((Relief::Seldom, 0)));
        let mut eased = Vec::new();
        for now in (50..60_000).step_by(50) {
            // Late again soon after less is left out.
            let is_late = eased.len() == 1 && now < 6000;
            let changed = load.look(now * MS, 0, is_late);
            eased.extend(changed.filter(|its| its.after < its.before).map(|_| now));
        }
        assert_eq!(eased, [5050, 16_000, 26_000, 36_000]);
        assert_eq!(load.relief(), Relief::None);
    }
}
