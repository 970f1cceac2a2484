//! Free space on the disk of the ring, which the roll-up mostly shares: the oldest parts of the
//! ring are removed before the reserve is used up, whoever uses it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::figures::read_disk;
use crate::config::RingConfig;
use crate::record::RecorderControl;
use crate::tables::series;

/// The reserve, if the configuration names none: the size of the disk divided by this, but at most
const RESERVE_DIVISOR: u64 = 20;
const MOST: u64 = 1 << 30;

/// A file system may free the space of removed files only after a while.
const PAUSE: Duration = Duration::from_secs(5);

/// Interval between looks at the disk.
const LOOK: Duration = Duration::from_secs(1);

/// The ring, and the space that it leaves free.
#[derive(Debug)]
pub(super) struct RingReserve {
    ring: PathBuf,
    reserve: Option<u64>,
    /// No look at the disk before this time.
    next_look: Option<Instant>,
    control: RecorderControl,
}

impl RingReserve {
    pub(super) fn new(ring: &RingConfig, control: RecorderControl) -> Self {
        Self { ring: ring.directory.clone(), reserve: ring.reserve, next_look: None, control }
    }

    /// Removes the oldest parts if less than the reserve is free. Without a finished part the live
    /// one ends, so that it can be removed next.
    pub(super) fn free_reserve(&mut self) {
        let checked_at = Instant::now();
        if self.next_look.is_some_and(|earliest| checked_at < earliest) {
            return;
        }
        self.next_look = checked_at.checked_add(LOOK);
        let Some(lacking) = missing_reserve(&self.ring, self.reserve) else { return };
        self.next_look = checked_at.checked_add(PAUSE);
        let (mut removed_parts, mut removed_bytes) = (0, 0);
        while removed_bytes < lacking {
            match series::remove_oldest(&self.ring) {
                Ok(Some(size)) => {
                    (removed_parts, removed_bytes) = (removed_parts + 1, removed_bytes + size);
                }
                Ok(None) => {
                    self.control.end_part();
                    break;
                }
                Err(error) => {
                    log::warn!(
                        "cannot remove an old part of the ring to keep ring.reserve free: \
                                {error:#}"
                    );
                    break;
                }
            }
        }
        if removed_parts > 0 {
            log::warn!(
                "less than ring.reserve is free on the disk of {}: the {removed_parts} oldest \
                 parts were removed",
                self.ring.display()
            );
        }
    }
}

/// Bytes that lack from the reserve, if any do.
fn missing_reserve(ring: &Path, reserve: Option<u64>) -> Option<u64> {
    let disk = read_disk("ring", ring)?;
    let reserve = reserve.unwrap_or_else(|| MOST.min(disk.size_bytes / RESERVE_DIVISOR));
    reserve.checked_sub(disk.free_bytes).filter(|lacks| *lacks > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_oldest_parts_go_until_the_reserve_is_free() {
        let place = tempfile::tempdir().unwrap();
        for part in 1..4 {
            fs::create_dir(place.path().join(format!("{part:08}"))).unwrap();
            fs::write(place.path().join(format!("{part:08}/x")), [0; 1000]).unwrap();
        }
        fs::create_dir(place.path().join("kept")).unwrap();
        let names = || {
            let entries = fs::read_dir(place.path()).unwrap().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let shown = place.path().display();
        let room = |reserve: u64| {
            let text = format!("[ring]\ndirectory = '{shown}'\nreserve = '{reserve}B'\n");
            let ring = Config::parse(&text).unwrap().ring.unwrap();
            RingReserve::new(&ring, RecorderControl::default())
        };
        room(1).free_reserve();
        assert_eq!(names().len(), 4);
        // More than all of them have.
        let free = read_disk("ring", place.path()).unwrap().free_bytes;
        let mut room = room(free + (1 << 40));
        room.free_reserve();
        assert_eq!(names(), ["kept"]);
        assert!(room.control.take_end_part(), "the live part is the oldest");
        room.free_reserve();
        assert!(!room.control.take_end_part(), "not at once again");
    }
}
