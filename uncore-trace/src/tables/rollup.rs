//! Reads a roll-up as if it were the table `fabric` of a recording: one file, the hours of an agent, or
//! partitions of many hosts.
//!
//! Guarantees: rows come in the order of their windows' ends over all files; memory holds about
//! [`MOST_ROWS`] of them, or one window of each file where that is more; `counter` is a number for each
//! PMU, event, filter, link and direction of a boot of a host, the same in every scan. What `fabric` has
//! and a roll-up has not is null: `pid`, `cpu`, `cgroup_id`.
//!
//! # Time
//!
//! Of one boot, `mono_ns` and `ts` are those of the rows. Clocks of several boots or hosts do not compare,
//! so `mono_ns` is then wall time, ns since 1970, and `ts` the same: that of `CLOCK_MONOTONIC` plus what the
//! newest file of the boot says is between the two, rounded to a whole window. So windows of a boot never
//! overlap, those of different hosts end together and can be added up, and times are off by half a window
//! at most (more where the wall clock was set meanwhile).
//!
//! # Sets
//!
//! A window may be in two files: the agent was started anew within it, or a recording goes on in another
//! part. These rows become one window with the sum of their `total` and `known_ns`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use arrow::array::{
    Array as _, ArrayRef, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::{filter_record_batch, interleave};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use globset::Glob;
use serde_json::json;

use super::hours;
use super::reader::{BATCH_ROWS, Table};
use super::writer::table_path;
use super::{disk, segment, series};
use crate::schema::columns::{self, Words, get};
use crate::schema::link::{Counted, Direction, Link, Peak, Source};
use crate::schema::origin::Origin;
use crate::schema::{ROLLUP_VERSION, fabric, metadata, rollup};

/// The column that rows are ordered by.
pub(super) const TIME: &str = "mono_ns";

/// Columns of `rollup` that are offered beside those of `fabric`: time of the window that is known, and the 90 %
/// interval.
pub const MORE: [&str; 3] = ["known_ns", "low", "high"];

/// What tells counters apart, beside the boot and the socket.
const WORDS: [&str; 7] = ["subsystem", "pmu", "event", "filter", "unit", "link", "direction"];
/// The places of `link` and `direction` in [`WORDS`].
const LINK: usize = 5;
const DIRECTION: usize = 6;

/// What is the same in all rows of a counter's window.
const WINDOW: [&str; 3] = ["known_ns", "total", "running"];

/// Columns of `fabric` that no row of a roll-up has.
const ABSENT: [&str; 3] = ["cpu", "pid", "cgroup_id"];

/// Rows that are held: 50 MiB. With more, files are read in several turns.
const MOST_ROWS: f64 = 524_288.0;

/// Hosts that an error names.
const NAMED: usize = 8;

/// A roll-up that is open.
#[derive(Debug)]
pub struct Rollup {
    path: PathBuf,
    parts: Vec<Part>,
    /// By boot, in the order of `parts`.
    origins: Vec<Origin>,
    counters: Counters,
    /// Metadata as of a recording.
    pairs: BTreeMap<String, String>,
    /// Length of the longest window, ns.
    window_ns: i64,
}

/// A file, or a segment of one that is written.
#[derive(Debug)]
struct Part {
    table: Table,
    origin: usize,
    /// The file. Rows of one window and counter in several are several sets.
    set: usize,
    /// What is added to `mono_ns`.
    shift_ns: i64,
    /// Ends of its first and last window, `CLOCK_MONOTONIC`, ns.
    ends: (i64, i64),
    /// The same by the wall clock, ns since 1970.
    wall: (i64, i64),
}

/// What tells a counter from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Counter {
    origin: usize,
    socket: Option<i16>,
    words: [Option<String>; 7],
}

/// The numbers of counters.
#[derive(Debug, Default)]
struct Counters {
    index: HashMap<Counter, i32>,
    list: Vec<Counter>,
    /// The newest peak of each.
    peaks: Vec<Option<(f64, Direction)>>,
}

/// Whether a directory has files of a roll-up.
pub(super) fn is_directory(path: &Path) -> Result<bool> {
    Ok(hours::below(path)?.iter().flatten().any(|file| is_file(file)))
}

