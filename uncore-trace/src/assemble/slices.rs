//! Rows of `slices`: every slice of every task.

use super::sink::Sink;
use super::span::TimelineSpan;
use super::stream::{RawStream, StreamContext, StreamStart};
use crate::drain::{DrainedRecord, RunRecord};
use crate::schema::slices;

/// Writes the rows, if they are wanted.
#[derive(Debug)]
pub(super) struct SliceStream {
    is_wanted: bool,
}

impl RawStream for SliceStream {
    fn start_stream(_start: &StreamStart<'_>, sink: &mut Sink) -> Self {
        Self { is_wanted: sink.wants_table(&slices::TABLE) }
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        if let DrainedRecord::Run(run) = record
            && self.is_wanted
        {
            append_slice_rows(run, &context.span, &mut context.output.sink.rows.slices);
        }
    }
}

/// Writes a row for each slice of a record that ends within `span`. Slices that were not combined
/// follow one another without gaps from the record's begin to its end.
fn append_slice_rows(run: &RunRecord, span: &TimelineSpan, builder: &mut slices::Builder) {
    let mut begin_ns = run.begin_ns;
    for slot in &run.slots {
        let end_ns = begin_ns + slot.wall_ns;
        if !span.contains_time(end_ns) {
            begin_ns = end_ns;
            continue;
        }
        builder.append(&slices::Row {
            cpu: run.cpu as i32,
            begin_ns: begin_ns as i64,
            end_ns: end_ns as i64,
            tid: slot.task.tid as i32,
            pid: slot.task.pid as i32,
            comm: &slot.task.comm.to_text(),
            cgroup_id: slot.task.cgroup_id,
            irq_ns: slot.irq_ns as i64,
        });
        begin_ns = end_ns;
    }
}
