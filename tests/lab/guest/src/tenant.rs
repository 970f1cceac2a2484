//! `tenant WORK.json N`: one process of a workload.
//!
//! Guarantees that each thread moves its flows in proportion to the CPU time it used, or to the
//! bytes of its requests, and to nothing else. All of its traffic happens on its CPUs, and in its
//! cgroup unless a kernel thread moves it.

use std::ffi::CString;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::sched_yield;
use rustix::thread::{CpuSet, sched_setaffinity, set_name};
use uncore_trace_lab::spec::{Move, Tenant, Work, Yields};

use crate::flow::{self, ThreadFlow};
use crate::hold::Holder;
use crate::model::Model;
use crate::witness::{Misses, thread_rng};
use crate::{cgroup, disk, time};

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// Prepares the process, reports that it is ready, waits for the common start and runs.
#[expect(clippy::print_stdout, reason = "the process that started the tenant waits for a line")]
pub(crate) fn run_tenant(path: &Path, number: usize) -> Result<()> {
    // If the parent dies, nothing else would end this process early.
    set_parent_process_death_signal(Some(Signal::KILL)).context("ask for the parent's death")?;
    let work = Work::read(path)?;
    let tenant = work.tenants.get(number).with_context(|| format!("no tenant {number}"))?;
    prepare_process(tenant).with_context(|| format!("tenant {number}"))?;
    let moves = !tenant.once.is_empty() || !tenant.flows.is_empty();
    let moves = moves || !tenant.stays.is_empty() || tenant.disk.is_some();
    let model = moves.then(Model::open).transpose()?;
    if let (Some(model), Some(work_us)) = (&model, tenant.kernel_us) {
        model.delegate_moves(work_us)?;
    }
    // Its files must stay open until the process has ended.
    let holder = tenant.hold.as_ref().map(|hold| Holder::new(hold, path, tenant.cgroup.as_deref()));
    let holder: Option<&Holder> = holder.transpose()?.map(|holder| &*Box::leak(Box::new(holder)));
    println!("ready");
    io::stdout().flush().context("say that the tenant is ready")?;
    time::sleep_until(common_start()? + u64::from(tenant.start_ms) * NS_PER_MS)?;
    if let Some(model) = &model {
        model.move_traffic(&tenant.once)?;
    }
    run_threads(tenant, model.as_ref(), holder, time::now_ns())
        .with_context(|| format!("tenant {number}"))?;
    holder.map_or(Ok(()), Holder::end_process)
}

/// Sets the name, and the cgroup and CPUs for all threads of the process.
fn prepare_process(tenant: &Tenant) -> Result<()> {
    if let Some(comm) = &tenant.comm {
        let comm = CString::new(comm.as_str()).context("the name of the process")?;
        set_name(&comm).context("name the process")?;
    }
    if let Some(cgroup) = &tenant.cgroup {
        cgroup::enter_cgroup(cgroup)?;
    }
    tenant.cpus.as_deref().map_or(Ok(()), pin_to_cpus)
}

fn pin_to_cpus(cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set).with_context(|| format!("pin to CPUs {cpus:?}"))
}

/// The common start, which the parent writes to standard input.
fn common_start() -> Result<u64> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("wait for the start")?;
    line.trim().parse().with_context(|| format!("{line:?} is no start"))
}

/// Runs the threads. The main thread is one of them, so a single thread has the process's id.
fn run_threads(
    tenant: &Tenant,
    model: Option<&Model>,
    holder: Option<&Holder>,
    begin: u64,
) -> Result<()> {
    thread::scope(|scope| {
        let mut handles: Vec<_> = (1..tenant.threads)
            .map(|n| scope.spawn(move || run_thread(tenant, n, model, holder, begin)))
            .collect();
        handles.extend(holder.map(|holder| scope.spawn(move || holder.run(begin))));
        let result = run_thread(tenant, 0, model, holder, begin);
        for handle in handles {
            handle.join().map_err(|_panic| anyhow!("a thread panicked"))??;
        }
        result
    })
}

