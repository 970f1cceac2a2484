//! `exact`: a per-CPU counter of which each owner's part is known. Nothing is estimated.
//!
//! - Read at every context switch: the count between two readings belongs to the task that ran
//!   between them.
//! - At a constant rate: the parts are those of the time. A window of the counter ends with a
//!   reading some microseconds after that of the time, so a part is wrong by about as much.
//! - Context switches: [`super::switches`].
//! - Bytes of a disk or an interface: each request and packet that the programs saw belongs to its
//!   owner, and the rest to the device.
//!
//! # Confidence
//!
//! The part of the window in which the counter ran: 1 unless it was multiplexed.

use super::division_method::{DivisionInput, DivisionMethod};
use super::method::Method;
use super::share::Share;
use crate::entries::Owner;

/// For a counter that is read at every context switch.
#[derive(Debug)]
pub(super) struct ByReadings;

impl DivisionMethod for ByReadings {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        (Method::Exact, shares_of_counts(window.counts, window.factor, window.running))
    }
}

/// For a counter at a constant rate.
#[derive(Debug)]
pub(super) struct ByTime;

impl DivisionMethod for ByTime {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let counts = divide_by_time(window.raw_count(), window.time);
        (Method::Exact, shares_of_counts(&counts, window.factor, window.running))
    }
}

/// For the bytes of a disk or an interface.
#[derive(Debug)]
pub(super) struct ByRequests;

impl DivisionMethod for ByRequests {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let moved = window.io.unwrap_or_default();
        let seen: f64 = moved.iter().map(|(_, bytes)| bytes).sum();
        // The count has all bytes that were seen: see `crate::assemble`.
        let fraction = if seen > window.total { window.total / seen } else { 1.0 };
        let is_owner = |candidate: Owner| candidate != Owner::Device;
        let share = |&(owner, bytes): &(Owner, f64)| {
            let confidence = if owner == Owner::Unattributed { 0.0 } else { fraction as f32 };
            Share::new(owner, bytes * fraction, confidence * window.running)
        };
        let owners = moved.iter().filter(|(owner, bytes)| is_owner(*owner) && *bytes > 0.0);
        let mut shares: Vec<Share> = owners.map(share).collect();
        let remainder = window.total - shares.iter().map(|share| share.value).sum::<f64>();
        if remainder > window.total * 1e-12 {
            shares.push(Share::new(Owner::Device, remainder, window.running));
        }
        (Method::Exact, shares)
    }
}

/// Divides `total` raw counts in proportion to time, in whole counts: each part is the difference
/// of two rounded sums, so that they sum to it.
fn divide_by_time(total: u64, time: &[(Owner, u64)]) -> Vec<(Owner, u64)> {
    let total_ns: u64 = time.iter().map(|(_, ns)| ns).sum();
    if total_ns == 0 {
        return vec![(Owner::Unattributed, total)];
    }
    let (mut sum, mut previous_sum) = (0, 0);
    let owner_part = |&(owner, ns): &(Owner, u64)| {
        sum += ns;
        let rounded = (u128::from(total) * u128::from(sum) / u128::from(total_ns)) as u64;
        (owner, rounded - std::mem::replace(&mut previous_sum, rounded))
    };
    time.iter().map(owner_part).collect()
}

/// Turns raw counts by owner into shares. `factor` converts a raw count to the unit, including the
/// correction for multiplexing.
pub(super) fn shares_of_counts(counts: &[(Owner, u64)], factor: f64, running: f32) -> Vec<Share> {
    counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|&(owner, count)| {
            let confidence = if owner == Owner::Unattributed { 0.0 } else { running };
            Share::new(owner, count as f64 * factor, confidence)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_and_zeros_left_out() {
        let shares = shares_of_counts(&[(Owner::Idle, 0), (Owner::Irq(3), 4)], 2.5, 1.0);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].value.to_bits(), 10f64.to_bits());
    }

    #[test]
    fn counts_follow_time_and_are_whole() {
        let time = [(Owner::Idle, 2), (Owner::Irq(1), 1), (Owner::Unattributed, 3)];
        let parts = divide_by_time(7, &time);
        assert_eq!(parts, [(Owner::Idle, 2), (Owner::Irq(1), 1), (Owner::Unattributed, 4)]);
        assert_eq!(divide_by_time(u64::MAX, &time[..1]), [(Owner::Idle, u64::MAX)]);
        assert_eq!(divide_by_time(7, &[]), [(Owner::Unattributed, 7)]);
    }

    #[test]
    fn what_nobody_moved_is_the_devices() {
        let io = [(Owner::Device, 5.0), (Owner::Irq(1), 30.0), (Owner::Unattributed, 20.0)];
        let window = DivisionInput {
            total: 100.0,
            factor: 1.0,
            running: 1.0,
            sees_one_cpu: false,
            len_ns: 1,
            end_tick: 1,
            time: &[],
            counts: &[],
            io: Some(&io),
            histories: None,
        };
        let whole = |share: &Share| (share.owner, share.value as u64, share.confidence as u8);
        let shares = ByRequests.divide_window(&window).1;
        let expected =
            [(Owner::Irq(1), 30, 1), (Owner::Unattributed, 20, 0), (Owner::Device, 50, 1)];
        assert_eq!(shares.iter().map(whole).collect::<Vec<_>>(), expected);
        let less = DivisionInput { total: 10.0, ..window };
        let sum: f64 = ByRequests.divide_window(&less).1.iter().map(|share| share.value).sum();
        assert!((sum - 10.0).abs() < 1e-9);
    }

    #[test]
    fn nobody_is_told_with_confidence_but_those_who_were_seen() {
        let shares = shares_of_counts(&[(Owner::Idle, 1), (Owner::Unattributed, 1)], 1.0, 0.5);
        let told = shares.iter().map(|share| (share.owner, share.confidence));
        assert_eq!(told.collect::<Vec<_>>(), [(Owner::Idle, 0.5), (Owner::Unattributed, 0.0)]);
    }
}