/// Whether it is a file of a roll-up; not where it cannot be read.
fn is_file(path: &Path) -> bool {
    let table = Table::open(&rollup::TABLE, path);
    table.is_ok_and(|table| table.metadata().contains_key(metadata::ROLLUP_VERSION))
}

/// The error of an act that takes recordings only.
pub(super) fn is_none(path: &Path) -> Error {
    anyhow!(
        "{} is a roll-up, not a recording: `report`, `export`, `diff` and `check` read roll-ups",
        path.display()
    )
}

/// Which of the hosts `wanted` names, or matches with `*`.
///
/// # Errors
///
/// One of `wanted` names none; says which there are.
pub(super) fn matching(
    path: &Path,
    wanted: &[String],
    hosts: &BTreeSet<&String>,
) -> Result<BTreeSet<String>> {
    let mut matched = BTreeSet::new();
    for pattern in wanted {
        let glob = Glob::new(pattern).with_context(|| format!("--host {pattern:?} is no name"))?;
        let glob = glob.compile_matcher();
        let before = matched.len();
        let is_wanted = |host: &&&String| glob.is_match(host) || **host == pattern;
        let found: Vec<&&String> = hosts.iter().filter(is_wanted).collect();
        matched.extend(found.iter().map(|host| (**host).clone()));
        if found.is_empty() && matched.len() == before {
            let named: Vec<&str> = hosts.iter().take(NAMED).map(|host| host.as_str()).collect();
            let more = hosts.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            bail!("{} has no host {pattern}: it has {}{more}", path.display(), named.join(", "));
        }
    }
    Ok(matched)
}

impl Rollup {
    /// The roll-up at `path`; none where that is no roll-up. Of `hosts`, where any are named.
    ///
    /// # Errors
    ///
    /// It cannot be read, or has not these hosts.
    pub(super) fn open(path: &Path, hosts: &[String]) -> Result<Option<Self>> {
        let open = |files: &[Vec<PathBuf>]| Self::of(path, files, hosts).map(Some);
        if !path.is_dir() {
            return if is_file(path) { open(&[vec![path.to_owned()]]) } else { Ok(None) };
        }
        let fabric = table_path(path, &fabric::TABLE);
        let is_recording =
            disk::occupied(&fabric)? || disk::occupied(&segment::partial_dir(&fabric))?;
        if is_recording || !series::parts_of(path).is_empty() {
            return Ok(None);
        }
        let files = hours::below(path)?;
        if !files.iter().flatten().any(|file| is_file(file)) {
            return Ok(None);
        }
        open(&files).or_else(|error| {
            // The agent has finished or removed one meanwhile.
            let is_gone = files.iter().flatten().any(|file| !file.exists());
            if is_gone { open(&hours::below(path)?) } else { Err(error) }
        })
    }

