//! The hardware threads that share a core.

use std::collections::BTreeMap;

use crate::discover::cpus::CpuLocation;

/// Most threads of a core: POWER has eight. Firmware that gives all CPUs one number of a core says
/// nothing about threads.
const MAX_THREADS: usize = 8;

/// The other hardware threads of each CPU's core. It has no CPU that has a core for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreSiblings {
    by_cpu: BTreeMap<u32, Vec<u32>>,
}

/// Socket, NUMA node and number of a core, as the table `cpus` has them.
type CoreKey = (Option<i16>, Option<u32>, i32);

impl CoreSiblings {
    /// From the locations of CPUs. CPUs without a number of their core have no siblings.
    pub fn from_locations(locations: &BTreeMap<u32, CpuLocation>) -> Self {
        let mut cores: BTreeMap<CoreKey, Vec<u32>> = BTreeMap::new();
        for (cpu, location) in locations {
            if let Some(core) = location.core {
                cores.entry((location.package, location.node, core)).or_default().push(*cpu);
            }
        }
        let mut by_cpu = BTreeMap::new();
        for threads in cores.into_values().filter(|threads| threads.len() <= MAX_THREADS) {
            for cpu in &threads {
                let others: Vec<u32> =
                    threads.iter().copied().filter(|other| other != cpu).collect();
                if !others.is_empty() {
                    by_cpu.insert(*cpu, others);
                }
            }
        }
        Self { by_cpu }
    }

    /// The CPUs that share their cores, ascending.
    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_cpu.keys().copied()
    }

    /// The other threads of a CPU's core.
    pub(super) fn siblings_of(&self, cpu: u32) -> &[u32] {
        self.by_cpu.get(&cpu).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(cores: &[(Option<i16>, Option<i32>)]) -> CoreSiblings {
        let location = |(package, core): &(Option<i16>, Option<i32>)| CpuLocation {
            package: *package,
            core: *core,
            ..CpuLocation::default()
        };
        CoreSiblings::from_locations(&(0..).zip(cores.iter().map(location)).collect())
    }

    #[test]
    fn threads_of_a_core_are_siblings() {
        let core_siblings = siblings(&[
            (Some(0), Some(0)),
            (Some(0), Some(1)),
            (Some(1), Some(0)),
            (Some(0), Some(0)),
            (Some(0), None),
            (Some(0), None),
        ]);
        assert_eq!(core_siblings.siblings_of(0), [3]);
        assert_eq!(core_siblings.siblings_of(3), [0]);
        assert!([1, 2, 4, 5, 9].iter().all(|cpu| core_siblings.siblings_of(*cpu).is_empty()));
        assert_eq!(siblings(&[(Some(0), Some(0)), (Some(0), Some(1))]), CoreSiblings::default());
        // All CPUs in one core.
        assert_eq!(siblings(&[(Some(0), Some(0)); 16]), CoreSiblings::default());
    }
}
