//! A window of one counter: its count with the use of its CPUs and devices, and how it was divided.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;

use super::adjustment::ShareAdjustment;
use super::method::Method;
use super::share::Share;
use super::{cgroups, grid, small_shares};
use crate::count::Count;
use crate::entries::{DeviceTransfer, Owner};

/// A window of a counter that ended with a reading: the count, and the use of its CPUs and devices.
/// A method gets it as a [`DivisionInput`](super::division_method::DivisionInput).
#[derive(Debug)]
pub(super) struct UndividedWindow {
    /// The tick at which it began.
    pub begin_tick: u64,
    /// The count.
    pub delta: Count,
    /// Nanoseconds by owner, sorted.
    pub time: Arc<[(Owner, u64)]>,
    /// Raw counts by owner, sorted, if they are known: see
    /// [`DivisionInput::counts`](super::division_method::DivisionInput::counts).
    pub counts: Vec<(Owner, u64)>,
    /// Bytes by owner on the devices below it, sorted.
    pub io: Vec<(Owner, f64)>,
    /// How the stages adjust its shares, in this order.
    pub adjustments: Vec<Box<dyn ShareAdjustment>>,
}

impl UndividedWindow {
    /// Keeps this fraction, 0 to 1, of the bytes moved on its devices. The rest belongs to other
    /// counters.
    pub(super) fn scale_io(&mut self, fraction: f64) {
        for (_, bytes) in &mut self.io {
            *bytes *= fraction;
        }
    }

    /// Adds a change of its shares, which is made after those that were added before.
    pub(super) fn add_adjustment(&mut self, adjustment: impl ShareAdjustment + 'static) {
        self.adjustments.push(Box::new(adjustment));
    }
}

/// A window of a counter, divided. If the recording ended without a reading, it has no shares.
#[derive(Debug)]
pub(super) struct DividedWindow {
    /// The tick at which it began.
    pub begin_tick: u64,
    /// The tick at which it ended.
    pub end_tick: u64,
    /// The count in the counter's unit; `None` if the counter was not read or never ran.
    pub total: Option<f64>,
    /// Time running / time enabled, 0 to 1.
    pub running: f32,
    /// How the shares were made.
    pub method: Method,
    /// The shares of the total; empty if there is nothing to divide.
    pub shares: Vec<Share>,
}

/// What the log says of a window that ends.
#[derive(Debug)]
pub(super) struct ClosingWindow<'a> {
    /// The tick at which it ends.
    pub tick: u64,
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Length of the window, ns.
    pub length_ns: u64,
    /// Whether the recording ends with it.
    pub is_last: bool,
    /// Bytes that devices moved in it, by device, direction and owner.
    pub moved: &'a [DeviceTransfer],
    /// Context switches by CPU and owner.
    pub switches: &'a BTreeMap<u32, HashMap<Owner, u64>>,
}

impl DividedWindow {
    /// Whether its shares are estimates, which are rounded.
    pub(super) const fn is_estimate(&self) -> bool {
        self.method.is_estimate()
    }

    /// Makes its shares what its rows say: unites small shares, gives each cgroup one lasting confidence,
    /// and rounds.
    pub(super) fn finish_shares(&mut self, large: Option<&small_shares::LargeOwners>) {
        let is_estimate = self.is_estimate();
        let shares = &mut self.shares;
        if let Some(large) = large {
            small_shares::unite_small(large, shares);
        }
        cgroups::unite_lasting(shares);
        if is_estimate {
            grid::round_shares(self.total.unwrap_or_default(), shares);
            for share in shares {
                share.confidence = grid::round_to_hundredths(share.confidence);
                share.lasting = grid::round_to_hundredths(share.lasting);
            }
        }
    }
}
