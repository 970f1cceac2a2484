//! `cargo xtask bench`: what recording costs. One file per question.

use anyhow::Result;
use clap::Subcommand;

mod machine;
mod overhead;
mod running;
mod stats;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time a context switch under nothing, an empty program, and the recorders
    Overhead(overhead::Args),
}

/// Runs one benchmark and prints its table.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Overhead(args) => overhead::run(args),
    }
}
