//! `uncore-trace calibrate`: measures the peak bandwidth of this machine's memory with its own
//! counters.
//!
//! Threads load the memory of every socket ([`stream`]) while the recorder counts the links; the
//! highest rate over one second is kept for each. The counters include prefetches and write-backs
//! of the caches, as in any recording, so a percentage of the result compares like with like.

mod stream;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use tokio::sync::oneshot;

use self::stream::StreamKernel;
use crate::confine::{self, ThreadNeeds};
use crate::discover::Machine;
use crate::discover::calibration::MeasuredPeak;
use crate::plan::Plan;
use crate::record;
use crate::schema::fabric;
use crate::schema::link::Link;
use crate::signals::{Signals, event_loop};
use crate::tables::writer::{PieceChannel, RecordingTarget, TablePiece};
use crate::view::grouping::GroupBy;
use crate::view::links::Links;
use crate::view::live::LiveFrames;
use crate::view::live::screen::{OwnerOrder, ScreenOptions};
use crate::workload::Workload;

/// The kind of links that are loaded, as the catalog names them: memory of CPUs.
const LOADED: &str = "memory";

/// Batches of rows that may wait to be summed.
const PIECES: usize = 64;

/// Length of the span with the highest rate, ns.
const SECOND_NS: i64 = 1_000_000_000;

/// Options of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct CalibrationOptions {
    /// How long each kernel runs.
    pub length: Duration,
    /// Bytes of each thread's three arrays together.
    pub bytes: usize,
    /// Longest delay of rows after their time.
    pub late: Duration,
}

/// Highest bytes per second of a link, over one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct PeakRates {
    into: Option<f64>,
    out: Option<f64>,
    both: Option<f64>,
}

impl PeakRates {
    fn keep_highest(&mut self, into: Option<f64>, out: Option<f64>, both: Option<f64>) {
        let best = |kept: &mut Option<f64>, new: Option<f64>| {
            if new > *kept {
                *kept = new;
            }
        };
        best(&mut self.into, into);
        best(&mut self.out, out);
        // A link that is counted in one direction only has no sum.
        best(&mut self.both, both.filter(|_| into.is_some() == out.is_some()));
    }
}

/// The result, and the bytes that the kernels moved.
#[derive(Debug)]
pub struct CalibrationOutcome {
    /// The links with any traffic.
    pub links: Vec<MeasuredPeak>,
    /// Number of threads.
    pub threads: usize,
    /// Bytes per second that the kernels read and wrote on all sockets: sum, triad.
    pub asked_per_s: [f64; 2],
}

/// Loads the memories of `machine` and counts `plan`'s links.
///
/// # Errors
///
/// The plan has no links, the counters cannot be opened, nothing was counted, or a signal arrived.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    recording: &record::RecordOptions,
    options: &CalibrationOptions,
) -> Result<CalibrationOutcome> {
    ensure!(!plan.links.is_empty(), "no counter of this machine counts bytes of memory");
    let cpus = one_cpu_per_core(machine);
    let runtime = event_loop()?;
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let target = RecordingTarget::Pieces(PieceChannel { sender, tables: vec![&fabric::TABLE] });
    let (done, over) = oneshot::channel();
    let stop = AtomicBool::new(false);
    let (counted, bests, asked_per_s) = std::thread::scope(|scope| {
        let read = scope.spawn(move || {
            confine::restrict_thread(&ThreadNeeds::default());
            measure_peaks(&pieces, &plan.links)
        });
        let (stop, cpus) = (&stop, &cpus);
        let load = scope.spawn(move || {
            confine::restrict_thread(&ThreadNeeds::default());
            let [sum, triad] = [StreamKernel::Sum, StreamKernel::Triad]
                .map(|kernel| load_memory(cpus, kernel, options, stop));
            std::thread::sleep(options.late);
            // The receiver is gone if the recorder has ended.
            done.send(()).unwrap_or_default();
            Ok([sum?, triad?])
        });
        let counted = runtime.block_on(async {
            let (mut signals, mut workload) = (Signals::install()?, Workload::without_command());
            let record =
                record::record(target, machine, plan, recording, &mut workload, &mut signals);
            tokio::select! {
                ended = Box::pin(record) => {
                    stop.store(true, Ordering::Relaxed);
                    ended.and_then(|_| Err(anyhow!("a signal ended the measurement early: no \
                                                    result is saved")))
                }
                _ = over => Ok(()),
            }
        });
        let asked_per_s = load.join().unwrap_or_else(|_| Err(anyhow!("a thread ended early")));
        let bests = read.join().unwrap_or_else(|_| Err(anyhow!("a thread ended early")));
        (counted, bests, asked_per_s)
    });
    counted?;
    let (bests, asked_per_s) = (bests?, asked_per_s?);
    let detail = format!("best second of reads and of STREAM's triad, {} threads", cpus.len());
    let links: Vec<MeasuredPeak> = plan
        .links
        .iter()
        .enumerate()
        // Memory of GPUs and of CXL devices is counted too, but not loaded.
        .filter(|(_, link)| link.kind == LOADED)
        .filter_map(|(link_index, link)| {
            let best = bests.get(&link_index)?;
            let positive = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
            let [into, out, both] = [positive(best.into), positive(best.out), positive(best.both)];
            (into.is_some() || out.is_some() || both.is_some()).then(|| MeasuredPeak {
                kind: link.kind.clone(),
                socket: link.socket,
                in_per_s: into,
                out_per_s: out,
                both_per_s: both,
                detail: detail.clone(),
            })
        })
        .collect();
    ensure!(
        !links.is_empty(),
        "the memory counters counted nothing in a whole second: no result is saved"
    );
    Ok(CalibrationOutcome { links, threads: cpus.len(), asked_per_s })
}

