//! `cargo xtask soak`: the agent and its upload beside Prometheus, while cgroups come and go.
//!
//! The agent keeps a ring, roll-ups and metrics of the group host; the upload sends the files of
//! hours that are over to an object store (moto); Prometheus scrapes every 5 s. Guarantee: it fails
//! if
//!
//! - the memory of the agent in the last third of the time is more than [`GROWTH`] times that in
//!   the third before, or its CPU time per minute is;
//! - a cgroup that existed for a moment has a series, a metric has more series than docs/agent.md
//!   allows, a counter went down, or the shares of an event do not sum to what it counted;
//! - a scrape failed, rows were not written, or a file of the roll-up is not in the store at the
//!   end.
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod churn;
mod prometheus;
mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::{setup, target};
use churn::{Churn, SHORT};
use prometheus::Prometheus;
use service::Service;

/// Largest ratio that counts as equal.
const GROWTH: f64 = 1.1;

/// Owners with a series in each metric of a link or event: `metrics.owners`.
const OWNERS: u32 = 20;

/// Series that each metric of a link or event has besides: `idle`, `irq`, `softirq` and `other`.
const FIXED: u32 = 4;

/// Number of all series of the agent that Prometheus has seen.
const EVER: &str = "count(last_over_time({job='uncore-trace', __name__=~'uncore_trace_.*'}[1d]))";

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Length of the run
    #[arg(long, default_value_t = 60)]
    minutes: u32,
    /// Number of short-lived cgroups per second
    #[arg(long, default_value_t = 6)]
    cgroups: u32,
    /// Number of cgroups per minute that work for a minute
    #[arg(long, default_value_t = 4)]
    tenants: u32,
    /// Limit of the ring: a number of parts of a minute, a size, or `none`
    #[arg(long, default_value = "3")]
    ring: String,
}

/// Measurements of a minute.
#[derive(Debug, Clone, Copy)]
struct Minute {
    resident_kib: u64,
    cpu_s: f64,
}

/// The processes of a soak and their directory.
struct Soak {
    agent: Service,
    upload: Service,
    prometheus: Prometheus,
    _store: Service,
    config: PathBuf,
    dir: TempDir,
}

impl Soak {
    fn start(ring: &str) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        let root = dir.path().display();
        let ring = match ring {
            "none" => String::new(),
            keep => {
                format!("[ring]\ndirectory = '{root}/ring'\npart = '1min'\nkeep = '{keep}'\n")
            }
        };
        let (listen, store) = (service::free_address()?, service::free_address()?);
        let text = format!(
            "[record]\ngroups = ['host']\n{ring}[rollup]\ndirectory = '{root}/rollup'\nwindow = '10s'\n\
             [metrics]\nlisten = '{listen}'\ntextfile = '{root}/agent.prom'\nowners = {OWNERS}\n\
             [upload]\nurl = 's3://soak'\nendpoint = 'http://{store}'\n"
        );
        let config = dir.path().join("agent.toml");
        fs::write(&config, text).context("cannot write the configuration")?;
        let programs = target::release_binary()?;
        let start = |name, words: &[&str]| {
            let mut command = Command::new(&programs);
            Service::start(name, with_credentials(command.args(words).arg("--config").arg(&config)))
        };
        let mut agent = start("the agent", &["agent"])?;
        agent.wait_for_answer(&listen)?;
        let port = store.rsplit_once(':').map_or("", |(_, port)| port);
        let mut moto = Service::start(
            "moto",
            Command::new(setup::READERS.python_path()?)
                .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", port])
                .stderr(std::process::Stdio::null()),
        )?;
        moto.wait_for_answer(&store)?;
        service::make_bucket(&store, "soak")?;
        let upload = start("the upload", &["upload"])?;
        let prometheus = Prometheus::start(dir.path(), &listen)?;
        Ok(Self { agent, upload, prometheus, _store: moto, config, dir })
    }

    /// Ends the agent and the upload, sends what is left, and checks that nothing is left.
    fn finish(self) -> Result<()> {
        self.agent.stop_service()?;
        self.upload.stop_service()?;
        let status = with_credentials(
            Command::new(target::release_binary()?)
                .args(["upload", "--once", "--config"])
                .arg(&self.config),
        )
        .status()
        .context("cannot run the upload")?;
        ensure!(status.success(), "the upload failed: {status}");
        let (files, sent) = count_files(&self.dir.path().join("rollup"));
        println!("files of the roll-up: {files}, in the store: {sent}");
        ensure!(files > 0 && files == sent, "not all files of the roll-up are in the store");
        Ok(())
    }
}

/// Files of the roll-up that are complete, and those that the store has confirmed.
fn count_files(rollup: &Path) -> (usize, usize) {
    let journal = fs::read_to_string(rollup.join(".uploaded")).unwrap_or_default();
    let sent = journal.lines().filter(|line| line.contains(".parquet")).count();
    // The current hour is a directory of unfinished files.
    let is_complete = |path: &PathBuf| {
        let name = path.display().to_string();
        name.ends_with(".parquet") && !name.contains(".partial/")
    };
    let complete = walk_files(rollup).filter(is_complete);
    (complete.count(), sent)
}

/// Credentials that moto takes.
fn with_credentials(command: &mut Command) -> &mut Command {
    command.env("AWS_ACCESS_KEY_ID", "testing").env("AWS_SECRET_ACCESS_KEY", "testing")
}

