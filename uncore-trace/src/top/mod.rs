//! `uncore-trace top`: shows the traffic of the fabric and its owners, now or in a recording.
//!
//! The recorder runs as for `record`. It passes the rows of its tables to a second thread, which
//! sums them ([`crate::view::live`]), draws them, and writes them to a file on request. So the
//! screen shows the same values as a recording. The rows of a recording come from its tables
//! instead ([`mod@play`]).
//!
//! Guarantees: the terminal is restored however the program ends, except by SIGKILL. Messages are
//! held until then.

mod app;
mod draw;
mod keys;
mod play;
mod save;
mod terminal;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::sync::oneshot;

use self::app::App;
use self::play::Player;
use self::terminal::Terminal;
use crate::clock::duration_ns;
use crate::confine::{self, ThreadNeeds};
use crate::discover::Machine;
use crate::plan::Plan;
use crate::record;
use crate::schema::{fabric, runtime};
use crate::signals::{Signals, event_loop};
use crate::tables::reader::Recording;
use crate::tables::writer::{PieceChannel, RecordingTarget, TablePiece};
use crate::view::grouping::GroupBy;
use crate::view::links::Links;
pub use crate::view::live::GROUPINGS;
use crate::view::live::LiveFrames;
use crate::view::span::SelectedTime;
use crate::workload::Workload;

/// Most pieces in the queue to the second thread. The recorder waits while it is full.
const PIECES: usize = 64;

/// How long one wait for keys lasts, and so the longest time until a piece is handled.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Options of `top`.
#[derive(Debug, Clone)]
pub struct TopOptions {
    /// Length of a frame: the time between two updates of the screen.
    pub frame: Duration,
    /// Initial grouping of the owners.
    pub grouping: Option<GroupBy>,
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
    /// Print screens instead of drawing on the terminal.
    pub print: Option<Print>,
}

/// Prints screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print {
    /// The output format.
    pub format: ScreenFormat,
    /// One screen, instead of one at each update.
    pub choice: Option<ScreenChoice>,
}

/// Which screen is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenChoice {
    /// The first that ends this long after the begin of the first window, ns, or else the last.
    After(i64),
    /// The last of a recording.
    Last,
}

/// Format of the printed screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenFormat {
    /// The lists, as on the terminal.
    Text {
        /// Number of columns.
        width: usize,
    },
    /// One line of JSON.
    Json,
}

/// Records `plan` and shows it until the user quits or a signal arrives, or prints it.
///
/// # Errors
///
/// The counters cannot be opened, or the terminal cannot be drawn on.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    recording: &record::RecordOptions,
    options: &TopOptions,
) -> Result<()> {
    let runtime = event_loop()?;
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let target = RecordingTarget::Pieces(PieceChannel {
        sender,
        tables: vec![&fabric::TABLE, &runtime::TABLE],
    });
    let (quit, quit_received) = oneshot::channel();
    let app = App::new(
        LiveFrames::new(Links::new(plan.links.clone()), duration_ns(options.frame)),
        options,
    );
    let (recorded, shown) = std::thread::scope(|scope| {
        let show = scope.spawn(move || {
            let save = options.save.as_deref().unwrap_or(Path::new("recorded.parquet"));
            confine::restrict_thread(&ThreadNeeds::to_write(save));
            let shown = show_until_quit(app, PieceSource { pieces, player: None }, options);
            // Fails if the recorder has ended already.
            quit.send(()).unwrap_or_default();
            shown
        });
        let recorded = runtime.block_on(async {
            let (mut signals, mut workload) = (Signals::install()?, Workload::without_command());
            let record =
                record::record(target, machine, plan, recording, &mut workload, &mut signals);
            tokio::select! {
                recorded = Box::pin(record) => recorded.map(|_| ()),
                _ = quit_received => Ok(()),
            }
        });
        (recorded, join_display(show))
    });
    // This error comes first: if drawing failed, the recorder fails only because nobody reads.
    let shown = shown?;
    recorded?;
    if options.print.is_some() && !shown {
        bail!("the recording ended before there was anything to show");
    }
    Ok(())
}

