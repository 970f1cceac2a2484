//! `cargo xtask bench hook`: what a run of the BPF program at `sched_switch` takes, by the kernel's run
//! time statistics, beside small programs that keep what ran in other ways (`hook.bpf.c`).
//!
//! The workload is `perf bench sched pipe` on one CPU. It has real-time priority there: whatever else
//! runs would change what is in the caches. The statistics are two readings of a clock around each run;
//! the empty program shows what they take.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::RingBuf;
use aya::programs::{BtfTracePoint, loaded_programs};
use aya::sys::{Stats, enable_stats};
use aya::{Btf, Ebpf, EbpfLoader};
use jiff::Zoned;
use signal_hook::consts::{SIGINT, SIGTERM};
use uncore_trace_ebpf::stamp::workspace_root;

use super::machine;
use super::overhead::last_cpu;
use super::running::{Recorder, Running as _};
use super::stats::{self, Summary};
use crate::apt::Apt;
use crate::command::{quietly, version};
use crate::target;

/// Options of `cargo xtask bench hook`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each measures every program once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Loops of the pipe benchmark; each is two context switches
    #[arg(short, long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
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

/// What is measured: a program of `hook.bpf.c`, or the hook of a recorder with these options.
enum Measured {
    Small(&'static str),
    Record(&'static [&'static str]),
}

/// A line of the table. The first is what the others are compared with.
const VARIANTS: &[(&str, Measured)] = &[
    ("empty program", Measured::Small("empty")),
    ("only `bpf_ktime_get_ns`", Measured::Small("clock")),
    ("only the run queue's clock", Measured::Small("clock_of_rq")),
    ("slots in an array of this CPU", Measured::Small("slots")),
    ("task storage", Measured::Small("storage")),
    ("pages of 16-byte slices", Measured::Small("pages")),
    ("slots, the run queue's clock", Measured::Small("slots_of_rq")),
    ("`record -e page-faults`", Measured::Record(&["-e", "page-faults"])),
    ("`record -p host`", Measured::Record(&["-p", "host"])),
];

/// The tracepoint of all.
const TRACEPOINT: &str = "sched_switch";

/// Fewer runs than this part of the switches mean that another program was measured.
const LEAST_PART: f64 = 0.9;

/// Run time in ns and runs of a program, ever.
#[derive(Clone, Copy)]
struct Runs {
    ns: u128,
    count: u64,
}

/// What every measurement needs.
struct Bench {
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
    let mut small = load(&compile()?)?;
    let drain = Drain::start(&mut small)?;
    let mut bench = Bench {
        small,
        bin: match &args.bin {
            Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
            None => target::release()?,
        },
        cpu: args.cpu.map_or_else(last_cpu, Ok)?,
        loops: args.loops,
        settle: Duration::from_millis(args.settle),
    };
    let _stats = enable_stats(Stats::RunTime).context("the kernel counts no run times")?;
    let mut series = vec![Vec::new(); VARIANTS.len()];
    for round in 0..args.rounds as usize {
        for turn in 0..VARIANTS.len() {
            let index = (turn + round) % VARIANTS.len();
            let (name, measured) = &VARIANTS[index];
            let ns =
                bench.measure(measured).with_context(|| format!("round {}, {name}", round + 1))?;
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted: everything is removed");
            eprintln!("round {}: {name}: {ns:.1} ns a run", round + 1);
            series[index].push(ns);
        }
    }
    drain.stop();
    print!("{}", markdown(&series)?);
    let date = Zoned::now().strftime("%Y-%m-%d");
    let (machine, rounds, loops) = (machine::describe(), args.rounds, args.loops);
    println!("\n{date}, {machine}; {rounds} interleaved rounds of {loops} loops.");
    Ok(())
}

/// Compiles `hook.bpf.c`, with a compiler that is installed if there is none.
fn compile() -> Result<PathBuf> {
    if version("clang").is_err() {
        Apt::new().install(&["clang"]).context("the small programs need clang")?;
    }
    let dir = target::dir()?.join("bpf");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let object = dir.join("hook.bpf.o");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-c", "-o"]);
    clang.arg(&object).arg(workspace_root().join("xtask/src/bench/hook.bpf.c"));
    quietly(&mut clang)?;
    Ok(object)
}

fn load(object: &Path) -> Result<Ebpf> {
    // Task storage has no type in aya; nobody reads it from here.
    let mut small = EbpfLoader::new()
        .allow_unsupported_maps()
        .load_file(object)
        .with_context(|| format!("cannot load {}", object.display()))?;
    let btf = Btf::from_sys_fs().context("cannot read /sys/kernel/btf/vmlinux")?;
    for (name, program) in small.programs_mut() {
        let program: &mut BtfTracePoint =
            program.try_into().with_context(|| format!("{name} is of another type"))?;
        program.load(TRACEPOINT, &btf).with_context(|| format!("the kernel refused {name}"))?;
    }
    Ok(small)
}

impl Bench {
    /// Mean ns of a run beside the workload.
    fn measure(&mut self, measured: &Measured) -> Result<f64> {
        let (before, after) = match measured {
            Measured::Small(name) => self.small(name)?,
            Measured::Record(options) => self.recorder(options)?,
        };
        let count = after.count.saturating_sub(before.count);
        let least = LEAST_PART * 2.0 * f64::from(self.loops);
        ensure!(count as f64 >= least, "the program ran {count} times only");
        Ok(after.ns.saturating_sub(before.ns) as f64 / count as f64)
    }

