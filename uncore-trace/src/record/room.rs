//! Room on the disk for the part that is recorded, where all parts have so many bytes together at most.
//!
//! Guarantee: before a part has more bytes than there was room for, older parts are removed. A part needs twice
//! its bytes in the end: its files are made of what is on disk, which is removed after that.

use crate::tables::series::Keep;

/// What a part may have more than its rows: files without rows, and those of the part that follows it.
const SMALL: u64 = 2 << 20;

/// A part is ended when this part of all bytes is its own: twice that, and as much while the next one grows.
const SHARE: u64 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What there is room for; `None`: not looked at.
    has: Option<u64>,
    /// What the part needs whose files are being finished.
    finishing: u64,
}

impl Room {
    /// The part that is recorded has so many bytes on disk. Returns what room is to be made, if there is not
    /// enough: a quarter more, so that this is seldom.
    pub(super) fn make(&mut self, sealed: u64) -> Option<u64> {
        let needed = sealed.saturating_mul(2).saturating_add(self.finishing).saturating_add(SMALL);
        if self.has.is_some_and(|has| needed <= has) {
            return None;
        }
        let room = needed.saturating_add(needed / 4);
        self.has = Some(room);
        self.has
    }

    /// The files of a part with so many bytes are being finished.
    pub(super) fn finishes(&mut self, sealed: u64) {
        self.finishing = sealed.saturating_mul(2);
    }

    /// They are finished: it counts as the others from here on.
    pub(super) fn is_finished(&mut self) {
        *self = Self::default();
    }
}

/// Whether a part of so many bytes is to end, as there is no room for a larger one.
pub(super) fn is_large(sealed: u64, keep: Option<Keep>) -> bool {
    matches!(keep, Some(Keep::Bytes(all)) if sealed >= all / SHARE)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MIB: u64 = 1 << 20;
    const ALL: u64 = 100 * MIB;

    /// Records parts that grow by `step` and end with `part` bytes or when they are large. Returns the most bytes
    /// that there were.
    fn most(part: u64, step: u64) -> u64 {
        let (mut room, mut finished, mut most) = (Room::default(), VecDeque::new(), 0);
        let (mut live, mut finishing): (u64, Option<u64>) = (0, None);
        for number in 0..2000 {
            // Its files are finished while the next part grows three times.
            if number % 3 == 0
                && let Some(bytes) = finishing.take()
            {
                finished.push_back(bytes);
                room.is_finished();
            }
            live += step;
            if let Some(room) = room.make(live) {
                while room + finished.iter().sum::<u64>() > ALL && finished.pop_front().is_some() {}
            }
            let doubled = finishing.map_or(0, |bytes: u64| 2 * bytes);
            most = most.max(finished.iter().sum::<u64>() + live + doubled);
            if finishing.is_none() && (live >= part || is_large(live, Some(Keep::Bytes(ALL)))) {
                room.finishes(live);
                finishing = Some(std::mem::take(&mut live));
            }
        }
        most
    }

    #[test]
    fn all_parts_have_never_more_bytes_than_they_may() {
        for (part, step) in
            [(25 * MIB, MIB), (5 * MIB, 3 * MIB), (200 * MIB, 2 * MIB), (MIB, MIB / 4)]
        {
            let found = most(part, step);
            assert!(found <= ALL && found > ALL / 2, "{part} by {step}: {found}");
        }
    }

    #[test]
    fn only_bytes_make_a_part_large() {
        assert!(is_large(25, Some(Keep::Bytes(100))));
        assert!(!is_large(24, Some(Keep::Bytes(100))));
        assert!(!is_large(1000, Some(Keep::Parts(1))) && !is_large(1000, None));
    }
}
