//! The keeper of the canary's cgroup: a process that takes the canary out of it at the end and
//! removes it, so that the canary itself, which moves bytes, keeps no right for that.
//!
//! The directory of the root cgroup has the mode 0555 (`kernfs`), so root needs `CAP_DAC_OVERRIDE`
//! to remove a cgroup in it. The keeper keeps that capability only there, and may write in that
//! directory only. Guarantee: it removes the cgroup when the canary says so, and ends when the
//! canary does, as its standard input ends then.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::super::child::{self, Child, LOOK, OrderLines, send_line};
use crate::confine::{self, ThreadNeeds};

/// The program's name, `argv[0]`, in the process.
pub(super) const NAME: &str = "uncore-trace-keeper";

/// What it is called in errors.
const ABOUT: &str = "the process that removes the canary's cgroup";

/// How long it may take to begin, and to remove the cgroup.
const BEGINS: Duration = Duration::from_secs(5);
const REMOVES: Duration = Duration::from_secs(1);

/// What the canary says first. Another line follows when the cgroup is to be removed.
#[derive(Debug, Serialize, Deserialize)]
struct Entrusted {
    /// The directory of the cgroup.
    cgroup: PathBuf,
    /// The canary.
    pid: u32,
}

/// What the keeper says once it is confined.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeeperAnswer {
    Ready,
    Failed { why: String },
}

/// The canary's end of a running keeper.
#[derive(Debug)]
pub(super) struct Keeper(Child);

impl Keeper {
    /// Starts the process for a cgroup of this process, which it is not in.
    pub(super) fn start_process(cgroup: &Path) -> Result<Self> {
        let entrusted = Entrusted { cgroup: cgroup.to_owned(), pid: std::process::id() };
        let mut child = Child::start_process(NAME, ABOUT, &entrusted)?;
        let begin = Instant::now();
        while begin.elapsed() < BEGINS {
            match child.take_answers()?.into_iter().next() {
                Some(KeeperAnswer::Ready) => return Ok(Self(child)),
                Some(KeeperAnswer::Failed { why }) => bail!("{ABOUT} failed: {why}"),
                None if child.has_ended => bail!("{ABOUT} ended early"),
                None => thread::sleep(LOOK),
            }
        }
        bail!("{ABOUT} did not begin in {} s", BEGINS.as_secs())
    }

    /// Has the keeper take this process out of the cgroup, and remove the cgroup.
    pub(super) fn remove_cgroup(&mut self) {
        self.0.send_order("remove");
        self.0.close_orders();
        self.0.wait_for_exit(2 * REMOVES);
    }
}

/// The process.
pub(super) fn main() -> ExitCode {
    child::run_child(c"uncore-keeper", run_keeper, |why| KeeperAnswer::Failed { why })
}

fn run_keeper() -> Result<()> {
    let mut lines = OrderLines::default();
    let order_line = lines.wait_for_line(i64::MAX)?.context("the recorder sent no orders")?;
    let Entrusted { cgroup, pid } =
        serde_json::from_str(&order_line).context("cannot understand orders")?;
    let cgroup_parent = cgroup.parent().context("the cgroup has no parent")?;
    confine::restrict_process(&ThreadNeeds {
        writes: vec![cgroup_parent.to_owned()],
        ..ThreadNeeds::default()
    });
    send_line(&KeeperAnswer::Ready)?;
    if lines.wait_for_line(i64::MAX)?.is_some() {
        fs::write(cgroup_parent.join("cgroup.procs"), pid.to_string()).ok();
        let begin = Instant::now();
        // The kernel refuses it for a moment while a process leaves.
        while fs::remove_dir(&cgroup).is_err_and(|error| is_busy(&error))
            && begin.elapsed() < REMOVES
        {
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}
