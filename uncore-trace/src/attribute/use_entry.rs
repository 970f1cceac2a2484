//! The use of a source in a tick.

/// The use of a source in a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseEntry {
    /// Number of the source.
    pub source: u32,
    /// The slot of its column.
    pub slot: u16,
    /// The amount; time beside a busy sibling counts as [`super::sibling_cost`] says.
    pub amount: f32,
    /// The time of it in which a sibling thread was busy, in ticks of one CPU.
    pub beside_busy: f32,
}
