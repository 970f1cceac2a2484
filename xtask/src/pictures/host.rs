//! Recordings on this machine: tenants in separate cgroups, one of which does more after a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::target;

/// Tenants: one serves requests and waits, one computes, one starts short programs, one writes a
/// file and reads it again, past the cache.
const TENANTS: [(&str, &str); 4] = [
    ("web", "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; sleep 0.02; done"),
    ("batch", "while :; do :; done"),
    ("build", "while :; do /bin/true; /bin/ls -R /etc >/dev/null; sleep 0.05; done"),
    (
        "backup",
        "while :; do dd if=/dev/zero of=file bs=1M count=20 oflag=direct; sleep 0.3
         dd if=file of=/dev/null bs=1M iflag=direct; sleep 0.3; done",
    ),
];

/// Cgroup of the tenants in pictures.
const CGROUP: &str = "pictures";

/// Index of the tenant that is started a second time in the second half.
const GROWS: usize = 2;

/// Length of a half, seconds.
const HALF: u64 = 5;
/// Spans of both halves, without the time around the change.
pub(super) const HALVES: [&str; 4] = ["--before", "..4s", "--after", "6s.."];

/// How long the recorder is stopped, so that it loses records.
const STOPPED: Duration = Duration::from_secs(4);

/// Records `-p host`; in the second half one tenant does twice as much.
pub(super) fn record_steady(program: &Path, output_dir: &Path) -> Result<()> {
    let tenants = Tenants::start(CGROUP)?;
    let recorder = HostRecorder::start(program, output_dir, &[])?;
    sleep(Duration::from_secs(HALF));
    let extra_tenant = tenants.start_tenant(GROWS)?;
    sleep(Duration::from_secs(HALF));
    drop(extra_tenant);
    recorder.stop_recorder(&[0])
}

/// The same with a recorder that is stopped until its buffer is full.
pub(super) fn record_with_losses(program: &Path, output_dir: &Path) -> Result<()> {
    let _tenants = Tenants::start(CGROUP)?;
    let recorder = HostRecorder::start(program, output_dir, &["--buffer", "1", "--tick", "1ms"])?;
    sleep(Duration::from_secs(3));
    recorder.send_signal(Signal::STOP)?;
    sleep(STOPPED);
    recorder.send_signal(Signal::CONT)?;
    sleep(Duration::from_secs(3));
    // Exit code 1 says that records were lost.
    recorder.stop_recorder(&[0, 1])
}

/// Programs in cgroups below `/NAME`, removed on drop.
pub(crate) struct Tenants {
    dirs: Vec<PathBuf>,
    running: Vec<TenantProcesses>,
    /// Where they run.
    work_dir: TempDir,
}

impl Tenants {
    pub(crate) fn start(name: &str) -> Result<Self> {
        let parent = cgroup2_mount()?.join(name);
        // A temporary directory of the system may be in memory.
        let target = target::target_dir()?;
        let place = tempfile::tempdir_in(&target)
            .with_context(|| format!("cannot make a directory in {}", target.display()))?;
        let mut tenants = Self { dirs: Vec::new(), running: Vec::new(), work_dir: place };
        for dir in [parent.clone()].into_iter().chain(TENANTS.map(|(name, _)| parent.join(name))) {
            fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            tenants.dirs.push(dir);
        }
        for number in 0..TENANTS.len() {
            let group = tenants.start_tenant(number)?;
            tenants.running.push(group);
        }
        Ok(tenants)
    }

    /// Starts one in its cgroup.
    fn start_tenant(&self, number: usize) -> Result<TenantProcesses> {
        let (_, script) = TENANTS[number];
        let procs = self.dirs[number + 1].join("cgroup.procs");
        let script = format!("echo $$ > '{}' || exit; {script}", procs.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&self.work_dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(TenantProcesses(command.spawn().context("cannot run sh")?))
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        self.running.clear();
        for dir in self.dirs.iter().rev() {
            // A killed process leaves its cgroup a moment later.
            let removed = |_: &usize| {
                fs::remove_dir(dir).is_ok() || {
                    sleep(Duration::from_millis(20));
                    false
                }
            };
            (0..100).find(removed);
        }
    }
}

/// A process group, killed on drop.
struct TenantProcesses(Child);

impl Drop for TenantProcesses {
    fn drop(&mut self) {
        kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        self.0.wait().ok();
    }
}

/// The mount of the v2 hierarchy.
fn cgroup2_mount() -> Result<PathBuf> {
    let mounts =
        fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut unified = fields.filter(|fields| fields.get(2) == Some(&"cgroup2"));
    let fields = unified.next().context("no cgroup v2 hierarchy is mounted")?;
    Ok(PathBuf::from(fields[1]))
}

/// A recorder of `-p host`.
struct HostRecorder(Child);

impl HostRecorder {
    /// Starts it and waits until it counts.
    fn start(program: &Path, output_dir: &Path, options: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["record", "-q", "-p", "host"])
            .args(options)
            .arg("-o")
            .arg(output_dir.join(""));
        let recorder = Self(command.stdin(Stdio::null()).spawn().context("cannot record")?);
        sleep(Duration::from_secs(1));
        Ok(recorder)
    }

    fn send_signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.0), signal).context("cannot signal the recorder")
    }

    /// Ends it; the exit code must be one of these.
    fn stop_recorder(mut self, codes: &[i32]) -> Result<()> {
        self.send_signal(Signal::TERM)?;
        let status = self.0.wait().context("cannot wait for the recorder")?;
        ensure!(
            status.code().is_some_and(|code| codes.contains(&code)),
            "record ended with {status}"
        );
        Ok(())
    }
}
