//! The tests that need more than one module. `machines`, `amd`, `devices`, `golden`, `misses`, `traps` and
//! `vendor` plan on captured machines, `cli` types what is wrong and `recording` what is right into the real binary, `docs`
//! compares the documents with the code; the others record for real on the kernel at hand, as root, and
//! skip with a reason where they cannot.

mod amd;
mod attribute;
mod ci;
mod cli;
mod command;
mod containers;
mod cost;
mod devices;
mod docs;
mod doctor;
mod exact;
mod golden;
mod harness;
mod hotplug;
mod io;
mod lifecycle;
mod machines;
mod metrics;
mod misses;
mod names;
mod output;
mod perf_stat;
mod platforms;
mod readers;
mod recording;
mod shares;
mod signals;
mod skip;
mod stat;
mod structure;
mod sums;
mod survive;
mod terminal;
mod ticks;
mod traps;
mod vendor;
mod witness;
