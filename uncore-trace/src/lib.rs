//! Which tenant used the fabric, when, how much, and how sure are we.
//!
//! The modules are the pipeline, in its order. Each stage takes the plain data of the one before
//! it and returns its own; none imports a later one, and what shows a recording reads its tables
//! only, so that live and recorded answers cannot disagree.
//!
//! ```text
//! discover -> plan -> open -> drain -> timeline -> log -> attribute -> tables -> report, check
//!                      |        |         |         ^
//!                      |        |         |         `-- replay: the same entries, from tables
//!                      `--------`---------`-- record runs the whole
//! ```
//!
//! | stage | takes | gives | touches the machine |
//! |---|---|---|---|
//! | [`discover`] | a root directory | PMUs, CPUs, cgroup mounts | reads |
//! | [`plan`] | what was typed, what was found | every counter with its encoding | no |
//! | [`open`] | a plan | open counters, attached programs | changes; undone by `Drop` |
//! | [`drain`] | bytes of the ring | records | no |
//! | [`align`] | records | who used each CPU in each bin | reads names |
//! | [`timeline`] | records and bins | entries of the log, rows of the raw tables | no |
//! | [`log`] | | what an entry is | no |
//! | [`attribute`] | entries | shares that sum to each count, as rows of `fabric` | no |
//! | [`tables`] | rows | Parquet, Arrow | writes the output |
//! | [`report`] | tables | answers | no |
//!
//! [`replay`] makes the entries of a recording again from its raw tables. The attributor sees entries
//! and nothing else, so a recording and `uncore-trace attribute` make the same `fabric`.
//!
//! [`workload`] is the command that runs meanwhile, [`signals`] what ends a measurement.
//!
//! [`stat`] counts a plan without attributing it; where it shows cgroups, it sums what `record`
//! streams.

mod count;
pub mod discover;
pub mod plan;

pub mod open;

pub mod drain;

pub mod align;
pub mod log;
pub mod timeline;

pub mod attribute;

pub mod tables;

pub mod replay;

pub mod report;

pub mod cmd;
pub mod doctor;
mod priority;
pub mod record;
pub mod signals;
pub mod stat;
pub mod terminal;
pub mod text;
pub mod units;
pub mod workload;
