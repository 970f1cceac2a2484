//! Public reports of users: what was typed on which machine, and the right value with its source.
//!
//! The machines are in `tests/fixtures/machines`.

mod amd;
pub(crate) mod causes;
mod doctor;
mod grammar;
mod guests;
mod intel;
mod intel_memory;
mod metrics;
mod numbers;
mod stat;
mod stat_as_perf;
mod terms;