    fn of(path: &Path, files: &[Vec<PathBuf>], wanted: &[String]) -> Result<Self> {
        let mut opened = Vec::new();
        for (set, file) in files.iter().enumerate() {
            let tables = file.iter().map(|part| Table::open(&rollup::TABLE, part));
            let tables = tables.collect::<Result<Vec<Table>>>()?;
            // Of what is written the first segment has the metadata, and no rows.
            let Some(pairs) = tables.first().map(|table| table.metadata().clone()) else {
                continue;
            };
            require_version(&tables, &pairs)?;
            opened.push((set, pairs, tables));
        }
        let origins: Vec<Origin> = opened.iter().map(|(_, pairs, _)| Origin::of(pairs)).collect();
        if !wanted.is_empty() {
            let hosts = origins.iter().map(|origin| &origin.host).collect();
            let hosts = matching(path, wanted, &hosts)?;
            opened.retain(|(_, pairs, _)| hosts.contains(&Origin::of(pairs).host));
        }
        let (mut parts, mut origins): (Vec<Part>, Vec<Origin>) = (Vec::new(), Vec::new());
        let mut pairs = common(opened.iter().map(|(_, pairs, _)| pairs));
        for (set, pairs, tables) in opened {
            let origin = Origin::of(&pairs);
            let known = origins.iter().position(|it| *it == origin);
            let origin = known.unwrap_or(origins.len());
            for table in tables.into_iter().filter(|table| table.rows() > 0) {
                parts.push(Part::new(table, origin, set)?);
            }
            if known.is_none() {
                origins.push(Origin::of(&pairs));
            }
        }
        let lengths = parts.iter().filter_map(|part| part.table.bounds("window_ns"));
        let window_ns = lengths.map(|(_, longest)| longest).max().unwrap_or(0).max(1);
        if origins.len() > 1 {
            join_clocks(&mut parts, origins.len(), window_ns);
        }
        parts.sort_by_key(|part| part.ends.0.saturating_add(part.shift_ns));
        let mut counters = Counters::default();
        for part in &parts {
            counters.meet(part)?;
        }
        pairs.insert(metadata::INTERVAL_NS.to_owned(), window_ns.to_string());
        pairs.insert(metadata::PLAN.to_owned(), plan(&counters, &origins).to_string());
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let clock = |part: &Part, end, wall| {
                let mono_ns = part.shift_ns.saturating_add(end);
                json!({ "mono_ns": mono_ns, "wall_ns": if origins.len() > 1 { mono_ns } else { wall } })
            };
            let clocks =
                [clock(first, first.ends.0, first.wall.0), clock(last, last.ends.1, last.wall.1)];
            pairs.insert(metadata::CLOCKS.to_owned(), json!(clocks).to_string());
        }
        Ok(Self { path: path.to_owned(), parts, origins, counters, pairs, window_ns })
    }

    /// Its files that have rows, and the segments of those that are written.
    pub(super) fn files(&self) -> impl Iterator<Item = &Table> {
        self.parts.iter().map(|part| &part.table)
    }

    /// Metadata as of a recording.
    pub(super) const fn pairs(&self) -> &BTreeMap<String, String> {
        &self.pairs
    }

    /// See [`Table::bounds`].
    pub(super) fn bounds(&self, column: &str) -> Option<(i64, i64)> {
        let ends = self.parts.iter().map(|part| {
            (part.ends.0.saturating_add(part.shift_ns), part.ends.1.saturating_add(part.shift_ns))
        });
        ends.filter(|_| column == TIME).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }
}

/// That files of a roll-up are of the version that this program reads.
fn require_version(tables: &[Table], pairs: &BTreeMap<String, String>) -> Result<()> {
    let Some(table) = tables.first() else { return Ok(()) };
    let path = table.path().display();
    match pairs.get(metadata::ROLLUP_VERSION) {
        Some(version) if *version == ROLLUP_VERSION.to_string() => Ok(()),
        Some(version) => bail!(
            "{path} has version {} of the table rollup, and this program reads {ROLLUP_VERSION}: use \
             the one that wrote it",
            version.escape_debug()
        ),
        None => bail!("{path} is not a file of a roll-up: move it elsewhere"),
    }
}

/// The metadata that are the same in all of these.
fn common<'a>(
    mut of: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut pairs = of.next().cloned().unwrap_or_default();
    for other in of {
        pairs.retain(|key, value| other.get(key) == Some(value));
    }
    pairs
}

/// Puts several boots on one clock, see the module.
fn join_clocks(parts: &mut [Part], origins: usize, window_ns: i64) {
    for origin in 0..origins {
        let of_it = parts.iter().filter(|part| part.origin == origin);
        let Some(newest) = of_it.max_by_key(|part| part.ends.1) else { continue };
        let between = newest.wall.1.saturating_sub(newest.ends.1);
        let shift_ns = between.saturating_add(window_ns / 2).div_euclid(window_ns) * window_ns;
        for part in parts.iter_mut().filter(|part| part.origin == origin) {
            part.shift_ns = shift_ns;
        }
    }
}

impl Part {
    fn new(table: Table, origin: usize, set: usize) -> Result<Self> {
        let (ends, wall) = table.bounds(TIME).zip(table.bounds("ts")).with_context(|| {
            format!("{} is damaged: it has no statistics of its times", table.path().display())
        })?;
        let wall = (wall.0.saturating_mul(1000), wall.1.saturating_mul(1000));
        Ok(Self { table, origin, set, shift_ns: 0, ends, wall })
    }
}

