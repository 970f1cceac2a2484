//! Whether the recorder keeps up, and what it leaves out if it does not.
//!
//! What waits is in the rings, and a ring that is full drops records. So less is divided, and less
//! exactly, before that happens ([`Relief`]).

use crate::entries::Relief;

/// Least time between two steps up, ns.
const STEP_NS: u64 = 250_000_000;

/// The recorder must have kept up for this time before it leaves out less, ns. The time doubles
/// each time this was too early, up to the longest.
const CALM_NS: u64 = 5_000_000_000;
const LONGEST_CALM_NS: u64 = 320_000_000_000;

/// Least and largest delay at which the recorder is late, ns: some rings hold little more.
const LATE_NS: (u64, u64) = (500_000_000, 1_000_000_000);

/// How far the recorder is behind, and what it leaves out.
#[derive(Debug)]
pub struct RecorderLoad {
    /// The recorder is late if this time has not been drained, ns.
    late_ns: u64,
    /// The steps that have an effect, least first.
    steps: Vec<Relief>,
    /// What is left out now.
    pub relief: Relief,
    /// The delay at the last look, ns.
    behind_ns: u64,
    /// Time of the last change, ns; `None` before the first.
    changed_ns: Option<u64>,
    /// Since when the recorder has kept up.
    calm_since_ns: Option<u64>,
    calm_ns: u64,
    /// When less was left out for the last time.
    eased_ns: Option<u64>,
}

/// A change of what is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReliefChange {
    /// What was left out before.
    pub old_relief: Relief,
    /// What is left out from now on.
    pub new_relief: Relief,
    /// How long that of before was, ns; 0 at the first change.
    pub span_ns: u64,
}

impl RecorderLoad {
    /// A recorder whose windows wait for `lag_ns`: it is late if they wait twice as long, or for a
    /// second more. `steps` have an effect.
    pub fn new(lag_ns: u64, steps: Vec<Relief>) -> Self {
        Self {
            late_ns: lag_ns.clamp(LATE_NS.0, LATE_NS.1),
            steps,
            relief: Relief::None,
            behind_ns: 0,
            changed_ns: None,
            calm_since_ns: None,
            calm_ns: CALM_NS,
            eased_ns: None,
        }
    }

    /// Chooses what is left out from `now_ns` on; what was sent in the last `behind_ns` is not
    /// drained yet. `is_filling`: more than half of the rings is in use, and they were drained
    /// late.
    pub fn update_relief(
        &mut self,
        now_ns: u64,
        behind_ns: u64,
        is_filling: bool,
    ) -> Option<ReliefChange> {
        let catches_up = behind_ns < std::mem::replace(&mut self.behind_ns, behind_ns);
        if behind_ns > self.late_ns || is_filling {
            self.calm_since_ns = None;
            let step = self.steps.iter().copied().find(|step| *step > self.relief)?;
            if catches_up || self.changed_ns.is_some_and(|changed| now_ns < changed + STEP_NS) {
                return None;
            }
            if self.eased_ns.take().is_some_and(|eased| now_ns < eased + 2 * self.calm_ns) {
                self.calm_ns = (2 * self.calm_ns).min(LONGEST_CALM_NS);
            }
            return Some(self.set_relief(now_ns, step));
        }
        if behind_ns > self.late_ns / 4 {
            self.calm_since_ns = None;
            return None;
        }
        let calm_begin_ns = *self.calm_since_ns.get_or_insert(now_ns);
        if self.relief == Relief::None && now_ns >= calm_begin_ns + 2 * self.calm_ns {
            self.calm_ns = CALM_NS;
        }
        if self.relief == Relief::None {
            return None;
        }
        let less = self.steps.iter().copied().rev().find(|step| *step < self.relief);
        if now_ns < calm_begin_ns + self.calm_ns {
            return None;
        }
        (self.calm_since_ns, self.eased_ns) = (Some(now_ns), Some(now_ns));
        Some(self.set_relief(now_ns, less.unwrap_or_default()))
    }

    /// Ends the recording at `now_ns`.
    pub fn end_relief(&mut self, now_ns: u64) -> Option<ReliefChange> {
        (self.relief > Relief::None).then(|| self.set_relief(now_ns, Relief::None))
    }

    fn set_relief(&mut self, now_ns: u64, new_relief: Relief) -> ReliefChange {
        let old_relief = std::mem::replace(&mut self.relief, new_relief);
        let span_ns = self.changed_ns.map_or(0, |changed| now_ns.saturating_sub(changed));
        self.changed_ns = Some(now_ns);
        ReliefChange {
            old_relief,
            new_relief,
            span_ns: if old_relief == Relief::None { 0 } else { span_ns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load() -> RecorderLoad {
        RecorderLoad::new(1000 * MS, Relief::ALL[1..].to_vec())
    }

    #[test]
    fn a_recorder_that_stays_late_leaves_out_more_and_more() {
        let mut load = load();
        assert_eq!(load.update_relief(0, 900 * MS, false), None);
        let mut seen = Vec::new();
        for now in (0..2000).step_by(50) {
            seen.extend(
                load.update_relief(now * MS, 1100 * MS, false).map(|its| (now, its.new_relief)),
            );
        }
        let steps = [0, 250, 500, 750].into_iter().zip(Relief::ALL.into_iter().skip(1));
        assert_eq!(seen, steps.collect::<Vec<_>>());
        assert_eq!(load.end_relief(3000 * MS).map(|its| its.span_ns), Some(2250 * MS));
        assert_eq!(load.end_relief(3000 * MS), None);
    }

    #[test]
    fn a_recorder_that_catches_up_goes_no_further() {
        let mut load = load();
        let behind = (0..40).rev().map(|left| (2000 - 50 * left, 1000 + 100 * left));
        let steps =
            behind.filter_map(|(now, behind)| load.update_relief(now * MS, behind * MS, true));
        assert_eq!(steps.map(|its| its.new_relief).collect::<Vec<_>>(), [Relief::Seldom]);
    }

    #[test]
    fn only_steps_with_an_effect_are_taken() {
        let mut load = RecorderLoad::new(0, vec![Relief::LongWindows]);
        let all = (0..100).filter_map(|at| load.update_relief(at * 100 * MS, 0, at < 20));
        let all: Vec<Relief> = all.map(|its| its.new_relief).collect();
        assert_eq!(all, [Relief::LongWindows, Relief::None]);
        assert_eq!(RecorderLoad::new(0, Vec::new()).update_relief(0, u64::MAX, true), None);
    }

    #[test]
    fn half_a_ring_is_late_and_who_keeps_up_leaves_out_less() {
        let mut load = load();
        let first = load.update_relief(0, 0, true);
        assert_eq!(first.map(|its| (its.new_relief, its.span_ns)), Some((Relief::Seldom, 0)));
        let mut eased = Vec::new();
        for now in (50..100_000).step_by(50) {
            // Late again soon after less is left out, and once more much later.
            let is_late = eased.len() == 1 && now < 6000 || now == 80_000;
            let changed = load.update_relief(now * MS, 0, is_late);
            eased.extend(changed.filter(|its| its.new_relief < its.old_relief).map(|_| now));
        }
        // The longer time without delay is forgotten after twice that time.
        assert_eq!(eased, [5050, 16_000, 26_000, 36_000, 85_050]);
        assert_eq!(load.relief, Relief::None);
    }
}
