//! Names and help of the values of options, for types of other stages: these do not depend on the
//! parser of the command line.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::attribute::{Choice, Effort};
use crate::open::Timer;
use crate::plan::DeclaredCause;
use crate::record::Sampling;
use crate::view::key::GroupBy;

/// Each type with all its values, in the order of the help.
macro_rules! values {
    ($($type:ident { $($value:ident: $help:literal,)* })*) => {$(
        impl ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$value,)*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                let help = match self {
                    $(Self::$value => $help,)*
                };
                Some(PossibleValue::new(self.name()).help(help))
            }
        }
    )*};
}

values! {
    Choice {
        Auto: "io for PCIe root ports, misses for traffic of CPUs if misses are counted, \
               regression for other counters that CPUs share, residency for counters of one CPU",
        Residency: "In proportion to time on the CPUs that the counter sees",
        Io: "PCIe root ports by the bytes that disks and interfaces moved for each owner, others by \
             residency",
        Misses: "Traffic of CPUs by last-level cache misses, others as with auto; reads the core's miss \
                 counter at every context switch and tick of these CPUs",
        Regression: "By rates learnt from ticks, or residency where nothing can be learnt",
    }
    Effort {
        Live: "As a recording does: start from the last solution",
        Full: "Improve the solution until it stays the same",
    }
    DeclaredCause {
        Cpu: "CPUs near the PMU: their counts are divided among tasks",
        Device: "Devices: their counts are given to `device`",
    }
    Timer {
        Auto: "A pinned BPF timer, or the fallback where the kernel has none",
        Pinned: "A pinned BPF timer",
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
