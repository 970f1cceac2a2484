//! The progress line that a recording shows on a terminal.

use std::io::{IsTerminal as _, stderr};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::schema::loss::Losses;

/// The line; hidden if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
    begin: Instant,
}

impl ProgressLine {
    /// Shows the line if standard error is a terminal, unless `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let shown = !quiet && stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar, begin: Instant::now() }
    }

    /// Redraws the line, cut to the width of the terminal.
    pub(super) fn redraw_line(&self, rows: u64, losses: &Losses) {
        self.bar.set_message(progress_text(self.begin.elapsed().as_secs_f64(), rows, losses));
        self.bar.tick();
    }

    /// Removes the line.
    pub(super) fn clear_line(&self) {
        self.bar.finish_and_clear();
    }
}

/// The text. Missing data comes before losses of precision, because the end may be cut off.
fn progress_text(seconds: f64, rows: u64, losses: &Losses) -> String {
    let lost = losses.brief_text();
    let colon = if lost.is_empty() { "" } else { "; " };
    format!("recording {seconds:.1} s, {rows} rows (Ctrl-C ends it){colon}{lost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_is_a_note_and_what_is_missing_comes_first() {
        let line = |totals: &[(&str, u64)]| {
            progress_text(
                3.21,
                1200,
                &Losses::from_totals(totals.iter().map(|(cause, count)| (*cause, *count))),
            )
        };
        assert_eq!(line(&[]), "recording 3.2 s, 1200 rows (Ctrl-C ends it)");
        let precise = "recording 3.2 s, 1200 rows (Ctrl-C ends it); note: 12 ticks were skipped";
        assert_eq!(line(&[("late_tick", 12)]), precise);
        assert_eq!(
            line(&[("late_tick", 12), ("ring_full", 3)]),
            "recording 3.2 s, 1200 rows (Ctrl-C ends it); incomplete: 3 records were dropped; \
             note: 12 ticks were skipped"
        );
    }
}
