//! `run WORK.json`: runs tenants and changes of the machine while a step's command runs.
//!
//! Guarantees that every tenant except those that are `late` is in its cgroup and ready before the
//! common start is set. So times in the file are relative to the start of the workload, even if
//! processes start slowly.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use uncore_trace_lab::spec::{Action, Tenant, Work};

use crate::drivers::Drivers;
use crate::{cgroup, time};

const NS_PER_MS: u64 = 1_000_000;

/// Runs the workload to its end. An error if any part of it failed.
pub(crate) fn run_work(path: &Path) -> Result<()> {
    let work = Work::read(path)?;
    let mut tenants = Vec::new();
    let mut events = Vec::new();
    for (number, tenant) in work.tenants.iter().enumerate() {
        if tenant.late {
            events.push((tenant.start_ms, WorkEvent::Start(number, tenant)));
        } else {
            tenants.push(start_tenant(path, number, tenant)?);
        }
    }
    for (name, child) in &mut tenants {
        wait_until_ready(child.stdout.take()).with_context(|| name.clone())?;
    }
    let begin = time::now_ns();
    for (name, child) in &mut tenants {
        send_start(name, child, begin)?;
    }
    events.extend(work.actions.iter().map(|action| (action.after_ms, WorkEvent::Act(action))));
    events.sort_by_key(|(after_ms, _)| *after_ms);
    let acted = run_events(path, &events, begin, &mut tenants);
    for (name, mut child) in tenants {
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        ensure!(status.success(), "{name} failed: {status}");
    }
    acted?;
    time::sleep_until(time::now_ns() + u64::from(work.settle_ms) * NS_PER_MS)
}

/// Runs a command to its end while the workload runs. An error unless its exit code is 0. Init
/// kills the rest of the workload.
pub(crate) fn run_beside(path: &Path, program: &str, args: &[&str]) -> Result<()> {
    let this_program = env::current_exe().context("find this program")?;
    let mut work = Command::new(this_program)
        .arg("run")
        .arg(path)
        .stdin(Stdio::null())
        .spawn()
        .context("start the workload")?;
    let status = Command::new(program).args(args).status();
    let ended = work.try_wait().context("look for the workload")?;
    let status = status.with_context(|| format!("run {program}"))?;
    ensure!(status.success(), "{program} failed: {status}");
    ensure!(ended.is_none_or(|status| status.success()), "the workload failed");
    Ok(())
}

fn tenant_name(number: usize, tenant: &Tenant) -> String {
    format!("tenant {number} ({})", tenant.cgroup.as_deref().unwrap_or("no cgroup of its own"))
}

/// Starts a tenant, which waits for the common start.
fn start_tenant(path: &Path, number: usize, tenant: &Tenant) -> Result<(String, Child)> {
    let name = tenant_name(number, tenant);
    let child = spawn_tenant(path, number, tenant).with_context(|| format!("start {name}"))?;
    Ok((name, child))
}

fn spawn_tenant(path: &Path, number: usize, tenant: &Tenant) -> Result<Child> {
    if let Some(cgroup) = &tenant.cgroup {
        cgroup::create_cgroup(cgroup)?;
        if let Some(cpu_max) = &tenant.cpu_max {
            cgroup::limit_cpu(cgroup, cpu_max)?;
        }
    }
    let mut command = Command::new(env::current_exe().context("find the running program")?);
    command.arg("tenant").arg(path).arg(number.to_string());
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Waits until a tenant reports that it is ready. A tenant that fails writes the reason to standard
/// error.
fn wait_until_ready(stdout: Option<ChildStdout>) -> Result<()> {
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() {
        bail!("it ended before it was ready");
    }
    Ok(())
}

/// Sends the common start to a tenant.
fn send_start(name: &str, child: &mut Child, begin: u64) -> Result<()> {
    let stdin = child.stdin.take().with_context(|| format!("{name} has no input"))?;
    writeln!(&stdin, "{begin}").with_context(|| format!("start {name}"))
}

/// An event while tenants run.
enum WorkEvent<'a> {
    Act(&'a Action),
    Start(usize, &'a Tenant),
}

/// Runs events, each at its time. Tenants that they start are added.
fn run_events(
    path: &Path,
    events: &[(u32, WorkEvent<'_>)],
    begin: u64,
    tenants: &mut Vec<(String, Child)>,
) -> Result<()> {
    let mut drivers = Drivers::default();
    for (after_ms, event) in events {
        time::sleep_until(begin + u64::from(*after_ms) * NS_PER_MS)?;
        match event {
            WorkEvent::Act(action) => drivers.apply_change(&action.change)?,
            WorkEvent::Start(number, tenant) => {
                let (name, mut child) = start_tenant(path, *number, tenant)?;
                send_start(&name, &mut child, begin)?;
                tenants.push((name, child));
            }
        }
    }
    Ok(())
}
