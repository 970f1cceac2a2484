//! Records: runs the pipeline from an open session to finished tables.

mod args;
mod child;
mod metadata;
mod progress;
mod recorder;

pub use self::{
    args::{Options, Sampling, parse_duration, tick_and_interval},
    recorder::{Outcome, record},
};
