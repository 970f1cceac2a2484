//! Counts a plan without attributing it, with the habits of `perf stat`.
//!
//! Counters are opened by [`crate::open`] and read with read(2): no BPF program, no table. The
//! parts are plain stages: [`count`] makes differences of readings, [`aggregate`] and [`metrics`]
//! rows of differences, [`table`] all rows of a plan, [`repeat`] one set of rows of several runs,
//! [`text`], [`csv`] and [`json`] print
//! rows; [`run`] is the loop around them. `--for-each-cgroup` is the exception: a fabric counter
//! has no cgroup, so [`attributed`] takes the recorder's shares and adds them up.

pub mod aggregate;
pub mod attributed;
pub mod cgroups;
pub mod control;
pub mod count;
pub mod csv;
pub mod json;
pub mod metrics;
pub mod output;
pub mod parts;
pub mod repeat;
pub mod row;
pub mod run;
pub mod table;
pub mod text;