/// Runs everything and checks the measurements.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(geteuid().is_root(), "this task records: run it as root");
    ensure!(
        args.minutes >= 3,
        "the run must take at least three minutes, because its thirds are \
                                compared"
    );
    let mut churn = Churn::new()?;
    let soak = Soak::start(&args.ring)?;
    sleep(Duration::from_secs(5));
    let mut minutes = Vec::new();
    let (_, mut previous_cpu_s) = soak.agent.memory_and_cpu()?;
    println!(
        "| minute | agent, MiB | CPU time, % of a core | upload, MiB | ring, MB | roll-up, MB | \
         sent files | cgroups so far | series | losses \
         |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for minute in 1..=args.minutes {
        churn.run_minute(args.cgroups, args.tenants)?;
        let (resident_kib, cpu_s) = soak.agent.memory_and_cpu()?;
        let (upload_kib, _) = soak.upload.memory_and_cpu()?;
        let seen = Minute { resident_kib, cpu_s: cpu_s - previous_cpu_s };
        previous_cpu_s = cpu_s;
        let (files, sent) = count_files(&soak.dir.path().join("rollup"));
        println!(
            "| {minute} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} | {sent} of {files} | {} | {} | \
             {} |",
            seen.resident_kib as f64 / 1024.0,
            100.0 * seen.cpu_s / 60.0,
            upload_kib as f64 / 1024.0,
            total_bytes(&soak.dir.path().join("ring")) as f64 / 1e6,
            total_bytes(&soak.dir.path().join("rollup")) as f64 / 1e6,
            churn.short_count + churn.tenants,
            soak.prometheus.query_number(EVER)?,
            soak.prometheus.query_number("sum(uncore_trace_lost_total{kind='loss'})")?,
        );
        minutes.push(seen);
    }
    drop(churn);
    check_series(&soak.prometheus, args.minutes)?;
    for sample in soak.prometheus.run_query("uncore_trace_lost_total > 0")? {
        println!("lost: {:?}: {}", sample.metric, sample.parse_value()?);
    }
    soak.finish()?;
    judge_growth(&minutes)
}

/// Labels that name an owner.
const OF_OWNERS: &str = "owner, owner_device, owner_cgroup, owner_container, owner_pod, owner_job";

/// Checks the series that Prometheus has seen in all the time.
fn check_series(prometheus: &Prometheus, minutes: u32) -> Result<()> {
    println!("series: {}", prometheus.query_number(EVER)?);
    let require_none = |complaint: &str, query: &str| {
        let series_found = prometheus.run_query(query)?;
        ensure!(
            series_found.is_empty(),
            "{complaint}: {:?}",
            series_found.iter().take(3).collect::<Vec<_>>()
        );
        Ok(())
    };
    require_none("a scrape failed", "avg_over_time(up{job='uncore-trace'}[1d]) < 1")?;
    let short = format!("last_over_time({{owner_cgroup=~'.*/{SHORT}.*'}}[1d])");
    require_none("a cgroup that existed for a moment has a series", &short)?;
    for counter in
        prometheus.run_query("count by (__name__) ({__name__=~'uncore_trace_.+_total'})")?
    {
        let name = counter.metric.get("__name__").context("a metric has no name")?;
        require_none("a counter went down", &format!("resets({name}[1d]) > 0"))?;
    }
    require_none("rows were not written", "uncore_trace_unwritten_rows_total > 0")?;
    let owner_sum = format!(
        "sum without({OF_OWNERS})(uncore_trace_owner_event_seconds_total) + \
         uncore_trace_unattributed_event_seconds_total"
    );
    let whole = "uncore_trace_event_seconds_total";
    require_none(
        "shares do not sum to the whole",
        &format!("abs({owner_sum} - {whole}) > 1e-6 * {whole}"),
    )?;
    ensure!(!prometheus.run_query(&format!("{owner_sum} > 0"))?.is_empty(), "no time has an owner");
    // docs/agent.md: three times the owners in any hour, and as many as owners in each hour more.
    let series_limit = f64::from(3 * OWNERS + FIXED) + f64::from(OWNERS) * f64::from(minutes / 60);
    let largest_query = format!(
        "max(count without({OF_OWNERS}) \
         (last_over_time({{__name__=~'uncore_trace_owner_.+'}}[1d])))"
    );
    let largest = prometheus.query_number(&largest_query)?;
    println!("largest number of owners' series of a metric: {largest}, {series_limit} are allowed");
    let tenants = prometheus.run_query("last_over_time({owner_cgroup=~'.*/tenant-.*'}[1d])")?;
    ensure!(!tenants.is_empty(), "no cgroup that worked for a minute has a series");
    ensure!(largest <= series_limit, "a metric has {largest} series, {series_limit} are allowed");
    Ok(())
}

/// All files below a directory.
fn walk_files(dir: &Path) -> Box<dyn Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    Box::new(entries.flat_map(|path| {
        if path.is_dir() { walk_files(&path) } else { Box::new(std::iter::once(path)) }
    }))
}

/// Bytes of the files below a directory.
fn total_bytes(dir: &Path) -> u64 {
    walk_files(dir).map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len())).sum()
}

fn judge_growth(minutes: &[Minute]) -> Result<()> {
    let third = minutes.len() / 3;
    let (middle_third, last_third) =
        (&minutes[third..2 * third], &minutes[minutes.len() - third..]);
    let mean = |span: &[Minute], figure: fn(&Minute) -> f64| {
        span.iter().map(figure).sum::<f64>() / span.len() as f64
    };
    for (name, figure) in [
        ("memory", (|minute| minute.resident_kib as f64) as fn(&Minute) -> f64),
        ("CPU time", |minute| minute.cpu_s),
    ] {
        let growth = mean(last_third, figure) / mean(middle_third, figure);
        println!("{name}: the last third has {growth:.2} times that of the second");
        ensure!(growth <= GROWTH, "{name} grows: {growth:.2} times, {GROWTH} are allowed");
    }
    Ok(())
}
