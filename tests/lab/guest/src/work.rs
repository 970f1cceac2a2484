//! `run WORK.json`: what happens on the machine while a step's command looks.
//!
//! Guarantees that every tenant is in its cgroup and ready before the common start is set, so that
//! times in the file are times of the workload, however slowly processes start.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::spec::{Action, Tenant, Verb, Work};
use crate::{cgroup, time};

const NS_PER_MS: u64 = 1_000_000;

/// Runs the workload to its end; an error if any part of it failed.
pub(crate) fn run(path: &Path) -> Result<()> {
    let work = Work::read(path)?;
    let mut tenants = Vec::new();
    for (number, tenant) in work.tenants.iter().enumerate() {
        let name = name(number, tenant);
        let child = start(path, number, tenant).with_context(|| format!("start {name}"))?;
        tenants.push((name, child));
    }
    for (name, child) in &mut tenants {
        ready(child.stdout.take()).with_context(|| name.clone())?;
    }
    let begin = time::now();
    for (name, child) in &mut tenants {
        let stdin = child.stdin.take().with_context(|| format!("{name} has no input"))?;
        writeln!(&stdin, "{begin}").with_context(|| format!("start {name}"))?;
    }
    let acted = act(&work.actions, begin);
    for (name, mut child) in tenants {
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        ensure!(status.success(), "{name} failed: {status}");
    }
    acted?;
    time::sleep_until(time::now() + work.settle_ms * NS_PER_MS)
}

fn name(number: usize, tenant: &Tenant) -> String {
    format!("tenant {number} ({})", tenant.cgroup.as_deref().unwrap_or("no cgroup of its own"))
}

fn start(path: &Path, number: usize, tenant: &Tenant) -> Result<Child> {
    if let Some(cgroup) = &tenant.cgroup {
        cgroup::create(cgroup)?;
    }
    let mut command = Command::new(env::current_exe().context("find the running program")?);
    command.arg("tenant").arg(path).arg(number.to_string());
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Waits for the word of a tenant; it tells standard error if it cannot give it.
fn ready(stdout: Option<ChildStdout>) -> Result<()> {
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() {
        bail!("it ended before it was ready");
    }
    Ok(())
}

fn act(actions: &[Action], begin: u64) -> Result<()> {
    let mut actions: Vec<&Action> = actions.iter().collect();
    actions.sort_by_key(|action| action.after_ms);
    for action in actions {
        time::sleep_until(begin + action.after_ms * NS_PER_MS)?;
        let path = format!("/sys/devices/system/cpu/cpu{}/online", action.cpu);
        let online = match action.verb {
            Verb::Offline => "0",
            Verb::Online => "1",
        };
        fs::write(&path, online).with_context(|| format!("write {online} to {path}"))?;
    }
    Ok(())
}
