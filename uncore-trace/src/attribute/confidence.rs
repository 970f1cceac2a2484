//! What a share's uncertainty makes of its confidence.

/// The chance that a normal relative error of this variance is within 10 %.
pub fn within_tenth(variance: f64) -> f64 {
    if variance > 0.0 { erf(0.1 / (2.0 * variance).sqrt()) } else { 1.0 }
}

/// The error function for `x >= 0`, to 1.5e-7: Abramowitz and Stegun, "Handbook of Mathematical
/// Functions" (1964), 7.1.26.
fn erf(x: f64) -> f64 {
    let t = 1.0 / 0.327_591_1_f64.mul_add(x, 1.0);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.iter().fold(0.0, |sum: f64, term| (sum + term) * t);
    (1.0 - sum * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_that_of_the_tables() {
        for (x, value) in [(0.0, 0.0), (0.5, 0.520_499_88), (1.0, 0.842_700_79), (3.0, 0.999_977_9)]
        {
            assert!((erf(x) - value).abs() < 2e-7, "{x}");
        }
    }
}
