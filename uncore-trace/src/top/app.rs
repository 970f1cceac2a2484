//! The state of `top`: the user's choices, and the data that is shown.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::TopOptions;
use super::save::Saver;
use crate::clock::{TimeSpan, duration_ns};
use crate::schema::{fabric, runtime};
use crate::tables::writer::TablePiece;
use crate::text::escape_json;
use crate::view::grouping::GroupBy;
use crate::view::live::screen::{LiveScreen, OwnerOrder, ScreenOptions};
use crate::view::live::{GROUPINGS, LiveFrames};

/// Frame lengths that the keys `+` and `-` choose from.
pub(super) const FRAMES: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The list in which the arrow keys move the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Links,
    Owners,
}

/// How keys are interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyMode {
    /// Keys act on the lists.
    Lists,
    /// Letters are added to the filter.
    Filter,
    /// Any key leaves the help.
    Help,
}

/// What the user asks of a recording that is played, by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlayRequest {
    /// The next frame.
    NextFrame,
    /// The frame before.
    PreviousFrame,
    /// The same time in frames of this length, ns.
    WithFrameLength(i64),
}

/// The state of a recording that is played.
#[derive(Debug, Clone, Copy)]
struct PlayedRecording {
    /// Begin and end, `CLOCK_MONOTONIC`, ns.
    span: TimeSpan<i64>,
    is_stopped: bool,
    has_ended: bool,
    request: Option<PlayRequest>,
}

/// The owner whose processes are shown.
pub(super) struct OpenedOwner {
    /// The grouping and the name of that owner.
    pub(super) grouping: GroupBy,
    pub(super) name: String,
    /// What is shown again afterwards: the chosen grouping, if any, and the selected owner.
    grouping_before: Option<GroupBy>,
    owner_before: usize,
}

/// The application.
pub(super) struct App {
    pub(super) live: LiveFrames,
    /// `None` while something is measured.
    played: Option<PlayedRecording>,
    saver: Saver,
    pub(super) mode: KeyMode,
    pub(super) focus: Focus,
    /// Grouping of the tenants, if one was chosen.
    chosen_grouping: Option<GroupBy>,
    /// Name of the link or event to select as soon as it appears.
    wanted_name: Option<String>,
    /// Indices of the selected link and owner.
    pub(super) link_index: usize,
    pub(super) owner_index: usize,
    pub(super) sort_order: OwnerOrder,
    pub(super) filter: String,
    /// The owner whose processes are shown.
    pub(super) opened_owner: Option<OpenedOwner>,
    /// The screen that is shown while the display is paused.
    paused: Option<LiveScreen>,
    /// Without characters beyond ASCII.
    pub(super) ascii: bool,
    /// Without colours.
    pub(super) plain: bool,
    /// Why links are not shown, if so.
    pub(super) notice: Option<String>,
    /// The result of the last key, in one line.
    pub(super) message: Option<String>,
    pub(super) has_quit: bool,
}

impl App {
    pub(super) fn new(live: LiveFrames, options: &TopOptions) -> Self {
        Self {
            live,
            played: None,
            saver: Saver::new(options.save.clone()),
            mode: KeyMode::Lists,
            focus: Focus::Links,
            chosen_grouping: options.grouping,
            wanted_name: options.select.clone(),
            link_index: 0,
            owner_index: 0,
            sort_order: OwnerOrder::Share,
            filter: String::new(),
            opened_owner: None,
            paused: None,
            ascii: options.ascii,
            plain: options.plain,
            notice: options.notice.clone(),
            message: None,
            has_quit: false,
        }
    }

    /// Notes that a recording is played, between these times.
    pub(super) const fn set_played(&mut self, span: TimeSpan<i64>) {
        self.played =
            Some(PlayedRecording { span, is_stopped: false, has_ended: false, request: None });
    }