/// Shows this time of a recording as [`run`] would have shown it.
///
/// # Errors
///
/// A table cannot be read, or the terminal cannot be drawn on.
pub fn play_recording(
    recording: &Recording,
    span: SelectedTime,
    options: &TopOptions,
) -> Result<()> {
    let runtime = event_loop()?;
    let mut app = App::new(
        LiveFrames::new(Links::from_recording(recording)?, duration_ns(options.frame)),
        options,
    );
    let player = Player::new(recording, span)?;
    app.set_played(player.played_span());
    app.add_piece(player.metadata_piece()?)?;
    // It is closed when a signal arrives.
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let (quit, quit_received) = oneshot::channel();
    std::thread::scope(|scope| {
        let show = scope.spawn(move || {
            let shown = show_until_quit(app, PieceSource { pieces, player: Some(player) }, options);
            quit.send(()).unwrap_or_default();
            shown
        });
        let asked = runtime.block_on(async {
            let mut signals = Signals::install()?;
            tokio::select! {
                _ = signals.next() => {}
                _ = quit_received => {}
            }
            anyhow::Ok(())
        });
        drop(sender);
        join_display(show)?;
        asked
    })
}

fn join_display(show: std::thread::ScopedJoinHandle<'_, Result<bool>>) -> Result<bool> {
    show.join().unwrap_or_else(|_| Err(anyhow!("the thread that draws ended early")))
}

/// Where rows come from.
struct PieceSource<'a> {
    /// Rows of the recorder; it is closed when it ends, and when a signal arrives.
    pieces: Receiver<TablePiece>,
    /// A recording that is played instead.
    player: Option<Player<'a>>,
}

impl PieceSource<'_> {
    /// Waits until a frame is complete; `false` after the last.
    fn next(&mut self, app: &mut App) -> Result<bool> {
        if let Some(player) = &mut self.player {
            let is_stopped = matches!(self.pieces.try_recv(), Err(TryRecvError::Disconnected));
            return Ok(!is_stopped && player.next(app)?);
        }
        for piece in &self.pieces {
            if app.add_piece(piece)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until there is something to show; `false` if it ended before.
    fn wait_for_rows(&mut self, app: &mut App) -> Result<bool> {
        if self.player.is_some() {
            return self.next(app);
        }
        for piece in &self.pieces {
            let has_rows = matches!(piece, TablePiece::Rows(..));
            app.add_piece(piece)?;
            if has_rows {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Handles the pieces that have arrived. Returns whether the screen changed.
    fn handle_arrived(&mut self, app: &mut App) -> Result<bool> {
        let mut is_new = false;
        loop {
            match self.pieces.try_recv() {
                Ok(piece) => is_new |= app.add_piece(piece)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    app.quit();
                    break;
                }
            }
        }
        match &mut self.player {
            Some(player) => Ok(player.advance_if_due(app)?),
            None => Ok(is_new),
        }
    }
}

/// Shows rows until the user quits or they end. Returns whether there were any.
fn show_until_quit(
    mut app: App,
    mut source: PieceSource<'_>,
    options: &TopOptions,
) -> Result<bool> {
    if let Some(print) = options.print {
        return print_screens(&mut app, &mut source, print);
    }
    // The terminal is not changed before the first rows, so that earlier errors are visible.
    if !source.wait_for_rows(&mut app)? {
        return Ok(false);
    }
    let mut terminal = Terminal::enter()?;
    terminal.draw(&app)?;
    let mut drawn = Instant::now();
    while !app.has_quit {
        let mut is_new = Terminal::handle_keys(&mut app, KEY_WAIT)?;
        is_new |= source.handle_arrived(&mut app)?;
        // The clock in the head line must advance even without new rows.
        if is_new || drawn.elapsed() >= Duration::from_secs(1) {
            terminal.draw(&app)?;
            drawn = Instant::now();
        }
    }
    app.end_recording();
    drop(terminal);
    Ok(true)
}

/// Prints one screen, or each. Returns whether one was printed.
fn print_screens(app: &mut App, source: &mut PieceSource<'_>, print: Print) -> Result<bool> {
    let (mut begin_ns, mut has_frame) = (None, false);
    while source.next(app)? {
        has_frame = true;
        match (print.choice, app.live.last_frame_ns()) {
            (None, _) => write_stdout(&print.format.render(app)?)?,
            (Some(ScreenChoice::After(after_ns)), Some((first_ns, end_ns))) => {
                if end_ns - *begin_ns.get_or_insert(first_ns) >= after_ns {
                    break;
                }
            }
            (Some(_), _) => {}
        }
    }
    if has_frame && print.choice.is_some() {
        write_stdout(&print.format.render(app)?)?;
    }
    // If there was none, the recorder's error says why.
    Ok(has_frame)
}

/// Writes to standard output at once, so that a reader sees each update.
fn write_stdout(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .context("cannot write to stdout")
}

impl ScreenFormat {
    fn render(self, app: &App) -> Result<String> {
        match self {
            Self::Text { width } => Ok(draw::list_text(app, width)),
            Self::Json => app.screen_json(),
        }
    }
}
