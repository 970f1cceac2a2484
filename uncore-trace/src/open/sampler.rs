//! Triggers the reader CPUs to read their counters once a tick.
//!
//! A `cpu-clock` perf event would be the obvious timer, but an idle tickless CPU loses nearly all
//! of its samples (27 of 5000 ticks remain at 1 kHz on Linux 6.18), and a fabric carries most DMA
//! while CPUs are idle. So there are two others:
//!
//! - [`Timer::Pinned`]: a `bpf_timer` pinned to its CPU (Linux >= 6.7). It needs no wake-up of user
//!   space. Kernels without BTF and those with `PREEMPT_RT` refuse it.
//! - [`Timer::RunOnCpu`]: one thread that runs the sampler on each reader CPU through
//!   `BPF_PROG_TEST_RUN` (Linux >= 5.10). It costs a wake-up and an interrupt per tick.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, bail};
use aya::maps::{Array, MapData};
use aya::programs::{BtfTracePoint, ProgramFd, RawTracePoint};
use aya::{Btf, Ebpf};
use rustix::thread::{CapabilitySet, clock_nanosleep_absolute};
use rustix::time::{ClockId, Timespec};
use uncore_trace_common::state::{SAMPLER_ARMED, SAMPLER_OFF, SAMPLER_WANTED, Sampler};

use super::open_counter::Layout;
use super::options::Timer;
use super::programs;
use super::run_on_cpu::run_on_cpu;
use super::shared_counters;
use super::visit::visit_cpus;
use crate::clock::mono_ns;
use crate::confine::{self, ThreadNeeds};

/// The running sampler.
#[derive(Debug)]
pub(super) struct RunningSampler {
    thread: Option<SamplerThread>,
    /// The timer in use.
    pub timer: Timer,
}

/// Starts sampling on `readers`, and makes each of `cpus` switch tasks once, so that the running
/// task is known from the start.
pub(super) fn start_sampler(
    ebpf: &mut Ebpf,
    kernel: Option<&Btf>,
    samplers: &mut Array<MapData, Sampler>,
    wanted: Timer,
    tick_ns: u64,
    readers: &[u32],
    cpus: &[u32],
) -> Result<RunningSampler> {
    if wanted != Timer::RunOnCpu {
        match arm_timers(ebpf, kernel, samplers, readers, cpus) {
            Ok(()) => return Ok(RunningSampler { thread: None, timer: Timer::Pinned }),
            Err(error) if wanted == Timer::Pinned => {
                return Err(error)
                    .context("cannot start the BPF timers (`--timer run-on-cpu` needs none)");
            }
            Err(error) => {
                log::info!("no pinned BPF timer ({error:#}): running the sampler on each CPU");
            }
        }
        let program: &mut BtfTracePoint = programs::find_program(ebpf, "arm")?;
        // The program may not be loaded at all.
        program.unload().ok();
        for &cpu in readers {
            set_state(samplers, cpu, SAMPLER_OFF)?;
        }
    }
    visit_cpus(cpus)?;
    let thread = SamplerThread::start(ebpf, tick_ns, readers.to_vec())?;
    Ok(RunningSampler { thread: Some(thread), timer: Timer::RunOnCpu })
}

/// Starts the pinned timers. The program that starts them stays loaded, because reader CPUs may be
/// added later.
fn arm_timers(
    ebpf: &mut Ebpf,
    kernel: Option<&Btf>,
    samplers: &mut Array<MapData, Sampler>,
    readers: &[u32],
    cpus: &[u32],
) -> Result<()> {
    let kernel =
        kernel.context("the timer is started by a BTF tracepoint, and the kernel has no BTF")?;
    for &cpu in readers {
        set_state(samplers, cpu, SAMPLER_WANTED)?;
    }
    let program: &mut BtfTracePoint = programs::find_program(ebpf, "arm")?;
    programs::check_load("arm", program.load("sched_switch", kernel))?;
    let unreachable = arm_wanted(ebpf, cpus)?;
    for &cpu in readers {
        let sampler = samplers.get(&cpu, 0).context("cannot read the map SAMPLERS")?;
        if sampler.state != SAMPLER_ARMED {
            let reason = if unreachable.contains(&cpu) {
                "this process is not allowed to run on it".to_owned()
            } else {
                io::Error::from_raw_os_error(sampler.errno as i32).to_string()
            };
            bail!("the timer of CPU {cpu} did not start: {reason}");
        }
    }
    Ok(())
}

