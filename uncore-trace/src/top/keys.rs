//! The keys of `top`, and the text of its help screen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Focus, KeyMode, PlayRequest};

/// The help screen: keys, then terms of the lists.
pub(super) const HELP: [(&str, &str); 17] = [
    ("Up Down", "select a link or a tenant"),
    ("Tab", "go to the other list"),
    ("Enter", "processes of the selected tenant; Esc: back"),
    ("g", "cgroup, container, pod, job, pid or device"),
    ("s", "sort by share, each group, CPU time, name"),
    ("/", "only names with a text; Esc shows all"),
    ("p or Space", "pause, and go on"),
    ("Left Right", "in a recording: one update back, or on"),
    ("+ -", "a longer or shorter time between updates"),
    ("r", "record these counters to a file; r ends it"),
    ("? or h", "this help"),
    ("q or Ctrl-C", "quit"),
    ("of peak", "rate in percent of what the link can carry"),
    ("!", "above the peak, or two peaks that disagree"),
    ("conf.", "chance to be within 10 % of the truth"),
    ("-", "not counted, or without a confidence"),
    ("?", "not known: a counter has no value"),
];

impl App {
    /// Handles a key.
    pub(super) fn handle_key(&mut self, key: KeyEvent) {
        self.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            self.quit();
            return;
        }
        match self.mode {
            KeyMode::Filter => self.filter_key(key.code),
            KeyMode::Help => self.mode = KeyMode::Lists,
            KeyMode::Lists => self.list_key(key.code),
        }
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = KeyMode::Lists;
            }
            KeyCode::Enter => self.mode = KeyMode::Lists,
            _ => {}
        }
        self.owner_index = 0;
    }

    fn list_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('q') => self.quit(),
            KeyCode::Char('?' | 'h') => self.mode = KeyMode::Help,
            KeyCode::Char('g') => self.select_next_grouping(),
            KeyCode::Char('s') => self.select_next_order(),
            KeyCode::Char('p' | ' ') => self.toggle_pause(),
            KeyCode::Char('r') => self.toggle_recording(),
            KeyCode::Char('+' | '=') => self.change_frame(true),
            KeyCode::Char('-') => self.change_frame(false),
            KeyCode::Char('/') => {
                (self.mode, self.focus) = (KeyMode::Filter, Focus::Owners);
            }
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Links { Focus::Owners } else { Focus::Links };
            }
            KeyCode::Enter => self.toggle_processes(),
            KeyCode::Esc if self.opened_owner.is_some() => self.leave_processes(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Left => self.request_frame(PlayRequest::PreviousFrame),
            KeyCode::Right => self.request_frame(PlayRequest::NextFrame),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.move_selection(-10),
            KeyCode::PageDown => self.move_selection(10),
            KeyCode::Home => self.move_selection(isize::MIN),
            KeyCode::End => self.move_selection(isize::MAX),
            _ => {}
        }
    }
}