    fn small(&mut self, name: &str) -> Result<(Runs, Runs)> {
        let program: &mut BtfTracePoint =
            self.small.program_mut(name).context("no such program")?.try_into()?;
        let link = program.attach().with_context(|| format!("cannot attach {name}"))?;
        let id = program.info().context("cannot ask for a program")?.id();
        let before = runs(id)?;
        let piped = pipe(self.cpu, self.loops);
        let after = runs(id)?;
        program.detach(link).with_context(|| format!("cannot detach {name}"))?;
        piped?;
        Ok((before, after))
    }

    fn recorder(&self, options: &[&str]) -> Result<(Runs, Runs)> {
        let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
        let mut command = Command::new(&self.bin);
        command.args(["record", "-q", "-o", "run.parquet"]).args(options);
        command.current_dir(scratch.path());
        let recorder = Recorder::start(command, &scratch.path().join("stderr"), self.settle)?;
        let id = hook_of(recorder.id())?;
        let before = runs(id)?;
        pipe(self.cpu, self.loops)?;
        let after = runs(id)?;
        Box::new(recorder).stop()?;
        Ok((before, after))
    }
}

/// The program at `sched_switch` that a recorder holds: others may run beside it.
fn hook_of(pid: u32) -> Result<u32> {
    let held = held_by(pid)?;
    for program in loaded_programs() {
        let program = program.context("cannot list BPF programs")?;
        if held.contains(&program.id()) && program.name_as_str() == Some(TRACEPOINT) {
            return Ok(program.id());
        }
    }
    bail!("the recorder holds no program {TRACEPOINT}: is --settle long enough?")
}

/// Ids of the BPF programs of a process (`bpf_prog_show_fdinfo`, kernel/bpf/syscall.c).
fn held_by(pid: u32) -> Result<BTreeSet<u32>> {
    let dir = PathBuf::from(format!("/proc/{pid}/fdinfo"));
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    // A descriptor may be closed meanwhile.
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    Ok(texts.filter_map(|text| program_id(&text)).collect())
}

/// The program that a descriptor is of; links, which name one too, have no `prog_type`.
fn program_id(fdinfo: &str) -> Option<u32> {
    let field = |name: &str| {
        let (_, value) =
            fdinfo.lines().find_map(|line| line.split_once(':').filter(|it| it.0 == name))?;
        Some(value.trim())
    };
    field("prog_type")?;
    field("prog_id")?.parse().ok()
}

fn runs(id: u32) -> Result<Runs> {
    for program in loaded_programs() {
        let program = program.context("cannot list BPF programs")?;
        if program.id() == id {
            return Ok(Runs { ns: program.run_time().as_nanos(), count: program.run_count() });
        }
    }
    bail!("the program is gone")
}

/// Runs the workload with real-time priority.
fn pipe(cpu: u32, loops: u32) -> Result<()> {
    let mut command = Command::new("chrt");
    command.args(["--fifo", "1", "taskset", "-c", &cpu.to_string()]);
    command.args(["perf", "bench", "sched", "pipe", "--loop", &loops.to_string()]);
    quietly(&mut command).map(drop).context("chrt and taskset are in util-linux")
}

/// Empties the ring of the small programs, as a recorder would.
struct Drain {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Drain {
    fn start(small: &mut Ebpf) -> Result<Self> {
        let map = small.take_map("RECORDS").context("there is no map RECORDS")?;
        let mut ring = RingBuf::try_from(map).context("RECORDS is no ring")?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                while ring.next().is_some() {}
                thread::sleep(Duration::from_millis(5));
            }
        });
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has no result; a panic was printed.
        let _ended = self.thread.join();
    }
}

fn markdown(series: &[Vec<f64>]) -> Result<String> {
    let mut lines = vec![
        "| program at `sched_switch` | ns/run, median | min-max | over the empty one \
         | times the empty one |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let empty = &series[0];
    for ((name, _), samples) in VARIANTS.iter().zip(series) {
        let Summary { median, min, max } =
            Summary::of(samples.iter().copied()).context("no rounds were measured")?;
        let over = stats::cost(samples, empty).context("no rounds were measured")?;
        let times = Summary::of(samples.iter().zip(empty).map(|(one, empty)| one / empty));
        let times = times.context("no rounds were measured")?.median;
        lines
            .push(format!("| {name} | {median:.0} | {min:.0}-{max:.0} | {over:.0} | {times:.2} |"));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_not_links_are_held() {
        let program = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nprog_jited:\t1\nprog_id:\t5676\n";
        assert_eq!(program_id(program), Some(5676));
        assert_eq!(program_id("link_type:\traw_tracepoint\nlink_id:\t4\nprog_id:\t5676\n"), None);
        assert_eq!(program_id("pos:\t0\n"), None);
    }

    #[test]
    fn the_table() {
        let series: Vec<Vec<f64>> =
            (0..VARIANTS.len()).map(|index| vec![50.0 + 30.0 * index as f64; 3]).collect();
        let text = markdown(&series).unwrap();
        assert!(text.contains("| empty program | 50 | 50-50 | 0 | 1.00 |\n"), "{text}");
        assert!(text.contains("| only `bpf_ktime_get_ns` | 80 | 80-80 | 30 | 1.60 |\n"), "{text}");
    }
}
