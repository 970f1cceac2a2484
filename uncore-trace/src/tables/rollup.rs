//! Reads a roll-up as if it were the table `fabric` of a recording: one file, the hours of an agent, or
//! partitions of many hosts.
//!
//! Guarantees: rows come in the order of their windows' ends over all files; memory holds about
//! [`scan::MOST_ROWS`] of them, or one window of each file where that is more; `counter` is a number for each
//! PMU, event, filter, link and direction of a boot of a host, the same in every scan. What `fabric` has
//! and a roll-up has not is null: `pid`, `cpu`, `cgroup_id`, `cgroup_confidence`, `processes`.
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

mod belongs;
mod counters;
mod scan;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use self::belongs::Belongs;
use self::counters::{Counters, plan};
pub use self::scan::Scan;
pub(super) use self::scan::schema;
pub(super) use self::wanted::Hosts;
pub use self::wanted::Wanted;
use super::file::TableFile;
use super::hours::Found;
use super::layout::{self, Partition};
use super::names::{parts_of, table_path};
use super::{disk, segment};
use crate::schema::origin::Origin;
use crate::schema::{ROLLUP_VERSION, fabric, metadata, rollup};

/// The column that rows are ordered by.
pub(super) const TIME: &str = "mono_ns";

/// Columns of `rollup` that are offered beside those of `fabric`: time of the window that is known, and the 90 %
/// interval.
pub const MORE: [&str; 3] = ["known_ns", "low", "high"];

/// A roll-up that is open.
#[derive(Debug)]
pub struct Rollup {
    path: PathBuf,
    parts: Vec<HourFile>,
    /// By boot, in the order of `parts`.
    origins: Vec<Origin>,
    counters: Counters,
    /// Metadata as of a recording.
    pairs: BTreeMap<String, String>,
    /// Length of the longest window, ns.
    window_ns: i64,
    left_out: Vec<LeftOut>,
}

/// A file whose rows are not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Where it is.
    pub path: PathBuf,
    /// The reason; of a damaged one with the path.
    pub why: String,
    /// Whether it is damaged or of another version, rather than where it does not belong.
    pub is_damaged: bool,
}

/// A file, or a segment of one that is written.
#[derive(Debug)]
struct HourFile {
    table: TableFile,
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

/// Whether a directory has files of a roll-up.
pub(super) fn is_directory(path: &Path) -> Result<bool> {
    let found = Found::below(path, &mut |_| true)?;
    Ok(!found.files.is_empty() || !misplaced(found.misplaced).is_empty())
}

/// What is not where files of a roll-up are. Above all clusters, other files may be anything.
fn misplaced(found: Vec<(Partition, PathBuf)>) -> Vec<LeftOut> {
    let is_ours =
        |(at, path): &(Partition, PathBuf)| at.depth() > 0 || path.is_dir() || is_file(path);
    let why = || format!("it is not at {}", layout::SHAPE);
    let found = found.into_iter().filter(is_ours);
    found.map(|(_, path)| LeftOut { path, why: why(), is_damaged: false }).collect()
}

/// Whether it is a file of a roll-up; not where it cannot be read.
fn is_file(path: &Path) -> bool {
    let table = TableFile::open(&rollup::TABLE, path);
    table.is_ok_and(|table| table.metadata().contains_key(metadata::ROLLUP_VERSION))
}

impl Rollup {
    /// The roll-up at `path`, as far as it is wanted; none where that is no roll-up.
    ///
    /// # Errors
    ///
    /// It cannot be read, or has not these hosts or times. Files that are damaged or do not belong there are
    /// [left out](Self::left_out).
    pub(super) fn open(path: &Path, wanted: &Wanted) -> Result<Option<Self>> {
        if !path.is_dir() {
            return if is_file(path) { Self::of_file(path, wanted).map(Some) } else { Ok(None) };
        }
        let fabric = table_path(path, &fabric::TABLE);
        let is_recording =
            disk::occupied(&fabric)? || disk::occupied(&segment::partial_dir(&fabric))?;
        if is_recording || !parts_of(path).is_empty() {
            return Ok(None);
        }
        let (found, is_gone) = Self::below(path, wanted)?;
        // The agent has finished or removed one meanwhile.
        if is_gone { Self::below(path, wanted).map(|(found, _)| found) } else { Ok(found) }
    }

    fn of_file(path: &Path, wanted: &Wanted) -> Result<Self> {
        let whole = disk::doing("read", path, path.canonicalize())?;
        let at = Partition::of(disk::parent(&whole));
        let mut reading = Reading::new(path, wanted)?;
        reading.add(0, &at, &[path.to_owned()]);
        reading.finish()
    }

