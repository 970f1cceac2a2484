//! Virtual machines, and uncore counters that any CPU of a package reads.
