//! `cargo xtask bench ring`: how long the lock of a ring buffer is held for a record, and how long
//! CPUs wait for it on large machines.
//!
//! `__bpf_ringbuf_reserve` (kernel/bpf/ringbuf.c) takes one lock for all CPUs that share a ring.
//! The programs of `ring.bpf.c` send records without a pause (`BPF_PROG_TEST_RUN`), on one CPU
//! alone and on all at once, into one ring and into two. If `n` CPUs take `t` for a record each,
//! the lock is held for at most `t / n`, with the move of its cache lines between CPUs. They run
//! with real-time priority: a CPU that other tasks keep waiting does not compete for the lock.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::path::Path;
use std::process::{self, Command};
use std::sync::Barrier;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use aya::maps::{ArrayOfMaps, MapData, RingBuf};
use aya::programs::{SocketFilter, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use jiff::Zoned;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::stats::Summary;
use super::{machine, small};
use crate::command::run_quietly;

/// Options of `cargo xtask bench ring`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each measures every program once
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Bytes of a ring and records of a run of a program, as in `ring.bpf.c`.
const RING_BYTES: u64 = 1 << 25;
const RECORDS: u64 = 64;

/// `BPF_RINGBUF_HDR_SZ`, include/uapi/linux/bpf.h.
const HEADER: u64 = 8;

/// Records of `uncore-trace-common` and their bytes.
const SIZES: [(&str, u64); 3] =
    [("run of one task", 120), ("readings of 5 counters", 208), ("run of 16 tasks", 960)];

/// What a socket filter is run with: an Ethernet header.
const PACKET: [u8; 14] = [0; 14];

/// Measures and prints the tables.
pub(super) fn run(args: &Args) -> Result<()> {
    let cpus = allowed_cpus()?;
    ensure!(cpus.len() > 1, "CPUs that share a ring are measured: this process has one CPU only");
    let object = small::compile_program("ring")?;
    let mut chrt_command = Command::new("chrt");
    chrt_command.args(["--fifo", "--pid", "1", &process::id().to_string()]);
    run_quietly(&mut chrt_command).context("chrt is in util-linux")?;
    println!("| record | bytes | program | CPUs | ns/record, median | min-max |");
    println!("|---|---|---|---|---|---|");
    let mut hold: f64 = 0.0;
    for (record_name, size) in SIZES {
        let mut bench = RingBench::load_programs(&object, size)?;
        let lines = [
            ("empty", &cpus[..1]),
            ("shared", &cpus[..1]),
            ("grouped", &cpus[..1]),
            ("shared", &cpus[..]),
            ("grouped", &cpus[..]),
        ];
        let mut series = vec![Vec::new(); lines.len()];
        for _ in 0..args.rounds {
            for ((program, cpus), series) in lines.iter().zip(&mut series) {
                series.push(bench.measure_program(program, cpus)?);
            }
        }
        for ((program, used), series) in lines.iter().zip(series) {
            let Summary { median, min, max } = Summary::from_values(series).context("no rounds")?;
            let used = used.len();
            println!(
                "| {record_name} | {size} | {program} | {used} | {median:.0} | {min:.0}-{max:.0} |"
            );
            if used > 1 && *program == "shared" {
                hold = hold.max(median / used as f64);
            }
        }
    }
    let (date, machine) = (Zoned::now().strftime("%Y-%m-%d"), machine::describe_machine());
    println!("\n{date}, {machine}; {} interleaved rounds.", args.rounds);
    println!("\nThe lock is held for at most {hold:.0} ns.\n");
    println!("{}", wait_table(hold));
    Ok(())
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Result<Vec<u32>> {
    let allowed = sched_getaffinity(None).context("cannot ask for the CPUs of this process")?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|cpu| allowed.is_set(*cpu as usize)).collect())
}

/// The programs for records of one size.
struct RingBench {
    programs: Ebpf,
    rings: [RingBuf<MapData>; 2],
    size: u64,
}

impl RingBench {
    fn load_programs(object: &Path, size: u64) -> Result<Self> {
        let mut loader = EbpfLoader::new();
        loader.override_global("SIZE", &size, true);
        let mut programs = loader
            .load_file(object)
            .with_context(|| format!("cannot load {}", object.display()))?;
        let rings: [RingBuf<MapData>; 2] =
            [take_ring(&mut programs, "RING_0")?, take_ring(&mut programs, "RING_1")?];
        let ring_map = programs.map_mut("RINGS").context("there is no map RINGS")?;
        let mut ring_array: ArrayOfMaps<_, RingBuf<MapData>> = ring_map.try_into()?;
        for (index, ring) in (0..).zip(&rings) {
            ring_array.set(index, ring, 0).context("cannot put a ring into the array")?;
        }
        for (name, program) in programs.programs_mut() {
            let program: &mut SocketFilter =
                program.try_into().with_context(|| format!("{name} is of another type"))?;
            program.load().with_context(|| format!("the kernel refused {name}"))?;
        }
        Ok(Self { programs, rings, size })
    }

