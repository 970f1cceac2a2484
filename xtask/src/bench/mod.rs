//! `cargo xtask bench`: the cost and accuracy of recording. One file or directory per question.

use anyhow::Result;
use clap::Subcommand;

mod attribution;
mod hook;
mod loaded;
mod machine;
mod overhead;
mod pipeline;
mod plan;
mod profile;
mod read;
mod ring;
mod running;
mod sampling;
mod small;
mod stats;
mod truth;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchTask {
    /// Time context switches and requests without a program, with an empty program, and with the
    /// recorders
    Overhead(overhead::Args),
    /// Time the BPF program at `sched_switch` itself
    Hook(hook::Args),
    /// Time how several CPUs send records at once, and estimate the cost on large machines
    Ring(ring::Args),
    /// Compare the recorder's own CPU time with that of perf stat, and measure how late readings
    /// are
    Sampling(sampling::Args),
    /// Measure the time and memory for making files from records, for machines of many sizes
    Pipeline(pipeline::Args),
    /// Time the work before a recording begins, on machines of 2 to 32 sockets
    Plan(plan::Args),
    /// Profile the recorder's own CPU time
    Profile(profile::Args),
    /// Measure the time and memory for reading recordings, also with `DuckDB`
    Read(read::Args),
    /// Compare the shares of each method with the true traffic of mixes of tenants in the lab
    Attribution(attribution::Args),
    /// Compare the shares of methods with the true traffic of large, randomly drawn machines, and
    /// measure the cost
    Truth(truth::Args),
}

/// Runs one benchmark and prints its table.
pub(crate) fn run(bench: &BenchTask) -> Result<()> {
    match bench {
        BenchTask::Overhead(args) => overhead::run(args),
        BenchTask::Hook(args) => hook::run(args),
        BenchTask::Ring(args) => ring::run(args),
        BenchTask::Sampling(args) => sampling::run(args),
        BenchTask::Pipeline(args) => pipeline::run(args),
        BenchTask::Plan(args) => plan::run(args),
        BenchTask::Profile(args) => profile::run(args),
        BenchTask::Read(args) => read::run(args),
        BenchTask::Attribution(args) => attribution::run(args),
        BenchTask::Truth(args) => truth::run(args),
    }
}
