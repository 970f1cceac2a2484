//! Traffic for the PMUs of a machine, and the true counts of their counters.

use anyhow::{Context as _, Result};

use super::machine::Instance;
use super::pmu::EventView;
use super::step::{Move, Truth};

/// Amounts are spread over this many values: two different sets of moves have equal sums by chance
/// about once in a million.
const SPREAD: u64 = 1 << 20;

/// One move of every event from every source to every target.
pub(super) fn all_moves(instance: &Instance) -> Vec<Move> {
    instance.pmu.events.keys().flat_map(|event| moves_of_event(instance, event)).collect()
}

/// One move of this event from every source to every target.
pub(super) fn moves_of_event(instance: &Instance, event: &str) -> Vec<Move> {
    let (Some(traffic), Some(number)) =
        (instance.pmu.traffic_of(event), instance.pmu.events.get(event))
    else {
        return Vec::new();
    };
    let mut moves = Vec::new();
    for &source in &traffic.sources {
        for &target in &traffic.targets {
            let target = number.own_target().unwrap_or(target);
            let event = number.hardware_number();
            let mut next_move = Move { device: instance.device, event, source, target, amount: 0 };
            next_move.amount = 1 + hash_move(&next_move) % SPREAD;
            moves.push(next_move);
        }
    }
    moves
}

/// A counter of an event in its first view: the event as typed, and the moves that it must count.
pub(super) fn spec_and_truth(instance: &Instance, event: &str) -> Result<(String, Truth)> {
    let resolved = instance.pmu.first_view(event).and_then(|view| {
        Some((event_spec(instance, event, view), truth_in_view(instance, event, view)?))
    });
    resolved.with_context(|| format!("{} has no event {event}", instance.model))
}

/// The moves that a counter of this event must count with the terms of a view.
pub(super) fn truth_in_view(instance: &Instance, event: &str, view: &EventView) -> Option<Truth> {
    let number = instance.pmu.events.get(event)?;
    Some(Truth {
        device: instance.device,
        event: number.hardware_number(),
        sources: view.sources.clone(),
        targets: number.seen_targets().or_else(|| view.targets.clone()),
        factor: number.count_factor(),
        ahead: instance.pmu.ahead,
    })
}

/// An event in perf's grammar.
pub(super) fn event_spec(instance: &Instance, event: &str, view: &EventView) -> String {
    let comma = if view.terms.is_empty() { "" } else { "," };
    format!("{}/{event}{comma}{}/", instance.name, view.terms)
}

/// A number that depends on every field (the finalizer of `SplitMix64`).
fn hash_move(flow: &Move) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    for field in [u64::from(flow.device), u64::from(flow.event), flow.source, flow.target] {
        hash = (hash ^ field).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
    }
    hash
}
