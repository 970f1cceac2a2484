//! `uncore-trace record`.

mod args;
mod ending;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

pub use self::args::Args;
use super::command_end;
use super::output::print;
use super::select::to_nanos;
use super::trust::as_cgroup;
use crate::choice::default_tick;
use crate::cli::messages;
use crate::confine::ThreadNeeds;
use crate::discover::{CgroupMounts, Machine};
use crate::plan::{Plan, SHORTEST_WINDOW_NS};
use crate::record::{self, AtSwitch, RecordOptions, RecorderControl, RecordingOutcome, Sampling};
use crate::schema::row_limit::RowLimit;
use crate::signals::{Signals, event_loop};
use crate::tables::output_path;
use crate::tables::series::Keep;
use crate::tables::series::Rotate;
use crate::text::{count_noun, printable};
use crate::units;
use crate::units::parse_duration;
use crate::workload::Workload;

/// The name of standard output.
const STDOUT: &str = "-";

/// Default of --flush.
pub(super) const FLUSH: Duration = Duration::from_secs(2);

/// Default of --lag.
pub(super) const LAG: Duration = Duration::from_secs(1);

/// Largest --lag: all rows of that time are held in memory.
const MOST_LAG: Duration = Duration::from_secs(10);

pub(super) fn millis(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_millis(1))
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_secs(1))
}

/// Plans and records.
pub fn run(args: &Args) -> Result<u8> {
    // Before discovery and planning, which warn.
    if args.quiet {
        messages::errors_only();
    }
    if args.monitor.is_some()
        && let Some(number) =
            args.command.first().filter(|argument| argument.to_string_lossy().parse::<u8>().is_ok())
    {
        bail!("--monitor takes its number after =: write --monitor={}", number.to_string_lossy());
    }
    let interval = args.interval.unwrap_or(Duration::from_nanos(SHORTEST_WINDOW_NS));
    let tick = args.tick.unwrap_or_else(|| default_tick(interval));
    let machine = super::discover_machine(args.root.root_dir())?;
    let request = args.select.plan_request(&machine, to_nanos(tick), to_nanos(interval));
    let catalog = args.select.load_catalog()?;
    let mut plan = args.witness.plan_request(&machine, &catalog, request, args.method)?;
    if args.interval.is_none()
        && let Some(note) = plan.choose_window(args.rows.unwrap_or(RowLimit::DEFAULT))
        && !args.quiet
    {
        messages::print_message(&note);
    }
    if args.min_gap.is_zero() && args.sample_on.contains(&Sampling::Sched) {
        plan.read_at_switch();
    }
    if !args.cgroups.is_empty() || args.cgroup_depth.is_some() {
        machine.cgroups.v2_mount()?;
    }
    if args.dry_run {
        let monitor = args.monitor.map(usize::from);
        record::check_options(&machine, &plan, args.canary, monitor)?;
        return dry_run(&plan, args.json);
    }
    if !args.root.is_here() {
        bail!(
            "{} is not the running machine: --root is for list, doctor and record --dry-run",
            args.root.root_dir().display()
        );
    }
    let mut options = recorder_options(args, &machine, &plan, catalog.outside)?;
    options.io |= plan.needs_io(args.method);
    warn_of_missing_cgroups(&options.cgroups, &machine.cgroups);
    super::log_plan_notices(&plan);
    if let Some(note) = plan.few_rows_note(options.row_limit)
        && !args.quiet
    {
        messages::print_message(&note);
    }
    let shows_answer = !args.quiet && (args.summary || io::stderr().is_terminal());
    if shows_answer {
        options.afterwards = ending::answer_needs(&options);
    }
    let runtime = event_loop()?;
    runtime.block_on(Box::pin(record_and_wait(&machine, &plan, &options, args.kill, shows_answer)))
}

/// Records, prints a summary, and waits for the command. Returns the exit code.
async fn record_and_wait(
    machine: &Machine,
    plan: &Plan,
    options: &RecordOptions,
    kill: bool,
    shows_answer: bool,
) -> Result<u8> {
    // The handlers come first: from here on a signal ends the recording with whole files.
    let (mut signals, mut workload) = (Signals::install()?, Workload::without_command());
    let target = output_path::parse_target(&options.output)?;
    let recorded =
        Box::pin(record::record(target, machine, plan, options, &mut workload, &mut signals)).await;
    let outcome = match recorded {
        Ok(outcome) => outcome,
        Err(error) => {
            return command_end::wait_after_failure(error, &mut workload, &mut signals).await;
        }
    };
    // The summary comes before the wait for the command, which may run for hours.
    if !options.quiet {
        print_summary(options, &outcome, shows_answer);
    }
    let code =
        command_end::wait_after_recording(&mut workload, &mut signals, kill, options.quiet).await?;
    if outcome.losses.is_complete() {
        return Ok(code.unwrap_or(0));
    }
    if let Some(code) = code.filter(|code| *code != 0 && !options.quiet) {
        messages::print_message(&format!(
            "the command ended with exit code {code}; the exit code of uncore-trace is 1, because \
             the recording is incomplete"
        ));
    }
    Ok(1)
}

/// Refuses a lag that needs too much memory.
pub(super) fn check_lag(lag: Duration) -> Result<()> {
    let show = humantime::format_duration;
    ensure!(lag <= MOST_LAG, "--lag {} is too long: choose at most {}", show(lag), show(MOST_LAG));
    Ok(())
}

