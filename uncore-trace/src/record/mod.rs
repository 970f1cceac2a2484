//! Records: runs the pipeline from an open session to finished tables.

mod args;
mod metadata;
mod progress;
mod recorder;

pub use self::args::{Options, Sampling, buffer_mib, default_tick, parse_duration};
pub use self::recorder::{Outcome, has_raw_tables, record};
