//! `uncore-trace top`: what the fabric does now, and for whom.
//!
//! The recorder runs as it does for `record`; rows of its tables reach a second thread as they are made,
//! which sums them ([`crate::view::live`]), draws them, and writes them to a file when asked to. What is
//! shown is thus what a recording would have.
//!
//! Guarantees: the terminal is as it was before, whatever ends the program but SIGKILL; messages wait
//! until it is.

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

/// Pieces that may wait to be summed; the recorder waits then.
const PIECES: usize = 64;

/// How long a look for keys takes: a piece waits for so long at most.
const LOOK: Duration = Duration::from_millis(100);

/// How to show.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of a frame: from one picture to the next.
    pub frame: Duration,
    /// What lines of owners are by, to begin with.
    pub by: By,
    /// The link or event that is selected to begin with; none: the first.
    pub select: Option<String>,
    /// Without characters beyond ASCII.
    pub ascii: bool,
    /// Without colours.
    pub plain: bool,
    /// Why links are not shown, where they are not.
    pub notice: Option<String>,
    /// Where what is watched is recorded to; none: a name made of the time, in the working directory.
    pub save: Option<PathBuf>,
    /// One picture and no keys.
    pub once: Option<Once>,
}

/// One picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    /// How it is printed.
    pub form: Form,
    /// It is the first that is complete so long after the first rows.
    pub after: Duration,
}

/// How one picture is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is drawn.
    Text {
        /// Columns.
        width: usize,
    },
    /// As a line of JSON.
    Json,
}

/// Records `plan` and shows it, until the user quits or a signal comes; with [`Once`], returns the
/// picture.
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
            // Nobody waits for it where the recorder has ended.
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
    // If it is the drawing that failed, the recorder only knows that nobody reads.
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

/// Shows pieces until the user quits or there are no more.
fn show(mut app: App, pieces: &Receiver<Piece>, options: &Options) -> Result<Option<String>> {
    if let Some(once) = options.once {
        return once_shown(&mut app, pieces, once);
    }
    // Until there is something to show, the terminal is left alone: what fails before says so there.
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
        // The clock of the head goes on where no row comes.
        if is_new || drawn.elapsed() >= Duration::from_secs(1) {
            terminal.draw(&app)?;
            drawn = Instant::now();
        }
    }
    app.end_recording();
    drop(terminal);
    Ok(None)
}

/// Takes metadata until rows come; none where the recorder ended before.
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
    // Why, the recorder says.
    Ok(None)
}
