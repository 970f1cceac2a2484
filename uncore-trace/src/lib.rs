//! Which tenant used the fabric, when, how much, and how sure are we.
//!
//! The modules are stages of a pipeline. Each stage takes plain data of the one before it and
//! returns its own. A module imports only modules of groups that are declared before its own,
//! below, and those of [`uncore_trace_recording`]; a test checks it. A view reads only tables, so
//! that live and recorded answers agree.
//!
//! ```text
//! discover -> catalog -> plan -> open -> drain -> assemble -> entries -> attribute -> tables -> view
//!                                  |       |       | identity  ^                       |  |
//!                                  |       |       |           `------- replay <-------'  |
//!                                  `-------`-------`--------- record runs the whole ------'
//! ```
//!
//! `schema`, `tables`, `config` and the small modules below them are of
//! [`uncore_trace_recording`], and re-exported here.
//!
//! | module | takes | gives | touches the machine |
//! |---|---|---|---|
//! | [`schema`] | | what a recording holds: tables, columns, metadata | no |
//! | [`discover`] | a root directory | PMUs, CPUs, cgroup mounts | reads |
//! | [`catalog`] | TOML files | PMU families, events, metrics | reads overlays |
//! | [`plan`] | what was typed, what was found | every counter with its encoding | no |
//! | [`open`] | a plan | open counters, attached programs | changes; undone by `Drop` |
//! | [`drain`] | bytes of the ring | records | no |
//! | [`entries`] | | what an entry is | no |
//! | [`identity`] | ids of tasks, cgroups, interrupts | their names | reads |
//! | [`assemble`] | records, names | entries of the log, rows of the raw tables | no |
//! | [`attribute`] | entries | shares that sum to each count, as rows of `fabric` | no |
//! | [`tables`] | rows | Parquet, Arrow | writes the output |
//! | [`cut`] | consecutive recordings | one recording of a part of their time | writes the output |
//! | [`replay`] | the raw tables | the entries of the log again | no |
//! | [`view`] | tables | answers | no |
//!
//! `record` and `uncore-trace attribute` make the same `fabric`, because entries are the
//! attributor's only input.
//!
//! [`record`] runs the pipeline. [`stat`] counts a plan without attributing it; for cgroups, it
//! sums the shares that [`record`] makes. [`top`] draws these shares. [`calibrate`] measures the
//! bandwidth of memory. [`doctor`] says what the machine lacks. [`cmd`] is the command line.
//! [`agent`] records continuously, as a configuration file says ([`config`]): it keeps a ring,
//! makes roll-ups and serves metrics; the package `uncore-trace-upload` sends these to an object
//! store. [`workload`] is the command that runs during a measurement, [`signals`] are the signals
//! that end one, and [`confine`] gives up privileges that are not needed during one.

// The groups are in the order of imports: see above.

use uncore_trace_recording::priority;
pub use uncore_trace_recording::{
    bounds, choice, cli, clock, config, confine, count, held_messages, otlp, protobuf, schema,
    signals, suggest, table, tables, terminal, text, units,
};

pub mod workload;

pub mod discover;

pub mod catalog;

pub mod plan;

pub mod open;

pub mod drain;

pub mod entries;

pub mod identity;

pub mod assemble;

pub mod attribute;

pub mod cut;
pub mod replay;

pub mod view;

pub mod record;

pub mod agent;
pub mod calibrate;
pub mod doctor;
pub mod stat;
pub mod top;

pub mod cmd;

#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../tests/skip.rs"]
mod skip;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../tests/wait.rs"]
mod wait;
