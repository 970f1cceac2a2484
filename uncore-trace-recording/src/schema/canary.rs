//! `canary`: what the canary moved (`record --canary`), and its form in the metadata.
//!
//! Guarantees: a burst has a row in the part of the recording in which it ended. The metadata of
//! every file of the recording have the sums of these rows, so that a single file says how much was
//! moved too.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::column_type::{Bits, I32, I64, Null, Text, Word, table};
use super::columns::{bits_column, i64_column, text_column, word_column};
use super::link::Direction;
use super::metadata;
use super::origin::RecordingOrigin;
use crate::named_values::named_values;

table! {
    "canary", "bursts of bytes that the canary moved, with which its shares are compared", sorted by [];
    Between("begin_ns", "end_ns");
    origin;
    begin_ns: I64 => Plain, "Begin of the burst, `CLOCK_MONOTONIC`, ns.";
    end_ns: I64 => Plain, "End of the burst, `CLOCK_MONOTONIC`, ns.";
    kind: Word => Dict, "`memory` (reads of an array larger than the caches), `disk` (reads that bypass the page cache) or `network` (packets over the loopback interface).";
    cpu: I32 => Dict, "CPU on which the canary ran.";
    node: Null<I32> => Dict, "NUMA node of the array that was read; null for other kinds, and where the machine has no nodes.";
    device: Null<Word> => Dict, "Disk or interface; null for memory.";
    bytes: Bits => Plain, "Bytes that the canary moved. Over the loopback interface they include headers and are counted once, although the interface sends and receives them.";
    links: Text => Plain, "JSON list: the links whose counters count these bytes, each `{\"link\":..,\"direction\":..}` as in `links`; empty where no counter of the recording does.";
}

named_values! {
    /// What was moved.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CanaryKind;
    /// The value in the column `kind`.
    pub fn kind_name;
    /// Reads of an array in memory that is larger than the caches.
    Memory = "memory",
    /// Reads of a file that bypass the page cache.
    Disk = "disk",
    /// Packets over the loopback interface.
    Network = "network",
}

/// One direction of a link, as in the table `links`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkDirection {
    /// Name of the link.
    pub link: String,
    /// Direction of the bytes.
    pub direction: Direction,
}

/// A burst, as the canary reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// What was moved.
    pub kind: CanaryKind,
    /// Begin, ns on `CLOCK_MONOTONIC`.
    pub begin_ns: i64,
    /// End, ns on `CLOCK_MONOTONIC`.
    pub end_ns: i64,
    /// CPU on which it ran.
    pub cpu: u32,
    /// NUMA node of the array, for [`CanaryKind::Memory`], if the machine has nodes.
    pub node: Option<u32>,
    /// Bytes that it moved.
    pub bytes: u64,
}

/// A kind that is not moved, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The kind.
    pub kind: CanaryKind,
    /// The reason.
    pub why: String,
}

/// The sum of all bursts of one kind that the same links carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurstSum {
    /// What was moved.
    pub kind: CanaryKind,
    /// The links whose counters count these bytes.
    pub links: Vec<LinkDirection>,
    /// Number of bursts.
    pub bursts: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The canary in the metadata, [`metadata::CANARY`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanarySummary {
    /// Path of its cgroup, which `fabric` credits its bytes to.
    pub cgroup: String,
    /// The kinds that it does not move.
    pub skipped: Vec<Skipped>,
    /// What it moved.
    pub moved: Vec<BurstSum>,
}

impl CanarySummary {
    /// The canary of a recording; `None` if there was none.
    ///
    /// # Errors
    ///
    /// The metadata are damaged.
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Result<Option<Self>> {
        metadata::parse_json(pairs, metadata::CANARY)
    }

    /// Writes it into the metadata.
    ///
    /// # Errors
    ///
    /// It cannot be written as JSON.
    pub fn write_metadata(&self, pairs: &mut BTreeMap<String, String>) -> Result<()> {
        let text = serde_json::to_string(self).context("cannot write the canary as JSON")?;
        pairs.insert(metadata::CANARY.to_owned(), text);
        Ok(())
    }

    /// Adds a burst.
    pub fn add_burst(&mut self, burst_kind: CanaryKind, links: &[LinkDirection], bytes: u64) {
        let is_same_sum = |sum: &&mut BurstSum| sum.kind == burst_kind && sum.links == links;
        match self.moved.iter_mut().find(is_same_sum) {
            Some(moved) => {
                moved.bursts += 1;
                moved.bytes += bytes;
            }
            None => self.moved.push(BurstSum {
                kind: burst_kind,
                links: links.to_vec(),
                bursts: 1,
                bytes,
            }),
        }
    }

    /// Adds the bursts in rows of the table.
    ///
    /// # Errors
    ///
    /// A column is missing, or a list of links is damaged.
    pub fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        for BurstRow { burst_kind: moved_kind, links, bytes, .. } in decode_bursts(batch)? {
            self.add_burst(moved_kind, &links, bytes);
        }
        Ok(())
    }
}

