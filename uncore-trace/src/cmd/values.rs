//! Names and help of the values of options, for types of other stages: these do not depend on the
//! parser of the command line.

use uncore_trace_recording::option_values;

use crate::attribute::Effort;
use crate::open::Timer;
use crate::record::Sampling;
use crate::view::grouping::GroupBy;

option_values! {
    Effort {
        Live: "Start from the last solution, as `record` does",
        Full: "Improve the solution until it stays the same",
    }
    Timer {
        Auto: "pinned, or run-on-cpu where the kernel has no pinned BPF timers",
        Pinned: "A BPF timer that stays on its CPU",
        RunOnCpu: "A thread that runs the sampler on each reader CPU",
    }
    Sampling {
        Sched: "`sched_switch`",
        Irq: "Interrupt handlers and softirqs, entry and exit",
    }
    GroupBy {
        Cgroup: "One line for each cgroup",
        Container: "One line for each container",
        Pod: "One line for each pod",
        Job: "One line for each job of Slurm, with all of its steps",
        Pid: "One line for each process",
        Comm: "One line for all processes of a name",
        Pmu: "One line for each PMU instance, summed over all owners",
        Port: "One line for each root port in the counter's filter, summed over all owners",
        Device: "One line for each device that moved data by itself",
        Owner: "One line for each kind of owner: task, `other_tasks`, irq, softirq, idle, device, \
                unattributed",
    }
}
