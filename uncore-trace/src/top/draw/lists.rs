//! The lists of links and of tenants.

use super::super::app::{App, Focus};
use super::{Look, StyledText, fit};
use crate::terminal::cells;
use crate::text::printable;
use crate::units::{self, SharedUnit};
use crate::view::headroom::FULL;
use crate::view::heat::bars;
use crate::view::live::screen::{LinkFullness, OwnerLine, LiveScreen, WatchedLine};

/// Number of cells between columns.
const GAP: usize = 2;

/// Fewest cells for the bars of the last minute.
const LEAST_TIME: usize = 10;

/// Most cells for the bars of the last minute, one per frame.
const MOST_TIME: usize = 60;

/// Fewest cells for a name.
const LEAST_NAME: usize = 16;

/// A column of values: its head, and a cell for each line.
struct Column {
    head: String,
    cells: Vec<StyledText>,
}

impl Column {
    fn new(head: impl Into<String>, cells: impl Iterator<Item = StyledText>) -> Self {
        Self { head: head.into(), cells: cells.collect() }
    }

    fn width(&self) -> usize {
        let widest = self.cells.iter().map(|(text, _)| cells(text)).max().unwrap_or_default();
        widest.max(cells(&self.head))
    }
}

/// A list: names, columns, and bars for the last minute.
struct List<'a> {
    head: String,
    names: Vec<StyledText>,
    columns: Vec<Column>,
    /// For each line, its values of the last minute.
    times: Vec<Vec<Option<f64>>>,
    /// Whether the last columns matter least; else the first do.
    drops_last: bool,
    /// Index of the selected line, and whether the arrow keys move it.
    selected: (usize, bool),
    app: &'a App,
}

/// The lines of the list of links, or of events if there are no links.
pub(super) fn links(
    app: &App,
    screen: &LiveScreen,
    width: usize,
    lines: usize,
) -> Vec<Vec<StyledText>> {
    let things = &screen.links;
    let is_link = things.iter().any(|thing| thing.unit == "bytes");
    let plain = |text: String| (text, Look::Plain);
    let mut columns = Vec::new();
    if is_link {
        let rates = things.iter().flat_map(|thing| [thing.in_per_s, thing.out_per_s, thing.per_s]);
        let unit = SharedUnit::for_values(rates.flatten(), "bytes");
        let head = |what: &str| format!("{what} {}", unit.rate_name());
        let figure = |rate: Option<f64>, thing: &WatchedLine| {
            let none = if thing.unknown { "?" } else { "-" };
            plain(rate.map_or_else(|| none.to_owned(), |rate| unit.format_figure(rate)))
        };
        if app.within.is_some() {
            columns.push(Column::new(
                head("its"),
                things.iter().map(|thing| figure(thing.within_per_s, thing)),
            ));
        }
        columns.push(Column::new(
            head("in"),
            things.iter().map(|thing| figure(thing.in_per_s, thing)),
        ));
        columns.push(Column::new(
            head("out"),
            things.iter().map(|thing| figure(thing.out_per_s, thing)),
        ));
        // Some memory controllers do not count reads and writes separately.
        let only_both = |thing: &WatchedLine| {
            thing.per_s.is_some() && thing.in_per_s.is_none() && thing.out_per_s.is_none()
        };
        if things.iter().any(only_both) {
            let both = things.iter().map(|thing| figure(thing.per_s, thing));
            columns.push(Column::new(head("both"), both));
        }
        columns.push(Column::new("of peak", things.iter().map(|thing| percent(thing.full))));
    } else {
        let rate = |rate: Option<f64>, thing: &WatchedLine| {
            let shown = rate.map_or_else(|| "?".to_owned(), |rate| units::human_rate(rate, &thing.unit));
            plain(printable(&shown).into_owned())
        };
        if app.within.is_some() {
            let its = things.iter().map(|thing| rate(thing.within_per_s, thing));
            columns.push(Column::new("its rate", its));
        }
        columns.push(Column::new("rate", things.iter().map(|thing| rate(thing.per_s, thing))));
    }
    let list = List {
        head: if is_link { "link" } else { "event" }.to_owned(),
        names: things.iter().map(|thing| plain(printable(&thing.name).into_owned())).collect(),
        columns,
        times: things.iter().map(|thing| thing.history.clone()).collect(),
        // The rates matter more than the peak.
        drops_last: true,
        selected: (screen.selected, app.focus == Focus::Links),
        app,
    };
    list.lines(width, lines)
}

/// The lines of the list of tenants.
pub(super) fn owners(
    app: &App,
    screen: &LiveScreen,
    width: usize,
    lines: usize,
) -> Vec<Vec<StyledText>> {
    let owners = &screen.owners;
    let look = |line: &OwnerLine| if line.owner == "task" { Look::Plain } else { Look::Dim };
    let column = |head: String, cell: &dyn Fn(&OwnerLine) -> String| {
        Column::new(head, owners.iter().map(|line| (cell(line), look(line))))
    };
    let mut columns: Vec<Column> = Vec::new();
    let mut unit = String::new();
    let of = |place: usize| owners.iter().filter_map(move |line| *line.per_s.get(place)?);
    if screen.groups.iter().all(|group| group.unit == "bytes") {
        // Groups share a unit, so that they can be compared.
        let shared = SharedUnit::for_values((0..screen.groups.len()).flat_map(of), "bytes");
        unit = format!(", {}", shared.rate_name());
        for (place, group) in screen.groups.iter().enumerate() {
            columns.push(column(printable(&group.name).into_owned(), &|line| {
                let rate = line.per_s.get(place).copied().flatten();
                rate.map_or_else(|| "?".to_owned(), |rate| shared.format_figure(rate))
            }));
        }
    } else if let Some(group) = screen.groups.get(screen.selected) {
        let shared = SharedUnit::for_values(of(screen.selected), &group.unit);
        columns.push(column(shared.rate_name(), &|line| {
            line.link_per_s.map_or_else(|| "?".to_owned(), |rate| shared.format_figure(rate))
        }));
    }
    let dash = || "-".to_owned();
    let percent = |part: f64| SharedUnit::as_percent().format_figure(part);
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
        let own = line.owner != "task" && line.name == line.owner;
        if own { format!("({name})") } else { name.into_owned() }
    };
    let list = List {
        head: format!("{}{unit}", screen.by),
        names: owners.iter().map(|line| (name(line), look(line))).collect(),
        columns,
        times: owners.iter().map(|line| line.history.clone()).collect(),
        // Single groups matter less than share and confidence.
        drops_last: false,
        selected: (app.owner, app.focus == Focus::Owners),
        app,
    };
    list.lines(width, lines)
}

