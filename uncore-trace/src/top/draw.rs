//! Draws the screen as lines of text.
//!
//! Guarantees: names are escaped before they reach the terminal. No line is wider than the
//! terminal, and shortened text ends in a mark. All values of a column have the same unit.

mod lists;

use crossterm::style::{ContentStyle, Stylize as _};

use jiff::tz::TimeZone;

use self::lists::{link_lines, owner_lines};
use super::app::{App, KeyMode, OpenedOwner};
use super::keys::HELP;
use crate::clock::TimeSpan;
use crate::held_messages;
use crate::terminal::{cells, mark, shorten, wrap_words};
use crate::text::printable;
use crate::units;
use crate::view::live::screen::{LiveScreen, OwnerOrder};

/// Smallest supported terminal: columns, lines.
const MIN_TERMINAL: (usize, usize) = (60, 12);

/// Number of lines outside the lists: the head, the message between the lists, and the keys.
const LINES_AROUND: usize = 3;

/// Most lines of a list that is printed, not shown on a terminal: enough for all.
const MAX_PRINTED_LINES: usize = 10_000;

/// Style of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextLook {
    Plain,
    /// The name of a column, or a key.
    Head,
    /// The selected line.
    Selected,
    /// Less important text.
    Dim,
    /// A link that is nearly full, or a warning.
    Warm,
    /// A link over its peak, or a state that needs attention.
    Hot,
}

impl TextLook {
    fn content_style(self, plain: bool) -> ContentStyle {
        let style = ContentStyle::new();
        match self {
            Self::Plain => style,
            Self::Head => style.bold(),
            Self::Selected => style.reverse(),
            Self::Dim if plain => style,
            Self::Dim => style.dark_grey(),
            Self::Warm | Self::Hot if plain => style.bold(),
            Self::Warm => style.yellow().bold(),
            Self::Hot => style.red().bold(),
        }
    }
}

/// A piece of a line, and its look.
pub(super) type StyledText = (String, TextLook);

/// The screen as lines with the terminal's codes for their styles.
pub(super) fn styled_lines(app: &App, width: usize, height: usize) -> Vec<String> {
    let styled_piece =
        |(text, look): StyledText| look.content_style(app.plain).apply(text).to_string();
    let line = |pieces: Vec<StyledText>| pieces.into_iter().map(styled_piece).collect();
    screen_lines(app, width, height).into_iter().map(line).collect()
}

/// The screen as text, `width` columns wide.
pub(super) fn list_text(app: &App, width: usize) -> String {
    let screen = app.shown_screen();
    let notice =
        app.notice.iter().map(|notice| format!("{}\n", fit_width(notice, width, app.ascii)));
    let list_lines = link_lines(app, &screen, width, MAX_PRINTED_LINES)
        .into_iter()
        .chain([Vec::new()])
        .chain(owner_lines(app, &screen, width, MAX_PRINTED_LINES));
    let line = |pieces: Vec<StyledText>| {
        let text: String = pieces.into_iter().map(|(text, _)| text).collect();
        text.trim_end().to_owned() + "\n"
    };
    notice.chain(list_lines.map(line)).collect()
}

/// The screen as `height` lines of at most `width` columns.
fn screen_lines(app: &App, width: usize, height: usize) -> Vec<Vec<StyledText>> {
    if width < MIN_TERMINAL.0 || height < MIN_TERMINAL.1 {
        let text =
            format!("{}x{} needed, {width}x{height} here; q quits", MIN_TERMINAL.0, MIN_TERMINAL.1);
        let lines = wrap_words(&text, width);
        let lines = lines.lines().take(height);
        return lines
            .map(|line| vec![(fit_width(line, width, app.ascii), TextLook::Hot)])
            .collect();
    }
    let screen = app.shown_screen();
    let mut lines = vec![head_line(app, &screen, width)];
    let room = height - LINES_AROUND;
    if app.mode == KeyMode::Help {
        let help = HELP.iter().map(|(keys, meaning)| {
            let meaning = fit_width(meaning, width.saturating_sub(16), app.ascii);
            vec![(format!("  {keys:<12}  "), TextLook::Head), (meaning, TextLook::Plain)]
        });
        lines.extend(help.take(room + 1));
    } else {
        // The tenants get the lines that the links do not use, at least half.
        let link_line_count = (screen.links.len() + 1).min(room / 2);
        lines.extend(link_lines(app, &screen, width, link_line_count));
        lines.push(message_line(app, width));
        lines.extend(owner_lines(app, &screen, width, room - link_line_count));
    }
    lines.resize(height - 1, Vec::new());
    lines.push(key_line(app, width));
    lines
}

