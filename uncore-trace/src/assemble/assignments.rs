//! The assignments of devices to pods, as rows of the times between readings of the kubelet's list.

use std::collections::{BTreeMap, BTreeSet};

use super::sink::Sink;
use super::stream::{RawStream, SourceReading, StreamContext, StreamStart};
use super::streams::Streams;
use crate::discover::pci::join_addresses;
use crate::identity::assignments::Assignment;
use crate::schema::assignments::Row;
use crate::schema::origin::RecordingOrigin;

/// What the kubelet said.
#[derive(Debug, Clone)]
pub struct AssignmentReading {
    /// When it was asked, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The assignments, or why there are none from now on.
    pub list: Result<BTreeSet<Assignment>, String>,
}

/// The assignments in a part of a recording.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    /// With the reading in which each was new.
    current: BTreeMap<Assignment, Option<u64>>,
    /// The last reading.
    last_reading_ns: Option<u64>,
    /// Begin of the part.
    start_ns: u64,
}

impl SourceReading for AssignmentReading {
    fn feed_stream(&self, streams: &mut Streams, context: &mut StreamContext<'_>) {
        if !context.span.ended_before(self.time_ns) {
            streams.assignments.feed_reading(self, context.output.sink);
        }
    }
}

impl RawStream for Assignments {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        Self::new(start.start_ns)
    }

    fn write_last_rows(&mut self, _end_ns: u64, context: &mut StreamContext<'_>) {
        self.write_current_rows(context.output.sink);
    }
}

impl Assignments {
    /// Without assignments, for a part that begins at `start_ns`.
    pub(super) fn new(start_ns: u64) -> Self {
        Self { start_ns, ..Self::default() }
    }

    /// Takes a reading. Those of a part are in the order of time.
    pub(super) fn feed_reading(&mut self, assigned: &AssignmentReading, sink: &mut Sink) {
        let AssignmentReading { time_ns: time, list } = assigned;
        let Ok(list) = list else {
            // What was assigned after the last reading is not known.
            let until_ns = self.last_reading_ns;
            for (assignment, begin) in std::mem::take(&mut self.current) {
                self.write_row(&assignment, begin, until_ns, sink);
            }
            return;
        };
        let ended = self.current.extract_if(.., |assignment, _| !list.contains(assignment));
        for (assignment, begin) in ended.collect::<Vec<_>>() {
            self.write_row(&assignment, begin, Some(*time), sink);
        }
        let since_ns = self.last_reading_ns.map(|_| *time);
        for assignment in list {
            if !self.current.contains_key(assignment) {
                self.current.insert(assignment.clone(), since_ns);
            }
        }
        self.last_reading_ns = Some(*time);
    }

    /// Enters what is still assigned.
    pub(super) fn write_current_rows(&mut self, sink: &mut Sink) {
        for (assignment, begin) in std::mem::take(&mut self.current) {
            self.write_row(&assignment, begin, None, sink);
        }
    }

    /// A row, unless it ended before the part begins.
    fn write_row(
        &self,
        assignment: &Assignment,
        since_ns: Option<u64>,
        until_ns: Option<u64>,
        sink: &mut Sink,
    ) {
        if until_ns.is_some_and(|end| end <= self.start_ns) {
            return;
        }
        let begin_in_part = since_ns.filter(|begin| *begin >= self.start_ns);
        let RecordingOrigin { host, boot_id, cluster } = &sink.origin;
        sink.rows.assignments.append(&Row {
            host,
            boot_id,
            cluster: cluster.as_deref(),
            pod: &assignment.pod,
            container: &assignment.container,
            resource: &assignment.resource,
            device: &assignment.device,
            claim: assignment.claim.as_deref(),
            cdi: assignment.cdi.as_deref(),
            bdf: join_addresses(&assignment.functions).as_deref(),
            port: join_addresses(&assignment.ports).as_deref(),
            begin_ns: begin_in_part.map(|begin| begin as i64),
            end_ns: until_ns.map(|end| end as i64),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::columns::{i64_column, nullable_value, word_column};

    fn assigned(time: u64, devices: &[&str]) -> AssignmentReading {
        let of =
            |device: &&str| Assignment { device: (*device).to_owned(), ..Assignment::default() };
        AssignmentReading { time_ns: time, list: Ok(devices.iter().map(of).collect()) }
    }

    fn rows(readings: &[AssignmentReading]) -> Vec<(String, Option<i64>, Option<i64>)> {
        let (mut assignments, mut sink) = (Assignments::default(), Sink::default());
        for reading in readings {
            assignments.feed_reading(reading, &mut sink);
        }
        assignments.write_current_rows(&mut sink);
        let rows = sink.rows.assignments.finish();
        let (begin, end) =
            (i64_column(&rows, "begin_ns").unwrap(), i64_column(&rows, "end_ns").unwrap());
        let device = word_column(&rows, "device").unwrap();
        let line = |row| {
            (
                device.get(row).unwrap().to_owned(),
                nullable_value(begin, row),
                nullable_value(end, row),
            )
        };
        (0..rows.num_rows()).map(line).collect()
    }

    #[test]
    fn a_row_is_the_time_between_readings() {
        let line = |device: &str, begin, end| (device.to_owned(), begin, end);
        assert_eq!(
            rows(&[
                assigned(10, &["a", "b"]),
                assigned(20, &["b", "c"]),
                assigned(30, &["a", "b"])
            ]),
            [
                line("a", None, Some(20)),
                line("c", Some(20), Some(30)),
                line("a", Some(30), None),
                line("b", None, None),
            ]
        );
        assert_eq!(rows(&[assigned(10, &[])]), []);
    }

    #[test]
    fn what_cannot_be_asked_any_more_ends_with_the_last_reading() {
        let lost = AssignmentReading { time_ns: 40, list: Err("gone".to_owned()) };
        let found = rows(&[assigned(10, &["a"]), assigned(20, &["a", "b"]), lost]);
        let line = |device: &str, begin, end| (device.to_owned(), begin, end);
        assert_eq!(found, [line("a", None, Some(20)), line("b", Some(20), Some(20))]);
    }
}
