//! `cargo xtask bench hook`: the run time of the BPF program at `sched_switch`, from the kernel's
//! run time statistics, and the time of a context switch with it, compared with an empty program
//! and with ones that only read the clock or take a turn (`hook.bpf.c`).
//!
//! The workload is `perf bench sched pipe` on one CPU with real-time priority, because other tasks
//! would change the content of the caches. The statistics read a clock twice around each run; the
//! empty program shows their cost. They are off while switches are timed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::programs::BtfTracePoint;
use aya::sys::{Stats, enable_stats};
use aya::{Btf, Ebpf};
use jiff::Zoned;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::loaded::{hook_of, is_alone, run_totals};
use super::machine;
use super::overhead::{last_cpu, per_switch};
use super::running::{RecorderProcess, Running as _};
use super::small;
use super::stats::{self, Summary};
use crate::command::run_quietly;
use crate::target;

/// Options of `cargo xtask bench hook`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each measures every program once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Loops of the pipe benchmark; each is two context switches
    #[arg(
        short,
        long,
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    loops: u32,
    /// CPU the workload is pinned to [default: the last one]
    #[arg(long)]
    cpu: Option<u32>,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Time for a recorder to attach, in milliseconds
    #[arg(long, default_value_t = 3000)]
    settle: u64,
}

/// What is measured beside the workload.
enum HookVariant {
    Nothing,
    /// A program of `hook.bpf.c`.
    Small(&'static str),
    /// A recorder with these options; its own hook is measured.
    Record(&'static [&'static str]),
    /// `perf stat` with these options.
    Stat(&'static [&'static str]),
}

/// The lines of the table. The others are compared with the first two.
const VARIANTS: &[(&str, HookVariant)] = &[
    ("nothing", HookVariant::Nothing),
    ("empty program", HookVariant::Small("empty")),
    ("only `bpf_ktime_get_ns`", HookVariant::Small("clock")),
    ("only a turn at shared counters", HookVariant::Small("turn")),
    // Almost without the timer.
    (
        "`record -e page-faults --tick 10ms`",
        HookVariant::Record(&["-e", "page-faults", "--tick", "10ms"]),
    ),
    ("`record -e page-faults`", HookVariant::Record(&["-e", "page-faults"])),
    // One counter: read at ticks only, and at every switch. The next has four of them.
    ("`record -e cpu-clock`", HookVariant::Record(&["-e", "cpu-clock"])),
    (
        "`record -e cpu-clock --sample-on sched --min-gap 0`",
        HookVariant::Record(&["-e", "cpu-clock", "--sample-on", "sched", "--min-gap", "0"]),
    ),
    (
        "`record -p host --sample-on sched --min-gap 0`",
        HookVariant::Record(&["-p", "host", "--sample-on", "sched", "--min-gap", "0"]),
    ),
    ("`record -p host`", HookVariant::Record(&["-p", "host"])),
    // The counter of `-p host` that the kernel updates at each switch, without a recorder.
    ("`perf stat -a -e context-switches`", HookVariant::Stat(&["-a", "-e", "context-switches"])),
];
const BASE: usize = 0;
const EMPTY: usize = 1;

/// The tracepoint of all.
const TRACEPOINT: &str = "sched_switch";

/// Runs of the workload, of which the shortest counts.
const TRIES: usize = 3;

/// Longest wait for another recorder to end.
const PATIENCE: Duration = Duration::from_mins(2);

/// If fewer runs than this fraction of the switches were counted, another program was measured.
const LEAST_PART: f64 = 0.9;

/// One measurement.
#[derive(Clone, Copy)]
struct HookSample {
    /// Mean ns of a run of the program, if there is one.
    run: Option<f64>,
    /// Ns of a switch, without run time statistics.
    switch: f64,
}

