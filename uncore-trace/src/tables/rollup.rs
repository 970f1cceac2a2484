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

mod counters;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use globset::Glob;
use serde_json::json;

use self::counters::{Counters, plan};
pub use self::scan::Scan;
pub(super) use self::scan::schema;
use super::file::TableFile;
use super::hours;
use super::names::{parts_of, table_path};
use super::{disk, segment};
use crate::schema::origin::Origin;
use crate::schema::{ROLLUP_VERSION, fabric, metadata, rollup};

/// The column that rows are ordered by.
pub(super) const TIME: &str = "mono_ns";

/// Columns of `rollup` that are offered beside those of `fabric`: time of the window that is known, and the 90 %
/// interval.
pub const MORE: [&str; 3] = ["known_ns", "low", "high"];

/// Hosts that an error names.
const NAMED: usize = 8;

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
    Ok(hours::below(path)?.iter().flatten().any(|file| is_file(file)))
}

/// Whether it is a file of a roll-up; not where it cannot be read.
fn is_file(path: &Path) -> bool {
    let table = TableFile::open(&rollup::TABLE, path);
    table.is_ok_and(|table| table.metadata().contains_key(metadata::ROLLUP_VERSION))
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
        if is_recording || !parts_of(path).is_empty() {
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
            let tables = file.iter().map(|part| TableFile::open(&rollup::TABLE, part));
            let tables = tables.collect::<Result<Vec<TableFile>>>()?;
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
        let (mut parts, mut origins): (Vec<HourFile>, Vec<Origin>) = (Vec::new(), Vec::new());
        let mut pairs = common(&opened.iter().map(|(_, pairs, _)| pairs).collect::<Vec<_>>());
        for (set, pairs, tables) in opened {
            let origin = Origin::of(&pairs);
            let known = origins.iter().position(|it| *it == origin);
            let origin = known.unwrap_or(origins.len());
            for table in tables.into_iter().filter(|table| table.rows() > 0) {
                parts.push(HourFile::new(table, origin, set)?);
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
            let clock = |part: &HourFile, end, wall| {
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

/// The metadata that are the same in all of these.
fn common(of: &[&BTreeMap<String, String>]) -> BTreeMap<String, String> {
    let mut pairs = of.first().map(|first| (*first).clone()).unwrap_or_default();
    for other in of {
        pairs.retain(|key, value| other.get(key) == Some(value));
    }
    pairs
}

/// Puts several boots on one clock, see the module.
fn join_clocks(parts: &mut [HourFile], origins: usize, window_ns: i64) {
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

impl HourFile {
    fn new(table: TableFile, origin: usize, set: usize) -> Result<Self> {
        let (ends, wall) = table.bounds(TIME).zip(table.bounds("ts")).with_context(|| {
            format!("{} is damaged: it has no statistics of its times", table.path().display())
        })?;
        let wall = (wall.0.saturating_mul(1000), wall.1.saturating_mul(1000));
        Ok(Self { table, origin, set, shift_ns: 0, ends, wall })
    }
}

#[cfg(test)]
mod tests;
