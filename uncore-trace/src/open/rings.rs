//! The ring buffers that the BPF programs write to.
//!
//! A ring has one lock for all CPUs that write to it (`__bpf_ringbuf_reserve`,
//! kernel/bpf/ringbuf.c), and at the end of a tick all CPUs write. So on a large machine each group
//! of CPUs has a ring.

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::maps::{ArrayOfMaps, Map, MapData, RingBuf};

use super::counters::{MapCreateAttr, create_map};

/// Most CPUs that share a ring, so that they wait for its lock for less than 1 % of a tick of 1 ms
/// (docs/cost.md).
const CPUS_OF_RING: usize = 16;

/// `BPF_MAP_TYPE_RINGBUF`, include/uapi/linux/bpf.h.
const RINGBUF: u32 = 27;

/// The smallest ring: a page of any kernel.
const LEAST_BYTES: u32 = 1 << 16;

/// Makes rings of `bytes` together, and puts the ring of each of `possible` CPUs into the map
/// `RINGS`.
pub(super) fn make_rings(
    ebpf: &mut Ebpf,
    online: &[u32],
    possible: u32,
    bytes: u32,
) -> Result<Vec<RingBuf<MapData>>> {
    let mut rings_of_cpus: ArrayOfMaps<_, _> = ebpf
        .map_mut("RINGS")
        .context("the BPF object has no map RINGS")?
        .try_into()
        .context("the BPF map RINGS is of another type")?;
    let number = ring_count(online.len()).min((bytes / LEAST_BYTES).max(1));
    let ring = || -> Result<RingBuf<MapData>> {
        let (map_type, max_entries) = (RINGBUF, bytes / number);
        let attr = MapCreateAttr { map_type, max_entries, ..MapCreateAttr::default() };
        let map = MapData::from_fd(create_map(attr)?)?;
        Ok(Map::from_map_data(map)?.try_into()?)
    };
    let rings: Vec<_> = (0..number)
        .map(|_| ring())
        .collect::<Result<_>>()
        .context("cannot make a ring buffer (a smaller --buffer needs less memory)")?;
    for cpu in 0..possible {
        if let Some(ring) = rings.get(ring_of_cpu(cpu, online, number as usize)) {
            rings_of_cpus.set(cpu, ring, 0).context("cannot write the map RINGS")?;
        }
    }
    Ok(rings)
}

/// Number of rings for `cpus` CPUs: a power of two, as the bytes of all rings and of each.
pub(super) fn ring_count(cpus: usize) -> u32 {
    (cpus.div_ceil(CPUS_OF_RING) as u32).next_power_of_two()
}

/// The ring of a CPU: neighbours share one, and each ring has the same number of CPUs that are
/// online. A CPU that is offline has the ring of those beside it.
fn ring_of_cpu(cpu: u32, online: &[u32], rings: usize) -> usize {
    let cpus_before = online.partition_point(|&online_cpu| online_cpu < cpu);
    (cpus_before * rings / online.len().max(1)).min(rings - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many CPUs write to each ring.
    fn sizes(online: impl Iterator<Item = u32>) -> Vec<usize> {
        let online: Vec<u32> = online.collect();
        let mut sizes = vec![0; ring_count(online.len()) as usize];
        let len = sizes.len();
        for &cpu in &online {
            sizes[ring_of_cpu(cpu, &online, len)] += 1;
        }
        sizes
    }

    #[test]
    fn groups_of_cpus_are_equal_and_small() {
        for cpus in [1, 2, 16] {
            assert_eq!(sizes(0..cpus), [cpus as usize]);
        }
        assert_eq!(sizes(0..17), [9, 8]);
        assert_eq!(sizes(0..144), [9; 16]);
        assert_eq!(sizes(0..352), [11; 32]);
        // Threads of each core that are offline.
        assert_eq!(sizes((0..352).step_by(2)), [11; 16]);
    }

    #[test]
    fn neighbouring_cpus_share_a_ring() {
        let online: Vec<u32> = (0..64).collect();
        assert_eq!([0, 31, 32, 63].map(|cpu| ring_of_cpu(cpu, &online, 2)), [0, 0, 1, 1]);
        // They can come later.
        assert_eq!(ring_of_cpu(1000, &online, 2), 1);
        assert_eq!(ring_of_cpu(7, &[], 1), 0);
    }
}
