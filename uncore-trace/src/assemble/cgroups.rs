//! The names of cgroups, as entries and as rows of `cgroups`.

use super::sink::Sink;
use super::stream::{ClosingBin, RawStream, StreamContext, StreamStart};
use crate::drain::DrainedRecord;
use crate::schema::loss::LossCause;

/// Cgroups whose rows are made in one bin. Each may need a file or two to be read for the name of
/// its container, and a machine can have thousands when a recording begins.
const FRESH_AT_ONCE: usize = 32;

/// Keeps the names up to date, and logs those that are new.
#[derive(Debug)]
pub(super) struct CgroupStream;

impl RawStream for CgroupStream {
    fn start_stream(_start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        Self
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        match record {
            DrainedRecord::Task(event) => context.names.task_event(event),
            DrainedRecord::Cgroup(event) => context.names.cgroup_event(event),
            _ => {}
        }
    }

    /// Logs the paths of owners at once, the others a few per bin.
    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        let end_ns = closing.span.end_ns;
        let StreamContext { names, unnamed, output, ledger, .. } = context;
        let cgroups = &mut names.cgroups;
        unnamed.look_up_due(end_ns, closing.is_last, |id| {
            let names = cgroups.take_unlogged(id, end_ns);
            if let Some(names) = names {
                output.log_cgroup(id, names, end_ns);
            }
            names.is_some()
        });
        if output.raw {
            let limit = if closing.is_last { usize::MAX } else { FRESH_AT_ONCE };
            for id in cgroups.take_new(limit) {
                if let Some(names) = cgroups.take_unlogged(id, end_ns) {
                    output.log_cgroup(id, names, end_ns);
                }
            }
        }
        for names in cgroups.take_refused() {
            let detail = format!("{}: users other than root may have given this name", names.path);
            ledger.add_explained(LossCause::NameRefused, end_ns, None, &detail);
        }
    }
}