/// The head line: host, time, frame length and recording.
fn head_line(app: &App, screen: &LiveScreen, width: usize) -> Vec<StyledText> {
    let length = units::human(app.frame_ns() as f64, "ns");
    let mut text = format!("uncore-trace top  {}  ", printable(app.host_name()));
    if let Some(TimeSpan { begin_ns, end_ns }) = app.played_span() {
        let second = |ns: i64| format!("{:.1}", (ns - begin_ns) as f64 / 1e9);
        let time = screen.time.map(|time| time.to_zoned(TimeZone::system()));
        text += &time.map_or_else(String::new, |time| time.strftime("%H:%M:%S  ").to_string());
        let position_s = screen.end_ns.map_or_else(|| "0".to_owned(), second);
        text.extend([position_s.as_str(), " of ", &second(end_ns), " s"]);
    } else {
        text += &jiff::Zoned::now().strftime("%H:%M:%S").to_string();
    }
    if app.has_ended() {
        text += "  END";
    } else if app.is_paused() {
        text += "  PAUSED";
    }
    let every = format!("  every {length}");
    if cells(&text) + cells(&every) <= width {
        text += &every;
    }
    if screen.end_ns.is_none() {
        text += "  waiting for the first update";
    }
    let recording = app.recording_path().map(|path| format!("  recording to {}", printable(&path)));
    let room = width - cells(&text).min(width);
    let recording = recording.map(|text| fit_width(&text, room, app.ascii)).unwrap_or_default();
    vec![(fit_width(&text, width, app.ascii), TextLook::Head), (recording, TextLook::Hot)]
}

/// The line between the lists: the result of a key, a held message, or why there are no links.
fn message_line(app: &App, width: usize) -> Vec<StyledText> {
    let held = held_messages::held_lines();
    let within =
        app.opened_owner.as_ref().map(|OpenedOwner { grouping: grouped_by, name, .. }| {
            format!("processes of {} {}; Esc goes back", grouped_by.name(), printable(name))
        });
    let ended =
        app.has_ended().then(|| "the recording ends here; Left goes back, q quits".to_owned());
    let message = app.message.clone().or(within).or(ended).or_else(|| held.last().cloned());
    let message = message.or_else(|| app.notice.clone()).unwrap_or_default();
    let look =
        if app.message.is_some() || !held.is_empty() { TextLook::Warm } else { TextLook::Dim };
    vec![(fit_width(&printable(&message), width, app.ascii), look)]
}

/// The last line: the keys, or the filter while it is typed.
fn key_line(app: &App, width: usize) -> Vec<StyledText> {
    if app.mode == KeyMode::Filter {
        let text = format!("names with: {}_  (Enter keeps, Esc shows all)", printable(&app.filter));
        return vec![(fit_width(&text, width, app.ascii), TextLook::Head)];
    }
    let sort = match app.sort_order {
        OwnerOrder::Share => "share".to_owned(),
        OwnerOrder::Group(group_index) => {
            let screen = app.shown_screen();
            screen.groups.get(group_index).map_or_else(String::new, |group| group.name.clone())
        }
        OwnerOrder::Cpu => "CPU".to_owned(),
        OwnerOrder::Name => "name".to_owned(),
    };
    let keys = [
        ("q", "quit".to_owned()),
        ("?", "help".to_owned()),
        ("Tab", "list".to_owned()),
        ("g", app.grouping().name().to_owned()),
        ("Enter", if app.opened_owner.is_some() { "back" } else { "open" }.to_owned()),
        ("/", "find".to_owned()),
        ("s", printable(&sort).into_owned()),
        ("p", "pause".to_owned()),
        if app.played_span().is_some() {
            ("Left Right", "step".to_owned())
        } else {
            ("r", "record".to_owned())
        },
    ];
    let mut pieces = Vec::new();
    let mut remaining = width;
    for (key, meaning) in keys {
        let needed = cells(key) + cells(&meaning) + 3;
        if needed > remaining {
            break;
        }
        remaining -= needed;
        pieces.push((key.to_owned(), TextLook::Head));
        pieces.push((format!(" {meaning}  "), TextLook::Plain));
    }
    pieces
}

/// The text, shortened to `width` cells.
pub(super) fn fit_width(text: &str, width: usize, ascii: bool) -> String {
    shorten(text, width, mark(ascii)).into_owned()
}

#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;
