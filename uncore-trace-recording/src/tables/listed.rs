//! The tables of a dataset, compared with its list of them.

use anyhow::Result;

use super::manifest::Manifest;
use super::reader::Recording;
use crate::schema::fabric;

impl Manifest {
    /// The list of a dataset; `None` if its `fabric` has none.
    ///
    /// # Errors
    ///
    /// `fabric` cannot be read, or its list is damaged.
    pub fn read_dataset(recording: &Recording) -> Result<Option<Manifest>> {
        Manifest::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())
    }

    /// The problems of a dataset's tables: those that are missing, and those that belong to another
    /// recording. Unreadable tables are not listed.
    pub fn find_problems(&self, recording: &Recording) -> Vec<String> {
        let present = recording.list_tables();
        let wrong = |(name, digest): (&str, Option<&str>)| {
            let Some(def) = present.iter().find(|def| def.name == name) else {
                return Some(format!("{name}.parquet is missing"));
            };
            let table = recording.open_table(def).ok()?;
            let is_foreign = digest.is_some_and(|digest| digest != table.file_digest());
            is_foreign.then(|| format!("{name}.parquet is of another recording"))
        };
        self.list_tables().filter_map(wrong).collect()
    }
}
