//! Disk space for the live part, if the size of all parts together is limited.
//!
//! Guarantee: older parts are removed before the live part exceeds the space that was free. A part
//! needs twice its size at the end: its final files are written while its segments still exist.

use crate::tables::series::Keep;

/// What a part needs beyond its rows: files without rows, and those of the next part.
const SMALL: u64 = 2 << 20;

/// A part ends when it has 1/SHARE of the total size: finishing it needs twice that, and the next
/// part grows by as much meanwhile.
const SHARE: u64 = 4;

/// The disk space of the live part.
#[derive(Debug, Default)]
pub(super) struct LivePartSpace {
    /// Bytes for which space was made; `None`: not determined yet.
    reserved: Option<u64>,
    /// Bytes needed by the part whose files are being finished.
    finishing: u64,
}

impl LivePartSpace {
    /// Given the live part's bytes on disk, returns the bytes for which space must be made, or
    /// `None` if there is enough. It asks for a quarter more than needed, so that this happens
    /// seldom.
    pub(super) fn request_space(&mut self, sealed: u64) -> Option<u64> {
        let needed = sealed.saturating_mul(2).saturating_add(self.finishing).saturating_add(SMALL);
        if self.reserved.is_some_and(|bytes| needed <= bytes) {
            return None;
        }
        self.reserved = Some(needed.saturating_add(needed / 4));
        self.reserved
    }

    /// Notes that the files of a part with this many bytes are being finished.
    pub(super) fn start_finishing(&mut self, sealed: u64) {
        self.finishing = sealed.saturating_mul(2);
    }

    /// Notes that these files are finished: the part is an old part from here on.
    pub(super) fn end_finishing(&mut self) {
        *self = Self::default();
    }
}

/// Whether a part of this size must end because a larger one would not fit.
pub(super) fn is_large(sealed: u64, keep: Option<Keep>) -> bool {
    matches!(keep, Some(Keep::Bytes(max_bytes)) if sealed >= max_bytes / SHARE)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MIB: u64 = 1 << 20;
    const ALL: u64 = 100 * MIB;

    /// Records parts that grow by `step` and end at `part` bytes or when they are large. Returns
    /// the largest total size.
    fn most(part: u64, step: u64) -> u64 {
        let (mut room, mut finished, mut most) = (LivePartSpace::default(), VecDeque::new(), 0);
        let (mut live, mut finishing): (u64, Option<u64>) = (0, None);
        for number in 0..2000 {
            // Its files are being finished while the next part grows three times.
            if number % 3 == 0
                && let Some(bytes) = finishing.take()
            {
                finished.push_back(bytes);
                room.end_finishing();
            }
            live += step;
            if let Some(room) = room.request_space(live) {
                while room + finished.iter().sum::<u64>() > ALL && finished.pop_front().is_some() {}
            }
            let doubled = finishing.map_or(0, |bytes: u64| 2 * bytes);
            most = most.max(finished.iter().sum::<u64>() + live + doubled);
            if finishing.is_none() && (live >= part || is_large(live, Some(Keep::Bytes(ALL)))) {
                room.start_finishing(live);
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