impl Counters {
    /// Gives the counters in a file their numbers.
    fn meet(&mut self, part: &Part) -> Result<()> {
        let more = ["socket", "peak", "peak_direction"];
        for batch in part.table.scan(&[&WORDS[..], &more].concat())? {
            let batch = batch?;
            let ids = Ids::of(&batch, part.origin, |counter| Ok(self.number(counter)))?;
            let peaks = columns::f64s(&batch, "peak")?;
            let directions = columns::words(&batch, "peak_direction")?;
            for (row, &id) in ids.iter().enumerate() {
                let direction = || directions.get(row).and_then(direction);
                if let Some(peak) = get(peaks, row)
                    && let Some(slot) = self.peaks.get_mut(id as usize)
                    && slot.is_none_or(|(newest, _)| newest.to_bits() != peak.to_bits())
                {
                    *slot = direction().map(|direction| (peak, direction));
                }
            }
        }
        Ok(())
    }

    fn number(&mut self, counter: Counter) -> i32 {
        let next = self.list.len() as i32;
        let id = *self.index.entry(counter.clone()).or_insert(next);
        if id == next {
            self.list.push(counter);
            self.peaks.push(None);
        }
        id
    }
}

/// Finds the numbers of the counters in a batch.
struct Ids;

impl Ids {
    /// The number of each row's counter, by `number`, which is asked once for each counter.
    fn of(
        batch: &RecordBatch,
        origin: usize,
        mut number: impl FnMut(Counter) -> Result<i32>,
    ) -> Result<Vec<i32>> {
        let words: Vec<Words<'_>> =
            WORDS.iter().map(|name| columns::words(batch, name)).collect::<Result<_>>()?;
        let sockets: &Int16Array = columns::column(batch, "socket")?;
        let mut known: HashMap<(Option<i16>, [i32; 7]), i32> = HashMap::new();
        let mut ids = Vec::with_capacity(batch.num_rows());
        let mut before = None;
        for row in 0..batch.num_rows() {
            let socket = get(sockets, row);
            let mut keys = [-1; 7];
            keys.iter_mut().zip(&words).for_each(|(key, words)| *key = words.key(row));
            // Rows are sorted: most are of the counter of the row before.
            let id = match before {
                Some((quick, id)) if quick == (socket, keys) => id,
                _ => match known.get(&(socket, keys)) {
                    Some(id) => *id,
                    None => {
                        let mut texts: [Option<String>; 7] = Default::default();
                        for (text, words) in texts.iter_mut().zip(&words) {
                            *text = words.get(row).map(str::to_owned);
                        }
                        let id = number(Counter { origin, socket, words: texts })?;
                        known.insert((socket, keys), id);
                        id
                    }
                },
            };
            before = Some(((socket, keys), id));
            ids.push(id);
        }
        Ok(ids)
    }
}

fn direction(word: &str) -> Option<Direction> {
    [Direction::In, Direction::Out, Direction::Both].into_iter().find(|it| it.name() == word)
}