/// Percent of the peak, with `!` if it is above 100 or if two sources of the peak disagree.
fn percent(full: Option<LinkFullness>) -> StyledText {
    let Some(LinkFullness { part, other }) = full else { return ("-".to_owned(), Look::Plain) };
    let number = |part: f64| SharedUnit::as_percent().format_figure(part);
    let look = match part {
        part if part > 1.0 => Look::Hot,
        part if part > FULL => Look::Warm,
        _ => Look::Plain,
    };
    match other {
        Some(other) => (format!("{} | {} %!", number(part), number(other)), Look::Warm),
        None if part > 1.0 => (format!("{} %!", number(part)), look),
        None => (format!("{} %", number(part)), look),
    }
}

impl List<'_> {
    /// The list in at most `lines` lines, including its head. Columns that do not fit are left out,
    /// and the head shows their number. The names get the remaining width.
    fn lines(mut self, width: usize, lines: usize) -> Vec<Vec<StyledText>> {
        let ascii = self.app.ascii;
        let marker = 2;
        let widths = |columns: &[Column]| -> usize {
            columns.iter().map(|column| column.width() + GAP).sum()
        };
        let mut hidden = 0;
        while widths(&self.columns) + LEAST_NAME + marker > width && self.columns.len() > 1 {
            self.columns.remove(if self.drops_last { self.columns.len() - 1 } else { 0 });
            hidden += 1;
        }
        let figures = widths(&self.columns);
        let longest = self.names.iter().map(|(name, _)| cells(name)).max().unwrap_or_default();
        let longest = longest.max(LEAST_NAME).max(cells(&self.head));
        let rest = width.saturating_sub(marker + figures);
        let time = rest.saturating_sub(longest + GAP).clamp(0, MOST_TIME);
        let time = if time >= LEAST_TIME {
            time
        } else if rest >= LEAST_NAME + GAP + LEAST_TIME {
            LEAST_TIME
        } else {
            0
        };
        let name_width = rest.saturating_sub(if time > 0 { time + GAP } else { 0 }).min(longest);
        let room = lines.saturating_sub(1);
        let first = self.first(room);
        let shown = self.names.len().saturating_sub(first).min(room);
        let mut out = vec![self.head_line(first, shown, name_width, time, hidden)];
        for line in first..first + shown {
            out.push(self.line(line, name_width, time, ascii));
        }
        out
    }

    /// Index of the first line shown, chosen so that the selected line is visible.
    fn first(&self, room: usize) -> usize {
        let (selected, _) = self.selected;
        let last = self.names.len().saturating_sub(1);
        selected.min(last).saturating_sub(room.saturating_sub(1))
    }

    fn head_line(
        &self,
        first: usize,
        shown: usize,
        name_width: usize,
        time: usize,
        hidden: usize,
    ) -> Vec<StyledText> {
        let all = self.names.len();
        let mut head = self.head.clone();
        if shown < all {
            head = format!("{head} {}-{} of {all}", first + 1, first + shown);
        }
        if hidden > 0 {
            head = format!("{head} (+{hidden})");
        }
        let head = fit(&head, name_width, self.app.ascii);
        let mut text = format!("  {}", padded(&head, name_width));
        for column in &self.columns {
            let blanks = column.width() - cells(&column.head) + GAP;
            text.push_str(&" ".repeat(blanks));
            text.push_str(&column.head);
        }
        if time > 0 {
            text.push_str(&" ".repeat(GAP));
            text.push_str(if time < 11 { "1 minute" } else { "last minute" });
        }
        vec![(text, Look::Head)]
    }

    fn line(&self, line: usize, name_width: usize, time: usize, ascii: bool) -> Vec<StyledText> {
        let (name, look) = &self.names[line];
        let is_selected = self.selected.0 == line;
        let marker = match (is_selected, self.selected.1) {
            (true, true) => "> ",
            (true, false) => "* ",
            (false, _) => "  ",
        };
        let name = padded(&fit(name, name_width, ascii), name_width);
        let of = |look: Look| if is_selected && self.selected.1 { Look::Selected } else { look };
        let mut parts = vec![(format!("{marker}{name}"), of(*look))];
        for column in &self.columns {
            let (text, look) = &column.cells[line];
            let blanks = column.width() - cells(text) + GAP;
            parts.push((format!("{}{text}", " ".repeat(blanks)), of(*look)));
        }
        if time > 0 {
            let values = &self.times[line];
            let from = values.len().saturating_sub(time);
            let drawn = bars(&values[from..], ascii);
            // The newest value is at the right end.
            let blanks = time - cells(&drawn) + GAP;
            parts.push((format!("{}{drawn}", " ".repeat(blanks)), of(*look)));
        }
        parts
    }
}

/// The text, filled with blanks to `width` cells.
fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(cells(text))))
}
