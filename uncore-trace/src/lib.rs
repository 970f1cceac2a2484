//! Which tenant used the fabric, when, how much, and how sure are we.
//!
//! The modules are the pipeline, in its order. Each stage takes the plain data of the one before
//! it and returns its own; none imports a later one, and what shows a recording reads its tables
//! only, so that live and recorded answers cannot disagree.
//!
//! ```text
//! discover -> plan -> open -> drain -> align + attribute -> tables -> report, check
//!                      |        |            |                |
//!                      |        |        timeline drives them over the stream
//!                      `--------`----------- record runs the whole
//! ```
//!
//! | stage | takes | gives | touches the machine |
//! |---|---|---|---|
//! | [`discover`] | a root directory | PMUs, CPUs, cgroup mounts | reads |
//! | [`plan`] | what was typed, what was found | every counter with its encoding | no |
//! | [`open`] | a plan | open counters, attached programs | changes; undone by `Drop` |
//! | [`drain`] | bytes of the ring | records | no |
//! | [`align`] | records | who used each CPU in each bin | reads names |
//! | [`attribute`] | a count and who used the CPUs | shares that sum to the count | no |
//! | [`tables`] | rows | Parquet, Arrow | writes the output |
//! | [`report`] | tables | answers | no |
//!
//! [`replay`] reads the raw tables of a recording and drives align and attribute over them again.
//!
//! [`stat`] counts a plan without attributing it; where it shows cgroups, it sums what `record`
//! streams.

pub mod discover;
pub mod plan;

pub mod open;

pub mod drain;

pub mod align;
pub mod attribute;
pub mod timeline;

pub mod tables;

pub mod replay;

pub mod report;

pub mod cmd;
pub mod doctor;
mod priority;
pub mod record;
mod signals;
pub mod stat;
pub mod text;
pub mod units;
mod workload;
