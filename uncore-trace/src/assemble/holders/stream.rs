//! The stream of `holders` and `held`.

use super::super::held;
use super::super::sink::Sink;
use super::super::stream::{ClosingBin, RawStream, SourceReading, StreamContext, StreamStart};
use super::super::streams::Streams;
use super::{FilesReading, HolderTable};
use crate::drain::{CgroupChange, DrainedRecord, TaskChange};

impl SourceReading for FilesReading<'_> {
    fn feed_stream(&self, streams: &mut Streams, context: &mut StreamContext<'_>) {
        let is_over = context.span.ended_before(self.span.begin_ns);
        if let Some(holders) = streams.holders.as_mut().filter(|_| !is_over) {
            request_names(holders.feed_reading(self, context.names, context.output.sink), context);
        }
    }
}

impl RawStream for Option<HolderTable> {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        let setup = start.setup;
        setup.holders.then(|| {
            let counted = setup.plan.counters.iter().flat_map(|counter| &counter.behind);
            let functions = counted.map(|function_behind| function_behind.function).collect();
            HolderTable::new(setup.root, start.start_ns, functions)
        })
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        let Some(holders) = self else {
            return;
        };
        match record {
            DrainedRecord::File(event) if !context.span.ended_before(event.time_ns) => {
                let new = holders.feed_report(event, context.names, context.output.sink);
                request_names(new, context);
            }
            DrainedRecord::Task(event) if event.change == TaskChange::Exec => {
                holders.rename_process(&event.task, event.time_ns);
            }
            DrainedRecord::Cgroup(event) if !context.span.ended_before(event.time_ns) => {
                let (cgroup_id, time_ns) = (event.cgroup_id, event.time_ns);
                if let CgroupChange::Attached(pid) = event.change
                    && holders.move_process(pid, cgroup_id, time_ns, context.output.sink)
                {
                    context.request_cgroup_name(cgroup_id);
                }
            }
            _ => {}
        }
    }

    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        if let Some(holders) = self {
            let changes = holders.close_tick(closing.span, context.names);
            for held_time in &changes {
                context.request_owner_name(held_time.owner);
            }
            held::log_changes(&changes, closing.span.end_ns, &mut context.output);
        }
    }

    fn write_last_rows(&mut self, end_ns: u64, context: &mut StreamContext<'_>) {
        if let Some(holders) = self {
            holders.write_held_rows(context.output.sink);
            held::end_all(&holders.times, end_ns, &mut context.output);
        }
    }
}

fn request_names(cgroups: Vec<u64>, context: &mut StreamContext<'_>) {
    for id in cgroups {
        context.request_cgroup_name(id);
    }
}