/// What every measurement needs.
struct HookBench {
    small: Ebpf,
    bin: PathBuf,
    cpu: u32,
    loops: u32,
    settle: Duration,
}

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot watch for signals")?;
    }
    let mut bench = HookBench {
        small: load_programs(&small::compile_program("hook")?)?,
        bin: match &args.bin {
            Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
            None => target::release_binary()?,
        },
        cpu: args.cpu.map_or_else(last_cpu, Ok)?,
        loops: args.loops,
        settle: Duration::from_millis(args.settle),
    };
    let mut series = vec![Vec::new(); VARIANTS.len()];
    for round in 0..args.rounds as usize {
        for turn in 0..VARIANTS.len() {
            let index = (turn + round) % VARIANTS.len();
            let (name, measured) = &VARIANTS[index];
            let sample = bench
                .measure_variant(measured)
                .with_context(|| format!("round {}, {name}", round + 1))?;
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted: everything is removed");
            let run = sample.run.map_or_else(String::new, |ns| format!("{ns:.1} ns a run, "));
            eprintln!("round {}: {name}: {run}{:.0} ns a switch", round + 1, sample.switch);
            series[index].push(sample);
        }
    }
    print!("{}", render_table(&series)?);
    let date = Zoned::now().strftime("%Y-%m-%d");
    let (machine, rounds, loops) = (machine::describe_machine(), args.rounds, args.loops);
    println!("\n{date}, {machine}; {rounds} interleaved rounds of {loops} loops.");
    Ok(())
}

fn load_programs(object: &Path) -> Result<Ebpf> {
    let mut small =
        Ebpf::load_file(object).with_context(|| format!("cannot load {}", object.display()))?;
    let btf = Btf::from_sys_fs().context("cannot read /sys/kernel/btf/vmlinux")?;
    for (name, program) in small.programs_mut() {
        let program: &mut BtfTracePoint =
            program.try_into().with_context(|| format!("{name} is of another type"))?;
        program.load(TRACEPOINT, &btf).with_context(|| format!("the kernel refused {name}"))?;
    }
    Ok(small)
}

impl HookBench {
    fn measure_variant(&mut self, measured: &HookVariant) -> Result<HookSample> {
        match measured {
            HookVariant::Nothing => self.measure_switch(),
            HookVariant::Small(name) => self.measure_small(name),
            HookVariant::Record(options) => {
                let mut command = Command::new(&self.bin);
                command.args(["record", "-q", "-o", "run.parquet"]).args(*options);
                self.measure_beside(command, |bench, pid| bench.measure_program(hook_of(pid)?))
            }
            HookVariant::Stat(options) => {
                let mut command = Command::new("perf");
                command.arg("stat").args(*options);
                self.measure_beside(command, |bench, _| bench.measure_switch())
            }
        }
    }

    fn measure_small(&mut self, name: &str) -> Result<HookSample> {
        let program = find_program(&mut self.small, name)?;
        let link = program.attach().with_context(|| format!("cannot attach {name}"))?;
        let id = program.info().context("cannot ask for a program")?.id();
        let sample = self.measure_program(id);
        let program = find_program(&mut self.small, name)?;
        program.detach(link).with_context(|| format!("cannot detach {name}"))?;
        sample
    }

    fn measure_beside(
        &self,
        mut command: Command,
        measure: impl FnOnce(&Self, u32) -> Result<HookSample>,
    ) -> Result<HookSample> {
        let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
        command.current_dir(scratch.path());
        let recorder =
            RecorderProcess::start(command, &scratch.path().join("stderr"), self.settle)?;
        let sample = measure(self, recorder.process_id())?;
        Box::new(recorder).stop()?;
        Ok(sample)
    }

    /// Both figures of an attached program.
    fn measure_program(&self, id: u32) -> Result<HookSample> {
        measure_alone(id, || {
            let stats = enable_stats(Stats::RunTime).context("the kernel counts no run times")?;
            let runs_before = run_totals(id)?;
            self.run_pipe()?;
            let runs_after = run_totals(id)?;
            drop(stats);
            let (ns, count) = (runs_after.0 - runs_before.0, runs_after.1 - runs_before.1);
            let least_count = LEAST_PART * 2.0 * f64::from(self.loops);
            ensure!(count as f64 >= least_count, "the program ran {count} times only");
            Ok(HookSample { run: Some(ns as f64 / count as f64), switch: self.shortest_switch()? })
        })
    }

    /// The switch alone.
    fn measure_switch(&self) -> Result<HookSample> {
        measure_alone(0, || Ok(HookSample { run: None, switch: self.shortest_switch()? }))
    }

