//! The lists of links and of tenants.

use super::super::app::{App, Focus};
use super::{StyledText, TextLook, fit_width};
use crate::terminal::cells;
use crate::text::printable;
use crate::units::{self, SharedUnit};
use crate::view::headroom::FULL;
use crate::view::heat::draw_bars;
use crate::view::live::screen::{LinkFullness, LiveScreen, OwnerLine, WatchedLine};

/// Number of cells between columns.
const GAP: usize = 2;

/// Fewest cells for the bars of the last minute.
const MIN_BAR_CELLS: usize = 10;

/// Most cells for the bars of the last minute, one per frame.
const MAX_BAR_CELLS: usize = 60;

/// Fewest cells for a name.
const MIN_NAME_CELLS: usize = 16;

/// A column of values: its head, and a cell for each line.
struct ListColumn {
    head: String,
    cells: Vec<StyledText>,
}

impl ListColumn {
    fn new(head: String, cells: impl Iterator<Item = StyledText>) -> Self {
        Self { head, cells: cells.collect() }
    }

    fn column_width(&self) -> usize {
        let widest = self.cells.iter().map(|(text, _)| cells(text)).max().unwrap_or_default();
        widest.max(cells(&self.head))
    }
}

/// A list: names, columns, and bars for the last minute.
struct ScreenList<'a> {
    head: String,
    names: Vec<StyledText>,
    columns: Vec<ListColumn>,
    /// For each line, its values of the last minute.
    times: Vec<Vec<Option<f64>>>,
    /// Whether the last columns matter least; else the first do.
    drops_last: bool,
    /// Index of the selected line, and whether the arrow keys move it.
    selected: (usize, bool),
    app: &'a App,
}

/// The lines of the list of links, or of events if there are no links.
pub(super) fn link_lines(
    app: &App,
    screen: &LiveScreen,
    width: usize,
    lines: usize,
) -> Vec<Vec<StyledText>> {
    let traffic_lines = &screen.links;
    let is_link = traffic_lines.iter().any(|traffic_line| traffic_line.unit == "bytes");
    let plain = |text: String| (text, TextLook::Plain);
    let column = |head: String, cell: &dyn Fn(&WatchedLine) -> StyledText| {
        ListColumn::new(head, traffic_lines.iter().map(cell))
    };
    let mut columns = Vec::new();
    if is_link {
        let rates = traffic_lines.iter().flat_map(|traffic_line| {
            [traffic_line.in_per_s, traffic_line.out_per_s, traffic_line.per_s]
        });
        let unit = SharedUnit::for_values(rates.flatten(), "bytes");
        let head = |title: &str| format!("{title} {}", unit.rate_name());
        let figure = |rate: Option<f64>, traffic_line: &WatchedLine| {
            let none = if traffic_line.unknown { "?" } else { "-" };
            plain(rate.map_or_else(|| none.to_owned(), |rate| unit.format_figure(rate)))
        };
        if app.opened_owner.is_some() {
            columns.push(column(head("its"), &|line| figure(line.within_per_s, line)));
        }
        columns.push(column(head("in"), &|line| figure(line.in_per_s, line)));
        columns.push(column(head("out"), &|line| figure(line.out_per_s, line)));
        // Some memory controllers do not count reads and writes separately.
        let only_both = |line: &WatchedLine| {
            line.per_s.is_some() && line.in_per_s.is_none() && line.out_per_s.is_none()
        };
        if traffic_lines.iter().any(only_both) {
            columns.push(column(head("both"), &|line| figure(line.per_s, line)));
        }
        columns.push(column("of peak".to_owned(), &|line| percent_of_peak(line.full)));
    } else {
        let rate = |rate: Option<f64>, traffic_line: &WatchedLine| {
            let shown = rate
                .map_or_else(|| "?".to_owned(), |rate| units::human_rate(rate, &traffic_line.unit));
            plain(printable(&shown).into_owned())
        };
        if app.opened_owner.is_some() {
            columns.push(column("its rate".to_owned(), &|line| rate(line.within_per_s, line)));
        }
        columns.push(column("rate".to_owned(), &|line| rate(line.per_s, line)));
    }
    let list = ScreenList {
        head: if is_link { "link" } else { "event" }.to_owned(),
        names: traffic_lines
            .iter()
            .map(|traffic_line| plain(printable(&traffic_line.name).into_owned()))
            .collect(),
        columns,
        times: traffic_lines.iter().map(|traffic_line| traffic_line.history.clone()).collect(),
        // The rates matter more than the peak.
        drops_last: true,
        selected: (screen.selected, app.focus == Focus::Links),
        app,
    };
    list.draw_lines(width, lines)
}

