//! Reads a roll-up as if it were the table `fabric` of a recording: one file, the hours of an
//! agent, or partitions of many hosts.
//!
//! Guarantees: rows come in the order of their windows' ends over all files; memory holds about
//! [`scan::MOST_ROWS`] of them, or one window of each file where that is more; `counter` is a
//! number for each PMU, event, filter, link and direction of a boot of a host, the same in every
//! scan. What `fabric` has and a roll-up has not is null: `pid`, `cpu`, `cgroup_id`,
//! `cgroup_confidence`, `processes`.
//!
//! # Time
//!
//! Of one boot, `mono_ns` and `ts` are those of the rows. Clocks of several boots or hosts do not
//! compare, so `mono_ns` is then wall time, ns since 1970, and `ts` the same: that of
//! `CLOCK_MONOTONIC` plus what the newest file of the boot says is between the two, rounded to a
//! whole window. So windows of a boot never overlap, those of different hosts end together and can
//! be added up, and times are off by half a window at most (more where the wall clock was set
//! meanwhile).
//!
//! # Sets
//!
//! A window may be in two files: the agent was started anew within it, or a recording goes on in
//! another part. These rows become one window with the sum of their `total` and `known_ns`.

mod allowed_rows;
mod counters;
mod rollup_selection;
mod scan;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use self::allowed_rows::AllowedRows;
use self::counters::{RollupCounters, build_plan};
pub(super) use self::rollup_selection::Hosts;
pub use self::rollup_selection::RollupSelection;
pub use self::scan::RollupScan;
pub(super) use self::scan::scan_schema;
use super::file::TableFile;
use super::hour_tree::HourTree;
use super::layout::{self, Partition};
use super::names::{parts_of, table_path};
use super::{disk, sealed};
use crate::clock::TimeSpan;
use crate::schema::origin::RecordingOrigin;
use crate::schema::{ROLLUP_VERSION, fabric, metadata, rollup};

/// The column that rows are ordered by.
pub(super) const TIME: &str = "mono_ns";

/// Columns of `rollup` that are offered beside those of `fabric`: time of the window that is known,
/// and the 90 % interval.
pub const MORE: [&str; 3] = ["known_ns", "low", "high"];

/// A roll-up that is open.
#[derive(Debug)]
pub struct RollupReader {
    /// The path of its file or directory.
    pub(super) path: PathBuf,
    hour_files: Vec<HourFile>,
    /// The boots that the files are of; `HourFile::origin` is an index.
    origins: Vec<RecordingOrigin>,
    counters: RollupCounters,
    /// Metadata as of a recording.
    pub(super) pairs: BTreeMap<String, String>,
    /// Length of the longest window, ns.
    window_ns: i64,
    /// Files whose rows are not read.
    pub(super) left_out: Vec<LeftOut>,
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
    /// From the end of its first window to that of its last, `CLOCK_MONOTONIC`.
    mono_ends: TimeSpan<i64>,
    /// The same, `CLOCK_REALTIME`.
    wall_ends: TimeSpan<i64>,
}

/// Whether a directory has files of a roll-up.
pub(super) fn is_directory(path: &Path) -> Result<bool> {
    let tree = HourTree::read_tree(path, &mut |_| true)?;
    Ok(!tree.files.is_empty() || !list_misplaced(tree.misplaced).is_empty())
}

/// Lists what is not where files of a roll-up are. Above all clusters, other files may be anything.
fn list_misplaced(candidates: Vec<(Partition, PathBuf)>) -> Vec<LeftOut> {
    let is_ours = |(partition, path): &(Partition, PathBuf)| {
        partition.key_depth() > 0 || path.is_dir() || is_rollup_file(path)
    };
    let why = || format!("it is not at {}", layout::SHAPE);
    let misplaced = candidates.into_iter().filter(is_ours);
    misplaced.map(|(_, path)| LeftOut { path, why: why(), is_damaged: false }).collect()
}

/// Whether it is a file of a roll-up; not where it cannot be read.
fn is_rollup_file(path: &Path) -> bool {
    let table = TableFile::open(&rollup::TABLE, path);
    table.is_ok_and(|table| table.metadata_pairs().contains_key(metadata::ROLLUP_VERSION))
}