    /// The shortest switch of a few runs: other work of the machine only makes it longer.
    fn shortest_switch(&self) -> Result<f64> {
        let mut shortest = f64::MAX;
        for _ in 0..TRIES {
            shortest = shortest.min(self.run_pipe()?);
        }
        Ok(shortest)
    }

    /// Runs the workload with real-time priority; returns ns a switch.
    fn run_pipe(&self) -> Result<f64> {
        let (cpu, loops) = (self.cpu.to_string(), self.loops.to_string());
        let mut command = Command::new("chrt");
        command.args(["--fifo", "1", "taskset", "-c", &cpu]);
        command.args(["perf", "bench", "--format", "simple", "sched", "pipe", "--loop", &loops]);
        let text = run_quietly(&mut command).context("chrt and taskset are in util-linux")?;
        Ok(per_switch(&text, self.loops)? * 1e3)
    }
}

/// Measures only while no other recorder runs, before and after: its program would make every
/// switch longer, and keep the code of the clock in the caches.
fn measure_alone(own_id: u32, measure: impl Fn() -> Result<HookSample>) -> Result<HookSample> {
    let until = Instant::now() + PATIENCE;
    loop {
        if is_alone(own_id)? {
            let sample = measure()?;
            if is_alone(own_id)? {
                return Ok(sample);
            }
        }
        ensure!(Instant::now() < until, "another recorder runs");
        thread::sleep(Duration::from_millis(100));
    }
}

fn find_program<'a>(small: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint> {
    let program = small.program_mut(name).with_context(|| format!("there is no program {name}"))?;
    program.try_into().with_context(|| format!("{name} is of another type"))
}

fn render_table(series: &[Vec<HookSample>]) -> Result<String> {
    const NONE: &str = "no rounds were measured";
    let mut lines = vec![
        "| beside `perf bench sched pipe` | ns/run, median | min-max | times the empty one | \
         ns/switch, median | min-max | more than nothing | times the empty one |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let runs =
        |index: usize| series[index].iter().filter_map(|sample| sample.run).collect::<Vec<f64>>();
    let switches =
        |index: usize| series[index].iter().map(|sample| sample.switch).collect::<Vec<f64>>();
    let (empty, base, floor) = (runs(EMPTY), switches(BASE), switches(EMPTY));
    for (index, (name, _)) in VARIANTS.iter().enumerate() {
        // Writing to a String cannot fail.
        let mut line = format!("| {name} |");
        let (run, switch) = (runs(index), switches(index));
        match Summary::from_values(run.iter().copied()) {
            Some(Summary { median, min, max }) => {
                let times = run.iter().zip(&empty).map(|(run_ns, empty)| run_ns / empty);
                let times = Summary::from_values(times).context(NONE)?.median;
                let _ok = write!(line, " {median:.0} | {min:.0}-{max:.0} | {times:.2} |");
            }
            None => line.push_str("  |  |  |"),
        }
        let Summary { median, min, max } =
            Summary::from_values(switch.iter().copied()).context(NONE)?;
        let _ok = write!(line, " {median:.0} | {min:.0}-{max:.0} |");
        let switch_cost =
            (index != BASE).then(|| stats::median_difference(&switch, &base)).flatten();
        let times = (index > EMPTY).then(|| stats::floor_ratio(&switch, &floor, &base)).flatten();
        let cost_text = switch_cost.map_or_else(String::new, |cost| format!("{cost:+.0}"));
        let times = times.map_or_else(String::new, |times| format!("{times:.2}"));
        let _ok = write!(line, " {cost_text} | {times} |");
        lines.push(line);
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let sample = |index: usize| HookSample {
            run: (index > 0).then_some(20.0 + 30.0 * index as f64),
            switch: 3000.0 + 100.0 * index as f64,
        };
        let series: Vec<Vec<HookSample>> =
            (0..VARIANTS.len()).map(|index| vec![sample(index); 3]).collect();
        let text = render_table(&series).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), VARIANTS.len());
        assert_eq!(lines[0], "| nothing |  |  |  | 3000 | 3000-3000 |  |  |");
        assert_eq!(lines[1], "| empty program | 50 | 50-50 | 1.00 | 3100 | 3100-3100 | +100 |  |");
        assert!(lines[2].ends_with("| 80 | 80-80 | 1.60 | 3200 | 3200-3200 | +200 | 2.00 |"));
    }
}
