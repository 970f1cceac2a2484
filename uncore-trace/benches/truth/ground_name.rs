//! The names of grounds. `ground.rs` says what is drawn for each. `xtask` includes this file for
//! its option `--ground`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is true of a drawn machine that the model does not know or expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ground {
    /// Nothing
    #[default]
    Base,
    /// CPUs share cores, which costs nothing
    FreeSiblings,
    /// A busy sibling costs 45 % of the bytes
    Hyperthreads,
    /// A link at its limit, 1.15 times the mean demand
    FullLink,
    /// All tenants change phase together
    Phases,
    /// Three tenants in ten run once in 5 s, at the same time
    Cron,
    /// 60 % of the bytes of four tenants in ten come 5 ms to 4 s late
    Late,
    /// One tenant in eight hardly runs, and its devices move much
    Devices,
    /// Rates have a Pareto distribution
    Pareto,
    /// One tenant of each socket moves 60 % of the bytes
    Dominant,
    /// Tenants run in step, in groups of six
    Replicas,
}
