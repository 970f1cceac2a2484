//! The list of a dataset's tables, in the metadata of `fabric`, which is finished last.
//!
//! Guarantee: every segment of `fabric` has the list, so that missing tables are noticed after a
//! recorder was killed or files were lost.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::schema::{TableDef, metadata};

/// The tables besides `fabric`, each with its digest ([`super::digest`]) once it is finished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest(BTreeMap<String, Option<String>>);

impl Manifest {
    /// A list of tables that are not finished.
    pub(crate) fn from_tables(tables: impl Iterator<Item = &'static TableDef>) -> Manifest {
        Manifest(tables.map(|def| (def.name.to_owned(), None)).collect())
    }

    /// The list in the metadata; `None` for a single file.
    ///
    /// # Errors
    ///
    /// The list is damaged.
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Result<Option<Manifest>> {
        metadata::parse_json(pairs, metadata::TABLES)
    }

    /// The metadata with this list added.
    pub(crate) fn added_to(
        &self,
        pairs: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>> {
        let text = serde_json::to_string(self).context("cannot write the list of tables")?;
        let mut pairs = pairs.clone();
        pairs.insert(metadata::TABLES.to_owned(), text);
        Ok(pairs)
    }

    /// Sets the digest of a finished table.
    pub(crate) fn set_digest(&mut self, def: &TableDef, digest: String) {
        self.0.insert(def.name.to_owned(), Some(digest));
    }

    /// The names and, if known, the digests.
    pub fn list_tables(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, digest)| (name.as_str(), digest.as_deref()))
    }
}
