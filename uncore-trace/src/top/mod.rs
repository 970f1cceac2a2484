//! `uncore-trace top`: shows the current traffic of the fabric and its owners.
//!
//! The recorder runs as for `record`. It passes the rows of its tables to a second thread, which
//! sums them ([`crate::view::live`]), draws them, and writes them to a file on request. So the
//! screen shows the same values as a recording.
//!
//! Guarantees: the terminal is restored however the program ends, except by SIGKILL. Messages are
//! held until then.

mod app;
mod draw;
mod keys;
mod save;
mod terminal;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::sync::oneshot;

use self::app::App;
use self::terminal::Terminal;
use crate::confine::{self, Needs};
use crate::discover::Machine;
use crate::plan::Plan;
use crate::record;
use crate::schema::{fabric, runtime};
use crate::signals::Signals;
use crate::tables::writer::{Piece, Pieces, Target};
use crate::view::key::By;
use crate::view::links::Links;
use crate::view::live::Live;
pub use crate::view::live::WAYS;
use crate::workload::Workload;

/// Most pieces in the queue to the second thread. The recorder waits while it is full.
const PIECES: usize = 64;

/// How long one wait for keys lasts, and so the longest time until a piece is handled.
const LOOK: Duration = Duration::from_millis(100);

/// Options of `top`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of a frame: the time between two updates of the screen.
    pub frame: Duration,
    /// Initial grouping of the owners.
    pub by: By,
    /// The link or event that is selected initially; `None`: the first.
    pub select: Option<String>,
    /// Use only ASCII characters.
    pub ascii: bool,
    /// Use no colours.
    pub plain: bool,
    /// Why links are not shown, if so.
    pub notice: Option<String>,
    /// File for recordings; `None`: a name made of the time, in the working directory.
    pub save: Option<PathBuf>,
    /// Print one screen instead of running interactively.
    pub once: Option<Once>,
}

/// Prints one screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    /// The output format.
    pub form: Form,
    /// The first complete frame this long after the first rows is printed.
    pub after: Duration,
}

/// Format of the printed screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The lists, as on the terminal.
    Text {
        /// Number of columns.
        width: usize,
    },
    /// One line of JSON.
    Json,
}

/// Records `plan` and shows it until the user quits or a signal arrives. With [`Once`], returns the
/// screen.
///
/// # Errors
///
/// The counters cannot be opened, or the terminal cannot be drawn on.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    recording: &record::Options,
    options: &Options,
) -> Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let target = Target::Pieces(Pieces { sender, tables: vec![&fabric::TABLE, &runtime::TABLE] });
    let (quit, over) = oneshot::channel();
    let app = App::new(Live::new(Links::new(plan.links.clone()), nanos(options.frame)), options);
    let (recorded, shown) = std::thread::scope(|scope| {
        let show = scope.spawn(move || {
            let save = options.save.as_deref().unwrap_or(Path::new("recorded.parquet"));
            confine::thread(&Needs::to_write(save));
            let shown = show(app, &pieces, options);
            // Fails if the recorder has ended already.
            quit.send(()).unwrap_or_default();
            shown
        });
        let recorded = runtime.block_on(async {
            let (mut signals, mut workload) = (Signals::install()?, Workload::none());
            let record =
                record::record(target, machine, plan, recording, &mut workload, &mut signals);
            tokio::select! {
                recorded = Box::pin(record) => recorded.map(|_| ()),
                _ = over => Ok(()),
            }
        });
        let shown = show.join();
        (recorded, shown.unwrap_or_else(|_| Err(anyhow!("the thread that draws ended early"))))
    });
    // This error comes first: if drawing failed, the recorder fails only because nobody reads.
    let shown = shown?;
    recorded?;
    if options.once.is_some() && shown.is_none() {
        bail!("the recording ended before there was anything to show");
    }
    Ok(shown)
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Shows pieces until the user quits or the recorder ends.
fn show(mut app: App, pieces: &Receiver<Piece>, options: &Options) -> Result<Option<String>> {
    if let Some(once) = options.once {
        return once_shown(&mut app, pieces, once);
    }
    // The terminal is not changed before the first rows, so that earlier errors are visible.
    let Some(first) = first_rows(&mut app, pieces)? else { return Ok(None) };
    app.take(first)?;
    let mut terminal = Terminal::enter()?;
    terminal.draw(&app)?;
    let mut drawn = Instant::now();
    while !app.quits() {
        let mut is_new = Terminal::keys(&mut app, LOOK)?;
        loop {
            match pieces.try_recv() {
                Ok(piece) => is_new |= app.take(piece)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    app.quit();
                    break;
                }
            }
        }
        // The clock in the head line must advance even without new rows.
        if is_new || drawn.elapsed() >= Duration::from_secs(1) {
            terminal.draw(&app)?;
            drawn = Instant::now();
        }
    }
    app.end_recording();
    drop(terminal);
    Ok(None)
}

/// Adds metadata until the first rows, and returns these; `None` if the recorder ended before.
fn first_rows(app: &mut App, pieces: &Receiver<Piece>) -> Result<Option<Piece>> {
    for piece in pieces {
        match piece {
            Piece::Metadata(_) => app.take(piece).map(|_| ())?,
            Piece::Rows(..) => return Ok(Some(piece)),
        }
    }
    Ok(None)
}

fn once_shown(app: &mut App, pieces: &Receiver<Piece>, once: Once) -> Result<Option<String>> {
    let mut begin = None;
    for piece in pieces {
        let begin = match piece {
            Piece::Rows(..) => *begin.get_or_insert_with(Instant::now),
            Piece::Metadata(_) => Instant::now(),
        };
        if app.take(piece)? && begin.elapsed() >= once.after {
            return match once.form {
                Form::Text { width } => Ok(Some(app.text(width))),
                Form::Json => app.json().map(Some),
            };
        }
    }
    // The recorder's error says why.
    Ok(None)
}
