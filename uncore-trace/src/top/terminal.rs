//! Takes over the terminal, and restores it afterwards.

use std::io::{self, Write as _};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyEventKind};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::app::App;
use super::draw;
use crate::held_messages;

/// The terminal in raw mode and on its alternate screen, until this is dropped.
#[derive(Default)]
pub(super) struct Terminal {
    /// Columns and lines.
    size: (u16, u16),
    /// The lines that are shown.
    shown_lines: Vec<String>,
}

impl Terminal {
    /// Takes over the terminal.
    ///
    /// # Errors
    ///
    /// Standard output is not a terminal, or cannot be drawn on.
    pub(super) fn enter() -> Result<Self> {
        restore_on_panic();
        enable_raw_mode().context("cannot read single keys from the terminal")?;
        held_messages::begin_hold();
        // From here on, it is restored on drop.
        let terminal = Self::default();
        execute!(io::stdout(), EnterAlternateScreen, Hide)
            .context("cannot draw on the terminal")?;
        Ok(terminal)
    }

    /// Draws the current state of the application.
    pub(super) fn draw(&mut self, app: &App) -> Result<()> {
        self.write_changed_lines(app).context("cannot draw on the terminal")
    }

    /// Writes the lines that have changed, and all after the terminal has changed its size.
    fn write_changed_lines(&mut self, app: &App) -> io::Result<()> {
        let size = size()?;
        let mut stdout = io::stdout().lock();
        queue!(stdout, BeginSynchronizedUpdate)?;
        if self.size != size {
            queue!(stdout, Clear(ClearType::All))?;
            self.size = size;
            self.shown_lines.clear();
        }
        let lines = draw::styled_lines(app, usize::from(size.0), usize::from(size.1));
        for (row, line) in (0..).zip(&lines) {
            if self.shown_lines.get(usize::from(row)) != Some(line) {
                // Cleared first: after its last column, the cursor may still be in it.
                queue!(stdout, MoveTo(0, row), Clear(ClearType::CurrentLine), Print(line))?;
            }
        }
        self.shown_lines = lines;
        queue!(stdout, EndSynchronizedUpdate)?;
        stdout.flush()
    }

    /// Passes keys to the application. Waits up to `wait` for the first. Returns whether it must be
    /// drawn again.
    pub(super) fn handle_keys(app: &mut App, wait: Duration) -> Result<bool> {
        let mut is_new = false;
        if is_gone(wait)? {
            app.quit();
            return Ok(false);
        }
        while event::poll(Duration::ZERO).context("cannot read keys from the terminal")? {
            match event::read().context("cannot read keys from the terminal")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    app.handle_key(key);
                    is_new = true;
                }
                Event::Resize(..) => is_new = true,
                _ => {}
            }
        }
        Ok(is_new)
    }
}

/// Waits for keys. Returns whether the terminal was closed: crossterm 0.29 does not detect the end
/// of the file, and would try to read keys forever.
fn is_gone(wait: Duration) -> Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).ok();
    match poll(&mut fds, wait.as_ref()) {
        // EINTR: SIGWINCH reports a new size.
        Ok(_) | Err(Errno::INTR) => {
            Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
        }
        Err(error) => Err(error).context("cannot wait for keys"),
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Restores the terminal, and prints the held messages. Errors are ignored, because then there is
/// no terminal left to restore.
fn restore_terminal() {
    execute!(io::stdout(), LeaveAlternateScreen, Show).unwrap_or_default();
    disable_raw_mode().unwrap_or_default();
    for line in held_messages::end_hold() {
        writeln!(io::stderr(), "uncore-trace: {line}").unwrap_or_default();
    }
}

/// Restores the terminal before the message of a panic is printed.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic_info| {
            restore_terminal();
            previous_hook(panic_info);
        }));
    });
}
