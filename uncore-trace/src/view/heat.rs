//! A value over time in a fixed number of steps, and as a line of characters.
//!
//! Guarantees: the steps sum to what was added, whatever the length of windows; memory does not
//! depend on the length of the recording; unknown steps are distinguished from 0.

use super::sums::TimeSteps;
use crate::clock::TimeSpan;

/// Steps over the whole span.
pub const STEPS: usize = 32;

/// Maps times to steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale {
    begin_ns: i64,
    /// Length of a step, ns.
    pub step_ns: f64,
}

impl Scale {
    /// Divides the time between two moments, `CLOCK_MONOTONIC`, ns.
    pub fn new(begin_ns: i64, end_ns: i64) -> Self {
        Self { begin_ns, step_ns: end_ns.saturating_sub(begin_ns).max(1) as f64 / STEPS as f64 }
    }

    /// A window in steps.
    pub fn step_positions(&self, end_ns: i64, window_ns: i64) -> StepRange {
        let position_of = |ns: i64| {
            ((ns.saturating_sub(self.begin_ns) as f64) / self.step_ns).clamp(0.0, STEPS as f64)
        };
        let begin = position_of(end_ns.saturating_sub(window_ns));
        StepRange { begin, end: position_of(end_ns) }
    }
}

impl TimeSteps for Scale {
    fn step_count(&self) -> usize {
        STEPS
    }

    fn split_time(&self, span: TimeSpan<i64>, pass_step: impl FnMut(usize, f64)) {
        split_by_step(self.step_positions(span.end_ns, span.len_ns()), pass_step);
    }
}

/// A time in steps, each end from 0 to [`STEPS`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepRange {
    begin: f64,
    end: f64,
}

/// The step that has the whole range, if it is one.
pub fn single_step(range: StepRange) -> Option<usize> {
    let mut step_and_count = (0, 0);
    split_by_step(range, |step, _| step_and_count = (step, step_and_count.1 + 1));
    (step_and_count.1 == 1).then_some(step_and_count.0)
}

/// Passes each step of a range to `pass_step`, with its fraction of that time.
#[inline]
fn split_by_step(range: StepRange, mut pass_step: impl FnMut(usize, f64)) {
    let StepRange { begin, end } = range;
    let (first_step, last_step) = (begin as usize, (end.ceil() as usize).saturating_sub(1));
    let (first_step, last_step) = (first_step.min(STEPS - 1), last_step.min(STEPS - 1));
    if first_step >= last_step {
        return pass_step(first_step, 1.0);
    }
    let mut remaining = 1.0;
    for step in first_step..last_step {
        let inside = (step + 1) as f64 - begin.max(step as f64);
        let fraction = inside / (end - begin);
        pass_step(step, fraction);
        remaining -= fraction;
    }
    pass_step(last_step, remaining);
}

/// A value over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    steps: [f64; STEPS],
    /// A bit for each step with an unknown part.
    pub(super) unknown_steps: u32,
}

impl Heat {
    /// Adds the value of a window that is within one step.
    #[inline]
    pub fn add_to(&mut self, step: usize, value: Option<f64>) {
        match value {
            Some(value) => self.steps[step] += value,
            None => self.unknown_steps |= 1 << step,
        }
    }

    /// Adds the value of a window, spread evenly over its time; `None`: not known.
    pub fn add_window(&mut self, range: StepRange, value: Option<f64>) {
        split_by_step(range, |step, fraction| match value {
            Some(value) => self.steps[step] += value * fraction,
            None => self.unknown_steps |= 1 << step,
        });
    }

    /// Adds the steps of another line.
    pub fn add_line(&mut self, line_heat: &Self) {
        for (total, step) in self.steps.iter_mut().zip(line_heat.steps) {
            *total += step;
        }
        self.unknown_steps |= line_heat.unknown_steps;
    }

    /// The value of each step; `None` if nothing of it is known.
    pub fn step_values(&self) -> impl Iterator<Item = Option<f64>> {
        let known = |step: usize, value: f64| value != 0.0 || self.unknown_steps & 1 << step == 0;
        let steps = self.steps.iter().enumerate();
        steps.map(move |(step, value)| known(step, *value).then_some(*value))
    }

    /// `bars` characters for groups of steps, the tallest for the largest; a blank is 0, `?` is not
    /// known.
    pub fn draw_line(&self, bar_count: usize, ascii: bool) -> String {
        let steps: Vec<Option<f64>> = self.step_values().collect();
        let sums: Vec<Option<f64>> = steps.chunks(STEPS / bar_count).map(sum_known).collect();
        draw_bars(&sums, ascii)
    }
}

/// A character for each value, the tallest for the largest; a blank is 0, `?` is not known.
pub fn draw_bars(values: &[Option<f64>], ascii: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];
    let levels = if ascii { PLAIN } else { BLOCKS };
    let greatest = values.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: &Option<f64>| match *value {
        None => '?',
        Some(value) if value > 0.0 => {
            let level = (value / greatest * levels.len() as f64).ceil() as usize;
            levels[level.clamp(1, levels.len()) - 1]
        }
        Some(_) => ' ',
    };
    values.iter().map(bar).collect()
}

/// The sum of steps; `None` if a part is unknown and the rest is 0.
fn sum_known(steps: &[Option<f64>]) -> Option<f64> {
    let known: f64 = steps.iter().flatten().sum();
    (known != 0.0 || steps.iter().all(Option::is_some)).then_some(known)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_of_heat_shows_when_values_were_counted() {
        let scale = Scale::new(0, 3200);
        let mut heat = Heat::default();
        for (end, value) in [(100, Some(8.0)), (200, Some(1.0)), (400, None), (3200, Some(4.0))] {
            heat.add_window(scale.step_positions(end, 100), value);
        }
        // A window with the length of 1.5 steps.
        heat.add_window(scale.step_positions(1000, 150), Some(3.0));
        assert_eq!(heat.draw_line(32, false).trim_end(), format!("█▁ ?    ▁▂{}▄", " ".repeat(21)));
        assert_eq!(heat.draw_line(32, true).trim_end(), format!("@. ?    .:{}=", " ".repeat(21)));
        assert_eq!(heat.draw_line(16, false).trim_end(), format!("█?  ▃{}▄", " ".repeat(10)));
        assert_eq!(heat.step_values().flatten().map(|value| value as i64).sum::<i64>(), 16);
    }

    proptest! {
        #[test]
        fn steps_sum_to_the_values_of_their_windows(
            begin in any::<i64>(),
            length in 0_i64..1 << 50,
            windows in prop::collection::vec((any::<i64>(), any::<i64>(), 0.0..1e12), 0..50),
        ) {
            let scale = Scale::new(begin, begin.saturating_add(length));
            let mut heat = Heat::default();
            for (end, window, value) in &windows {
                heat.add_window(scale.step_positions(*end, *window), Some(*value));
            }
            let total: f64 = heat.step_values().flatten().sum();
            let added: f64 = windows.iter().map(|window| window.2).sum();
            prop_assert!((total - added).abs() <= added * 1e-9);
            for bar_count in [STEPS, STEPS / 2] {
                prop_assert!(heat.draw_line(bar_count, true).is_ascii());
                prop_assert_eq!(heat.draw_line(bar_count, false).chars().count(), bar_count);
            }
        }
    }
}
