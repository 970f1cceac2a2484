//! Loads memory with threads that read, or read and write, arrays much larger than the caches.
//!
//! The kernels are the sum of one array, which only reads, and the triad of STREAM
//! (`a[i] = b[i] + s * c[i]`; "STREAM: Sustainable Memory Bandwidth in High Performance
//! Computers"). Each thread is pinned to its CPU and writes its arrays first, so that Linux
//! allocates them on that CPU's node.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The load of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKernel {
    /// Reads one array.
    Sum,
    /// Reads two arrays and writes a third.
    Triad,
}

/// Elements between two checks whether to stop: half a millisecond at 10 GB/s.
const BLOCK: usize = 1 << 18;

/// Runs a kernel on each of these CPUs until `stop` is set. Each thread has three arrays of
/// `elements` numbers. Adds the bytes read and written to `bytes`.
///
/// # Errors
///
/// A thread cannot be pinned to its CPU.
pub(super) fn run(
    cpus: &[u32],
    elements: usize,
    kernel: StreamKernel,
    stop: &AtomicBool,
    bytes: &AtomicU64,
) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || run_on_cpu(cpu, elements, kernel, stop, bytes)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread ended early")))
        })
    })
}

fn run_on_cpu(
    cpu: u32,
    elements: usize,
    kernel: StreamKernel,
    stop: &AtomicBool,
    bytes: &AtomicU64,
) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))?;
    let (mut a, b, c) = (vec![1.0_f64; elements], vec![2.0_f64; elements], vec![0.5_f64; elements]);
    while !stop.load(Ordering::Relaxed) {
        for ((a, b), c) in a.chunks_mut(BLOCK).zip(b.chunks(BLOCK)).zip(c.chunks(BLOCK)) {
            let moved = match kernel {
                StreamKernel::Sum => {
                    black_box(sum_numbers(b));
                    8 * b.len()
                }
                StreamKernel::Triad => {
                    let scale = black_box(3.0);
                    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                        *a = b + scale * c;
                    }
                    black_box(&a);
                    24 * a.len()
                }
            };
            bytes.fetch_add(moved as u64, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

/// Uses several accumulators: with one, each addition waits for the one before (3 to 4 cycles for 8
/// bytes), which is slower than memory.
fn sum_numbers(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; 16];
    for chunk in numbers.chunks_exact(16) {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum += number;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn kernels_move_bytes_until_they_are_stopped() {
        for kernel in [StreamKernel::Sum, StreamKernel::Triad] {
            let (stop, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|scope| {
                let running = scope.spawn(|| run(&[0], 1 << 20, kernel, &stop, &bytes));
                wait_until("moved bytes", || bytes.load(Ordering::Relaxed) > 0);
                stop.store(true, Ordering::Relaxed);
                running.join().unwrap().unwrap();
            });
            assert!(bytes.load(Ordering::Relaxed) > 0);
        }
        let (stop, bytes) = (AtomicBool::new(true), AtomicU64::new(0));
        assert!(run(&[1_000_000], 16, StreamKernel::Sum, &stop, &bytes).is_err());
    }
}
