//! `uncore-trace record`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::after;
use super::output::{self, ModeArg};
use super::report::print;
use super::select::{SelectArgs, nanos};
use super::witness::WitnessArgs;
use crate::attribute::Choice;
use crate::discover::{self, Machine};
use crate::open::Timer;
use crate::plan::Plan;
use crate::record::{self, AtSwitch, Options, Outcome, Sampling, parse_duration};
use crate::signals::Signals;
use crate::tables::place;
use crate::text::printable;
use crate::workload::Workload;

/// The default of --flush.
const FLUSH: Duration = Duration::from_secs(2);

/// The default of --lag.
const LAG: Duration = Duration::from_secs(1);

/// The longest --lag: all of it is in memory.
pub(super) const MOST_LAG: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  uncore-trace record -p pcie,c2c -o run.parquet -- ./train.sh
  uncore-trace record -p host -o run.parquet --duration 10s
  uncore-trace record -e nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/ \\
    -o run/ --slices
  uncore-trace record -p mem --dry-run

The command is only traced. It gets no signal, except with --kill. It runs on
when the recording ends or fails (a full disk, a closed pipe): uncore-trace
finishes the files and waits for the command. Ctrl-C ends the recording; the
terminal sends it to the command too. A second Ctrl-C ends the wait. SIGTERM
and SIGHUP (the terminal was closed) end the recording without a wait. A SIGHUP
that is ignored at the start (nohup) stays ignored.

Exit code: 0 the recording is complete, 1 it is incomplete, 2 record failed. If
the recording is complete and the command has ended, the exit code is the
command's: 128 + N if signal N killed it, 0 if --kill did. With 1 and 2 a
message has the command's exit code.";

/// Record who uses the fabric
///
/// Opens the counters of the given groups and events, reads each on its reader CPU once per tick,
/// records who runs on every CPU, and writes the counts divided among processes and cgroups.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    select: SelectArgs,

    /// FILE.parquet, a directory (for the raw tables too), or - for an Arrow IPC stream on standard
    /// output; a device or a FIFO takes the stream only: -o - > /dev/null
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path())]
    output: Option<PathBuf>,

    /// Replace FILE if it exists and is a regular file
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    permissions: ModeArg,

    /// Cluster this host is in, for the column `cluster` of the tables
    #[arg(long, value_name = "NAME", env = "UNCORE_TRACE_CLUSTER")]
    cluster: Option<String>,

    /// Leave the command line, which may hold secrets, out of the metadata
    #[arg(long)]
    no_cmdline: bool,

    /// Length of a window, which a row covers: a whole number of ticks, at most 1m; a bare number is
    /// milliseconds
    #[arg(short = 'I', long, value_name = "TIME", default_value = "10ms", value_parser = millis)]
    interval: Duration,

    /// Time between readings, 100us to 1s; a bare number is milliseconds [default: 1ms, or the
    /// interval if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = millis)]
    tick: Option<Duration>,

    /// End the recording after this time; the command runs on; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    duration: Option<Duration>,

    /// Send the command SIGTERM if the recording ends before it: at --duration or by a signal
    #[arg(long, requires = "command")]
    kill: bool,

    /// Begin to count this time after the command starts; a bare number is milliseconds
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0ms", value_parser = millis)]
    delay: Duration,

    /// Separate rows only for this cgroup and those below it; all other tasks are one row; may be
    /// given several times
    #[arg(long = "cgroup", value_name = "PATH")]
    cgroups: Vec<String>,

    /// Count cgroups deeper than N below the root towards their ancestor of depth N; 0: the root
    /// only
    #[arg(long, value_name = "N")]
    cgroup_depth: Option<usize>,

    /// Record every time slice in the table `slices` (the output must be a directory)
    #[arg(long)]
    slices: bool,

    /// Read the counters at these tracepoints too, on their reader CPUs
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    sample_on: Vec<Sampling>,

    /// Shortest time between readings of --sample-on; a bare number is milliseconds; 0 with
    /// --sample-on sched makes counters of a CPU exact
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = millis)]
    min_gap: Duration,

    /// How to divide counts that are not read at every context switch
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    method: Choice,

    /// Divide a window with what was counted up to this long after it, where the method learns; 0:
    /// with what was counted before only; at most 10s and half of --flush; a bare number is seconds
    /// [default: 1s, or half of --flush if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    lag: Option<Duration>,

    #[command(flatten)]
    witness: WitnessArgs,

    /// Record the bytes that disks and network interfaces move, by owner, in the table `io`, also if
    /// no counter needs them (the output must be a directory)
    #[arg(long)]
    io: bool,

    /// Time between flushes: a killed recording keeps everything up to the last one; a bare number is
    /// seconds [default: 2s, or the interval if that is longer]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    flush: Option<Duration>,

    /// What reads the counters
    #[arg(long, value_name = "TIMER", default_value = "auto")]
    timer: Timer,

    /// Size of the ring buffer between kernel and recorder, in MiB, a power of two [default:
    /// depends on the number of CPUs]
    #[arg(long, value_name = "MIB")]
    buffer: Option<u32>,

    /// Print what would be opened, and exit
    #[arg(long)]
    dry_run: bool,

    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Command to run; the recording ends when it ends; `--` before it is optional
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) fn millis(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_millis(1))
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_secs(1))
}