/// The plan that the counters and links would have been of, as far as a roll-up has it.
fn plan(counters: &Counters, origins: &[Origin]) -> serde_json::Value {
    let has_hosts = origins.iter().any(|origin| origin.host != origins[0].host);
    let mut links: Vec<Link> = Vec::new();
    let mut listed = Vec::new();
    for (id, (counter, peak)) in counters.list.iter().zip(&counters.peaks).enumerate() {
        let text = |place: usize| counter.words[place].as_deref().unwrap_or_default();
        listed.push(json!({
            "id": id, "pmu": text(1), "event": text(2), "filter": text(3), "unit": text(4),
        }));
        let (Some(own), Some(way)) = (&counter.words[LINK], direction(text(DIRECTION))) else {
            continue;
        };
        let host = &origins[counter.origin].host;
        let name = if has_hosts { format!("{host} {own}") } else { own.clone() };
        let place = links.iter().position(|link| link.name == name).unwrap_or(links.len());
        if place == links.len() {
            links.push(Link {
                name,
                // Names are the kind and what tells links of it apart.
                kind: own.rsplit_once(' ').map_or(own.as_str(), |(kind, _)| kind).to_owned(),
                subsystem: text(0).to_owned(),
                socket: counter.socket,
                devices: None,
                counters: Vec::new(),
                peaks: Vec::new(),
                latencies: Vec::new(),
            });
        }
        let link = &mut links[place];
        link.counters.push(Counted { counter: id as u32, direction: way });
        let Some((bytes_per_s, direction)) = *peak else { continue };
        link.peaks.retain(|peak| peak.direction != direction);
        let detail = "as the roll-up has it".to_owned();
        link.peaks.push(Peak { direction, bytes_per_s, source: Source::Rollup, detail });
    }
    json!({ "links": links, "counters": listed })
}

/// The columns of `fabric`, and [`MORE`].
pub(super) fn schema() -> SchemaRef {
    let (recorded, stored) = (fabric::schema(), rollup::schema());
    let as_read = |field: &Arc<Field>| {
        let is_absent = ABSENT.contains(&field.name().as_str());
        let field = Field::clone(field);
        if is_absent { field.with_nullable(true) } else { field }
    };
    let more = stored.fields().iter().filter(|field| MORE.contains(&field.name().as_str()));
    let more = more.map(|field| Field::clone(field));
    Arc::new(Schema::new(recorded.fields().iter().map(as_read).chain(more).collect::<Vec<_>>()))
}

/// The batches of a roll-up, in the shape of `fabric` and in the order of windows' ends.
#[derive(Debug)]
pub struct Scan {
    rollup: Arc<Rollup>,
    schema: SchemaRef,
    /// Columns that are read, by names of `rollup`.
    read: Vec<&'static str>,
    /// Whether counters have to be known.
    has_counters: bool,
    groups: Vec<Group>,
    wanted: RangeInclusive<i64>,
    /// Where the next turn begins; none where there is no more.
    next: Option<i64>,
    turn: Turn,
}

/// A row group, and the ends of its first and last window.
#[derive(Debug, Clone, Copy)]
struct Group {
    part: usize,
    number: usize,
    begin: i64,
    end: i64,
    rows: f64,
}

/// The rows of a stretch of time.
#[derive(Debug, Default)]
struct Turn {
    /// By batch that was read, the columns of the schema. Words are their numbers in `words`.
    chunks: Vec<Vec<ArrayRef>>,
    /// By column, its words.
    words: Vec<Interner>,
    dictionaries: Vec<Option<Arc<StringArray>>>,
    rows: VecDeque<Row>,
    /// Windows of several sets.
    merged: HashMap<(i64, i32), Merged>,
}

/// A row that was read: end of its window, counter (0 where none is asked for), file, batch and place there.
type Row = (i64, i32, u32, u32, u32);

/// What is the same in all rows of a window.
#[derive(Debug, Clone, Copy, Default)]
struct Merged {
    known_ns: i64,
    total: Option<f64>,
    running: f32,
}

/// Words and their numbers.
#[derive(Debug, Default)]
struct Interner {
    index: HashMap<String, i32>,
    list: Vec<String>,
}

impl Interner {
    fn number(&mut self, word: &str) -> i32 {
        if let Some(number) = self.index.get(word) {
            return *number;
        }
        let number = self.list.len() as i32;
        self.list.push(word.to_owned());
        self.index.insert(word.to_owned(), number);
        number
    }

    /// The numbers of the words in a batch.
    fn numbers(&mut self, words: Words<'_>, rows: usize) -> Int32Array {
        let mut known: Vec<Option<i32>> = vec![None; words.dictionary().len()];
        let number = |row| {
            let slot = known.get_mut(usize::try_from(words.key(row)).ok()?)?;
            if slot.is_none() {
                *slot = Some(self.number(words.get(row)?));
            }
            *slot
        };
        (0..rows).map(number).collect()
    }
}

