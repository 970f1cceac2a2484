//! Opens recordings: those that are finished, what is on the disk of one that goes on (see
//! [`super::live`]), and roll-ups, which are read like a recording of which there is one table (see
//! [`super::rollup`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow, bail, ensure};

pub use super::decode_ahead::Ahead;
use super::disk;
use super::file::{self, TableFile};
use super::live::LiveTables;
use super::lock::{self, LockHolder};
use super::manifest::Manifest;
use super::names::{parts_of, table_path, without_slash};
use super::rollup::{self, Hosts, LeftOut, RollupReader, RollupSelection};
use super::sealed::partial_dir;
pub use super::table::{OpenTable, TableScan};
use crate::schema::columns::i64_column;
use crate::schema::origin::RecordingOrigin;
use crate::schema::{ALL, TableDef, fabric, runtime};
use crate::text::{count_noun, printable};

/// Files that are left out and named in warnings.
const NAMED: usize = 5;

/// A recording on disk, or a roll-up, which is read like one.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    dataset: bool,
    rollup: Option<Arc<RollupReader>>,
    /// Where it is being recorded: what was sealed until it was opened.
    live: Option<Arc<LiveTables>>,
}

impl Recording {
    /// Opens a file, a dataset, what is on the disk of one that is being recorded, or what is
    /// wanted of a roll-up. A warning is given for files of a roll-up that are left out because
    /// they do not belong where they are.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged, or one of the wanted hosts is not in it.
    pub fn open_selection(path: &Path, selection: &RollupSelection) -> Result<Recording> {
        let recording = Recording::open_for_check(path, selection)?;
        let left_out = recording.left_out();
        if let Some(damaged) = left_out.iter().find(|candidate| candidate.is_damaged) {
            bail!("{}", damaged.why);
        }
        let is_empty = recording.is_rollup() && recording.table_files(&fabric::TABLE)?.is_empty();
        if let Some(LeftOut { path, why, .. }) = left_out.first().filter(|_| is_empty) {
            bail!("{} is in the wrong place: {why}", path.display());
        }
        for LeftOut { path, why, .. } in left_out.iter().take(NAMED) {
            let path = path.display().to_string();
            log::warn!("{} is left out: {}", printable(&path), printable(why));
        }
        if let unnamed @ 1.. = left_out.len().saturating_sub(NAMED) {
            log::warn!(
                "{} more are left out: `uncore-trace check` fails for them",
                count_noun(unnamed, "file")
            );
        }
        Ok(recording)
    }

    /// As [`Self::open_selection`], but damaged files of a roll-up are [left out](Self::left_out)
    /// too.
    ///
    /// # Errors
    ///
    /// It cannot be read, or one of the wanted hosts is not in it.
    pub fn open_for_check(path: &Path, selection: &RollupSelection) -> Result<Recording> {
        if let Some(rollup) = RollupReader::open(path, selection)? {
            let rollup = Some(Arc::new(rollup));
            return Ok(Recording { path: path.to_owned(), dataset: false, rollup, live: None });
        }
        let recording = Recording::open_so_far(path)?;
        if !selection.hosts.is_empty() {
            let host = RecordingOrigin::from_metadata(
                recording.open_table(&fabric::TABLE)?.metadata_pairs(),
            )
            .host;
            Hosts::new(&selection.hosts)?.require_all_matched(path, &[host].into())?;
        }
        Ok(recording)
    }

    /// The files of a roll-up whose rows are not read.
    pub fn left_out(&self) -> &[LeftOut] {
        self.rollup.as_ref().map_or(&[], |rollup| &rollup.left_out)
    }

    /// Opens a file or a dataset that is finished; its `fabric` table must be there and readable.
    ///
    /// # Errors
    ///
    /// It is not, it is being recorded, or it is a roll-up.
    pub fn open(path: &Path) -> Result<Recording> {
        let recording = Recording::open_so_far(path)?;
        recording.require_finished()?;
        Ok(recording)
    }

    /// Opens one that is finished, or what is on the disk of one that is being recorded: always the
    /// same rows, however the recording goes on.
    ///
    /// # Errors
    ///
    /// It cannot be read, nothing of it is on the disk yet, or it is a roll-up.
    pub(super) fn open_so_far(path: &Path) -> Result<Recording> {
        let dataset = path.is_dir();
        let mut recording = Recording { path: path.to_owned(), dataset, rollup: None, live: None };
        let fabric = recording.path_of(&fabric::TABLE);
        // In this order: the segments go once the file is there.
        let is_partial = disk::is_occupied(&partial_dir(&fabric))?;
        if disk::is_occupied(&fabric)? {
            recording.open_table(&fabric::TABLE)?;
        } else if is_partial {
            match find_recorder(path, &fabric) {
                Ok(holder) => recording.live = Some(LiveTables::open(path, holder, &fabric)?),
                // It was finished meanwhile.
                Err(_) if disk::is_occupied(&fabric)? => return Self::open_so_far(path),
                Err(error) => return Err(error),
            }
        } else {
            return Err(absence_error(path, dataset)?);
        }
        Ok(recording)
    }

    /// The process that records it, if it is not finished.
    pub fn recording_process(&self) -> Option<LockHolder> {
        self.live.as_ref().map(|live| live.holder)
    }

