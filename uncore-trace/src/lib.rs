//! Which tenant used the fabric: uncore perf counters by PID and cgroup.

pub mod cmd {
    //! One file per subcommand.
    pub mod list;
}
pub mod discover;
pub mod plan;
pub mod text;