impl Scan {
    /// Scans these columns of the windows that end in a range.
    pub(super) fn new(
        rollup: &Arc<Rollup>,
        columns: &[&str],
        wanted: Option<RangeInclusive<i64>>,
    ) -> Result<Self> {
        let asked = |name: &str| columns.contains(&name);
        let has_counters =
            asked("counter") || asked("value") || WINDOW.iter().any(|name| asked(name));
        let of_counter = WORDS.iter().chain(&WINDOW).chain(&["socket", "window_ns"]);
        let is_read = |name: &&str| {
            *name == TIME
                || asked(name)
                || has_counters && of_counter.clone().any(|other| other == name)
        };
        let read = rollup::TABLE.encodings.iter().map(|(name, _)| *name).filter(is_read).collect();
        let all = schema();
        let fields = all.fields().iter().filter(|field| asked(field.name()));
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let wanted = wanted.unwrap_or(i64::MIN..=i64::MAX);
        let mut groups = Vec::new();
        for (place, part) in rollup.parts.iter().enumerate() {
            for (number, rows) in part.table.group_rows().into_iter().enumerate() {
                let Some((begin, end)) = part.table.range(number, TIME) else { continue };
                let begin = begin.saturating_add(part.shift_ns);
                let end = end.saturating_add(part.shift_ns);
                if begin <= *wanted.end() && *wanted.start() <= end {
                    groups.push(Group { part: place, number, begin, end, rows: rows as f64 });
                }
            }
        }
        let next = groups.iter().map(|group| group.begin).min();
        let next = next.map(|first| first.max(*wanted.start()));
        let (rollup, turn) = (Arc::clone(rollup), Turn::default());
        Ok(Self { rollup, schema, read, has_counters, groups, wanted, next, turn })
    }

    /// The end of the turn that begins at `from`: as long as its rows are not too many, but a window at least.
    fn turn_end(&self, from: i64) -> i64 {
        let last = self.groups.iter().map(|group| group.end).max().unwrap_or(from);
        let last = last.min(*self.wanted.end()).max(from);
        // As if the rows of a group were spread evenly over its time.
        let rows = |to: i64| -> f64 {
            let of = |group: &Group| {
                let length = group.end.saturating_sub(group.begin).saturating_add(1) as f64;
                let common = to.min(group.end).saturating_sub(from.max(group.begin));
                group.rows * (common.saturating_add(1).max(0) as f64 / length)
            };
            self.groups.iter().map(of).sum()
        };
        if rows(last) <= MOST_ROWS {
            return last;
        }
        let (mut fits, mut over) = (from, last);
        while over.saturating_sub(fits) > 1 {
            let middle = fits.midpoint(over);
            if rows(middle) <= MOST_ROWS { fits = middle } else { over = middle }
        }
        fits.max(from.saturating_add(self.rollup.window_ns - 1)).min(last)
    }

    /// Reads the rows of the next stretch of time; `false` where there is none.
    fn advance(&mut self) -> Result<bool> {
        let Some(from) = self.next else { return Ok(false) };
        let to = self.turn_end(from);
        let mut turn = Turn::default();
        turn.words.resize_with(self.schema.fields().len(), Interner::default);
        let mut rows = Vec::new();
        let rollup = Arc::clone(&self.rollup);
        // What is the same in a window, of each batch.
        let mut windows = Vec::new();
        for group in self.groups.iter().filter(|it| it.begin <= to && from <= it.end) {
            let part = &rollup.parts[group.part];
            for batch in part.table.scan_group(&self.read, group.number)? {
                let batch = self.within(&batch?, part, (from, to))?;
                let ends = columns::i64s(&batch, TIME)?;
                let counters = if self.has_counters {
                    let known = |counter: Counter| {
                        rollup.counters.index.get(&counter).copied().context("the file has changed")
                    };
                    Ids::of(&batch, part.origin, known)?
                } else {
                    vec![0; batch.num_rows()]
                };
                let (set, chunk) = (part.set as u32, turn.chunks.len() as u32);
                let of_batch = ends.values().iter().zip(&counters).enumerate();
                rows.extend(of_batch.map(|(row, (end, id))| (*end, *id, set, chunk, row as u32)));
                turn.chunks.push(self.chunk(&batch, part, counters, &mut turn.words)?);
                if self.has_counters {
                    windows.push(batch.project(&self.places_of_window(&batch)?)?);
                }
            }
        }
        rows.sort_unstable();
        if self.has_counters {
            merge(&mut rows, &windows, &mut turn.merged)?;
        }
        let words = turn.words.iter().zip(self.schema.fields());
        let dictionaries = words.map(|(words, field)| {
            let is_word = matches!(field.data_type(), DataType::Dictionary(..));
            is_word.then(|| Arc::new(StringArray::from_iter_values(&words.list)))
        });
        turn.dictionaries = dictionaries.collect();
        turn.rows = rows.into();
        self.turn = turn;
        let is_last = to >= *self.wanted.end() || self.groups.iter().all(|it| it.end <= to);
        self.next = if is_last { None } else { self.next_begin(to) };
        Ok(true)
    }

