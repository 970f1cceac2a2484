//! The keys of `top`, and the text of its help screen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Focus, Mode};

/// The help screen: keys, then terms of the lists.
pub(super) const HELP: [(&str, &str); 15] = [
    ("Up Down", "select a link or a tenant"),
    ("Tab", "go from the links to the tenants and back"),
    ("g", "tenants by cgroup, container, pod, process, device"),
    ("Enter", "processes of the selected tenant and its rates; Esc goes back"),
    ("/", "show only tenants with a text in their name; Esc shows all"),
    ("s", "sort by share, by each group, by CPU time, by name"),
    ("p or Space", "stop the picture, and go on"),
    ("+ -", "longer or shorter time between pictures"),
    ("r", "begin a recording of what is watched, and end it"),
    ("? or h", "this help"),
    ("q or Ctrl-C", "quit"),
    ("of peak", "rate in percent of what the link can carry; ! is more than"),
    ("", "that, or sources of the peak that differ by more than 20 %"),
    ("conf.", "chance that a share is within 10 % of the truth; - is none"),
    ("?", "a counter has no value"),
];

impl App {
    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) {
        self.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            self.quit();
            return;
        }
        match self.mode {
            Mode::Filter => self.filter_key(key.code),
            Mode::Help => self.mode = Mode::Lists,
            Mode::Lists => self.list_key(key.code),
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
                self.mode = Mode::Lists;
            }
            KeyCode::Enter => self.mode = Mode::Lists,
            _ => {}
        }
        self.owner = 0;
    }

    fn list_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('q') => self.quit(),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('g') => self.next_by(),
            KeyCode::Char('s') => self.next_sort(),
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char('r') => self.record(),
            KeyCode::Char('+' | '=') => self.change_frame(true),
            KeyCode::Char('-') => self.change_frame(false),
            KeyCode::Char('/') => {
                (self.mode, self.focus) = (Mode::Filter, Focus::Owners);
            }
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Links { Focus::Owners } else { Focus::Links };
            }
            KeyCode::Enter => self.enter(),
            KeyCode::Esc if self.within.is_some() => self.leave(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::PageUp => self.select(-10),
            KeyCode::PageDown => self.select(10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            _ => {}
        }
    }
}
