//! `cargo xtask soak`: checks that the agent's memory and CPU time do not grow over time.
//!
//! The agent keeps a ring, roll-ups and metrics of the group host while cgroups come and go, each
//! with a process that runs for a moment. With `--ring none`, the agent's default, there is only
//! one part. Guarantee: it fails if the memory in the last third of the time is more than
//! [`GROWTH`] times that in the third before, or the CPU time per minute is.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::target;

/// Largest ratio that counts as equal.
const GROWTH: f64 = 1.1;

/// Parent of its cgroups.
const CGROUP: &str = "uncore-trace-soak";

/// The program of a cgroup: some milliseconds of CPU time.
const WORK: &str = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done";

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// Cgroups that come and go a second
    #[arg(long, default_value_t = 6)]
    cgroups: u32,
    /// What the ring keeps: a number of parts of a minute, a size, or `none`
    #[arg(long, default_value = "3")]
    ring: String,
}

/// Measurements of a minute.
#[derive(Debug, Clone, Copy)]
struct Minute {
    resident_kib: u64,
    cpu_s: f64,
    ring_bytes: u64,
    rollup_bytes: u64,
}

/// The agent and its directory; ends it when dropped.
struct Agent {
    child: Child,
    dir: tempfile::TempDir,
}

impl Agent {
    fn start(ring: &str) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        let root = dir.path().display();
        let ring = match ring {
            "none" => String::new(),
            keep => {
                format!("[ring]\ndirectory = '{root}/ring'\npart = '1min'\nkeep = '{keep}'\n")
            }
        };
        let text = format!(
            "[record]\ngroups = ['host']\n{ring}[rollup]\ndirectory = '{root}/rollup'\nwindow = '10s'\n\
             [metrics]\ntextfile = '{root}/agent.prom'\n"
        );
        let config = dir.path().join("agent.toml");
        fs::write(&config, text).context("cannot write the configuration")?;
        let child = Command::new(target::release()?)
            .args(["agent", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the agent")?;
        Ok(Self { child, dir })
    }

    /// Memory in use, KiB, and CPU time so far, s.
    fn usage(&self) -> Result<(u64, f64)> {
        let process =
            procfs::process::Process::new(self.child.id() as i32).context("the agent has ended")?;
        let status = process.status().context("cannot read the agent's memory")?;
        let stat = process.stat().context("cannot read the agent's CPU time")?;
        let ticks = (stat.utime + stat.stime) as f64;
        Ok((status.vmrss.unwrap_or_default(), ticks / procfs::ticks_per_second() as f64))
    }

    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .context("cannot stop the agent")?;
        let status = self.child.wait().context("cannot wait for the agent")?;
        ensure!(matches!(status.code(), Some(0 | 1)), "the agent ended with {status}");
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs the agent and checks the measurements.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(geteuid().is_root(), "it records, so it must be run as root");
    ensure!(args.minutes >= 3, "three minutes are the least: each third is judged");
    let cgroups = hierarchy()?.join(CGROUP);
    let agent = Agent::start(&args.ring)?;
    sleep(Duration::from_secs(5));
    let mut minutes = Vec::new();
    let mut made = 0_u64;
    let (_, mut before) = agent.usage()?;
    println!(
        "| minute | memory, MiB | CPU time, % of a core | ring, MB | roll-up, MB | cgroups so far |"
    );
    println!("|---|---|---|---|---|---|");
    for minute in 1..=args.minutes {
        made += churn(&cgroups, args.cgroups, Duration::from_mins(1))?;
        let (resident_kib, cpu_s) = agent.usage()?;
        let seen = Minute {
            resident_kib,
            cpu_s: cpu_s - before,
            ring_bytes: size(&agent.dir.path().join("ring")),
            rollup_bytes: size(&agent.dir.path().join("rollup")),
        };
        before = cpu_s;
        println!(
            "| {minute} | {:.1} | {:.1} | {:.1} | {:.2} | {made} |",
            seen.resident_kib as f64 / 1024.0,
            100.0 * seen.cpu_s / 60.0,
            seen.ring_bytes as f64 / 1e6,
            seen.rollup_bytes as f64 / 1e6,
        );
        minutes.push(seen);
    }
    agent.stop()?;
    // What may be left is empty and does no harm.
    fs::remove_dir(&cgroups).ok();
    judge(&minutes)
}

/// Where cgroup v2 is mounted.
fn hierarchy() -> Result<PathBuf> {
    let mounts = procfs::mounts().context("cannot read the mounts")?;
    let found = mounts.into_iter().find(|mount| mount.fs_vfstype == "cgroup2");
    Ok(found.context("cgroup v2 is not mounted")?.fs_file.into())
}

/// Makes and removes this many cgroups a second below `dir`, for a time. Returns their number.
fn churn(dir: &Path, a_second: u32, time: Duration) -> Result<u64> {
    let begin = Instant::now();
    let mut made = 0;
    while begin.elapsed() < time {
        let due = begin + Duration::from_secs(1) * made as u32 / a_second.max(1);
        sleep(due.saturating_duration_since(Instant::now()));
        let name = format!("{}/{}-{made}", dir.display(), std::process::id());
        fs::create_dir_all(&name).with_context(|| format!("cannot make the cgroup {name}"))?;
        let script = format!("echo $$ > {name}/cgroup.procs; {WORK}");
        let status = Command::new("sh").args(["-c", &script]).status().context("cannot run sh")?;
        ensure!(status.success(), "a process of {name} failed: {status}");
        fs::remove_dir(&name).with_context(|| format!("cannot remove the cgroup {name}"))?;
        made += 1;
    }
    Ok(made)
}

/// Bytes of the files below a directory.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let of = |path: PathBuf| {
        if path.is_dir() { size(&path) } else { fs::metadata(&path).map_or(0, |it| it.len()) }
    };
    paths.map(of).sum()
}

fn judge(minutes: &[Minute]) -> Result<()> {
    let third = minutes.len() / 3;
    let (middle, last) = (&minutes[third..2 * third], &minutes[minutes.len() - third..]);
    let mean = |of: &[Minute], what: fn(&Minute) -> f64| {
        of.iter().map(what).sum::<f64>() / of.len() as f64
    };
    for (name, what) in [
        ("memory", (|it| it.resident_kib as f64) as fn(&Minute) -> f64),
        ("CPU time", |it| it.cpu_s),
    ] {
        let growth = mean(last, what) / mean(middle, what);
        println!("{name}: the last third has {growth:.2} times that of the second");
        ensure!(growth <= GROWTH, "{name} grows: {growth:.2} times, {GROWTH} are allowed");
    }
    Ok(())
}
