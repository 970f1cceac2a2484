//! Reads of arrays that are larger than the caches, from CPUs of their node and of another one.

#![expect(unsafe_code, reason = "no safe binding sets the memory policy")]

use std::hint::black_box;
use std::io;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::orders::{self, CanaryNode};
use crate::bounds;

/// Bytes that are read at once, between two pauses.
const CHUNK: u64 = 64 << 10;

/// Largest part of the available memory that the arrays take.
const PART_OF_MEMORY: u64 = 16;

/// Numbers in a page of the smallest size.
const PAGE: usize = 4096 / size_of::<u64>();

/// `MPOL_PREFERRED`, `include/uapi/linux/mempolicy.h` (Linux 7.2).
const PREFERRED: libc::c_long = 1;

/// The arrays, and the CPUs that read them.
#[derive(Debug)]
pub(super) struct MemoryReader {
    nodes: Vec<(CanaryNode, Array)>,
    bytes_per_s: f64,
}

#[derive(Debug)]
struct Array {
    numbers: Vec<u64>,
    /// Where the next read begins.
    next_index: usize,
}

impl MemoryReader {
    /// Fills an array on each node. The limits of the cgroup leave `free_bytes`; `None`: no limit.
    pub(super) fn new(orders: orders::MemoryOrders, free_bytes: Option<u64>) -> Result<Self> {
        let total_bytes = orders.array_bytes * orders.nodes.len() as u64;
        let available =
            available_memory().context("/proc/meminfo does not say what is available")?;
        ensure!(
            total_bytes <= available / PART_OF_MEMORY,
            "arrays larger than the caches take {} MiB, more than a sixteenth of the available \
             memory ({} MiB)",
            total_bytes >> 20,
            (available / PART_OF_MEMORY) >> 20
        );
        if let Some(room) = free_bytes {
            ensure!(
                total_bytes <= room / 2,
                "arrays larger than the caches take {} MiB, more than half of what the cgroup's \
                 limit leaves ({} MiB)",
                total_bytes >> 20,
                (room / 2) >> 20
            );
        }
        let has_choice = orders.nodes.len() > 1;
        let length = (orders.array_bytes / CHUNK).max(1) * CHUNK / size_of::<u64>() as u64;
        let mut nodes = Vec::new();
        for node in orders.nodes {
            if let Some(node) = node.node.filter(|_| has_choice) {
                prefer_node(node).with_context(|| format!("cannot use memory of node {node}"))?;
            }
            let mut numbers = vec![0_u64; length as usize];
            // Pages that were never written are one page of zeros.
            numbers.iter_mut().step_by(PAGE).for_each(|number| *number = 1);
            nodes.push((node, Array { numbers, next_index: 0 }));
        }
        Ok(Self { nodes, bytes_per_s: orders.bytes_per_s })
    }

    /// Chooses a node and one of its CPUs, moves this process there, and chooses an array. Returns
    /// the CPU, the node of the array, and the array's index.
    pub(super) fn choose_array(&self, random: &mut Rng) -> Result<(u32, Option<u32>, usize)> {
        let (near, _) = random.choice(&self.nodes).context("no node")?;
        let cpu = *random.choice(&near.cpus).context("the node has no CPU")?;
        run_on(cpu)?;
        let far = random.usize(..self.nodes.len().max(1));
        Ok((cpu, self.nodes.get(far).and_then(|(node, _)| node.node), far))
    }

    /// Number of chunks of a burst of this length.
    pub(super) fn chunks_in(&self, seconds: f64) -> u64 {
        whole_chunks(self.bytes_per_s * seconds, CHUNK)
    }

    /// Reads the next chunk of an array; returns its bytes.
    pub(super) fn read_chunk(&mut self, array_index: usize) -> u64 {
        let Some((_, array)) = self.nodes.get_mut(array_index) else { return 0 };
        let end = (array.next_index + (CHUNK as usize / size_of::<u64>())).min(array.numbers.len());
        let chunk = &array.numbers[array.next_index..end];
        black_box(chunk.iter().fold(0, |sum: u64, number| sum.wrapping_add(*number)));
        array.next_index = if end == array.numbers.len() { 0 } else { end };
        size_of_val(chunk) as u64
    }
}

/// The whole chunks in `bytes`; at least one.
pub(super) fn whole_chunks(bytes: f64, chunk: u64) -> u64 {
    ((bytes / chunk as f64) as u64).max(1)
}

/// Moves this process to a CPU.
pub(super) fn run_on(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// `MemAvailable`, bytes.
fn available_memory() -> Option<u64> {
    let text = bounds::system_text("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// New pages come from this node while it has any. Pages under this policy are not moved by
/// automatic NUMA balancing, as those under the default policy are (`mpol_misplaced`,
/// mm/mempolicy.c, Linux 7.2).
fn prefer_node(node: u32) -> io::Result<()> {
    let mut mask = [0_u64; 16];
    let word = mask.get_mut(node as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (node % 64);
    let bits = 8 * size_of_val(&mask) as libc::c_ulong;
    // SAFETY: the kernel reads `bits` bits of the mask, and changes nothing of this process but the
    // policy for its future pages.
    let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, PREFERRED, mask.as_ptr(), bits) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(array_bytes: u64) -> orders::MemoryOrders {
        let nodes = vec![CanaryNode { node: None, cpus: vec![0] }];
        orders::MemoryOrders { nodes, array_bytes, bytes_per_s: 1e9 }
    }

    #[test]
    fn an_array_is_read_from_end_to_end_again_and_again() {
        let mut memory = MemoryReader::new(orders(3 * CHUNK), Some(1 << 20)).unwrap();
        assert_eq!(memory.choose_array(&mut Rng::new()).unwrap(), (0, None, 0));
        assert_eq!(memory.chunks_in(0.01), 152);
        let mut ends = Vec::new();
        for _ in 0..4 {
            assert_eq!(memory.read_chunk(0), CHUNK);
            ends.push(memory.nodes[0].1.next_index / PAGE);
        }
        assert_eq!(ends, [16, 32, 0, 16]);
        assert_eq!(whole_chunks(10.0, CHUNK), 1);
    }

    #[test]
    fn an_array_that_memory_has_no_room_for_is_not_made() {
        let error = MemoryReader::new(orders(1 << 50), None).unwrap_err().to_string();
        assert!(error.contains("a sixteenth of the available memory"), "{error}");
        let error = MemoryReader::new(orders(1 << 20), Some(1 << 20)).unwrap_err().to_string();
        assert!(error.contains("the cgroup's limit"), "{error}");
        assert!(prefer_node(5000).is_err());
    }
}
