//! The tests that need more than one module. `machines` plans on captured machines; the others
//! record for real on the kernel at hand, as root, and skip with a reason where they cannot.

mod machines;

mod cost;
mod exact;
mod harness;
mod names;
mod readers;
mod shares;
mod signals;
mod sums;
mod survive;
mod ticks;