    /// Runs a program on all of `cpus` at once. Returns the ns that the slowest takes for a record.
    fn measure_program(&mut self, name: &str, cpus: &[u32]) -> Result<f64> {
        let program =
            self.programs.program(name).with_context(|| format!("there is no program {name}"))?;
        let program: &SocketFilter =
            program.try_into().with_context(|| format!("{name} is of another type"))?;
        // The records of all CPUs fit one ring, which is never filled to the last byte.
        let repeat = (RING_BYTES - 1) / (self.size + HEADER) / RECORDS / cpus.len() as u64;
        let barrier = Barrier::new(cpus.len());
        let run = |cpu: u32| -> Result<f64> {
            let mut set = CpuSet::new();
            set.set(cpu as usize);
            let moved = sched_setaffinity(None, &set);
            barrier.wait();
            moved.with_context(|| format!("cannot run on CPU {cpu}"))?;
            let options = TestRunOptions {
                data_in: Some(&PACKET),
                repeat: repeat as u32,
                ..TestRunOptions::new()
            };
            let result = program.test_run(options).context("cannot run a program")?;
            ensure!(result.return_value == 0, "a ring was full");
            Ok(result.duration.as_nanos() as f64 / RECORDS as f64)
        };
        let mut slowest: f64 = 0.0;
        thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || run(cpu))).collect();
            for thread in threads {
                let record_ns =
                    thread.join().map_err(|_panic| anyhow!("a thread ended early"))??;
                slowest = slowest.max(record_ns);
            }
            anyhow::Ok(())
        })?;
        for ring in &mut self.rings {
            while ring.next().is_some() {}
        }
        Ok(slowest)
    }
}

fn take_ring(programs: &mut Ebpf, name: &str) -> Result<RingBuf<MapData>> {
    let map = programs.take_map(name).with_context(|| format!("there is no map {name}"))?;
    map.try_into().with_context(|| format!("{name} is of another type"))
}

/// Percent of its time that each of `cpus` CPUs waits for a lock that is held for `hold` ns, if
/// each sends `records` a tick of `tick` ns, all at once and without a pause.
///
/// The lock is a queue. The first record of a CPU waits for those of half the others, each later
/// one for one of every other CPU.
fn burst_wait_percent(cpus: f64, records: f64, hold: f64, tick: f64) -> f64 {
    100.0 * (records - 0.5) * (cpus - 1.0) * hold / tick
}

/// As [`burst_wait_percent`], with records spread evenly over the tick: the wait of a queue
/// with random arrivals and constant service time (M/D/1). `None` if the lock cannot serve them.
fn spread_wait_percent(cpus: f64, records: f64, hold: f64, tick: f64) -> Option<f64> {
    let busy = cpus * records * hold / tick;
    (busy < 1.0).then(|| 100.0 * records * busy * hold / (2.0 * (1.0 - busy)) / tick)
}

/// The estimates for a tick of 1 ms, as a table.
fn wait_table(hold: f64) -> String {
    const TICK: f64 = 1e6;
    let mut lines = vec![
        "| CPUs in a ring | records a tick | lock in use | a CPU waits, all at once | spread |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for cpus in [2.0, 8.0, 16.0, 32.0, 64.0, 144.0, 352.0] {
        for records in [1.0, 2.0] {
            let busy = 100.0 * cpus * records * hold / TICK;
            let at_once = burst_wait_percent(cpus, records, hold, TICK);
            let spread = spread_wait_percent(cpus, records, hold, TICK)
                .map_or_else(|| "too many".to_owned(), |percent| format!("{percent:.3} %"));
            lines.push(format!("| {cpus} | {records} | {busy:.1} % | {at_once:.2} % | {spread} |"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three CPUs, 100 ns: the first record waits 0, 100 or 200 ns, the second one always 200.
    #[test]
    fn waits_of_a_queue() {
        let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(close(burst_wait_percent(3.0, 1.0, 100.0, 1e6), 100.0 * 100.0 / 1e6));
        assert!(close(burst_wait_percent(3.0, 2.0, 100.0, 1e6), 100.0 * 300.0 / 1e6));
        // Half in use: a wait of half the time of service.
        assert!(close(spread_wait_percent(5.0, 1.0, 100.0, 1e3).unwrap(), 100.0 * 50.0 / 1e3));
        assert_eq!(spread_wait_percent(10.0, 1.0, 100.0, 1e3), None);
    }
}
