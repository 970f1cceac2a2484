//! `uncore-trace top`.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::heading::{COST, LINE, PRINT, SPAN, TIME, WRITE};
use super::record::{millis, seconds};
use super::select::{SelectArgs, to_nanos};
use super::trust::TrustArgs;
use crate::catalog::Catalog;
use crate::clock::duration_ns;
use crate::discover::Machine;
use crate::plan::traffic::plan_traffic;
use crate::plan::{Plan, plan};
use crate::record::RecordOptions;
use crate::schema::fabric;
use crate::tables::reader::Recording;
use crate::tables::rollup::RollupSelection;
use crate::terminal;
use crate::text::printable_path;
use crate::top::{self, Print, ScreenChoice, ScreenFormat};
use crate::view::grouping::GroupBy;
use crate::view::span::{SelectedTime, TimePoint, wall_range};

/// Default time between readings: ten times that of `record`, for a tenth of its cost.
const TICK: Duration = Duration::from_millis(10);

/// Longest window: at least ten windows make a frame of a second.
const WINDOW: Duration = Duration::from_millis(100);

/// How long a window waits for later readings before it is divided.
const LAG: Duration = Duration::from_millis(500);

/// Width of the output of --once if standard output is no terminal.
const COLUMNS: usize = 132;

/// Show the traffic of each link and each tenant, live or from a recording
///
/// The upper list shows the links (memory, PCIe root ports, links between chips, mesh): the rate
/// in and out (as the CPUs see it: a device that writes to memory is `in`), percent of the peak,
/// and the last minute. The lower list shows the tenants: their rate in each group, their share of
/// the selected link, the confidence of that share, and the CPUs that they use. On a machine
/// without such counters, `top` shows the events of the group host. The key `?` shows all keys.
///
/// With FILE, `top` plays a recording at its original speed and stops at the last update. Space
/// pauses it, and Left and Right move back and forward.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: live; a recording from its second minute on; the last screen of a
recording as text; tenants with more than a tenth of the link, each second
  uncore-trace top -p pcie --per port --by container
  uncore-trace top run/ --from 1m
  uncore-trace top run.parquet --once
  uncore-trace top --json | jq -c '[.owners[] | select(.share > 0.1) | .name]'

JSON: one object a line for each update, until top is stopped or the recording
ends; with --once one object. time, begin_ns, end_ns, frame_ns (nominal length),
links (name, unit, in_per_s, out_per_s, per_s, unknown, full (part: of the peak;
other: of another source's peak, in a conflict), within_per_s, history), groups
(name, unit), by, selected (number of the link in links), owners (name, owner,
per_s of each group, link_per_s, share, confidence, cpus, history). An unknown
value is null, never 0.")]
pub struct Args {
    /// A recording to show: a .parquet file, or a directory that `record` wrote; or a roll-up
    /// [default: live measurement]
    #[arg(value_name = "FILE|DIR",
          conflicts_with_all = ["groups", "events", "metrics", "tick", "save"])]
    path: Option<PathBuf>,

    #[command(flatten)]
    select: SelectArgs,

    #[command(flatten)]
    trust: TrustArgs,

    /// Time between updates of the screen; a bare number is seconds
    #[arg(short = 'd', long, value_name = "TIME", default_value = "1s", value_parser = seconds,
          help_heading = TIME)]
    interval: Duration,

    /// Time between readings, 100us to 1s; a bare number is milliseconds [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = millis, help_heading = COST)]
    tick: Option<Duration>,

    /// With a recording: only windows that end after this: a time after its start (2s, 1m30s; a
    /// bare number is seconds), a wall time (2026-01-31T12:00:00Z), or mark:NAME
    #[arg(long, value_name = "TIME", requires = "path", help_heading = SPAN)]
    from: Option<TimePoint>,

    /// With a recording: only windows that end at this time or earlier
    #[arg(long, value_name = "TIME", requires = "path", help_heading = SPAN)]
    to: Option<TimePoint>,

    /// What a tenant is; the key `g` changes it [default: cgroup; comm where one cgroup has more
    /// than 90 % of the selected link]
    #[arg(long, value_enum, help_heading = LINE)]
    by: Option<GroupBy>,

    /// File that the key `r` records to [default: uncore-trace-TIME.parquet]
    #[arg(long, value_name = "FILE", help_heading = WRITE)]
    save: Option<PathBuf>,

    /// Print the screen once, and exit: the first, or the last of a recording
    #[arg(long, help_heading = PRINT)]
    once: bool,

    /// With --once: print the screen this long after the start, with the history up to then; a bare
    /// number is seconds
    #[arg(long, value_name = "TIME", requires = "once", value_parser = seconds,
          help_heading = PRINT)]
    after: Option<Duration>,

    /// Print each update as a line of JSON; with --once the first, or the last of a recording
    #[arg(long, help_heading = PRINT)]
    json: bool,

    /// Draw with ASCII only
    #[arg(long, help_heading = PRINT)]
    ascii: bool,
}