impl RollupReader {
    /// The roll-up at `path`, as far as it is wanted; `None` where that is not a roll-up.
    ///
    /// # Errors
    ///
    /// The roll-up cannot be read, or has not these hosts or times. Files that are damaged or do
    /// not belong there are [left out](Self::left_out).
    pub(super) fn open(path: &Path, wanted: &RollupSelection) -> Result<Option<Self>> {
        if !path.is_dir() {
            return is_rollup_file(path).then(|| Self::open_file(path, wanted)).transpose();
        }
        let fabric = table_path(path, &fabric::TABLE);
        let is_recording =
            disk::is_occupied(&fabric)? || disk::is_occupied(&sealed::partial_dir(&fabric))?;
        if is_recording || !parts_of(path).is_empty() {
            return Ok(None);
        }
        let (opened, has_vanished) = Self::open_tree(path, wanted)?;
        // The agent has finished or removed one meanwhile.
        if has_vanished {
            Self::open_tree(path, wanted).map(|(reopened, _)| reopened)
        } else {
            Ok(opened)
        }
    }

    fn open_file(path: &Path, wanted: &RollupSelection) -> Result<Self> {
        let canonical = disk::with_action("read", path, path.canonicalize())?;
        let partition = Partition::from_path(disk::parent_dir(&canonical));
        let mut opener = RollupOpener::new(path, wanted)?;
        opener.add_file(0, &partition, &[path.to_owned()]);
        opener.finish_opening()
    }

    /// Opens what is below a directory, and tells whether a file vanished meanwhile.
    fn open_tree(path: &Path, wanted: &RollupSelection) -> Result<(Option<Self>, bool)> {
        let mut opener = RollupOpener::new(path, wanted)?;
        let tree = HourTree::read_tree(path, &mut |partition| opener.wants_partition(partition))?;
        opener.left_out = list_misplaced(tree.misplaced);
        if tree.files.is_empty() && opener.has_all {
            let Some(stray) = opener.left_out.first() else { return Ok((None, false)) };
            bail!(
                "{} holds no roll-up: {} is not at {}",
                path.display(),
                stray.path.display(),
                layout::SHAPE
            );
        }
        for (set, (partition, paths)) in tree.files.iter().enumerate() {
            opener.add_file(set, partition, paths);
        }
        let has_vanished = tree.files.iter().flat_map(|(_, file)| file).any(|file| !file.exists());
        Ok((Some(opener.finish_opening()?), has_vanished))
    }

    /// Its files that have rows, and the segments of those that are written.
    pub(super) fn hour_tables(&self) -> impl Iterator<Item = &TableFile> {
        self.hour_files.iter().map(|hour_file| &hour_file.table)
    }

    /// Ends of the first and the last window.
    pub(super) fn time_bounds(&self, column: &str) -> Option<(i64, i64)> {
        let ends = self.hour_files.iter().map(|hour_file| {
            (
                hour_file.mono_ends.begin_ns.saturating_add(hour_file.shift_ns),
                hour_file.mono_ends.end_ns.saturating_add(hour_file.shift_ns),
            )
        });
        ends.filter(|_| column == TIME).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }
}

/// A roll-up that is being opened.
#[derive(Debug)]
struct RollupOpener<'a> {
    path: &'a Path,
    wanted: &'a RollupSelection,
    hosts: Hosts,
    /// Names of hosts, wanted or not.
    seen_hosts: BTreeSet<String>,
    /// Whether no directory was left aside as not wanted.
    has_all: bool,
    hour_files: Vec<HourFile>,
    origins: Vec<RecordingOrigin>,
    /// The index in `origins` of each origin.
    origin_ids: HashMap<RecordingOrigin, usize>,
    counters: RollupCounters,
    /// Metadata that all files have.
    pairs: Option<BTreeMap<String, String>>,
    left_out: Vec<LeftOut>,
}

