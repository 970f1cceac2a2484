//! Verifies that only owners which hold a device have shares of method `held`, by the table `held`.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Int32Array, RecordBatch};

use super::{CheckOutcome, FaultTally};
use crate::clock::TimeSpan;
use crate::schema::columns::{
    BitsColumn, WordColumn, bits_column, i32_column, i64_column, nullable_value, word_column,
};
use crate::schema::{fabric, held};
use crate::tables::reader::Recording;

/// An owner: kind, process, name and cgroup.
type HoldingOwner = (String, Option<i32>, Option<String>, Option<u64>);

/// From which end of a tick to which before an owner holds some function: times without an end hold
/// on.
type HoldingSpans = HashMap<HoldingOwner, Vec<TimeSpan<i64>>>;

/// Verifies the shares; `None` if nothing says who held what.
pub(super) fn verify_held_shares(recording: &Recording) -> Option<CheckOutcome> {
    let scan = || read_spans(recording).and_then(|spans| scan_shares(recording, &spans));
    FaultTally::table_outcome(recording, &held::TABLE, scan, "shares of holders")
}

/// When each owner holds something.
fn read_spans(recording: &Recording) -> Result<HoldingSpans> {
    let mut spans = HoldingSpans::new();
    let mut open_since: HashMap<(HoldingOwner, String), i64> = HashMap::new();
    let wanted = ["mono_ns", "bdf", "owner", "pid", "comm", "cgroup_id", "ns"];
    for batch in recording.open_table(&held::TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        let (end, ns) = (i64_column(&batch, "mono_ns")?, bits_column(&batch, "ns")?);
        let (function, owners) =
            (word_column(&batch, "bdf")?, HeldOwnerColumns::from_batch(&batch)?);
        for row in 0..batch.num_rows() {
            let key = (owners.get(row), owned_word(&function, row).unwrap_or_default());
            let end_ns = end.value(row);
            if ns.value_or_zero(row) > 0 {
                open_since.entry(key).or_insert(end_ns);
            } else if let Some(begin_ns) = open_since.remove(&key) {
                add_span(&mut spans, key.0, TimeSpan { begin_ns, end_ns });
            }
        }
    }
    for ((holder, _), begin_ns) in open_since {
        add_span(&mut spans, holder, TimeSpan::new(begin_ns, i64::MAX));
    }
    for owner_spans in spans.values_mut() {
        owner_spans.sort_unstable();
        owner_spans.dedup_by(|later, earlier| {
            let meet = later.begin_ns <= earlier.end_ns;
            *earlier = if meet { earlier.hull(*later) } else { *earlier };
            meet
        });
    }
    Ok(spans)
}

/// Adds a span to those of its owner, and to those of its cgroup, whose processes a row may unite.
fn add_span(spans: &mut HoldingSpans, holder: HoldingOwner, span: TimeSpan<i64>) {
    let cgroup = (holder.0.clone(), None, None, holder.3);
    spans.entry(cgroup).or_default().push(span);
    if holder.1.is_some() {
        spans.entry(holder).or_default().push(span);
    }
}

fn scan_shares(recording: &Recording, spans: &HoldingSpans) -> Result<FaultTally> {
    let wanted = ["mono_ns", "window_ns", "counter", "owner", "pid", "comm", "cgroup_id", "method"];
    FaultTally::scan_table(recording, &fabric::TABLE, &wanted, |batch, number, tally| {
        let (end, len) = (i64_column(batch, "mono_ns")?, i64_column(batch, "window_ns")?);
        let (method, counter) = (word_column(batch, "method")?, i32_column(batch, "counter")?);
        let owners = HeldOwnerColumns::from_batch(batch)?;
        for row in (0..batch.num_rows()).filter(|row| method.get(*row) == Some(fabric::HELD)) {
            let (end_ns, begin_ns) = (end.value(row), end.value(row) - len.value(row));
            let holder = owners.get(row);
            tally.examine_item(|| {
                let holds = spans.get(&holder).is_some_and(|spans| {
                    let later_index = spans.partition_point(|span| span.begin_ns <= end_ns);
                    spans[..later_index].last().is_some_and(|span| span.end_ns > begin_ns)
                });
                let (row, id) = (number + row as u64, counter.value(row));
                (!holds).then(|| {
                    format!("row {row} of counter {id}: its owner holds no device in the window")
                })
            });
        }
        Ok(())
    })
}

/// The columns of owners.
struct HeldOwnerColumns<'a> {
    owner_kind: WordColumn<'a>,
    pid: &'a Int32Array,
    comm: WordColumn<'a>,
    cgroup: BitsColumn<'a>,
}

impl<'a> HeldOwnerColumns<'a> {
    fn from_batch(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            owner_kind: word_column(batch, "owner")?,
            pid: i32_column(batch, "pid")?,
            comm: word_column(batch, "comm")?,
            cgroup: bits_column(batch, "cgroup_id")?,
        })
    }

    fn get(&self, row: usize) -> HoldingOwner {
        (
            owned_word(&self.owner_kind, row).unwrap_or_default(),
            nullable_value(self.pid, row),
            owned_word(&self.comm, row),
            self.cgroup.get(row),
        )
    }
}

fn owned_word(words: &WordColumn<'_>, row: usize) -> Option<String> {
    words.get(row).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{SCHEMA_VERSION, metadata};
    use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

    const TICK: i64 = 10;

    /// The outcome where process 1 holds a GPU in the ticks that end at 20 to 40, and has a share
    /// by this method in the window of two ticks that ends at this time.
    fn outcome(pid: i32, end: i64, method: &str) -> Option<CheckOutcome> {
        let dir = tempfile::tempdir().unwrap();
        let pairs = [(metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string())].into();
        let path = dir.path().join("run");
        let mut writer = Writer::create(
            RecordingTarget::Dataset(path.clone()),
            CreateOptions::default(),
            &pairs,
        )
        .unwrap();
        let (mut held, mut rows) = (held::Builder::default(), fabric::Builder::default());
        let held_row = |mono_ns, ns| held::Row {
            mono_ns,
            bdf: "0009:01:00.0",
            owner: "task",
            pid: Some(1),
            comm: Some("train"),
            cgroup_id: Some(7),
            ns,
        };
        held.append(&held_row(2 * TICK, 4));
        held.append(&held_row(3 * TICK, 10));
        held.append(&held_row(5 * TICK, 0));
        rows.append(&fabric::Row {
            mono_ns: end,
            window_ns: 2 * TICK,
            owner: "task",
            pid: Some(pid),
            comm: Some("train"),
            cgroup_id: Some(7),
            method,
            ..fabric::Row::default()
        });
        writer.write(&held::TABLE, &held.finish()).unwrap();
        writer.write(&fabric::TABLE, &rows.finish()).unwrap();
        writer.finish(&pairs).unwrap();
        verify_held_shares(&Recording::open(&path).unwrap())
    }

    #[test]
    fn a_process_that_holds_no_device_has_no_share_of_it() {
        for end in [2 * TICK, 4 * TICK, 5 * TICK] {
            assert!(matches!(outcome(1, end, "held"), Some(CheckOutcome::Ok(_))), "{end}");
        }
        for (pid, end) in [(1, TICK), (1, 7 * TICK), (2, 3 * TICK)] {
            let found = outcome(pid, end, "held");
            assert!(matches!(found, Some(CheckOutcome::Failed(_))), "{pid} {end}: {found:?}");
        }
        assert_eq!(outcome(2, 3 * TICK, "io"), None);
    }
}