    /// Checks that it is finished.
    ///
    /// # Errors
    ///
    /// It is being recorded.
    pub fn require_finished(&self) -> Result<()> {
        if let Some(holder) = self.recording_process() {
            bail!(
                "{} {holder}: wait until it has ended (`report`, `export` and `diff` show the data \
                 so far)",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Whether it has the raw tables besides `fabric`.
    pub fn is_dataset(&self) -> bool {
        self.dataset
    }

    /// Checks that it has the raw tables besides `fabric`.
    ///
    /// # Errors
    ///
    /// It has not.
    pub fn require_dataset(&self) -> Result<()> {
        let shown = self.path.display();
        ensure!(
            self.dataset,
            "{shown} is a single file without raw tables: record into a directory, e.g. -o run/"
        );
        Ok(())
    }

    /// Checks that no table of a dataset is missing or of another recording, as far as `fabric`
    /// lists them.
    ///
    /// # Errors
    ///
    /// One is, or the list cannot be read.
    pub fn require_own_tables(&self) -> Result<()> {
        let problems = Manifest::read_dataset(self)?.map(|list| list.find_problems(self));
        if let Some(problem) = problems.as_deref().and_then(<[String]>::first) {
            bail!(
                "{} has changed since it was recorded: {problem}; restore the original table, or \
                 record again",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Begin of the first tick, `CLOCK_MONOTONIC`, ns; `None` if there are no rows.
    ///
    /// # Errors
    ///
    /// The table `runtime` cannot be read.
    pub fn first_tick_ns(&self) -> Result<Option<i64>> {
        let mut scan = self.open_table(&runtime::TABLE)?.scan_columns(&["mono_ns", "tick_ns"])?;
        let Some(batch) = scan.next().transpose()?.filter(|batch| batch.num_rows() > 0) else {
            return Ok(None);
        };
        let (end, length) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "tick_ns")?);
        Ok(Some(end.value(0).saturating_sub(length.value(0))))
    }

    /// Whether it is a roll-up: windows of a second or longer, of one host or of many, without
    /// processes. `fabric` then has three columns more, `known_ns`, `low` and `high`, see
    /// [`rollup`].
    pub fn is_rollup(&self) -> bool {
        self.rollup.is_some()
    }

    /// Checks that the recording has processes.
    ///
    /// # Errors
    ///
    /// It is a roll-up.
    pub fn require_processes(&self) -> Result<()> {
        if self.is_rollup() {
            bail!("{} is a roll-up, which has no processes: use --by cgroup", self.path.display());
        }
        Ok(())
    }

    /// The path that was opened.
    pub fn recording_path(&self) -> &Path {
        &self.path
    }

    /// The files that a table is in: one, but of a roll-up, and of what is being recorded, as many
    /// as it has.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn table_files(&self, def: &'static TableDef) -> Result<Vec<TableFile>> {
        Ok(self.open_table(def)?.table_files())
    }

    /// The tables there are.
    pub fn list_tables(&self) -> Vec<&'static TableDef> {
        if !self.dataset {
            return vec![&fabric::TABLE];
        }
        let is_there =
            |path: PathBuf| path.is_file() || self.live.is_some() && partial_dir(&path).is_dir();
        ALL.iter().copied().filter(|def| is_there(self.path_of(def))).collect()
    }

    /// Whether the recording has a table.
    pub fn has_table(&self, def: &TableDef) -> bool {
        self.list_tables().iter().any(|listed| listed.name == def.name)
    }

    /// Opens a table, if the recording has it.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn find_table(&self, def: &'static TableDef) -> Result<Option<OpenTable>> {
        self.has_table(def).then(|| self.open_table(def)).transpose()
    }

    /// Opens a table.
    pub fn open_table(&self, def: &'static TableDef) -> Result<OpenTable> {
        match &self.rollup {
            Some(rollup) if def.name == fabric::TABLE.name => {
                Ok(OpenTable::Rollup(Arc::clone(rollup)))
            }
            Some(_) => {
                bail!("{} is a roll-up, which has no table {}", self.path.display(), def.name)
            }
            None => match &self.live {
                Some(live) => live.open_table(def, &self.path_of(def)),
                None => OpenTable::open(def, &self.path_of(def)),
            },
        }
    }

    fn path_of(&self, def: &TableDef) -> PathBuf {
        if self.dataset { table_path(&self.path, def) } else { self.path.clone() }
    }
}

/// The process that records into the segments of `fabric`.
///
/// # Errors
///
/// There is none.
fn find_recorder(path: &Path, fabric: &Path) -> Result<LockHolder> {
    let partial = partial_dir(fabric);
    // Without the right to read the directory nobody can know whether somebody records.
    disk::with_action("read", &partial, std::fs::read_dir(&partial))?;
    let path = path.display();
    match lock::find_holder(fabric) {
        Some(holder) if holder.is_recorder() => Ok(holder),
        Some(holder) => bail!("{path} {holder}: wait until it has ended"),
        None => bail!("{path} was not finished; run `uncore-trace repair {path}` first"),
    }
}

/// The error for a path where neither a recording nor a part of one is.
fn absence_error(path: &Path, is_directory: bool) -> Result<Error> {
    let shown = path.display();
    if let Some(newest) = parts_of(path).last() {
        return Ok(anyhow!(
            "{shown} was rotated: name one of its parts, such as {}, or make them one recording \
             with `uncore-trace cut {shown} -o one/`; DuckDB reads all of them as one table: \
             '{}/*/fabric.parquet'",
            newest.display(),
            without_slash(path).display()
        ));
    }
    Ok(match is_directory {
        true if rollup::is_directory(path)? => file::not_a_recording(path),
        true => anyhow!("{shown} holds no recording: there is no fabric.parquet in it"),
        false => anyhow!("cannot open {shown}: no such file or directory"),
    })
}