impl<'a> RollupOpener<'a> {
    fn new(path: &'a Path, wanted: &'a RollupSelection) -> Result<Self> {
        Ok(Self {
            path,
            wanted,
            hosts: Hosts::new(&wanted.hosts)?,
            seen_hosts: BTreeSet::new(),
            has_all: true,
            hour_files: Vec::new(),
            origins: Vec::new(),
            origin_ids: HashMap::new(),
            counters: RollupCounters::default(),
            pairs: None,
            left_out: Vec::new(),
        })
    }

    /// Whether anything in a directory is wanted.
    fn wants_partition(&mut self, partition: &Partition) -> bool {
        let mut is_wanted = self.wanted.wall_span.is_none_or(|span| partition.may_have(span));
        if let Some(host) = partition.host_name().filter(|_| is_wanted) {
            is_wanted = self.hosts.has_host(&host);
            self.seen_hosts.insert(host);
        }
        self.has_all &= is_wanted;
        is_wanted
    }

    /// Adds a file, or the segments of one that is written.
    fn add_file(&mut self, set: usize, partition: &Partition, paths: &[PathBuf]) {
        let Some(path) = paths.first() else { return };
        self.seen_hosts.extend(partition.host_name());
        let left_out = match self.try_add_file(set, partition, paths) {
            Ok(None) => return,
            Ok(Some(why)) => LeftOut { path: path.clone(), why, is_damaged: false },
            Err(error) => {
                LeftOut { path: path.clone(), why: format!("{error:#}"), is_damaged: true }
            }
        };
        self.left_out.push(left_out);
    }

    /// Says why a file does not belong where it is.
    fn try_add_file(
        &mut self,
        set: usize,
        partition: &Partition,
        paths: &[PathBuf],
    ) -> Result<Option<String>> {
        let tables = paths.iter().map(|path| TableFile::open(&rollup::TABLE, path));
        let tables = tables.collect::<Result<Vec<TableFile>>>()?;
        // Of what is written the first segment has the metadata, and no rows.
        let Some(pairs) = tables.first().map(|table| table.metadata_pairs().clone()) else {
            return Ok(None);
        };
        require_version(&tables, &pairs)?;
        let file_origin = RecordingOrigin::from_metadata(&pairs);
        if let Some(why) = partition.refusal_reason(&file_origin) {
            return Ok(Some(why));
        }
        self.seen_hosts.insert(file_origin.host.clone());
        if !self.hosts.has_host(&file_origin.host) {
            return Ok(None);
        }
        let origin = self.origin_ids.get(&file_origin).copied().unwrap_or(self.origins.len());
        let allowed = AllowedRows { origin: &file_origin, range_us: partition.range_us() };
        for table in tables.into_iter().filter(|table| table.row_count() > 0) {
            let hour_file = HourFile::new(table, origin, set)?;
            if self.wanted.wall_span.is_some_and(|span| !hour_file.may_have(span)) {
                continue;
            }
            if let Some(why) = self.counters.add_file_counters(&hour_file, &allowed)? {
                return Ok(Some(why));
            }
            if self.origins.len() == origin {
                self.origins.push(file_origin.clone());
                self.origin_ids.insert(file_origin.clone(), origin);
            }
            self.hour_files.push(hour_file);
        }
        match &mut self.pairs {
            Some(common) => common.retain(|key, value| pairs.get(key) == Some(value)),
            none => *none = Some(pairs),
        }
        Ok(None)
    }

