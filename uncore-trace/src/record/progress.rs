//! What a person at a terminal sees while recording: one line, redrawn.

use std::{
    io::{IsTerminal as _, stderr},
    time::Instant,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line; hidden where nobody looks.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

impl Progress {
    /// Shows the line if standard error is a terminal and `quiet` is not asked for.
    pub fn new(quiet: bool) -> Self {
        let shown = !quiet && stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar, begin: Instant::now() }
    }

    /// Redraws.
    pub fn update(&self, rows: u64, losses: u64) {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.bar.set_message(format!(
            "recording {seconds:.1} s, {rows} rows, {losses} losses (Ctrl-C ends it)"
        ));
        self.bar.tick();
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
