//! Which tenant used the fabric: uncore perf counters by PID and cgroup, as Arrow and Parquet.

pub mod cmd;
pub mod doctor;
pub mod report;
pub mod tables;
pub mod text;