    fn finish_opening(self) -> Result<RollupReader> {
        // Of a time that has no directories no host is known.
        if self.wanted.wall_span.is_none() || !self.seen_hosts.is_empty() {
            self.hosts.require_all_matched(self.path, &self.seen_hosts)?;
        }
        let Self { path, mut hour_files, origins, counters, left_out, .. } = self;
        let mut pairs = self.pairs.unwrap_or_default();
        if hour_files.is_empty() && left_out.is_empty() && self.wanted.wall_span.is_some() {
            bail!("{} has no windows in that time", path.display());
        }
        let lengths =
            hour_files.iter().filter_map(|hour_file| hour_file.table.column_bounds("window_ns"));
        let window_ns = lengths.map(|(_, longest)| longest).max().unwrap_or(0).max(1);
        if origins.len() > 1 {
            join_clocks(&mut hour_files, origins.len(), window_ns);
        }
        hour_files.sort_by_key(|hour_file| {
            hour_file.mono_ends.begin_ns.saturating_add(hour_file.shift_ns)
        });
        pairs.insert(metadata::INTERVAL_NS.to_owned(), window_ns.to_string());
        pairs.insert(metadata::PLAN.to_owned(), build_plan(&counters, &origins).to_string());
        if let (Some(earliest), Some(latest)) = (hour_files.first(), hour_files.last()) {
            let clock = |hour_file: &HourFile, end, wall| {
                let mono_ns = hour_file.shift_ns.saturating_add(end);
                json!({ "mono_ns": mono_ns, "wall_ns": if origins.len() > 1 { mono_ns } else { wall } })
            };
            let clocks = [
                clock(earliest, earliest.mono_ends.begin_ns, earliest.wall_ends.begin_ns),
                clock(latest, latest.mono_ends.end_ns, latest.wall_ends.end_ns),
            ];
            pairs.insert(metadata::CLOCKS.to_owned(), json!(clocks).to_string());
        }
        let path = path.to_owned();
        Ok(RollupReader { path, hour_files, origins, counters, pairs, window_ns, left_out })
    }
}

/// Checks that files of a roll-up are of the version that this program reads.
fn require_version(tables: &[TableFile], pairs: &BTreeMap<String, String>) -> Result<()> {
    let Some(table) = tables.first() else { return Ok(()) };
    let path = table.file_path().display();
    match pairs.get(metadata::ROLLUP_VERSION) {
        Some(version) if *version == ROLLUP_VERSION.to_string() => Ok(()),
        Some(version) => bail!(
            "{path} has version {} of the table rollup, and this program reads {ROLLUP_VERSION}: \
             use the program version that wrote it",
            version.escape_debug()
        ),
        None => bail!("{path} is not a file of a roll-up: move it elsewhere"),
    }
}

/// Puts several boots on one clock, see the module.
fn join_clocks(hour_files: &mut [HourFile], origins: usize, window_ns: i64) {
    let mut newest: Vec<Option<(i64, i64)>> = vec![None; origins];
    for hour_file in hour_files.iter() {
        let slot = &mut newest[hour_file.origin];
        if slot.is_none_or(|(end, _)| end <= hour_file.mono_ends.end_ns) {
            *slot = Some((hour_file.mono_ends.end_ns, hour_file.wall_ends.end_ns));
        }
    }
    for hour_file in hour_files {
        let Some((end, wall)) = newest[hour_file.origin] else { continue };
        let offset_ns = wall.saturating_sub(end);
        hour_file.shift_ns =
            offset_ns.saturating_add(window_ns / 2).div_euclid(window_ns) * window_ns;
    }
}

impl HourFile {
    fn new(table: TableFile, origin: usize, set: usize) -> Result<Self> {
        let (ends, wall) =
            table.column_bounds(TIME).zip(table.column_bounds("ts")).with_context(|| {
                format!(
                    "{} is damaged: it has no statistics of its times",
                    table.file_path().display()
                )
            })?;
        let mono_ends = TimeSpan::new(ends.0, ends.1);
        let wall_ends = TimeSpan::new(wall.0.saturating_mul(1000), wall.1.saturating_mul(1000));
        Ok(Self { table, origin, set, shift_ns: 0, mono_ends, wall_ends })
    }

    /// Whether it may have windows that end after the begin and not after the end of a span of
    /// `CLOCK_REALTIME`.
    fn may_have(&self, wall: TimeSpan<i64>) -> bool {
        let longest = self.table.column_bounds("window_ns").map_or(0, |(_, longest)| longest);
        let slack = longest.clamp(0, rollup::LONGEST_WINDOW_NS) / 2;
        self.wall_ends.end_ns.saturating_add(slack) > wall.begin_ns
            && self.wall_ends.begin_ns.saturating_sub(slack) <= wall.end_ns
    }
}

#[cfg(test)]
mod tests;
