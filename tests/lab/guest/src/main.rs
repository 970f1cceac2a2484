//! Everything a guest of the lab runs, as one static binary that is the guest's /init.
//!
//! As process 1 it brings the machine up, runs the steps of /lab/guest.json and hands their results
//! out. As `run FILE` it is the workload of one step, as `tenant FILE N` one process of it;
//! as `beside FILE COMMAND` it runs a command that has no workload of its own while one runs.
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
mod housekeeping;
mod init;
mod kmsg;
mod model;
mod modules;
mod mounts;
mod steps;
mod tenant;
mod time;
mod witness;
mod work;

fn main() -> ExitCode {
    if rustix::process::getpid() == rustix::process::Pid::INIT {
        return init::main();
    }
    match role() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the arguments of a process other than the first ask for.
fn role() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", file] => work::run(Path::new(file)),
        ["beside", file, program, args @ ..] => work::beside(Path::new(file), program, args),
        ["tenant", file, number] => {
            let number = number.parse().with_context(|| format!("tenant number {number:?}"))?;
            tenant::run(Path::new(file), number)
        }
        _ => bail!(
            "give `run WORK.json` or `beside WORK.json COMMAND`; the other roles are started by init and by `run`"
        ),
    }
}
