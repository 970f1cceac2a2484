//! One hook per file. A hook names its event, takes its arguments and calls what keeps the data.

mod arm;
mod block;
mod cgroup;
mod irq;
mod net;
mod probe;
mod run_on_cpu;
mod sched_switch;
mod softirq;
mod task;
mod timer;
