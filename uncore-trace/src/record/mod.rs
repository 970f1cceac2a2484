//! Recording: runs the pipeline from an open session to finished tables.
//!
//! The loop is in `recorder.rs`: `ring_feed.rs` takes records from the rings to the time line,
//! `side_sources.rs` polls what is not in the rings, and `state.rs` closes ticks.

mod accounts;
mod args;
pub mod canary;
mod child;
mod cpu_changes;
mod dry_run_needs;
mod holders;
mod live_part_space;
pub mod load;
pub mod marks;
mod metadata;
pub mod monitors;
mod open_part;
mod open_parts;
mod planned;
mod pods;
mod progress;
mod recorder;
mod relief;
mod ring_feed;
mod rotate;
mod setup;
mod side_sources;
mod state;
mod switches;
mod witness;

pub use self::args::{AtSwitch, RecordOptions, RecorderControl, Sampling, buffer_mib};
pub use self::dry_run_needs::check_options;
pub use self::metadata::own_cpu_ns;
pub use self::recorder::RecordingOutcome;
pub use self::setup::{has_raw_tables, record};
pub use self::switches::switches_per_cpu;