/// Uses CPU time and reports it to the model each period, or sends requests.
fn run_thread(
    tenant: &Tenant,
    thread: u32,
    model: Option<&Model>,
    holder: Option<&Holder>,
    begin: u64,
) -> Result<()> {
    let end = begin + u64::from(tenant.duration_ms) * NS_PER_MS;
    if let Some(disk) = &tenant.disk {
        return disk::send_requests(disk, model, end);
    }
    let new_flows = |flows: &[Move]| flows.iter().copied().map(ThreadFlow::new).collect::<Vec<_>>();
    let mut flows = new_flows(&tenant.flows);
    let mut stay = None;
    let mut witness = tenant.witness.as_ref().map(|witness_spec| Misses::new(witness_spec, thread));
    let first_used = time::used_ns();
    let mut reported = first_used;
    let stint = u64::from(tenant.stint_us.unwrap_or(tenant.period_us)) * NS_PER_US;
    let mut rested = first_used;
    let mut yielding = tenant.yields.map(|yields| Yielding::new(yields, thread, first_used));
    for period in 1.. {
        if time::now_ns() >= end {
            break;
        }
        let since_ms = time::now_ns().saturating_sub(begin) / NS_PER_MS;
        let turn = flow::phase_index(tenant.stays.iter().map(|stay| u64::from(stay.ms)), since_ms);
        if let Some(new_stay) =
            turn.filter(|_| turn != stay).and_then(|index| tenant.stays.get(index))
        {
            pin_to_cpus(&new_stay.cpus)?;
            flows = new_flows(&new_stay.flows);
            stay = turn;
        }
        spin_until(reported + u64::from(tenant.period_us) * NS_PER_US, end);
        let used = time::used_ns();
        let since = time::now_ns().saturating_sub(begin);
        let scale = flow::flow_scale(&tenant.phases, tenant.burst, since, period);
        let flow_moves: Vec<_> =
            flows.iter_mut().map(|flow| flow.take_move(used - reported, scale)).collect();
        let counted = witness.as_mut().and_then(|misses| misses.count_misses(&flow_moves));
        let moves: Vec<_> = flow_moves.into_iter().chain([counted]).flatten().collect();
        if let Some(model) = model {
            match holder {
                Some(holder) => {
                    holder.while_held(|| model.move_traffic(&moves)).unwrap_or(Ok(()))?;
                }
                None => model.move_traffic(&moves)?,
            }
        }
        reported = used;
        if let Some(yielding) = &mut yielding {
            yielding.yield_if_due(used);
        }
        if tenant.duty < 1.0 && used - rested >= stint {
            rested = used;
            // Relative to the total, so that the delays of late wake-ups and a busy CPU do not
            // accumulate.
            let due = begin + ((used - first_used) as f64 / tenant.duty) as u64;
            time::sleep_until(due.min(end))?;
        }
    }
    Ok(())
}

/// Gives the CPU away at random times, as threads on a machine do that wait for something short.
/// Without it, emulated CPUs begin their slices together, and all of them keep the same order.
struct Yielding {
    mean_ns: f64,
    rng: Rng,
    /// CPU time of the thread at which it yields.
    due: u64,
}

impl Yielding {
    fn new(yields: Yields, thread: u32, used: u64) -> Self {
        let mean_ns = f64::from(yields.mean_us) * NS_PER_US as f64;
        let mut yielding = Self { mean_ns, rng: thread_rng(yields.seed, thread), due: 0 };
        yielding.due = used + yielding.draw_pause();
        yielding
    }

    /// An exponentially distributed time, ns.
    fn draw_pause(&mut self) -> u64 {
        (-self.mean_ns * (1.0 - self.rng.f64()).ln()) as u64
    }

    fn yield_if_due(&mut self, used: u64) {
        if used >= self.due {
            self.due = used + self.draw_pause();
            sched_yield();
        }
    }
}

/// Runs until the thread has used this much CPU time, or until the time `end`.
fn spin_until(until_used: u64, end: u64) {
    while time::used_ns() < until_used && time::now_ns() < end {
        // Reading the clock is a system call, and the thread should spend most of its time in user
        // mode.
        for step in 0..500 {
            black_box(step);
        }
    }
}