    /// When the first window after `to` may end.
    fn next_begin(&self, to: i64) -> Option<i64> {
        let after = to.saturating_add(1);
        self.groups.iter().filter(|it| it.end > to).map(|it| it.begin.max(after)).min()
    }

    /// The places in a batch of the columns that [`merge`] needs.
    fn places_of_window(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let names = ["window_ns"].into_iter().chain(WINDOW);
        names.map(|name| Ok(batch.schema().index_of(name)?)).collect()
    }

    /// The rows of a batch whose windows end in a stretch of time, with their times on the common clock.
    fn within(&self, batch: &RecordBatch, part: &Part, turn: (i64, i64)) -> Result<RecordBatch> {
        let (from, to) = (turn.0.max(*self.wanted.start()), turn.1);
        let place = batch.schema().index_of(TIME)?;
        let ends = columns::i64s(batch, TIME)?;
        let ends: Int64Array = ends.unary(|end| end.saturating_add(part.shift_ns));
        let is_wanted: BooleanArray =
            ends.values().iter().map(|end| Some((from..=to).contains(end))).collect();
        let mut arrays = batch.columns().to_vec();
        arrays[place] = Arc::new(ends);
        let batch = RecordBatch::try_new(batch.schema(), arrays)?;
        if is_wanted.true_count() == batch.num_rows() {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &is_wanted)?)
    }

    /// The columns of the schema, of a batch that was read.
    fn chunk(
        &self,
        batch: &RecordBatch,
        part: &Part,
        counters: Vec<i32>,
        words: &mut [Interner],
    ) -> Result<Vec<ArrayRef>> {
        let rows = batch.num_rows();
        let mut counters = Some(counters);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (field, words) in self.schema.fields().iter().zip(words) {
            let name = field.name().as_str();
            arrays.push(match field.data_type() {
                _ if name == "counter" => {
                    Arc::new(Int32Array::from(counters.take().unwrap_or_default()))
                }
                DataType::Int32 if ABSENT.contains(&name) => Arc::new(Int32Array::new_null(rows)),
                DataType::Int64 if ABSENT.contains(&name) => Arc::new(Int64Array::new_null(rows)),
                _ if name == "ts" && self.rollup.origins.len() > 1 => {
                    let ends = columns::i64s(batch, TIME)?;
                    let wall = ends.values().iter().map(|end| end.div_euclid(1000));
                    let wall = TimestampMicrosecondArray::from_iter_values(wall);
                    Arc::new(wall.with_data_type(field.data_type().clone()))
                }
                DataType::Dictionary(..) => {
                    Arc::new(words.numbers(columns::words(batch, name)?, rows))
                }
                _ => Arc::clone(batch.column_by_name(name).with_context(|| {
                    format!("{} has no column {name}", part.table.path().display())
                })?),
            });
        }
        Ok(arrays)
    }

    /// The next rows of the turn.
    fn batch(&mut self) -> Result<RecordBatch> {
        let count = self.turn.rows.len().min(BATCH_ROWS);
        let rows: Vec<Row> = self.turn.rows.drain(..count).collect();
        let places: Vec<(usize, usize)> =
            rows.iter().map(|row| (row.3 as usize, row.4 as usize)).collect();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (at, field) in self.schema.fields().iter().enumerate() {
            let of: Vec<_> = self.turn.chunks.iter().map(|chunk| chunk[at].as_ref()).collect();
            let array = interleave(&of, &places)?;
            let array = match self.turn.dictionaries.get(at) {
                Some(Some(words)) => {
                    let keys = array.as_any().downcast_ref::<Int32Array>().cloned();
                    let keys = keys.context("words without keys")?;
                    Arc::new(DictionaryArray::try_new(keys, Arc::clone(words) as ArrayRef)?)
                }
                _ => self.merged(field.name(), array, &rows),
            };
            arrays.push(array);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }

    /// The column with what windows of several sets have in it.
    fn merged(&self, name: &str, array: ArrayRef, rows: &[Row]) -> ArrayRef {
        let merged = &self.turn.merged;
        if merged.is_empty() || !WINDOW.contains(&name) {
            return array;
        }
        let of = |row: &Row| merged.get(&(row.0, row.1));
        let any = array.as_any();
        if let Some(known) = any.downcast_ref::<Int64Array>() {
            let known = known
                .iter()
                .zip(rows)
                .map(|(own, row)| of(row).map_or(own, |it| Some(it.known_ns)));
            Arc::new(known.collect::<Int64Array>())
        } else if let Some(totals) = any.downcast_ref::<Float64Array>() {
            let totals =
                totals.iter().zip(rows).map(|(own, row)| of(row).map_or(own, |it| it.total));
            Arc::new(totals.collect::<Float64Array>())
        } else if let Some(running) = any.downcast_ref::<Float32Array>() {
            let running = running
                .iter()
                .zip(rows)
                .map(|(own, row)| of(row).map_or(own, |it| Some(it.running)));
            Arc::new(running.collect::<Float32Array>())
        } else {
            array
        }
    }
}

