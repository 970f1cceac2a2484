//! The use by slot in a tick: the rows of the design matrix.

use std::sync::Arc;

/// The use of a slot in a tick, or its mean over some.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotAmount {
    /// The slot.
    pub slot: u16,
    /// The amount.
    pub amount: f32,
}

/// The use in a tick, or its mean over some, by slot, ascending.
pub(super) type UseRow = Arc<[SlotAmount]>;

/// A row that is multiplied by a factor.
#[derive(Clone, Debug)]
pub(super) struct ScaledRow {
    /// The row.
    pub row: UseRow,
    /// The factor.
    pub factor: f64,
}