    /// Adds a piece of the recording. Returns whether a frame became complete.
    pub(super) fn add_piece(&mut self, piece: TablePiece) -> Result<bool> {
        match piece {
            TablePiece::Metadata(pairs) => self.saver.set_metadata(pairs),
            TablePiece::Rows(table, rows) if table.name == runtime::TABLE.name => {
                self.live.add_runtime(&rows)?;
            }
            TablePiece::Rows(table, rows) if table.name == fabric::TABLE.name => {
                if let Err(error) = self.saver.write_rows(&rows) {
                    self.message = Some(format!("the recording has ended: {error:#}"));
                }
                let is_new = self.live.add_fabric(&rows)?;
                self.select_wanted();
                return Ok(is_new);
            }
            TablePiece::Rows(..) => {}
        }
        Ok(false)
    }

    /// Selects the wanted link or event, as soon as it exists.
    fn select_wanted(&mut self) {
        let index_of = |wanted: &String| {
            self.live.watched_counts().iter().position(|shown| shown.name == *wanted)
        };
        if let Some(index) = self.wanted_name.as_ref().and_then(index_of) {
            (self.link_index, self.wanted_name) = (index, None);
        }
    }

    /// The screen to show.
    pub(super) fn shown_screen(&self) -> LiveScreen {
        self.paused.clone().unwrap_or_else(|| self.current_screen())
    }

    fn current_screen(&self) -> LiveScreen {
        self.live.last_screen(&ScreenOptions {
            grouping: self.grouping(),
            watched_index: self.link_index,
            filter: &self.filter,
            within: self
                .opened_owner
                .as_ref()
                .map(|within| (within.grouping, within.name.as_str())),
            order: self.sort_order,
        })
    }

    /// The screen as a line of JSON.
    pub(super) fn screen_json(&self) -> Result<String> {
        let json = serde_json::to_string(&self.current_screen())
            .context("cannot write the screen as JSON")?;
        Ok(escape_json(&json).into_owned() + "\n")
    }

    pub(super) fn host_name(&self) -> &str {
        self.saver.host_name()
    }

    /// Path of the recording, if one is being written.
    pub(super) fn recording_path(&self) -> Option<String> {
        self.saver.open_path().map(|path| path.display().to_string())
    }

    pub(super) const fn frame_ns(&self) -> i64 {
        self.live.frame_ns()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some() || self.played.is_some_and(|played| played.is_stopped)
    }

    /// Takes the request of a key, if there is one.
    pub(super) fn take_request(&mut self) -> Option<PlayRequest> {
        self.played.as_mut()?.request.take()
    }

    /// Whether the last frame of a recording is shown.
    pub(super) fn has_ended(&self) -> bool {
        self.played.is_some_and(|played| played.has_ended)
    }

    pub(super) const fn set_ended(&mut self, has_ended: bool) {
        if let Some(played) = &mut self.played {
            played.has_ended = has_ended;
        }
    }

    /// The time of the recording that is played, `CLOCK_MONOTONIC`.
    pub(super) fn played_span(&self) -> Option<TimeSpan<i64>> {
        self.played.map(|played| played.span)
    }

    /// Shows the next frame of a recording or the one before, and stops there.
    pub(super) fn request_frame(&mut self, request: PlayRequest) {
        match &mut self.played {
            Some(played) => (played.is_stopped, played.request) = (true, Some(request)),
            None => self.message = Some("Left and Right are for a recording: top FILE".to_owned()),
        }
    }

    pub(super) const fn quit(&mut self) {
        self.has_quit = true;
    }

    pub(super) fn toggle_pause(&mut self) {
        if let Some(played) = &mut self.played {
            played.is_stopped = !played.is_stopped;
            return;
        }
        self.paused = if self.paused.is_some() { None } else { Some(self.current_screen()) };
    }

    /// Selects the next longer or shorter of [`FRAMES`].
    pub(super) fn change_frame(&mut self, longer: bool) {
        let current_ns = self.live.frame_ns();
        let lengths = FRAMES.iter().map(|length| duration_ns(*length));
        let next_ns = if longer {
            lengths.into_iter().find(|length| *length > current_ns)
        } else {
            lengths.rev().find(|length| *length < current_ns)
        };
        let Some(next_ns) = next_ns else { return };
        match &mut self.played {
            // Its rows are read again.
            Some(played) => {
                played.request = Some(PlayRequest::WithFrameLength(next_ns));
            }
            None => self.live.set_frame(next_ns),
        }
    }

