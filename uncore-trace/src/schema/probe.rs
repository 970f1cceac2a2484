//! What probes paused (`record --probe`), in the metadata.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::metadata;

/// The pauses of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Their number.
    pub pauses: u64,
    /// Their length, ns.
    pub ns: i64,
}

/// Probes in the metadata, [`metadata::PROBE`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Part of its time for which a cgroup is paused at most, 0.001 to 0.05.
    pub budget: f64,
    /// Time since the recording began, ns.
    pub time_ns: i64,
    /// By path of the cgroup: pauses since the recording began, also in earlier parts.
    pub paused: BTreeMap<String, Paused>,
}

impl Probe {
    /// The probes of a recording; `None` if there were none.
    ///
    /// # Errors
    ///
    /// The metadata are damaged.
    pub fn of(pairs: &BTreeMap<String, String>) -> Result<Option<Self>> {
        metadata::json(pairs, metadata::PROBE)
    }

    /// Writes them into the metadata.
    ///
    /// # Errors
    ///
    /// They cannot be written as JSON.
    pub fn note(&self, pairs: &mut BTreeMap<String, String>) -> Result<()> {
        let text = serde_json::to_string(self).context("cannot write the probes as JSON")?;
        pairs.insert(metadata::PROBE.to_owned(), text);
        Ok(())
    }

    /// Adds a pause.
    pub fn add(&mut self, cgroup: String, ns: i64) {
        let paused = self.paused.entry(cgroup).or_default();
        paused.pauses += 1;
        paused.ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_hold_the_sums() {
        let mut probe = Probe { budget: 0.005, ..Probe::default() };
        probe.add("/a".to_owned(), 5);
        probe.add("/a".to_owned(), 7);
        let mut pairs = BTreeMap::new();
        assert_eq!(Probe::of(&pairs).unwrap(), None);
        probe.note(&mut pairs).unwrap();
        let read = Probe::of(&pairs).unwrap().unwrap();
        assert_eq!(read, probe);
        assert_eq!(read.paused["/a"], Paused { pauses: 2, ns: 12 });
        pairs.insert(metadata::PROBE.to_owned(), "{".to_owned());
        assert!(Probe::of(&pairs).is_err());
    }
}
