//! The links to memory of a plan, and which counters count their bytes.

use foldhash::HashMap;

use super::counter::TrackedCounter;
use crate::plan::Plan;
use crate::schema::link::{Direction, MEMORY};

/// A link to the memory of a socket.
#[derive(Clone, Debug)]
pub(super) struct MemoryLink {
    /// The socket.
    pub socket: i16,
    /// Indexes of its counters, with their directions. There is at least one.
    pub members: Vec<(usize, Direction)>,
}

/// Finds the links to memory. Counters of traffic that CPUs do not cause, or whose parts are known,
/// count no bytes that tasks share.
pub(super) fn find_memory_links(plan: &Plan, tracks: &[TrackedCounter]) -> Vec<MemoryLink> {
    let is_divided = |track: &TrackedCounter| track.planned_method.is_estimate();
    let divided = tracks.iter().enumerate().filter(|(_, track)| is_divided(track));
    let index_of: HashMap<u32, usize> =
        divided.map(|(index, track)| (track.counter.id, index)).collect();
    let links = plan.links.iter().filter(|link| link.kind == MEMORY).filter_map(|link| {
        let members_with = |is_bidirectional: bool| {
            let counters = link.counters.iter();
            let matching =
                counters.filter(|member| (member.direction == Direction::Both) == is_bidirectional);
            let index = |counter: u32| index_of.get(&counter).copied();
            matching
                .filter_map(|member| Some((index(member.counter)?, member.direction)))
                .collect::<Vec<_>>()
        };
        // A counter of both directions counts the bytes of the others again.
        let single = members_with(false);
        let members = if single.is_empty() { members_with(true) } else { single };
        Some(MemoryLink { socket: link.socket.filter(|_| !members.is_empty())?, members })
    });
    links.collect()
}
