//! `source`: for a counter whose hardware counts only traffic that no CPU of this machine causes,
//! or of which nothing says who causes it. CPU time says nothing about it.
//!
//! Devices get all that they cause. What is caused by another socket whose CPUs are not seen (they
//! are all offline, or belong to another system), or whose cause is unknown, is unattributed.
//!
//! # Confidence
//!
//! For a device: the part of the window in which the counter ran, since nothing is estimated.

use super::division_method::{DivisionInput, DivisionMethod};
use super::method::Method;
use super::share::Share;
use crate::catalog::source::TrafficCause;
use crate::entries::Owner;

/// The method. It learns nothing.
#[derive(Debug)]
pub(super) struct SourceMethod {
    owner: Owner,
}

impl SourceMethod {
    /// The method for a counter with this cause.
    pub(super) const fn from_cause(cause: Option<TrafficCause>) -> Self {
        match cause {
            Some(TrafficCause::Device) => Self { owner: Owner::Device },
            Some(TrafficCause::Cpu | TrafficCause::Remote) | None => {
                Self { owner: Owner::Unattributed }
            }
        }
    }
}

impl DivisionMethod for SourceMethod {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let confidence = if self.owner == Owner::Unattributed { 0.0 } else { window.running };
        (Method::Source, vec![Share::new(self.owner, window.total, confidence)])
    }
}
