//! Verifies that only owners which hold a device have shares of method `held`, by the table `held`.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Int32Array, RecordBatch};

use super::{First, Outcome};
use crate::schema::columns::{BitsColumn, Words, bits_column, nullable_value, i32_column, i64_column, words};
use crate::schema::{fabric, held};
use crate::tables::reader::Recording;

/// An owner: kind, process, name and cgroup.
type Who = (String, Option<i32>, Option<String>, Option<u64>);

/// From which end of a tick to which before an owner holds some function: times without an end hold on.
type Spans = HashMap<Who, Vec<(i64, i64)>>;

/// Verifies the shares; `None` if nothing says who held what.
pub(super) fn shares(recording: &Recording) -> Option<Outcome> {
    let scan = |recording: &_| spans(recording).and_then(|spans| scan(recording, &spans));
    First::of_table(recording, &held::TABLE, scan, "shares of holders")
}

/// When each owner holds something.
fn spans(recording: &Recording) -> Result<Spans> {
    let mut spans = Spans::new();
    let mut now: HashMap<(Who, String), i64> = HashMap::new();
    let wanted = ["mono_ns", "bdf", "owner", "pid", "comm", "cgroup_id", "ns"];
    for batch in recording.open_table(&held::TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        let (end, ns) = (i64_column(&batch, "mono_ns")?, bits_column(&batch, "ns")?);
        let (function, who) = (words(&batch, "bdf")?, Owners::of(&batch)?);
        for row in 0..batch.num_rows() {
            let key = (who.get(row), text(&function, row).unwrap_or_default());
            let at = end.value(row);
            if ns.value_or_zero(row) > 0 {
                now.entry(key).or_insert(at);
            } else if let Some(from) = now.remove(&key) {
                add(&mut spans, key.0, (from, at));
            }
        }
    }
    for ((who, _), from) in now {
        add(&mut spans, who, (from, i64::MAX));
    }
    for its in spans.values_mut() {
        its.sort_unstable();
        its.dedup_by(|later, before| {
            let meet = later.0 <= before.1;
            before.1 = if meet { before.1.max(later.1) } else { before.1 };
            meet
        });
    }
    Ok(spans)
}

/// Adds a span to those of its owner, and to those of its cgroup, whose processes a row may unite.
fn add(spans: &mut Spans, who: Who, span: (i64, i64)) {
    let cgroup = (who.0.clone(), None, None, who.3);
    spans.entry(cgroup).or_default().push(span);
    if who.1.is_some() {
        spans.entry(who).or_default().push(span);
    }
}

fn scan(recording: &Recording, spans: &Spans) -> Result<First> {
    let (mut first, mut number) = (First::default(), 0);
    let wanted = ["mono_ns", "window_ns", "counter", "owner", "pid", "comm", "cgroup_id", "method"];
    for batch in recording.open_table(&fabric::TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        let (end, len) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "window_ns")?);
        let (method, counter) = (words(&batch, "method")?, i32_column(&batch, "counter")?);
        let who = Owners::of(&batch)?;
        for row in (0..batch.num_rows()).filter(|row| method.get(*row) == Some(fabric::HELD)) {
            let (to, from) = (end.value(row), end.value(row) - len.value(row));
            let who = who.get(row);
            first.look(|| {
                let holds = spans.get(&who).is_some_and(|spans| {
                    let next = spans.partition_point(|span| span.0 <= to);
                    next.checked_sub(1).is_some_and(|last| spans[last].1 > from)
                });
                let (row, counter) = (number + row as u64, counter.value(row));
                (!holds).then(|| {
                    format!(
                        "row {row} of counter {counter}: its owner holds no device in the window"
                    )
                })
            });
        }
        number += batch.num_rows() as u64;
    }
    Ok(first)
}

/// The columns of owners.
struct Owners<'a> {
    kind: Words<'a>,
    pid: &'a Int32Array,
    comm: Words<'a>,
    cgroup: BitsColumn<'a>,
}

impl<'a> Owners<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            kind: words(batch, "owner")?,
            pid: i32_column(batch, "pid")?,
            comm: words(batch, "comm")?,
            cgroup: bits_column(batch, "cgroup_id")?,
        })
    }

    fn get(&self, row: usize) -> Who {
        let pid = nullable_value(self.pid, row);
        (
            text(&self.kind, row).unwrap_or_default(),
            pid,
            text(&self.comm, row),
            self.cgroup.get(row),
        )
    }
}

fn text(words: &Words<'_>, row: usize) -> Option<String> {
    words.get(row).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{SCHEMA_VERSION, metadata};
    use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

    const TICK: i64 = 10;

    /// The outcome where process 1 holds a GPU in the ticks that end at 20 to 40, and has a share by
    /// this method in the window of two ticks that ends at this time.
    fn outcome(pid: i32, end: i64, method: &str) -> Option<Outcome> {
        let dir = tempfile::tempdir().unwrap();
        let pairs = [(metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string())].into();
        let path = dir.path().join("run");
        let mut writer =
            Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &pairs).unwrap();
        let (mut held, mut rows) = (held::Builder::default(), fabric::Builder::default());
        let of = |mono_ns, ns| held::Row {
            mono_ns,
            bdf: "0009:01:00.0",
            owner: "task",
            pid: Some(1),
            comm: Some("train"),
            cgroup_id: Some(7),
            ns,
        };
        held.append(&of(2 * TICK, 4));
        held.append(&of(3 * TICK, 10));
        held.append(&of(5 * TICK, 0));
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
        shares(&Recording::open(&path).unwrap())
    }

    #[test]
    fn who_holds_nothing_has_no_share() {
        for end in [2 * TICK, 4 * TICK, 5 * TICK] {
            assert!(matches!(outcome(1, end, "held"), Some(Outcome::Ok(_))), "{end}");
        }
        for (pid, end) in [(1, TICK), (1, 7 * TICK), (2, 3 * TICK)] {
            let found = outcome(pid, end, "held");
            assert!(matches!(found, Some(Outcome::Failed(_))), "{pid} {end}: {found:?}");
        }
        assert_eq!(outcome(2, 3 * TICK, "io"), None);
    }
}
