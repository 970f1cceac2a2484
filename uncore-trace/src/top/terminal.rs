//! The terminal: taken whole, given back as it was.

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

/// The whole terminal, until this is dropped.
pub(super) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

impl Terminal {
    /// Takes it.
    ///
    /// # Errors
    ///
    /// Standard output is no terminal that can be drawn on.
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

    /// Draws the application as it is.
    pub(super) fn draw(&mut self, app: &App) -> Result<()> {
        let drawn = self.inner.draw(|frame| draw::draw(app, frame));
        drawn.map(|_| ()).context("cannot draw on the terminal")
    }

    /// Hands keys to the application, for `wait` at most where there are none. `true` if it is to be
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

/// Waits for keys, and says whether the terminal was closed: reading keys from one that is would go on
/// for ever (crossterm 0.29 takes the end of the file for nothing yet).
fn is_gone(wait: Duration) -> Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).ok();
    match poll(&mut fds, wait.as_ref()) {
        // A new size is told by a signal.
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

/// Gives the terminal back, and shows the messages that waited. Where that fails there is no terminal
/// any more to give back.
fn restore() {
    execute!(io::stdout(), LeaveAlternateScreen, crossterm::cursor::Show).unwrap_or_default();
    disable_raw_mode().unwrap_or_default();
    for line in held::end() {
        writeln!(io::stderr(), "uncore-trace: {line}").unwrap_or_default();
    }
}

/// A message about a mistake of the program is for a terminal that shows it.
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
