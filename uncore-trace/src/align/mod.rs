//! Stage 5a, ALIGN: puts what the CPUs told, each in its own order, on one time line of equal
//! bins. Pure functions over raw records, but for the names that only the machine can tell.

pub mod cgroups;
pub mod clock;
pub mod containers;
pub mod cpu;
pub mod io;
pub mod names;
pub mod runtimes;