/// The lines of the list of tenants.
pub(super) fn owner_lines(
    app: &App,
    screen: &LiveScreen,
    width: usize,
    lines: usize,
) -> Vec<Vec<StyledText>> {
    let owners = &screen.owners;
    let look =
        |line: &OwnerLine| if line.owner == "task" { TextLook::Plain } else { TextLook::Dim };
    let column = |head: String, cell: &dyn Fn(&OwnerLine) -> String| {
        ListColumn::new(head, owners.iter().map(|line| (cell(line), look(line))))
    };
    let mut columns: Vec<ListColumn> = Vec::new();
    let mut unit = String::new();
    let rates_of_group =
        |group_index: usize| owners.iter().filter_map(move |line| *line.per_s.get(group_index)?);
    if screen.groups.iter().all(|group| group.unit == "bytes") {
        // Groups share a unit, so that they can be compared.
        let shared =
            SharedUnit::for_values((0..screen.groups.len()).flat_map(rates_of_group), "bytes");
        unit = format!(", {}", shared.rate_name());
        for (group_index, group) in screen.groups.iter().enumerate() {
            columns.push(column(printable(&group.name).into_owned(), &|line| {
                let rate = line.per_s.get(group_index).copied().flatten();
                rate.map_or_else(|| "?".to_owned(), |rate| shared.format_figure(rate))
            }));
        }
    } else if let Some(group) = screen.groups.get(screen.selected) {
        let shared = SharedUnit::for_values(rates_of_group(screen.selected), &group.unit);
        columns.push(column(shared.rate_name(), &|line| {
            line.link_per_s.map_or_else(|| "?".to_owned(), |rate| shared.format_figure(rate))
        }));
    }
    let dash = || "-".to_owned();
    let percent = |fraction: f64| SharedUnit::as_percent().format_figure(fraction);
    columns.push(column("share %".to_owned(), &|line| line.share.map_or_else(dash, percent)));
    columns.push(column("conf.".to_owned(), &|line| {
        line.confidence.map_or_else(dash, |confidence| format!("{confidence:.2}"))
    }));
    columns.push(column("CPUs".to_owned(), &|line| {
        line.cpus.map_or_else(dash, |cpus| format!("{cpus:.2}"))
    }));
    let name = |line: &OwnerLine| {
        let name = printable(&line.name);
        // Parentheses distinguish owners such as `irq` from a cgroup of that name.
        let is_owner_name = line.owner != "task" && line.name == line.owner;
        if is_owner_name { format!("({name})") } else { name.into_owned() }
    };
    let list = ScreenList {
        head: format!("{}{unit}", screen.by),
        names: owners.iter().map(|line| (name(line), look(line))).collect(),
        columns,
        times: owners.iter().map(|line| line.history.clone()).collect(),
        // Single groups matter less than share and confidence.
        drops_last: false,
        selected: (app.owner_index, app.focus == Focus::Owners),
        app,
    };
    list.draw_lines(width, lines)
}

/// Percent of the peak, with `!` if it is above 100 or if two sources of the peak disagree.
fn percent_of_peak(full: Option<LinkFullness>) -> StyledText {
    let Some(LinkFullness { part: fraction, other: conflicting_fraction }) = full else {
        return ("-".to_owned(), TextLook::Plain);
    };
    let number = |fraction: f64| SharedUnit::as_percent().format_figure(fraction);
    let look = match fraction {
        fraction if fraction > 1.0 => TextLook::Hot,
        fraction if fraction > FULL => TextLook::Warm,
        _ => TextLook::Plain,
    };
    match conflicting_fraction {
        Some(conflicting) => {
            (format!("{} | {} %!", number(fraction), number(conflicting)), TextLook::Warm)
        }
        None if fraction > 1.0 => (format!("{} %!", number(fraction)), look),
        None => (format!("{} %", number(fraction)), look),
    }
}

