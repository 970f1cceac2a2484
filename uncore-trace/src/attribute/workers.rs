//! Work that is spread over threads. Results do not depend on their number.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

use crate::priority;

/// A thread for each number of CPUs like this, at least one: dividing for a machine takes some
/// hundredths of it (docs/cost-scale.md).
const CPUS: usize = 16;

/// The number of threads for a live recording on this machine.
pub fn live_threads() -> usize {
    available_threads().div_ceil(CPUS)
}

/// The number of threads for dividing a recording again: one for each CPU.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does `work` for each of `jobs` on at most `threads` threads, this one included. The others have
/// the priority of the tenants.
pub(super) fn run_jobs<J: Send>(threads: usize, jobs: &mut [J], work: impl Fn(&mut J) + Sync) {
    let threads = threads.min(jobs.len());
    let remaining = Mutex::new(jobs.iter_mut());
    let next_job = || remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
    let do_jobs = || {
        while let Some(job) = next_job() {
            work(job);
        }
    };
    scope(|scope| {
        for _ in 1..threads {
            let started = Builder::new().name("learn".to_owned()).spawn_scoped(scope, || {
                priority::lower();
                do_jobs();
            });
            // The threads that there are do all jobs.
            if let Err(error) = started {
                log::info!("cannot start a thread that divides counts: {error}");
                break;
            }
        }
        do_jobs();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once() {
        for threads in [0, 1, 3, 8, 100] {
            let mut jobs: Vec<u32> = (0..17).collect();
            run_jobs(threads, &mut jobs, |job| *job += 100);
            assert_eq!(jobs, (100..117).collect::<Vec<_>>(), "{threads}");
        }
        run_jobs(4, &mut Vec::<u32>::new(), |_| panic!("there is no job"));
    }
}
