//! Which tenant used the fabric, when, how much, and how sure are we.
//!
//! The modules are the pipeline. Each stage takes the plain data of the one before it and returns its
//! own. A module imports only modules of the groups declared before its own, below; a test checks it.
//! A view reads tables only, so that live and recorded answers cannot disagree.
//!
//! ```text
//! discover -> catalog -> plan -> open -> drain -> assemble -> entries -> attribute -> tables -> view
//!                                  |       |       | identity  ^                       |  |
//!                                  |       |       |           `------- replay <-------'  |
//!                                  `-------`-------`--------- record runs the whole ------'
//! ```
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
//! | [`cut`] | recordings that follow each other | one, of a part of their time | writes the output |
//! | [`replay`] | the raw tables | the entries of the log again | no |
//! | [`view`] | tables | answers | no |
//!
//! A recording and `uncore-trace attribute` make the same `fabric`: the attributor sees entries and
//! nothing else.
//!
//! [`record`] runs the pipeline. [`stat`] counts a plan without attributing it; where it shows
//! cgroups, it sums what [`record`] attributes. [`top`] draws what it attributes. [`calibrate`] measures
//! how much memories carry. [`doctor`] says what the machine lacks, and [`cmd`] is
//! the command line. [`agent`] records without an end, as its file says ([`config`]): it keeps a ring, rolls up
//! and answers Prometheus. [`upload`] sends what it rolled up to an object store.
//! [`workload`] is the command that runs meanwhile, [`signals`] what ends a measurement, and [`confine`] gives up
//! what is not needed meanwhile.

// Groups are in the order of imports: see above.

pub mod clock;
pub mod confine;
pub mod count;
mod heap;
pub mod held;
mod priority;
pub mod signals;
pub mod terminal;
pub mod units;

pub mod text;
pub mod workload;

pub mod table;

pub mod schema;

pub mod discover;

pub mod catalog;

pub mod plan;

pub mod open;

pub mod drain;

pub mod entries;

pub mod identity;

pub mod assemble;

pub mod attribute;

pub mod tables;

pub mod cut;
pub mod replay;

pub mod view;

pub mod record;

pub mod config;

pub mod agent;
pub mod calibrate;
pub mod doctor;
pub mod stat;
pub mod top;
pub mod upload;

pub mod cmd;
