//! The only stage that changes the machine.
//!
//! [`Session::open`] opens the counters of a plan, loads the BPF programs and attaches them.
//! Dropping the session undoes all of it. Nothing is pinned and no sysctl is changed, so a recorder
//! that is killed leaves nothing behind: the kernel closes its descriptors.

mod barrier;
mod btf;
mod counters;
mod drops;
mod holders;
mod hotplug;
mod io;
mod limits;
mod online;
mod open_counter;
mod options;
mod perf;
mod plain_counters;
mod pmu;
mod privileges;
mod programs;
mod rings;
mod run_on_cpu;
mod sampler;
mod session;
mod shared_counters;
mod statistics;
mod verifier;
mod visit;
mod witness;

use anyhow::Result;

pub use self::barrier::{Barrier, Call, barrier_to_call};
pub use self::btf::{KernelTypes, MAKE, find_elsewhere};
use self::counters::CounterArray;
pub use self::drops::DropCounts;
pub use self::holders::OpenFiles;
pub use self::hotplug::{CpuSetChange, PlacementHints, StopCause, Stopped};
pub use self::limits::{LEAST_MEMORY, files_needed};
pub use self::online::{OnlineCpus, online_cpus};
pub use self::open_counter::{Layout, PlacedCounter, try_counter};
pub use self::options::{SessionOptions, Timer};
pub use self::plain_counters::Counting;
pub use self::privileges::Privileges;
pub use self::session::{Session, Unopened};
pub use self::statistics::{DeviceStatistics, StatisticsSample};
pub use self::verifier::{
    MOST_INSTRUCTIONS, VerifiedProgram, VerifierEffort, try_program, verify_programs,
};
pub use self::witness::HookMeter;

/// What a user can do on a machine where nothing can be recorded; a part of its errors.
const SAMPLE: &str = "to try a report: `uncore-trace report samples/grace`";

/// The error of an act that takes the system call bpf.
fn bpf_refusal(act: &str, error: &(dyn std::error::Error + 'static)) -> String {
    match barrier::barrier_in(Call::Bpf, error) {
        Some(barrier) => format!("{act} ({barrier}; see `uncore-trace doctor`; {SAMPLE})"),
        None => act.to_owned(),
    }
}

/// A perf event array with this many slots, for the counters of a recording.
fn make_counter_array(slots: u32) -> Result<CounterArray> {
    CounterArray::create(slots).map_err(|error| {
        let act = bpf_refusal("cannot make the perf event array", &error);
        anyhow::Error::new(error).context(act)
    })
}
