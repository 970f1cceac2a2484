//! Domains: the last-level caches, and the socket of each.

use std::collections::BTreeMap;
use std::path::Path;

use crate::discover::Cpus;
use crate::discover::read;

/// A last-level cache whose traffic is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheDomain {
    /// The cache's id in sysfs, the number in `mon_L3_NN`.
    pub id: u32,
    /// Package of its CPUs.
    pub socket: i16,
}

/// The level-3 caches of the online CPUs below `root`, by id. Those of an unknown package are left
/// out.
pub fn domains(root: &Path, cpus: &Cpus) -> Vec<CacheDomain> {
    let mut socket_by_cache = BTreeMap::new();
    for cpu in cpus.online.iter() {
        let location = cpus.cpu_location(cpu);
        // One CPU of each cache.
        if location.cache.is_some_and(|cache| cache.first_cpu != cpu) {
            continue;
        }
        if let (Some(socket), Some(id)) = (location.package, cache_id(root, cpu)) {
            socket_by_cache.entry(id).or_insert(socket);
        }
    }
    socket_by_cache.into_iter().map(|(id, socket)| CacheDomain { id, socket }).collect()
}

/// Id of the level-3 cache of a CPU.
fn cache_id(root: &Path, cpu: u32) -> Option<u32> {
    // The index of a cache is not its level (`index3` is the level-3 cache of all CPUs that have
    // two caches of level 1, but not of others).
    (0..8).find_map(|index| {
        let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}"));
        let number = |file: &str| {
            let text = String::from_utf8(read::read_bytes(&dir.join(file)).ok()?).ok()?;
            text.trim().parse::<u32>().ok()
        };
        number("level").filter(|level| *level == 3).and_then(|_| number("id"))
    })
}