    /// What is below a directory, and whether a file went meanwhile.
    fn below(path: &Path, wanted: &Wanted) -> Result<(Option<Self>, bool)> {
        let mut reading = Reading::new(path, wanted)?;
        let found = Found::below(path, &mut |at| reading.wants(at))?;
        reading.left_out = misplaced(found.misplaced);
        if found.files.is_empty() && reading.has_all {
            let Some(first) = reading.left_out.first() else { return Ok((None, false)) };
            bail!(
                "{} holds no roll-up: {} is not at {}",
                path.display(),
                first.path.display(),
                layout::SHAPE
            );
        }
        for (set, (at, file)) in found.files.iter().enumerate() {
            reading.add(set, at, file);
        }
        let is_gone = found.files.iter().flat_map(|(_, file)| file).any(|file| !file.exists());
        Ok((Some(reading.finish()?), is_gone))
    }

    /// Files whose rows are not read.
    pub(super) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Its files that have rows, and the segments of those that are written.
    pub(super) fn files(&self) -> impl Iterator<Item = &TableFile> {
        self.parts.iter().map(|part| &part.table)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata as of a recording.
    pub(super) const fn pairs(&self) -> &BTreeMap<String, String> {
        &self.pairs
    }

    /// Ends of the first and the last window.
    pub(super) fn bounds(&self, column: &str) -> Option<(i64, i64)> {
        let ends = self.parts.iter().map(|part| {
            (part.ends.0.saturating_add(part.shift_ns), part.ends.1.saturating_add(part.shift_ns))
        });
        ends.filter(|_| column == TIME).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }
}

/// A roll-up that is being opened.
#[derive(Debug)]
struct Reading<'a> {
    path: &'a Path,
    wanted: &'a Wanted,
    hosts: Hosts,
    /// Names of hosts, wanted or not.
    seen: BTreeSet<String>,
    /// Whether no directory was left aside as not wanted.
    has_all: bool,
    parts: Vec<HourFile>,
    origins: Vec<Origin>,
    /// The places of `origins`.
    known: HashMap<Origin, usize>,
    counters: Counters,
    /// Metadata that all files have.
    pairs: Option<BTreeMap<String, String>>,
    left_out: Vec<LeftOut>,
}

impl<'a> Reading<'a> {
    fn new(path: &'a Path, wanted: &'a Wanted) -> Result<Self> {
        Ok(Self {
            path,
            wanted,
            hosts: Hosts::new(&wanted.hosts)?,
            seen: BTreeSet::new(),
            has_all: true,
            parts: Vec::new(),
            origins: Vec::new(),
            known: HashMap::new(),
            counters: Counters::default(),
            pairs: None,
            left_out: Vec::new(),
        })
    }

    /// Whether anything in a directory is wanted.
    fn wants(&mut self, at: &Partition) -> bool {
        let mut is_wanted = self.wanted.wall_ns.is_none_or(|span| at.may_have(span));
        if let Some(host) = at.host().filter(|_| is_wanted) {
            is_wanted = self.hosts.has(&host);
            self.seen.insert(host);
        }
        self.has_all &= is_wanted;
        is_wanted
    }

    /// Adds a file, or the segments of one that is written.
    fn add(&mut self, set: usize, at: &Partition, file: &[PathBuf]) {
        let Some(path) = file.first() else { return };
        self.seen.extend(at.host());
        let left = match self.try_add(set, at, file) {
            Ok(None) => return,
            Ok(Some(why)) => LeftOut { path: path.clone(), why, is_damaged: false },
            Err(error) => {
                LeftOut { path: path.clone(), why: format!("{error:#}"), is_damaged: true }
            }
        };
        self.left_out.push(left);
    }