/// Plans, records and draws, or plays a recording; exit code 0.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(
        args.once || args.json || io::stdout().is_terminal() && io::stdin().is_terminal(),
        "top needs a terminal for its screen and its keys: use --once to print one screen, --json \
         to print all, or record"
    );
    if let Some(grouping) = args.by.filter(|by| !top::GROUPINGS.contains(by)) {
        bail!(
            "--by {} is not shown by top: choose one of {}",
            grouping.name(),
            top::GROUPINGS.map(GroupBy::name).join(", ")
        );
    }
    if args.interval < Duration::from_millis(100) || args.interval > Duration::from_mins(1) {
        bail!(
            "an interval of {} is out of range: choose 100ms to 1m",
            humantime::format_duration(args.interval)
        );
    }
    match &args.path {
        Some(path) => play_recording(args, path)?,
        None => measure_live(args)?,
    }
    Ok(0)
}

/// Plays the recording at `path`.
fn play_recording(args: &Args, path: &Path) -> Result<()> {
    let wall_span = wall_range(args.from.as_ref(), args.to.as_ref());
    let recording = Recording::open_selection(
        path,
        &RollupSelection { wall_span, ..RollupSelection::default() },
    )?;
    // A roll-up has no processes, and is grouped by cgroup.
    let grouping = args.by.or_else(|| recording.is_rollup().then_some(GroupBy::Cgroup));
    grouping.map_or(Ok(()), |chosen| chosen.check_recording(&recording))?;
    let fabric = recording.open_table(&fabric::TABLE)?;
    let span =
        SelectedTime::between_moments(&recording, &fabric, args.from.as_ref(), args.to.as_ref())?;
    let span = span
        .with_context(|| format!("{} has no rows: nothing was recorded", printable_path(path)))?;
    top::play_recording(&recording, span, &top_options(args, grouping, None))
}

/// Measures, and shows it.
fn measure_live(args: &Args) -> Result<()> {
    let tick = args.tick.unwrap_or(TICK);
    let window = window_length(tick);
    ensure!(
        args.interval >= window,
        "an interval of {} is shorter than a tick of {}: choose a longer one with -d",
        humantime::format_duration(args.interval),
        humantime::format_duration(tick)
    );
    let machine = super::discover_machine(Path::new("/"))?;
    let grouping = args.by.unwrap_or(GroupBy::Cgroup);
    if matches!(grouping, GroupBy::Cgroup | GroupBy::Container | GroupBy::Pod | GroupBy::Job) {
        let act = "top has nothing to show by cgroup (--by pid has)";
        machine.cgroups.v2_mount().context(act)?;
    }
    if let Some(unnamed) = machine.cgroups.unnamed_reason() {
        log::warn!("{unnamed}");
    }
    let catalog = args.select.load_catalog()?;
    let (plan, notice) = plan_top(args, &machine, &catalog, tick, window)?;
    for warning in plan.warnings.iter().filter(|_| args.select.asks_for_something()) {
        log::warn!("{warning}");
    }
    let recording = RecordOptions {
        lag: LAG,
        catalog: catalog.outside,
        trusted_cgroups: args.trust.trusted_paths(),
        ..RecordOptions::for_view(&machine, &plan)
    };
    top::run(&machine, &plan, &recording, &top_options(args, args.by, notice))
}

fn top_options(args: &Args, grouping: Option<GroupBy>, notice: Option<String>) -> top::TopOptions {
    let width = terminal::columns().unwrap_or(COLUMNS);
    let form = if args.json { ScreenFormat::Json } else { ScreenFormat::Text { width } };
    let once = args.once.then(|| match args.after {
        None if args.path.is_some() => ScreenChoice::Last,
        delay => ScreenChoice::After(duration_ns(delay.unwrap_or_default())),
    });
    top::TopOptions {
        frame: args.interval,
        // Programs get one grouping.
        grouping: grouping.or_else(|| args.json.then_some(GroupBy::Cgroup)),
        // The software counter that differs most between tenants is selected first.
        select: Some("cpu-clock".to_owned()).filter(|_| notice.is_some() || args.path.is_some()),
        ascii: args.ascii,
        // https://no-color.org: the variable must be set and not empty.
        plain: std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        notice,
        save: args.save.clone(),
        print: (args.once || args.json).then_some(Print { format: form, choice: once }),
    }
}

/// The longest window of whole ticks that is not longer than [`WINDOW`]; at least a tick.
fn window_length(tick: Duration) -> Duration {
    tick * u32::try_from((WINDOW.as_nanos() / tick.as_nanos().max(1)).max(1)).unwrap_or(1)
}

/// The plan: the selected counters; else all traffic by root port; else the group host, with the
/// reason.
fn plan_top(
    args: &Args,
    machine: &Machine,
    catalog: &Catalog,
    tick: Duration,
    window: Duration,
) -> Result<(Plan, Option<String>)> {
    let request = args.select.plan_request(machine, to_nanos(tick), to_nanos(window));
    if args.select.asks_for_something() {
        return Ok((plan(machine, catalog, &request)?, None));
    }
    plan_traffic(machine, catalog, &request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_ticks() {
        let ms = Duration::from_millis;
        for (tick, length) in [(1, 100), (10, 100), (30, 90), (60, 60), (250, 250)] {
            assert_eq!(window_length(ms(tick)), ms(length), "{tick}");
        }
    }
}
