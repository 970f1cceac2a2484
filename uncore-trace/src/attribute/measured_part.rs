//! The part of a count that the hardware measured for a cgroup.

use std::sync::Arc;

/// What a cgroup and those below it have of the count of a window, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPart {
    /// Path of the cgroup.
    pub cgroup: Arc<str>,
    /// The ids of the cgroups that it is of, which no other part of the window has.
    pub cgroup_ids: Vec<u64>,
    /// The part, in the counter's unit.
    pub value: f64,
    /// The variance of its relative error.
    pub variance: f64,
}
