//! Records: runs the pipeline from an open session to finished tables.

mod args;
mod metadata;
mod planned;
mod progress;
mod recorder;
mod switches;
mod witness;

pub use self::args::{AtSwitch, Options, Sampling, buffer_mib, default_tick, parse_duration};
pub use self::recorder::{Outcome, has_raw_tables, record};
pub use self::switches::switches_per_cpu;