/// A burst in a row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BurstRow {
    /// End, ns on `CLOCK_MONOTONIC`.
    pub end_ns: i64,
    /// What was moved.
    pub burst_kind: CanaryKind,
    /// The links whose counters count it.
    pub links: Vec<LinkDirection>,
    /// Bytes.
    pub bytes: u64,
}

/// The bursts in rows of the table.
///
/// # Errors
///
/// A column of `end_ns`, `kind`, `bytes` and `links` is missing, or a list of links is damaged.
pub fn decode_bursts(batch: &RecordBatch) -> Result<Vec<BurstRow>> {
    let (ends, kinds) = (i64_column(batch, "end_ns")?, word_column(batch, "kind")?);
    let (bytes, links) = (bits_column(batch, "bytes")?, text_column(batch, "links")?);
    let burst = |row| {
        let known_kind = kinds.get(row).and_then(CanaryKind::from_name);
        Ok(BurstRow {
            end_ns: ends.value(row),
            burst_kind: known_kind
                .context("column kind has a value that this version does not know")?,
            links: serde_json::from_str(links.value(row)).context("column links is damaged")?,
            bytes: bytes.value_or_zero(row),
        })
    };
    (0..batch.num_rows()).map(burst).collect()
}

impl Builder {
    /// Appends a burst.
    ///
    /// # Errors
    ///
    /// The list of links cannot be written as JSON.
    pub fn append_burst(
        &mut self,
        burst: &Burst,
        device: Option<&str>,
        links: &[LinkDirection],
        origin: &RecordingOrigin,
    ) -> Result<()> {
        let RecordingOrigin { host, boot_id, cluster } = origin;
        let links = serde_json::to_string(links).context("cannot write links as JSON")?;
        self.append(&Row {
            host,
            boot_id,
            cluster: cluster.as_deref(),
            begin_ns: burst.begin_ns,
            end_ns: burst.end_ns,
            kind: burst.kind.kind_name(),
            cpu: burst.cpu as i32,
            node: burst.node.map(|node| node as i32),
            device,
            bytes: burst.bytes,
            links: &links,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_metadata_hold_the_same_sums() {
        let way = |link: &str, direction| LinkDirection { link: link.to_owned(), direction };
        let disk = [way("disk vda", Direction::In), way("PCIe vda, \"b\"", Direction::In)];
        let burst = |kind, bytes| Burst { kind, begin_ns: 1, end_ns: 2, cpu: 3, node: None, bytes };
        let (mut canary, mut rows) = (CanarySummary::default(), Builder::default());
        for (kind, links, bytes) in [
            (CanaryKind::Disk, &disk[..], 4096),
            (CanaryKind::Memory, &[], 7),
            (CanaryKind::Disk, &disk[..], 1),
        ] {
            canary.add_burst(kind, links, bytes);
            let device = (kind == CanaryKind::Disk).then_some("vda");
            rows.append_burst(&burst(kind, bytes), device, links, &RecordingOrigin::default())
                .unwrap();
        }
        assert_eq!((canary.moved[0].bursts, canary.moved[0].bytes), (2, 4097));
        let mut read = CanarySummary::default();
        read.add_rows(&rows.finish()).unwrap();
        assert_eq!(read, canary);
        let mut pairs = BTreeMap::new();
        assert_eq!(CanarySummary::from_metadata(&pairs).unwrap(), None);
        canary.write_metadata(&mut pairs).unwrap();
        assert_eq!(CanarySummary::from_metadata(&pairs).unwrap(), Some(canary));
        pairs.insert(metadata::CANARY.to_owned(), "{".to_owned());
        assert!(CanarySummary::from_metadata(&pairs).is_err());
    }
}