/// Starts the requested timers: this process visits the CPUs, and the program `arm` starts a timer
/// on each. Returns the CPUs that could not be visited.
fn arm_wanted(ebpf: &mut Ebpf, cpus: &[u32]) -> Result<Vec<u32>> {
    let program: &mut BtfTracePoint = programs::find_program(ebpf, "arm")?;
    let link = program.attach().context("cannot attach to the tracepoint sched_switch")?;
    let unreachable = visit_cpus(cpus);
    program.detach(link).context("cannot detach from the tracepoint sched_switch")?;
    unreachable
}

/// Sets what a CPU has to read.
pub(super) fn assign_layout(
    samplers: &mut Array<MapData, Sampler>,
    cpu: u32,
    layout: &Layout,
    state: u32,
) -> Result<()> {
    let (first_slot, at_switch) = (layout.first_slot, layout.at_switch);
    let turn = if layout.other_cpus.is_empty() { 0 } else { shared_counters::turn_number(cpu) };
    let len = layout.counters.len() as u32;
    let sampler = Sampler { first: first_slot, len, at_switch, state, turn, ..Sampler::default() };
    samplers.set(cpu, sampler, 0).context("cannot write the map SAMPLERS")
}

/// Whether the timer of `cpu` is running.
pub(super) fn is_armed(samplers: &Array<MapData, Sampler>, cpu: u32) -> Result<bool> {
    let sampler = samplers.get(&cpu, 0).context("cannot read the map SAMPLERS")?;
    Ok(sampler.state == SAMPLER_ARMED)
}

fn set_state(samplers: &mut Array<MapData, Sampler>, cpu: u32, state: u32) -> Result<()> {
    let sampler = samplers.get(&cpu, 0).context("cannot read the map SAMPLERS")?;
    samplers.set(cpu, Sampler { state, ..sampler }, 0).context("cannot write the map SAMPLERS")
}

