//! One hook per file. A hook reads its arguments and calls the module that keeps the data.

mod arm;
mod block;
mod cgroup;
mod files;
mod irq;
mod net;
mod other_cpus;
mod probe;
mod run_on_cpu;
mod sched_switch;
mod softirq;
mod task;
mod timer;