impl ScreenList<'_> {
    /// The list in at most `lines` lines, including its head. Columns that do not fit are left out,
    /// and the head shows their number. The names get the remaining width.
    fn draw_lines(mut self, width: usize, lines: usize) -> Vec<Vec<StyledText>> {
        let ascii = self.app.ascii;
        let marker = 2;
        let widths = |columns: &[ListColumn]| -> usize {
            columns.iter().map(|column| column.column_width() + GAP).sum()
        };
        let mut hidden = 0;
        while widths(&self.columns) + MIN_NAME_CELLS + marker > width && self.columns.len() > 1 {
            self.columns.remove(if self.drops_last { self.columns.len() - 1 } else { 0 });
            hidden += 1;
        }
        let figures = widths(&self.columns);
        let longest = self.names.iter().map(|(name, _)| cells(name)).max().unwrap_or_default();
        let longest = longest.max(MIN_NAME_CELLS).max(cells(&self.head));
        let remaining = width.saturating_sub(marker + figures);
        let time = remaining.saturating_sub(longest + GAP).clamp(0, MAX_BAR_CELLS);
        let time = if time >= MIN_BAR_CELLS {
            time
        } else if remaining >= MIN_NAME_CELLS + GAP + MIN_BAR_CELLS {
            MIN_BAR_CELLS
        } else {
            0
        };
        let name_width =
            remaining.saturating_sub(if time > 0 { time + GAP } else { 0 }).min(longest);
        let room = lines.saturating_sub(1);
        let first_line = self.first_shown(room);
        let shown = self.names.len().saturating_sub(first_line).min(room);
        let mut output = vec![self.head_line(first_line, shown, name_width, time, hidden)];
        for line in first_line..first_line + shown {
            output.push(self.draw_line(line, name_width, time, ascii));
        }
        output
    }

    /// Index of the first line shown, chosen so that the selected line is visible.
    fn first_shown(&self, room: usize) -> usize {
        let (selected, _) = self.selected;
        selected.min(self.names.len().saturating_sub(1)).saturating_sub(room.saturating_sub(1))
    }

    fn head_line(
        &self,
        first_line: usize,
        shown: usize,
        name_width: usize,
        time: usize,
        hidden: usize,
    ) -> Vec<StyledText> {
        let line_count = self.names.len();
        let mut head = self.head.clone();
        if shown < line_count {
            head = format!("{head} {}-{} of {line_count}", first_line + 1, first_line + shown);
        }
        if hidden > 0 {
            head = format!("{head} (+{hidden})");
        }
        let head = fit_width(&head, name_width, self.app.ascii);
        let mut text = format!("  {}", pad_to_width(&head, name_width));
        for column in &self.columns {
            text.push_str(&" ".repeat(column.column_width() - cells(&column.head) + GAP));
            text.push_str(&column.head);
        }
        if time > 0 {
            text.push_str(&" ".repeat(GAP));
            text.push_str(if time < 11 { "1 minute" } else { "last minute" });
        }
        vec![(text, TextLook::Head)]
    }

    fn draw_line(
        &self,
        line: usize,
        name_width: usize,
        time: usize,
        ascii: bool,
    ) -> Vec<StyledText> {
        let (name, look) = &self.names[line];
        let is_selected = self.selected.0 == line;
        let marker = match (is_selected, self.selected.1) {
            (true, true) => "> ",
            (true, false) => "* ",
            (false, _) => "  ",
        };
        let name = pad_to_width(&fit_width(name, name_width, ascii), name_width);
        let look_of =
            |look: TextLook| if is_selected && self.selected.1 { TextLook::Selected } else { look };
        let mut pieces = vec![(format!("{marker}{name}"), look_of(*look))];
        for column in &self.columns {
            let (text, look) = &column.cells[line];
            let blanks = column.column_width() - cells(text) + GAP;
            pieces.push((format!("{}{text}", " ".repeat(blanks)), look_of(*look)));
        }
        if time > 0 {
            let values = &self.times[line];
            let drawn = draw_bars(&values[values.len().saturating_sub(time)..], ascii);
            // The newest value is at the right end.
            let blanks = time - cells(&drawn) + GAP;
            pieces.push((format!("{}{drawn}", " ".repeat(blanks)), look_of(*look)));
        }
        pieces
    }
}

/// The text, filled with blanks to `width` cells.
fn pad_to_width(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(cells(text))))
}
