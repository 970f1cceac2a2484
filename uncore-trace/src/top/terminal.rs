//! Takes over the terminal, and restores it afterwards.

use std::io::{self, Stdout, Write as _};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossterm::event::{self, Event, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::app::App;
use super::draw;
use crate::held;

/// The terminal in raw mode and on its alternate screen, until this is dropped.
pub(super) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
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
        let mut stdout = io::stdout();
        let entered = execute!(stdout, EnterAlternateScreen, crossterm::cursor::Hide);
        let made = entered.and_then(|()| ratatui::Terminal::new(CrosstermBackend::new(stdout)));
        held::begin();
        match made {
            Ok(inner) => Ok(Self { inner }),
            Err(error) => {
                restore();
                Err(error).context("cannot draw on the terminal")
            }
        }
    }

    /// Draws the current state of the application.
    pub(super) fn draw(&mut self, app: &App) -> Result<()> {
        let drawn = self.inner.draw(|frame| draw::draw(app, frame));
        drawn.map(|_| ()).context("cannot draw on the terminal")
    }

    /// Passes keys to the application. Waits up to `wait` for the first. Returns whether it must be
    /// drawn again.
    pub(super) fn keys(app: &mut App, wait: Duration) -> Result<bool> {
        let mut is_new = false;
        if is_gone(wait)? {
            app.quit();
            return Ok(false);
        }
        while event::poll(Duration::ZERO).context("cannot read keys from the terminal")? {
            match event::read().context("cannot read keys from the terminal")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    app.key(key);
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
        restore();
    }
}

/// Restores the terminal, and prints the held messages. Errors are ignored, because then there is
/// no terminal left to restore.
fn restore() {
    execute!(io::stdout(), LeaveAlternateScreen, crossterm::cursor::Show).unwrap_or_default();
    disable_raw_mode().unwrap_or_default();
    for line in held::end() {
        writeln!(io::stderr(), "uncore-trace: {line}").unwrap_or_default();
    }
}

/// Restores the terminal before the message of a panic is printed.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            restore();
            before(what);
        }));
    });
}
