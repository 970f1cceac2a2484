//! All programs of a guest of the lab, as one static binary that is the guest's /init.
//!
//! As process 1 it brings the machine up, runs the steps of /lab/guest.json and writes their
//! results. `run FILE` is the workload of one step, and `tenant FILE N` is one process of it, and
//! `keep LOG CGROUP MS` the child of one that holds a device.
//! `beside FILE COMMAND` runs a command without a workload of its own while a workload runs.
#![expect(clippy::print_stderr, reason = "errors go to standard error")]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

mod archive;
mod cgroup;
mod disk;
mod drivers;
mod flow;
mod hold;
mod housekeeping;
mod init;
mod kmsg;
mod model;
mod modules;
mod mounts;
mod steps;
mod tenant;
mod time;
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../../wait.rs"]
mod wait;
mod witness;
mod work;

fn main() -> ExitCode {
    if rustix::process::getpid() == rustix::process::Pid::INIT {
        return init::main();
    }
    match run_role() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the role that the arguments of a process other than process 1 select.
fn run_role() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", file] => work::run_work(Path::new(file)),
        ["beside", file, program, args @ ..] => work::run_beside(Path::new(file), program, args),
        ["tenant", file, number] => {
            let number = number.parse().with_context(|| format!("tenant number {number:?}"))?;
            tenant::run_tenant(Path::new(file), number)
        }
        ["keep", log, cgroup, ms] => {
            let ms = ms.parse().with_context(|| format!("time {ms:?}"))?;
            hold::keep_inherited(Path::new(log), cgroup, ms)
        }
        _ => bail!(
            "give `run WORK.json` or `beside WORK.json COMMAND`; the other roles are started by init and by `run`"
        ),
    }
}
