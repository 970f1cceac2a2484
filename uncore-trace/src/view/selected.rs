//! Which events and cgroups a report shows.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context as _, Result, ensure};
use arrow::array::{Array as _, RecordBatch};
use globset::{Glob, GlobMatcher};

use super::key::column_if;
use super::links::Links;
use crate::schema::cgroups::is_within;
use crate::schema::columns::{WordColumn, word_column};
use crate::schema::{fabric, owner};
use crate::tables::reader::Recording;
use crate::text::{list_few, printable};

/// Number of names in an error.
const NAMED: usize = 12;

/// The selected events, links and cgroups; the default is everything.
#[derive(Debug, Clone, Default)]
pub struct ReportSelection {
    events: Vec<GlobMatcher>,
    /// Counters on the selected links.
    counters: HashSet<i32>,
    /// Paths; each stands for itself and all below it.
    cgroups: Vec<String>,
}

impl ReportSelection {
    /// Events and links whose name matches one of `events` (`*` stands for any text), and cgroups:
    /// tasks of others become `other_tasks`. An empty list selects everything.
    ///
    /// # Errors
    ///
    /// A pattern is malformed, nothing in the recording matches one, or it cannot be read.
    pub fn from_patterns(
        recording: &Recording,
        events: &[String],
        cgroups: &[String],
    ) -> Result<Self> {
        let mut selected = Self::default();
        if !events.is_empty() {
            selected.add_events(recording, events)?;
        }
        if !cgroups.is_empty() {
            selected.add_cgroups(recording, cgroups)?;
        }
        Ok(selected)
    }

    fn add_events(&mut self, recording: &Recording, events: &[String]) -> Result<()> {
        let links = Links::from_recording(recording)?;
        let mut known_names = names_recorded(recording, "event")?;
        let mut link_counters: Vec<(String, u32)> = Vec::new();
        for (link_index, link) in links.links.iter().enumerate() {
            link_counters.extend(link.counters.iter().map(|link_counter| {
                (links.direction_label(link_index, link_counter.direction), link_counter.counter)
            }));
        }
        known_names.extend(link_counters.iter().map(|(name, _)| name.clone()));
        for pattern in events {
            let glob = Glob::new(pattern)
                .with_context(|| format!("--event {pattern:?} is not a pattern"))?
                .compile_matcher();
            let is_wanted = |name: &str| glob.is_match(name);
            ensure!(
                known_names.iter().any(|name| is_wanted(name)),
                "no event or link of {} matches {pattern:?}; there are {}",
                printable(&recording.recording_path().display().to_string()),
                list_few(&known_names, NAMED)
            );
            let wanted = link_counters.iter().filter(|(name, _)| is_wanted(name));
            self.counters.extend(wanted.filter_map(|(_, counter)| i32::try_from(*counter).ok()));
            self.events.push(glob);
        }
        Ok(())
    }

    fn add_cgroups(&mut self, recording: &Recording, cgroups: &[String]) -> Result<()> {
        let paths = names_recorded(recording, "cgroup")?;
        for path in cgroups {
            ensure!(
                paths.iter().any(|candidate| is_within(candidate, path)),
                "no task of {} was in the cgroup {path:?}; there are {}",
                printable(&recording.recording_path().display().to_string()),
                list_few(&paths, NAMED)
            );
            self.cgroups.push(path.clone());
        }
        Ok(())
    }

    /// Whether cgroups are selected, so that their paths are needed.
    pub(super) fn has_cgroups(&self) -> bool {
        !self.cgroups.is_empty()
    }

    /// The selected rows of a batch.
    ///
    /// # Errors
    ///
    /// A column is missing.
    pub(super) fn select_rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<SelectedBatch<'a>> {
        let is_event = |name: &str| self.events.iter().any(|glob| glob.is_match(name));
        let is_inside =
            |path: &str| self.cgroups.iter().any(|selected_path| is_within(path, selected_path));
        let selected_names = |column: &str, is_selected: &dyn Fn(&str) -> bool| {
            let column = word_column(batch, column)?;
            let names = column.dictionary_values().iter();
            Ok((column, names.map(|name| name.is_some_and(is_selected)).collect()))
        };
        Ok(SelectedBatch {
            counters: &self.counters,
            events: column_if(!self.events.is_empty(), || selected_names("event", &is_event))?,
            cgroups: column_if(self.has_cgroups(), || selected_names("cgroup", &is_inside))?,
        })
    }
}

/// A column, and which of its names are selected.
type SelectedNames<'a> = (WordColumn<'a>, Vec<bool>);

/// The selected rows of one batch.
#[derive(Debug)]
pub(super) struct SelectedBatch<'a> {
    counters: &'a HashSet<i32>,
    events: Option<SelectedNames<'a>>,
    cgroups: Option<SelectedNames<'a>>,
}

impl SelectedBatch<'_> {
    /// Whether the row's event, or the link of its counter, is selected.
    #[inline]
    pub(super) fn has_event(&self, row: usize, counter: i32) -> bool {
        self.events.as_ref().is_none_or(|names| is_true(names, row))
            || self.counters.contains(&counter)
    }

    /// Whether the row is of a task in a cgroup that is not selected.
    #[inline]
    pub(super) fn is_other<'a>(&self, row: usize, owner: impl Fn() -> &'a str) -> bool {
        self.cgroups.as_ref().is_some_and(|names| owner() == owner::TASK && !is_true(names, row))
    }
}

fn is_true((column, selected): &SelectedNames<'_>, row: usize) -> bool {
    usize::try_from(column.dictionary_key(row)).is_ok_and(|key| selected.get(key) == Some(&true))
}

/// The different names in a column of `fabric`.
fn names_recorded(recording: &Recording, column: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for batch in recording.open_table(&fabric::TABLE)?.scan_columns(&[column])? {
        let batch = batch?;
        let column = word_column(&batch, column)?;
        let dictionary = column.dictionary_values();
        let mut is_used = vec![false; dictionary.len()];
        for key in (0..batch.num_rows()).map(|row| column.dictionary_key(row)) {
            if let Some(used) = usize::try_from(key).ok().and_then(|key| is_used.get_mut(key)) {
                *used = true;
            }
        }
        let used_names = is_used.iter().zip(dictionary).filter(|(used, _)| **used);
        names.extend(used_names.filter_map(|(_, name)| Some(name?.to_owned())));
    }
    Ok(names)
}
