//! Domains: the last-level caches, and the socket of each.

use std::collections::BTreeMap;
use std::path::Path;

use crate::discover::Cpus;
use crate::discover::read;

/// A last-level cache whose traffic is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// The cache's id in sysfs, the number in `mon_L3_NN`.
    pub id: u32,
    /// Package of its CPUs.
    pub socket: i16,
}

/// The level-3 caches of the online CPUs below `root`, by id. Those of an unknown package are left
/// out.
pub fn domains(root: &Path, cpus: &Cpus) -> Vec<Domain> {
    let mut found = BTreeMap::new();
    for cpu in cpus.online.iter() {
        let place = cpus.place(cpu);
        // One CPU of each cache.
        if place.cache.is_some_and(|cache| cache.first != cpu) {
            continue;
        }
        if let (Some(socket), Some(id)) = (place.package, cache_id(root, cpu)) {
            found.entry(id).or_insert(socket);
        }
    }
    found.into_iter().map(|(id, socket)| Domain { id, socket }).collect()
}

/// Id of the level-3 cache of a CPU.
fn cache_id(root: &Path, cpu: u32) -> Option<u32> {
    // The index of a cache is not its level (`index3` is the level-3 cache of all CPUs that have
    // two caches of level 1, but not of others).
    (0..8).find_map(|index| {
        let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}"));
        let number = |file: &str| {
            let text = String::from_utf8(read::bytes(&dir.join(file)).ok()?).ok()?;
            text.trim().parse::<u32>().ok()
        };
        number("level").filter(|level| *level == 3).and_then(|_| number("id"))
    })
}
