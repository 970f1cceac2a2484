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
    /// Time context switches and requests under nothing, an empty program, and the recorders
    Overhead(overhead::Args),
    /// Time the BPF program at `sched_switch` itself
    Hook(hook::Args),
    /// Time how records are sent by several CPUs at once, and say what that costs on large machines
    Ring(ring::Args),
    /// Hold the recorder's own CPU time against that of perf stat, and say how late its readings
    /// are
    Sampling(sampling::Args),
    /// Time how records become files, and measure the memory, for machines of many sizes
    Pipeline(pipeline::Args),
    /// Time what is done before a recording begins, on machines of 2 to 32 sockets
    Plan(plan::Args),
    /// Say where the recorder's own time goes
    Profile(profile::Args),
    /// Time how recordings are read beside `DuckDB`, and measure the memory of both
    Read(read::Args),
    /// Hold what each method says of mixes of tenants in the lab against what they moved
    Attribution(attribution::Args),
    /// Hold what methods say of large machines, drawn at random, against what was moved, with the
    /// cost
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
