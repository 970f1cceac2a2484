//! Uncertainty of a mean rate from its variation over time: how far it may be from the mean of a
//! longer recording of the same load.
//!
//! What moved in a span is counted exactly. But the rate of a load varies, so two spans of the same
//! load differ. Consecutive windows are correlated, so their spread would be an underestimate.
//! Therefore the span is divided into 16 batches of equal length (8 if it has fewer than 64
//! windows), and the spread of their means is used:
//!
//! ```text
//! half width = t(0.95, b - 1) x s / sqrt(b)      s: standard deviation of the b batches' rates
//! ```
//!
//! This is the method of batch means (Law, Simulation Modeling and Analysis, chapter 9), with 10 to
//! 30 batches (Schmeiser, Batch size effects in the analysis of simulation output, Operations
//! Research 30, 1982) if there are enough windows. It is a 90 % interval of the mean if batches are
//! identically distributed and independent. It is too narrow if the load changes more slowly than a
//! batch, and it does not cover differences between runs (placement, data, temperature): only more
//! runs show these.

use super::super::heat::{Heat, STEPS};
use super::super::sums::CountedTime;

/// Number of batches, and the least number of windows for it.
const BATCHES: [(usize, u64); 2] = [(16, 64), (8, 16)];
/// A batch is used if at least this fraction of its time is known.
const KNOWN_PART: f64 = 0.5;
/// Least number of batches for a result.
const MIN_BATCHES: usize = 6;
/// The 95 % quantile of Student's t with 5, 6, ... 15 degrees of freedom (NIST/SEMATECH e-Handbook
/// of Statistical Methods, 1.3.6.7.2).
const T95: [f64; 11] =
    [2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753];

/// Half the width of the 90 % interval of the mean rate, in the unit of `heat` per second. `step_s`
/// is the length of a step. `None` if there are too few windows.
pub(super) fn rate_variation(heat: &Heat, time: &CountedTime, step_s: f64) -> Option<f64> {
    let (batches, _) = BATCHES.into_iter().find(|(_, needed)| time.window_count() >= *needed)?;
    let steps_per_batch = STEPS / batches;
    let values: Vec<f64> = heat.step_values().map(|value| value.unwrap_or(0.0)).collect();
    let times: [f64; STEPS] = std::array::from_fn(|step| time.step_time(step).known_ns() / 1e9);
    let batch_rate = |(values, times): (&[f64], &[f64])| {
        let time: f64 = times.iter().sum();
        let is_known = time > 0.0 && time >= KNOWN_PART * step_s * steps_per_batch as f64;
        is_known.then(|| values.iter().sum::<f64>() / time)
    };
    let rates: Vec<f64> = values
        .chunks(steps_per_batch)
        .zip(times.chunks(steps_per_batch))
        .filter_map(batch_rate)
        .collect();
    let t = T95.get(rates.len().checked_sub(MIN_BATCHES)?)?;
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    Some(t * (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::super::heat::Scale;
    use super::super::super::sums::Window;
    use super::*;

    const WINDOW: i64 = 10_000_000;

    /// The variation of windows of 10 ms with these values (`None`: not known), half of each
    /// counted by each of two counters.
    fn variation_of_windows(values: &[Option<f64>]) -> Option<f64> {
        let scale = Scale::new(0, values.len() as i64 * WINDOW);
        let (mut heat, mut time) = (Heat::default(), CountedTime::default());
        for (number, value) in (1..).zip(values) {
            let end = number * WINDOW;
            for counter in [3, 5] {
                let known = if value.is_some() { WINDOW } else { 0 };
                time.add_window(counter, Window::new(end, WINDOW, known), &scale);
                heat.add_window(scale.step_positions(end, WINDOW), value.map(|value| value / 2.0));
            }
        }
        rate_variation(&heat, &time, scale.step_ns / 1e9)
    }

    #[test]
    fn batches_that_differ_widen_the_interval() {
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() - expected).abs() <= 1e-6 * (1.0 + expected), "{found:?}");
        };
        near(variation_of_windows(&[Some(7.0); 320]), 0.0);
        // 16 batches of 20 windows: 8 with 1000 per second, 8 with 3000.
        let halves: Vec<_> =
            (0..320).map(|window| Some(if window < 160 { 10.0 } else { 30.0 })).collect();
        let deviation = (16.0 * 1000_f64.powi(2) / 15.0).sqrt();
        near(variation_of_windows(&halves), 1.753 * deviation / 4.0);
        // Changes within a batch have the same mean in all batches.
        let fast: Vec<_> = (0..320).map(|window| Some(f64::from(window % 2) * 40.0)).collect();
        near(variation_of_windows(&fast), 0.0);
        // 8 batches of 4 windows.
        let few: Vec<_> =
            (0..32).map(|window| Some(if window < 16 { 10.0 } else { 30.0 })).collect();
        let deviation = (8.0 * 1000_f64.powi(2) / 7.0).sqrt();
        near(variation_of_windows(&few), 1.895 * deviation / 8_f64.sqrt());
    }

    #[test]
    fn unknown_windows_are_left_out_of_the_variation() {
        assert_eq!(variation_of_windows(&[Some(7.0); 15]), None);
        assert_eq!(variation_of_windows(&[None; 320]), None);
        // A third of each batch, and the last six batches, are not known.
        let some = |window: usize| (!window.is_multiple_of(3) && window < 200).then_some(7.0);
        let holes: Vec<_> = (0..320).map(some).collect();
        assert!(variation_of_windows(&holes).unwrap() < 1e-6, "{:?}", variation_of_windows(&holes));
        // The value of a quarter of a batch does not matter.
        let odd = |window: usize| match (window / 20, window % 20) {
            (3, part) => (part < 5).then_some(700.0),
            _ => Some(7.0),
        };
        let odd: Vec<_> = (0..320).map(odd).collect();
        assert!(variation_of_windows(&odd).unwrap() < 1e-6, "{:?}", variation_of_windows(&odd));
        let begin: Vec<_> = (0..320).map(|window| (window < 90).then_some(7.0)).collect();
        assert_eq!(variation_of_windows(&begin), None);
    }
}
