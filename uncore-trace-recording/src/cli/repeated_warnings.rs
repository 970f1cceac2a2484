//! Warnings of a service that repeat: a full disk must not fill the log too.
//!
//! Guarantee: of warnings that differ only in digits, such as numbers and times, one line an hour
//! is printed. The next one says how many were left out.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a warning is not repeated.
const QUIET: Duration = Duration::from_hours(1);

/// Most warnings that are remembered; a further one is printed.
const MOST: usize = 1000;

/// The warnings that were printed.
#[derive(Debug, Default)]
pub struct RepeatedWarnings(HashMap<String, (Instant, u64)>);

impl RepeatedWarnings {
    /// The warning with the number of those like it that were left out; `None` to leave it out too.
    pub fn line_to_print(&mut self, text: &str, instant: Instant) -> Option<String> {
        self.count_warning(text, instant).map(|left_out| match left_out {
            0 => text.to_owned(),
            _ => format!("{text} (and {left_out} more like it since the last)"),
        })
    }

    /// Whether to print a warning, and how many like it were left out since the last one.
    fn count_warning(&mut self, text: &str, instant: Instant) -> Option<u64> {
        let key: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if let Some((printed, left_out)) = self.0.get_mut(&key) {
            if instant.saturating_duration_since(*printed) < QUIET {
                *left_out += 1;
                return None;
            }
            *printed = instant;
            return Some(std::mem::take(left_out));
        }
        self.0.retain(|_, warning| instant.saturating_duration_since(warning.0) < 2 * QUIET);
        if self.0.len() < MOST {
            self.0.insert(key, (instant, 0));
        }
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_warnings_are_one_line_an_hour() {
        let mut repeats = RepeatedWarnings::default();
        let begin = Instant::now();
        let at = |minute: u64| begin + Duration::from_mins(minute);
        assert_eq!(repeats.count_warning("part 17 is lost", at(0)), Some(0));
        for minute in 1..60 {
            assert_eq!(repeats.count_warning(&format!("part {minute} is lost"), at(minute)), None);
        }
        assert_eq!(repeats.count_warning("another fault", at(30)), Some(0));
        assert_eq!(repeats.count_warning("part 99 is lost", at(60)), Some(59));
        assert_eq!(repeats.count_warning("part 99 is lost", at(61)), None);
        // Memory is bounded, and what finds no room is printed.
        let text =
            |n: u32| "x".repeat(n as usize % 7) + &char::from_u32(0x4e00 + n).unwrap().to_string();
        for n in 0..3000 {
            assert_eq!(repeats.count_warning(&text(n), at(70)), Some(0));
        }
        assert!(repeats.0.len() <= MOST);
    }
}