    /// Says why a file does not belong where it is.
    fn try_add(&mut self, set: usize, at: &Partition, file: &[PathBuf]) -> Result<Option<String>> {
        let tables = file.iter().map(|part| TableFile::open(&rollup::TABLE, part));
        let tables = tables.collect::<Result<Vec<TableFile>>>()?;
        // Of what is written the first segment has the metadata, and no rows.
        let Some(pairs) = tables.first().map(|table| table.metadata().clone()) else {
            return Ok(None);
        };
        require_version(&tables, &pairs)?;
        let own = Origin::of(&pairs);
        if let Some(why) = at.refuses(&own) {
            return Ok(Some(why));
        }
        self.seen.insert(own.host.clone());
        if !self.hosts.has(&own.host) {
            return Ok(None);
        }
        let origin = self.known.get(&own).copied().unwrap_or(self.origins.len());
        let belongs = Belongs { origin: &own, range_us: at.range_us() };
        for table in tables.into_iter().filter(|table| table.rows() > 0) {
            let part = HourFile::new(table, origin, set)?;
            if self.wanted.wall_ns.is_some_and(|span| !part.may_have(span)) {
                continue;
            }
            if let Some(why) = self.counters.meet(&part, &belongs)? {
                return Ok(Some(why));
            }
            if self.origins.len() == origin {
                self.origins.push(own.clone());
                self.known.insert(own.clone(), origin);
            }
            self.parts.push(part);
        }
        match &mut self.pairs {
            Some(common) => common.retain(|key, value| pairs.get(key) == Some(value)),
            none => *none = Some(pairs),
        }
        Ok(None)
    }

    fn finish(self) -> Result<Rollup> {
        // Of a time that has no directories no host is known.
        if self.wanted.wall_ns.is_none() || !self.seen.is_empty() {
            self.hosts.require(self.path, &self.seen)?;
        }
        let Self { path, mut parts, origins, counters, left_out, .. } = self;
        let mut pairs = self.pairs.unwrap_or_default();
        if parts.is_empty() && left_out.is_empty() && self.wanted.wall_ns.is_some() {
            bail!("{} has no windows in that time", path.display());
        }
        let lengths = parts.iter().filter_map(|part| part.table.bounds("window_ns"));
        let window_ns = lengths.map(|(_, longest)| longest).max().unwrap_or(0).max(1);
        if origins.len() > 1 {
            join_clocks(&mut parts, origins.len(), window_ns);
        }
        parts.sort_by_key(|part| part.ends.0.saturating_add(part.shift_ns));
        pairs.insert(metadata::INTERVAL_NS.to_owned(), window_ns.to_string());
        pairs.insert(metadata::PLAN.to_owned(), plan(&counters, &origins).to_string());
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let clock = |part: &HourFile, end, wall| {
                let mono_ns = part.shift_ns.saturating_add(end);
                json!({ "mono_ns": mono_ns, "wall_ns": if origins.len() > 1 { mono_ns } else { wall } })
            };
            let clocks =
                [clock(first, first.ends.0, first.wall.0), clock(last, last.ends.1, last.wall.1)];
            pairs.insert(metadata::CLOCKS.to_owned(), json!(clocks).to_string());
        }
        let path = path.to_owned();
        Ok(Rollup { path, parts, origins, counters, pairs, window_ns, left_out })
    }
}

/// That files of a roll-up are of the version that this program reads.
fn require_version(tables: &[TableFile], pairs: &BTreeMap<String, String>) -> Result<()> {
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

/// Puts several boots on one clock, see the module.
fn join_clocks(parts: &mut [HourFile], origins: usize, window_ns: i64) {
    let mut newest: Vec<Option<(i64, i64)>> = vec![None; origins];
    for part in parts.iter() {
        let slot = &mut newest[part.origin];
        if slot.is_none_or(|(end, _)| end <= part.ends.1) {
            *slot = Some((part.ends.1, part.wall.1));
        }
    }
    for part in parts {
        let Some((end, wall)) = newest[part.origin] else { continue };
        let between = wall.saturating_sub(end);
        part.shift_ns = between.saturating_add(window_ns / 2).div_euclid(window_ns) * window_ns;
    }
}

impl HourFile {
    fn new(table: TableFile, origin: usize, set: usize) -> Result<Self> {
        let (ends, wall) = table.bounds(TIME).zip(table.bounds("ts")).with_context(|| {
            format!("{} is damaged: it has no statistics of its times", table.path().display())
        })?;
        let wall = (wall.0.saturating_mul(1000), wall.1.saturating_mul(1000));
        Ok(Self { table, origin, set, shift_ns: 0, ends, wall })
    }

    /// Whether it may have windows that end after the first and not after the second of these times, ns since 1970.
    fn may_have(&self, (after, until): (i64, i64)) -> bool {
        let longest = self.table.bounds("window_ns").map_or(0, |(_, longest)| longest);
        let slack = longest.clamp(0, rollup::LONGEST_WINDOW_NS) / 2;
        self.wall.1.saturating_add(slack) > after && self.wall.0.saturating_sub(slack) <= until
    }
}

#[cfg(test)]
mod tests;
