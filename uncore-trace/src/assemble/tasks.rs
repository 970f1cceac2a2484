//! Rows of `tasks`: when a thread was first seen, executed a program, moved or exited.

use super::seen_threads::SeenThreads;
use super::sink::Sink;
use super::stream::{RawStream, StreamContext, StreamStart};
use crate::drain::{CgroupChange, CgroupRecord, DrainedRecord, RunRecord, TaskChange, TaskRecord};
use crate::schema::tasks;

/// Writes the rows, if they are wanted.
#[derive(Debug)]
pub(super) struct TaskStream {
    raw: bool,
    is_wanted: bool,
    seen: SeenThreads,
}

impl RawStream for TaskStream {
    fn start_stream(start: &StreamStart<'_>, sink: &mut Sink) -> Self {
        let is_wanted = sink.wants_table(&tasks::TABLE);
        Self { raw: start.raw, is_wanted, seen: SeenThreads::default() }
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        match record {
            DrainedRecord::Run(run) => self.feed_run(run, context),
            DrainedRecord::Task(event) => self.feed_task(event, context),
            DrainedRecord::Cgroup(event) => self.feed_move(event, context),
            _ => {}
        }
    }
}

impl TaskStream {
    fn feed_run(&mut self, run: &RunRecord, context: &mut StreamContext<'_>) {
        if !self.raw || !context.span.overlaps_span(run.begin_ns, run.end) {
            return;
        }
        for slot in run.slots.iter().filter(|slot| slot.task.tid != 0) {
            if self.seen.is_first(slot.task.tid, run.begin_ns) {
                context.output.sink.append_task(&slot.task, run.begin_ns, "seen");
            }
        }
    }

    fn feed_task(&mut self, event: &TaskRecord, context: &mut StreamContext<'_>) {
        let event_name = match event.change {
            TaskChange::Exec => "exec",
            TaskChange::Exit => {
                self.seen.note_exit(event.task.tid, event.time_ns);
                "exit"
            }
        };
        if self.is_wanted && context.span.contains_time(event.time_ns) {
            context.output.sink.append_task(&event.task, event.time_ns, event_name);
        }
    }

    fn feed_move(&self, event: &CgroupRecord, context: &mut StreamContext<'_>) {
        if let CgroupChange::Attached(tid) = event.change
            && self.is_wanted
            && context.span.contains_time(event.time_ns)
        {
            let task = context.names.moved_task(tid, event.cgroup_id);
            context.output.sink.append_task(&task, event.time_ns, "move");
        }
    }
}
