//! `uncore-trace stat`: counts a plan without recording, in the way of `perf stat`.
//!
//! Counters are opened by [`crate::open`] and read with read(2), without a BPF program or tables.
//! [`count`] computes differences of readings, [`aggregate`] and [`metrics`] make rows of them,
//! [`table`] makes all rows of a plan, [`repeat`] averages the rows of several runs, and [`text`],
//! [`csv`] and [`json`] print rows. [`run`] is the loop around them. `--for-each-cgroup` is an
//! exception: the kernel refuses fabric counters in a cgroup context, so [`attributed`] sums the
//! shares of the recorder.

pub mod aggregate;
pub mod attributed;
pub mod cgroup_rows;
pub mod cgroups;
pub mod control;
pub mod count;
pub mod csv;
pub mod json;
pub mod metrics;
pub mod options;
pub mod output;
pub mod repeat;
pub mod row;
pub mod run;
pub mod table;
pub mod text;
