//! `uncore-trace calibrate`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::catalog::CatalogArgs;
use super::heading::{MEASURE, PRINT};
use super::output::print;
use super::record::seconds;
use super::select::to_nanos;
use crate::calibrate;
use crate::choice::MethodChoice;
use crate::confine::ThreadNeeds;
use crate::discover::calibration::{Calibration, FILE, MeasuredPeak};
use crate::discover::{self, Machine};
use crate::plan::{Plan, PlanRequest, plan};
use crate::record;
use crate::table::TextTable;
use crate::units;

/// Time between readings.
const TICK: Duration = Duration::from_millis(10);

/// Length of a window.
const WINDOW: Duration = Duration::from_millis(100);

/// Measure the peak bandwidth of the memory of this machine
///
/// Loads the memory of every socket with one thread per core: a few seconds with reads, and a few
/// seconds with reads and writes. The result is the highest bandwidth that the memory counters saw
/// in one second. `top`, `report` and `stat -M` use it to show how full a memory is. Other programs
/// are slow during the measurement. Memory that has no CPUs near it (GPU memory, CXL) is not
/// measured.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uncore-trace calibrate
  uncore-trace calibrate --seconds 10s --dry-run

The result is saved in /var/lib/uncore-trace/calibration.json, with a
description of this machine and its memory. It is used only where both are the
same.")]
pub struct Args {
    /// How long each of the two loads runs, 2s to 10m; a bare number is seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds,
          help_heading = MEASURE)]
    seconds: Duration,

    /// Memory that each thread uses, in MiB; all threads together must use much more than the
    /// caches hold
    #[arg(long, value_name = "MIB", default_value_t = 192,
          value_parser = clap::value_parser!(u32).range(3..=65536), help_heading = MEASURE)]
    memory: u32,

    /// Print the result and do not save it
    #[arg(long, help_heading = PRINT)]
    dry_run: bool,

    #[command(flatten)]
    catalog: CatalogArgs,
}

/// Measures, prints and saves the result; exit code 0.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(
        (Duration::from_secs(2)..=Duration::from_mins(10)).contains(&args.seconds),
        "--seconds {} is out of range: choose 2s to 10m",
        humantime::format_duration(args.seconds)
    );
    let machine = discover::machine(Path::new("/"))?;
    let plan = plan_memory_counters(&machine, &args.catalog.load_catalog()?)?;
    let options = calibrate::CalibrationOptions {
        length: args.seconds,
        bytes: args.memory as usize * (1 << 20),
        late: Duration::from_secs(2),
    };
    let path = Path::new("/").join(FILE);
    // The shares are not used, only totals: so the cheapest method.
    let recording = record::RecordOptions {
        method: MethodChoice::Residency,
        io: false,
        afterwards: save_needs(&path),
        ..record::RecordOptions::for_view(&machine, &plan)
    };
    let outcome = calibrate::run(&machine, &plan, &recording, &options)?;
    let [sum, triad] = outcome.asked_per_s.map(|rate| units::human_rate(rate, "bytes"));
    print(&format!(
        "{}\n{} threads moved {sum} with the sum and {triad} with the triad\n",
        format_peaks(&outcome.links),
        outcome.threads,
    ))?;
    if args.dry_run {
        return Ok(0);
    }
    save_calibration(&path, &Calibration { machine: machine.identity, links: outcome.links })?;
    print(&format!("kept in {}\n", path.display()))?;
    Ok(0)
}

/// The plan with the counters of memory.
fn plan_memory_counters(machine: &Machine, catalog: &crate::catalog::Catalog) -> Result<Plan> {
    let request = PlanRequest {
        groups: vec!["mem".to_owned()],
        tick_ns: to_nanos(TICK),
        window_ns: to_nanos(WINDOW),
        ..PlanRequest::default()
    };
    plan(machine, catalog, &request).context("only counters of memory can be calibrated")
}

fn format_peaks(links: &[MeasuredPeak]) -> String {
    let mut table = TextTable::with_whole_columns(["link", "in", "out", "both"]);
    let rate = |rate: Option<f64>| {
        rate.map_or_else(|| "-".to_owned(), |bytes_per_s| units::human_rate(bytes_per_s, "bytes"))
    };
    for link in links {
        let socket = link.socket.map(|socket| format!(" {socket}")).unwrap_or_default();
        table.add_row([
            format!("{}{socket}", link.kind),
            rate(link.in_per_s),
            rate(link.out_per_s),
            rate(link.both_per_s),
        ]);
    }
    table.to_text(None, "")
}

/// Directories that [`save_calibration`] needs: the one of the file, or its parent if it must be
/// created.
fn save_needs(path: &Path) -> ThreadNeeds {
    match path.parent() {
        Some(folder) if !folder.is_dir() => ThreadNeeds::to_write(folder),
        _ => ThreadNeeds::to_write(path),
    }
}

/// Writes a temporary file in the same directory and renames it, so that a reader never sees an
/// incomplete file.
fn save_calibration(path: &Path, calibration: &Calibration) -> Result<()> {
    let cannot_write = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).with_context(cannot_write)?;
    let temporary_path = path.with_extension("json.new");
    let text = serde_json::to_string_pretty(calibration).with_context(cannot_write)? + "\n";
    std::fs::write(&temporary_path, text).with_context(cannot_write)?;
    std::fs::rename(&temporary_path, path).with_context(cannot_write)
}
