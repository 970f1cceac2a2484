//! Files and system calls that a recorder needs after everything is attached.

use super::args::RecordOptions;
use crate::confine::{RECORDER, ThreadNeeds};
use crate::discover::Machine;
use crate::identity::runtimes::Runtimes;
use crate::workload::Workload;

/// Where the kernel and container runtimes describe CPUs, processes, cgroups, interrupts and
/// containers.
const TREES: [&str; 4] = ["proc", "sys", "run", "var/lib"];

/// What the thread needs that drains the ring, follows the counters and looks up names.
pub(super) fn recorder_needs(
    machine: &Machine,
    options: &RecordOptions,
    workload: &Workload,
) -> ThreadNeeds {
    let root = &machine.root;
    let trees = TREES.iter().map(|tree| root.join(tree)).chain(Runtimes::runtime_trees(root));
    let thread_needs = ThreadNeeds {
        capabilities: RECORDER,
        reads: trees.chain(machine.cgroups.v2.clone()).collect(),
        command: workload.child_pid(),
        counts: true,
        ..ThreadNeeds::default()
    };
    thread_needs.merged_with(options.afterwards.clone())
}