fn recorder_options(
    args: &Args,
    machine: &Machine,
    plan: &Plan,
    catalog: Vec<String>,
) -> Result<RecordOptions> {
    let buffer = ring_buffer_bytes(args, machine.cpus.online.len(), plan)?;
    let interval = Duration::from_nanos(plan.window_ns);
    let show = humantime::format_duration;
    let year = Duration::from_hours(366 * 24);
    for (name, value) in [("--duration", args.duration), ("--delay", Some(args.delay))] {
        if value.is_some_and(|value| value > year) {
            bail!("{name} is longer than a year: choose a shorter time");
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
    check_lag(lag)?;
    if lag > flush / 2 {
        bail!(
            "--lag {} is too long: choose at most half of --flush ({}), or a longer --flush",
            show(lag),
            show(flush)
        );
    }
    let output = args.output.clone().unwrap_or_else(output_path::unused_name);
    let raw = record::has_raw_tables(&output)?;
    for (flag, table) in [("--slices", args.slices), ("--io", args.io)] {
        if table && !raw {
            bail!("{flag} writes a raw table: give a directory, e.g. -o run/");
        }
    }
    if let (Some(Rotate::Bytes(part_bytes)), Some(Keep::Bytes(kept_bytes))) =
        (args.rotate, args.keep)
        && kept_bytes < 2 * part_bytes
    {
        bail!("--keep is smaller than two parts: choose at least twice the size of --rotate");
    }
    let cgroups = args.cgroups.iter().map(|path| as_cgroup(path)).collect();
    Ok(RecordOptions {
        output,
        // A name that was not typed never replaces a file.
        force: args.force && args.output.is_some(),
        mode: args.permissions.mode,
        rotate: args.rotate,
        keep: args.keep,
        cluster: args.cluster.clone().filter(|name| !name.is_empty()),
        no_cmdline: args.no_cmdline,
        tick: Duration::from_nanos(plan.tick_ns),
        interval,
        duration: args.duration,
        delay: args.delay,
        slices: args.slices,
        sample_on: args.sample_on.clone(),
        min_gap: args.min_gap,
        flush,
        cgroups,
        trusted_cgroups: args.trust.trusted_paths(),
        cgroup_depth: args.cgroup_depth,
        method: args.method,
        lag,
        min_share: args.min_share / 100.0,
        // A file of its own has no `sums`.
        row_limit: args.rows.unwrap_or(if raw { RowLimit::DEFAULT } else { RowLimit::All }),
        witness_budget: args.witness.budget_percent(args.method),
        io: args.io,
        canary: args.canary,
        monitor: args.monitor.map(usize::from),
        timer: args.timer,
        btf: args.btf.clone(),
        buffer,
        listen: true,
        catalog,
        tap: None,
        control: RecorderControl::default(),
        quiet: args.quiet,
        command: args.command.clone(),
        afterwards: ThreadNeeds::default(),
    })
}

/// Size of the ring buffer in bytes.
fn ring_buffer_bytes(args: &Args, cpus: usize, plan: &Plan) -> Result<u32> {
    let at_switch = AtSwitch::from_plan(plan, args.witness.budget_percent(args.method).is_some());
    let mib = args.buffer.unwrap_or_else(|| record::buffer_mib(cpus, args.slices, at_switch));
    if !mib.is_power_of_two() || mib > 1024 {
        bail!("--buffer {mib} is out of range: choose a power of two from 1 to 1024 (MiB)");
    }
    Ok(mib << 20)
}

/// Cgroups without a path are warned of, and those that are asked for and missing: they may be
/// created during the recording.
fn warn_of_missing_cgroups(wanted: &[String], cgroups: &CgroupMounts) {
    if let Some(unnamed) = cgroups.unnamed_reason() {
        log::warn!("{unnamed}");
    }
    let Some(mount) = &cgroups.v2 else { return };
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
        plan.render_plan()
    };
    print(&text)?;
    Ok(0)
}

fn print_summary(options: &RecordOptions, outcome: &RecordingOutcome, shows_answer: bool) {
    let output = match options.output.to_string_lossy() {
        name if name == STDOUT => "stdout".into(),
        name => name,
    };
    let size = if outcome.finished.bytes == 0 {
        String::new()
    } else {
        format!(", {}", units::human(outcome.finished.bytes as f64, "bytes"))
    };
    let parts_text = if options.rotate.is_some() {
        format!(" in {}", count_noun(outcome.part_count as usize, "part"))
    } else {
        String::new()
    };
    messages::print_message(&format!(
        "{}: {}, {}, {} rows{size}{parts_text}; {}",
        printable(&output),
        units::human(outcome.seconds * 1e9, "ns"),
        count_noun(outcome.counters, "counter"),
        outcome.finished.rows,
        if outcome.losses.is_complete() { "complete" } else { "incomplete (exit code 1)" },
    ));
    let answer = if shows_answer { ending::answer_lines(options) } else { Vec::new() };
    let losses = [outcome.losses.incomplete_text(), outcome.losses.precision_text()];
    let next_steps = if shows_answer { ending::next_commands(options) } else { None };
    for line in answer.into_iter().chain(losses.into_iter().flatten()).chain(next_steps) {
        messages::print_message(&line);
    }
}
