//! Rate of context switches.

use std::thread;
use std::time::{Duration, Instant};

use procfs::{CurrentSI as _, KernelStats};

/// How long switches are counted before a recording.
const SPAN: Duration = Duration::from_millis(200);

/// Context switches per second and CPU, averaged over `cpus` CPUs and 200 ms, from `ctxt` of
/// /proc/stat. `None` if that cannot be read.
pub fn switches_per_cpu(cpus: usize) -> Option<f64> {
    let (first_count, begin) = (count_switches()?, Instant::now());
    thread::sleep(SPAN);
    let switches = count_switches()?.saturating_sub(first_count);
    Some(switches as f64 / begin.elapsed().as_secs_f64() / cpus.max(1) as f64)
}

fn count_switches() -> Option<u64> {
    KernelStats::current().ok().map(|stats| stats.ctxt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_switches_tasks() {
        // This thread sleeps meanwhile, which alone is one switch.
        assert!(switches_per_cpu(1).unwrap() > 0.0);
    }
}