impl RunningSampler {
    /// Samples on the CPUs of `layouts` from now on, and no longer on other CPUs in
    /// `readers_before`. `false` if a CPU could not be reached yet.
    ///
    /// A program that stops its timer writes that into the value which is written here as a whole,
    /// and no instruction orders the two. So what the value says may be overwritten: after a timer
    /// has stopped, `restart_timers` starts all of them, whatever their values say. A timer that
    /// runs fires at its next tick as before.
    pub(super) fn reassign(
        &self,
        ebpf: &mut Ebpf,
        samplers: &mut Array<MapData, Sampler>,
        readers_before: &[u32],
        layouts: &BTreeMap<u32, Layout>,
        restart_timers: bool,
    ) -> Result<bool> {
        for &cpu in readers_before.iter().filter(|cpu| !layouts.contains_key(cpu)) {
            assign_layout(samplers, cpu, &Layout::default(), SAMPLER_OFF)?;
        }
        let mut wanted = Vec::new();
        for (&cpu, layout) in layouts {
            let state = samplers.get(&cpu, 0).context("cannot read the map SAMPLERS")?.state;
            let is_armed = state == SAMPLER_ARMED && !restart_timers;
            let runs = is_armed || self.thread.is_some();
            if !runs {
                wanted.push(cpu);
            }
            let state = if runs { state } else { SAMPLER_WANTED };
            assign_layout(samplers, cpu, layout, state)?;
        }
        if let Some(thread) = &self.thread {
            *thread.control.lock_readers() = layouts.keys().copied().collect();
            return Ok(true);
        }
        if wanted.is_empty() {
            return Ok(true);
        }
        arm_wanted(ebpf, &wanted)?;
        for cpu in wanted {
            if !is_armed(samplers, cpu)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the reader CPUs have pinned timers, which the kernel removes when a CPU goes
    /// offline.
    pub(super) const fn has_timers(&self) -> bool {
        self.thread.is_none()
    }

    /// Whether the sampler's thread failed to reach a CPU since the last call.
    pub(super) fn take_unreached(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| thread.control.unreached.swap(false, Ordering::Relaxed))
    }

    /// Stops sampling. Pinned timers stop at their next tick.
    pub(super) fn stop(
        &mut self,
        samplers: &mut Array<MapData, Sampler>,
        readers: &[u32],
    ) -> Result<()> {
        if let Some(thread) = self.thread.take() {
            thread.stop()?;
        }
        for &cpu in readers {
            set_state(samplers, cpu, SAMPLER_OFF)?;
        }
        Ok(())
    }
}

/// What the sampler's thread shares with the thread that started it.
#[derive(Debug, Default)]
struct SamplerControl {
    stop: AtomicBool,
    unreached: AtomicBool,
    readers: Mutex<Vec<u32>>,
}

impl SamplerControl {
    fn lock_readers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct SamplerThread {
    control: Arc<SamplerControl>,
    handle: JoinHandle<()>,
}

impl SamplerThread {
    fn start(ebpf: &mut Ebpf, tick_ns: u64, readers: Vec<u32>) -> Result<Self> {
        let program: &mut RawTracePoint = programs::find_program(ebpf, "run_on_cpu")?;
        programs::check_load("run_on_cpu", program.load())?;
        // The thread owns a second descriptor of the program.
        let program = program.fd().context("cannot get the BPF program run_on_cpu")?;
        let program = program.try_clone().context("cannot get the BPF program run_on_cpu")?;
        let readers = Mutex::new(readers);
        let control = Arc::new(SamplerControl { readers, ..SamplerControl::default() });
        let shared = Arc::clone(&control);
        let handle = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || sample_ticks(&program, tick_ns, &shared))
            .context("cannot start the sampler's thread")?;
        Ok(Self { control, handle })
    }

    fn stop(self) -> Result<()> {
        self.control.stop.store(true, Ordering::Relaxed);
        self.handle.join().map_err(|_panic| anyhow!("the sampler's thread ended early"))
    }
}

fn sample_ticks(program: &ProgramFd, tick_ns: u64, control: &SamplerControl) {
    if let Err(error) = go_first() {
        log::info!(
            "cannot raise the priority of the sampler's thread, so ticks may be late: {error}"
        );
    }
    let capabilities = CapabilitySet::PERFMON | CapabilitySet::BPF;
    confine::restrict_thread(&ThreadNeeds { capabilities, ..ThreadNeeds::default() });
    while !control.stop.load(Ordering::Relaxed) {
        let next_ns = (mono_ns() as u64 / tick_ns + 1) * tick_ns;
        let until = Timespec {
            tv_sec: (next_ns / 1_000_000_000) as i64,
            tv_nsec: (next_ns % 1_000_000_000) as i64,
        };
        if clock_nanosleep_absolute(ClockId::Monotonic, &until).is_err() {
            continue;
        }
        for &cpu in control.lock_readers().iter() {
            // A CPU that cannot be reached has no reading, and the tables show that.
            if run_on_cpu(program.as_fd(), cpu).is_err() {
                control.unreached.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Gives the calling thread real-time priority. It runs for microseconds a tick, and a tick that
/// waits for a busy CPU is lost. On a loaded machine with 2 CPUs, late ticks at 1 kHz fell from 430
/// to 0 (Linux 6.18).
#[expect(unsafe_code, reason = "no safe binding sets a thread's scheduling policy")]
fn go_first() -> io::Result<()> {
    // The system call, not the C function: musl's function always fails with `ENOSYS`, and the
    // kernel's structure is a single number.
    let priority: libc::c_int = 1;
    let (call, fifo) = (libc::SYS_sched_setscheduler, libc::SCHED_FIFO);
    // SAFETY: `priority` is what the kernel reads there, and 0 is the calling thread.
    if unsafe { libc::syscall(call, 0, fifo, &raw const priority) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