/// Plans and records.
pub fn run(args: &Args, root: &Path) -> Result<u8> {
    let interval = args.interval;
    let tick = args.tick.unwrap_or_else(|| record::default_tick(interval));
    let machine = discover::machine(root)?;
    for problem in &machine.problems {
        log::warn!("{problem}");
    }
    let request = args.select.request(nanos(tick), nanos(interval));
    let catalog = args.select.catalog()?;
    let mut plan = args.witness.plan(&machine, &catalog, request, args.method)?;
    if args.min_gap.is_zero() && args.sample_on.contains(&Sampling::Sched) {
        plan.read_at_switch();
    }
    if args.dry_run {
        return dry_run(&plan, args.json);
    }
    if root != Path::new("/") {
        bail!(
            "{} is not the running machine: --root is for list, doctor and record --dry-run",
            root.display()
        );
    }
    let cpus = machine.cpus.online.len();
    let buffer = buffer(args, cpus, &plan)?;
    let mut options = options(args, root, tick, interval, buffer, catalog.outside)?;
    options.io |= args.method.sees_io(&plan);
    warn_of_missing_cgroups(&options.cgroups, machine.cgroups.v2.as_deref());
    for note in &plan.notes {
        log::info!("{note}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(Box::pin(record_and_wait(&machine, &plan, &options, args.kill)))
}

/// Records, says what was recorded, and waits for the command. Returns the exit code.
async fn record_and_wait(
    machine: &Machine,
    plan: &Plan,
    options: &Options,
    kill: bool,
) -> Result<u8> {
    let (mut signals, mut workload) = (Signals::install()?, Workload::none());
    let target = place::target(&options.output)?;
    let recorded =
        Box::pin(record::record(target, machine, plan, options, &mut workload, &mut signals)).await;
    let outcome = match recorded {
        Ok(outcome) => outcome,
        Err(error) => return after::failed(error, &mut workload, &mut signals).await,
    };
    if !options.quiet {
        report(options, &outcome);
    }
    let code = after::finished(&mut workload, &mut signals, kill, options.quiet).await?;
    if outcome.losses.is_complete() {
        return Ok(code.unwrap_or(0));
    }
    if let Some(code) = code.filter(|code| *code != 0 && !options.quiet) {
        super::log::say(&format!(
            "the command ended with exit code {code}; the exit code of uncore-trace is 1, as the \
             recording is incomplete"
        ));
    }
    Ok(1)
}

fn options(
    args: &Args,
    root: &Path,
    tick: Duration,
    interval: Duration,
    buffer: u32,
    catalog: Vec<String>,
) -> Result<Options> {
    let show = humantime::format_duration;
    let year = Duration::from_hours(366 * 24);
    for (name, value) in [("--duration", args.duration), ("--delay", Some(args.delay))] {
        if value.is_some_and(|value| value > year) {
            bail!("{name} is longer than a year");
        }
    }
    if args.duration.is_some_and(|duration| duration.is_zero()) {
        bail!("--duration 0 records nothing: leave it out to record until Ctrl-C");
    }
    let flush = args.flush.unwrap_or(FLUSH.max(interval));
    if flush < interval || flush < Duration::from_millis(100) || flush > year {
        bail!(
            "--flush {} is out of range: choose at least 100ms and the interval ({})",
            show(flush),
            show(interval)
        );
    }
    let lag = args.lag.unwrap_or(LAG.min(flush / 2));
    if lag > MOST_LAG {
        bail!("--lag {} is too long: choose at most {}", show(lag), show(MOST_LAG));
    }
    if lag > flush / 2 {
        bail!(
            "--lag {} is too long: choose at most half of --flush ({}), or a longer --flush",
            show(lag),
            show(flush)
        );
    }
    let output = args
        .output
        .as_ref()
        .context("-o is needed: FILE.parquet, a directory, or - for a stream")?;
    let raw = record::has_raw_tables(output)?;
    for (flag, table) in [("--slices", args.slices), ("--io", args.io)] {
        if table && !raw {
            bail!("{flag} writes a raw table: give a directory, e.g. -o run/");
        }
    }
    let cgroups = args.cgroups.iter().map(|path| cgroup(path)).collect();
    Ok(Options {
        root: root.to_owned(),
        output: output.clone(),
        force: args.force,
        mode: args.permissions.mode,
        cluster: args.cluster.clone().filter(|name| !name.is_empty()),
        no_cmdline: args.no_cmdline,
        tick,
        interval,
        duration: args.duration,
        delay: args.delay,
        slices: args.slices,
        sample_on: args.sample_on.clone(),
        min_gap: args.min_gap,
        flush,
        cgroups,
        cgroup_depth: args.cgroup_depth,
        method: args.method,
        lag,
        witness_budget: args.witness.budget(args.method),
        io: args.io,
        timer: args.timer,
        buffer,
        catalog,
        quiet: args.quiet,
        command: args.command.clone(),
    })
}

/// Size of the ring buffer in bytes.
fn buffer(args: &Args, cpus: usize, plan: &Plan) -> Result<u32> {
    let at_switch = AtSwitch::of(plan, args.witness.budget(args.method).is_some());
    let mib = args.buffer.unwrap_or_else(|| record::buffer_mib(cpus, args.slices, at_switch));
    if !mib.is_power_of_two() || mib > 1024 {
        bail!("--buffer {mib} is not a power of two from 1 to 1024 (MiB)");
    }
    Ok(mib << 20)
}

/// A cgroup as the tables write it: from the root of the hierarchy, no slash at its end.
fn cgroup(path: &str) -> String {
    let path = path.strip_prefix("/sys/fs/cgroup/unified").unwrap_or(path);
    let path = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
    format!("/{}", path.trim_matches('/'))
}

/// A cgroup may be made while recording, so a missing one is worth a word and no more.
fn warn_of_missing_cgroups(wanted: &[String], mount: Option<&Path>) {
    let Some(mount) = mount else { return };
    for path in wanted {
        if !mount.join(path.trim_start_matches('/')).is_dir() {
            log::warn!(
                "there is no cgroup {path} below {} yet: until it exists, all tasks are in one row",
                mount.display()
            );
        }
    }
}

fn dry_run(plan: &Plan, json: bool) -> Result<u8> {
    let text = if json {
        serde_json::to_string_pretty(plan).context("cannot write the plan as JSON")? + "\n"
    } else {
        plan.render()
    };
    print(&text)?;
    Ok(0)
}

fn report(options: &Options, outcome: &Outcome) {
    let output = match options.output.to_string_lossy() {
        name if name == "-" => "stdout".into(),
        name => name,
    };
    let size = if outcome.finished.bytes == 0 {
        String::new()
    } else {
        format!(", {:.1} kB", outcome.finished.bytes as f64 / 1e3)
    };
    super::log::say(&format!(
        "{}: {:.2} s, {} counters, {} rows{size}; {}",
        printable(&output),
        outcome.seconds,
        outcome.counters,
        outcome.finished.rows,
        if outcome.losses.is_complete() { "complete" } else { "incomplete (exit code 1)" },
    ));
    let lists = [outcome.losses.incomplete(), outcome.losses.note()];
    lists.iter().flatten().for_each(|line| super::log::say(line));
}