/// One online CPU of each core: the threads of a core share its path to memory.
fn one_cpu_per_core(machine: &Machine) -> Vec<u32> {
    let mut cores = BTreeMap::new();
    for cpu in machine.cpus.online.iter() {
        let position = machine.cpus.cpu_location(cpu);
        let core = position
            .core
            .map_or((None, i64::from(cpu)), |core| (position.package, i64::from(core)));
        cores.entry((core, position.core.is_some())).or_insert(cpu);
    }
    cores.into_values().collect()
}

/// Runs a kernel for the given time. Returns the bytes per second that it moved.
fn load_memory(
    cpus: &[u32],
    kernel: StreamKernel,
    options: &CalibrationOptions,
    stop: &AtomicBool,
) -> Result<f64> {
    let bytes = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        let running =
            scope.spawn(|| stream::run(cpus, options.bytes / 24, kernel, &is_over, &bytes));
        while started.elapsed() < options.length && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if running.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        running.join().unwrap_or_else(|_| Err(anyhow!("a thread ended early")))
    })?;
    Ok(bytes.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

/// The highest second of each link, by its index.
fn measure_peaks(
    pieces: &Receiver<TablePiece>,
    links: &[Link],
) -> Result<BTreeMap<usize, PeakRates>> {
    let mut live = LiveFrames::new(Links::new(links.to_vec()), SECOND_NS);
    let mut bests: BTreeMap<usize, PeakRates> = BTreeMap::new();
    let ask = ScreenOptions {
        grouping: GroupBy::Cgroup,
        watched_index: 0,
        filter: "",
        within: None,
        order: OwnerOrder::Share,
    };
    for piece in pieces {
        let TablePiece::Rows(_, rows) = piece else { continue };
        if live.add_fabric(&rows)? {
            for (link_index, line) in live.last_screen(&ask).links.into_iter().enumerate() {
                let best = bests.entry(link_index).or_default();
                best.keep_highest(line.in_per_s, line.out_per_s, line.per_s);
            }
        }
    }
    Ok(bests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_each_way_is_kept() {
        let mut best = PeakRates::default();
        best.keep_highest(Some(5.0), Some(1.0), Some(6.0));
        best.keep_highest(Some(3.0), Some(4.0), Some(7.0));
        best.keep_highest(None, Some(2.0), Some(9.0));
        assert_eq!(best, PeakRates { into: Some(5.0), out: Some(4.0), both: Some(7.0) });
        let mut best = PeakRates::default();
        best.keep_highest(None, None, Some(8.0));
        assert_eq!(best, PeakRates { into: None, out: None, both: Some(8.0) });
    }

    #[test]
    fn a_core_has_one_thread() {
        let machine = crate::discover::captured_machine("sapphire-rapids-2s");
        let cpus = one_cpu_per_core(&machine);
        assert!(cpus.len() <= machine.cpus.online.iter().count());
        assert!(!cpus.is_empty());
    }
}