/// Finds the windows that are in several files; rows of a set that knows nothing go where another does.
fn merge(
    rows: &mut Vec<Row>,
    batches: &[RecordBatch],
    merged: &mut HashMap<(i64, i32), Merged>,
) -> Result<()> {
    let mut dropped: Vec<(i64, i32, u32)> = Vec::new();
    for window in rows.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let sets = || window.chunk_by(|one, other| one.2 == other.2);
        if sets().nth(1).is_none() {
            continue;
        }
        let (mut sum, mut ran, mut length_ns) = (Merged::default(), 0.0, 0);
        for first in sets().filter_map(|set| set.first()) {
            let batch = batches.get(first.3 as usize).context("a row without its batch")?;
            let row = first.4 as usize;
            length_ns = columns::i64s(batch, "window_ns")?.value(row);
            let Some(total) = get(columns::f64s(batch, "total")?, row) else {
                dropped.push((first.0, first.1, first.2));
                continue;
            };
            let known_ns = columns::i64s(batch, "known_ns")?.value(row);
            sum.total = Some(sum.total.unwrap_or(0.0) + total);
            sum.known_ns = sum.known_ns.saturating_add(known_ns);
            ran += f64::from(columns::f32s(batch, "running")?.value(row)) * known_ns as f64;
        }
        if sum.total.is_none() {
            dropped.retain(|it| (it.0, it.1) != (window[0].0, window[0].1));
            continue;
        }
        sum.running = if sum.known_ns > 0 { (ran / sum.known_ns as f64) as f32 } else { 0.0 };
        sum.known_ns = sum.known_ns.min(length_ns);
        merged.insert((window[0].0, window[0].1), sum);
    }
    if !dropped.is_empty() {
        let dropped: std::collections::HashSet<_> = dropped.into_iter().collect();
        rows.retain(|row| !dropped.contains(&(row.0, row.1, row.2)));
    }
    Ok(())
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.turn.rows.is_empty() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.next = None;
                    let path = self.rollup.path.display();
                    return Some(Err(error.context(format!("cannot read {path}"))));
                }
            }
        }
        Some(self.batch())
    }
}

#[cfg(test)]
mod tests;
