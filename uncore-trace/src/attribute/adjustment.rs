//! What a stage changes in the shares of a window after its counter's method has divided it.
//!
//! A stage knows what it will change when a window is closed, but the window may wait for later
//! ticks before it is divided, on any thread. So the change goes with the window.

use std::fmt::Debug;

use super::measured_part::MeasuredPart;
use super::method::Method;
use super::owner_names::OwnerNames;
use super::share::Share;
use crate::entries::Owner;

/// A window of a counter that its method has divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdjustedWindow<'a> {
    /// How its shares were made.
    pub method: Method,
    /// The count in the counter's unit; 0 if the counter never ran.
    pub total: f64,
    /// Time running / time enabled, 0 to 1.
    pub running: f32,
    /// The names of owners.
    pub names: &'a OwnerNames,
}

/// A change of the shares of one window.
pub(super) trait ShareAdjustment: Debug + Send {
    /// What was measured of the window's count `total`, from which the method can learn. `users`
    /// are the owners that used the counter's CPUs.
    fn measured_parts(
        &self,
        _total: f64,
        _users: &[(Owner, u64)],
        _names: &OwnerNames,
    ) -> Vec<MeasuredPart> {
        Vec::new()
    }

    /// Changes the shares. They sum to the same total before and after.
    fn adjust_shares(&self, window: &AdjustedWindow<'_>, shares: &mut Vec<Share>);
}