    /// Grouping of the tenants.
    pub(super) fn grouping(&self) -> GroupBy {
        self.chosen_grouping.unwrap_or_else(|| self.live.default_grouping(self.link_index))
    }

    /// Selects the next grouping of [`GROUPINGS`].
    pub(super) fn select_next_grouping(&mut self) {
        let index = GROUPINGS
            .iter()
            .position(|grouping| *grouping == self.grouping())
            .map_or(0, |current| current + 1);
        self.chosen_grouping = Some(GROUPINGS[index % GROUPINGS.len()]);
        (self.owner_index, self.opened_owner) = (0, None);
    }

    /// Selects the next order: by share, by each group, by CPU time, by name.
    pub(super) fn select_next_order(&mut self) {
        let groups = self.shown_screen().groups.len();
        self.sort_order = match self.sort_order {
            OwnerOrder::Share if groups > 0 => OwnerOrder::Group(0),
            OwnerOrder::Group(index) if index + 1 < groups => OwnerOrder::Group(index + 1),
            OwnerOrder::Share | OwnerOrder::Group(_) => OwnerOrder::Cpu,
            OwnerOrder::Cpu => OwnerOrder::Name,
            OwnerOrder::Name => OwnerOrder::Share,
        };
        self.owner_index = 0;
    }

    /// Shows the processes of the selected owner, or goes back.
    pub(super) fn toggle_processes(&mut self) {
        if self.opened_owner.is_some() {
            self.leave_processes();
            return;
        }
        match self.shown_screen().owners.get(self.owner_index) {
            Some(line) if line.owner == "task" && self.grouping() != GroupBy::Pid => {
                self.opened_owner = Some(OpenedOwner {
                    grouping: self.grouping(),
                    name: line.name.clone(),
                    grouping_before: self.chosen_grouping,
                    owner_before: self.owner_index,
                });
                (self.chosen_grouping, self.owner_index, self.focus) =
                    (Some(GroupBy::Pid), 0, Focus::Owners);
                self.filter.clear();
            }
            Some(_) => self.message = Some("this line has no processes to show".to_owned()),
            None => {}
        }
    }

    /// Goes back from the processes of an owner.
    pub(super) fn leave_processes(&mut self) {
        if let Some(within) = self.opened_owner.take() {
            (self.chosen_grouping, self.owner_index) =
                (within.grouping_before, within.owner_before);
        }
    }

    /// Starts a recording, or ends the running one.
    pub(super) fn toggle_recording(&mut self) {
        if self.played.is_some() {
            self.message = Some("this is a recording: uncore-trace cut copies a part".to_owned());
            return;
        }
        if self.saver.open_path().is_some() {
            self.end_recording();
            return;
        }
        self.message = Some(match self.saver.start_recording() {
            Ok(path) => format!("recording to {}; r ends it", path.display()),
            Err(error) => format!("{error:#}"),
        });
    }

    /// Ends the recording, if there is one.
    pub(super) fn end_recording(&mut self) {
        match self.saver.finish_recording() {
            Ok(None) => {}
            Ok(Some((path, rows))) => {
                let path = path.display();
                log::info!("{path}: {rows} rows");
                self.message = Some(format!("{rows} rows in {path}: see uncore-trace report"));
            }
            Err(error) => {
                log::warn!("{error:#}");
                self.message = Some(format!("{error:#}"));
            }
        }
    }

    /// Moves the selection in the list that has the focus.
    pub(super) fn move_selection(&mut self, step: isize) {
        let screen = self.shown_screen();
        let (index, count) = match self.focus {
            Focus::Links => (&mut self.link_index, screen.links.len()),
            Focus::Owners => (&mut self.owner_index, screen.owners.len()),
        };
        *index = index.saturating_add_signed(step).min(count.saturating_sub(1));
    }
}
