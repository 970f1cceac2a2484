//! An open session: all its descriptors and links, and the order in which they are closed.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use aya::maps::{Array, MapData, PerCpuArray, RingBuf};
use aya::programs::{Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, VerifierLogLevel};
use aya_log::EbpfLogger;
use uncore_trace_common::record::MAX_COUNTERS;
use uncore_trace_common::state::{CpuState, Drops as DropsAbi, IoState, SAMPLER_OFF, Sampler};

use super::btf::KernelTypes;
use super::counters::CounterArray;
use super::drops::DropCounts;
use super::holders::{self, HolderPrograms, OpenFiles};
use super::open_counter::{self, Layout, OpenCounter, SwitchReadings};
use super::options::{SessionOptions, Timer};
use super::programs::OptionalPrograms;
use super::sampler::{self, RunningSampler};
use super::statistics::DeviceStatistics;
use super::{SAMPLE, io, limits, make_counter_array, pmu, programs, rings, shared_counters};
use crate::count::Count;
use crate::discover::nodes::DeviceDrivers;
use crate::plan::Plan;

/// A counter that could not be opened.
#[derive(Clone, Debug)]
pub struct Unopened {
    /// Its id in the plan.
    pub counter: u32,
    /// Why, in one line.
    pub reason: String,
}

/// What devices move is recorded too.
struct IoPrograms {
    kernel: io::IoSettings,
    cpus: Array<MapData, IoState>,
}

/// What is known of the CPUs.
#[derive(Debug)]
pub(super) struct CpuFollower {
    /// The CPUs that were online at the last look.
    pub(super) online: Vec<u32>,
    pub(super) upper_half: bool,
    /// Something is not in its place yet; looked for until then.
    pub(super) unsettled: Option<Instant>,
    /// The kernel did not let a counter be opened again.
    pub(super) was_refused: bool,
}

impl CpuFollower {
    /// A recording begins with these CPUs online.
    fn new(online: &[u32]) -> Self {
        Self { online: online.to_vec(), upper_half: false, unsettled: None, was_refused: false }
    }
}

/// An open recording. Fields are in the order in which they must be dropped: the sampler's thread
/// before the programs it runs, the programs (and with them their links) before the counters.
pub struct Session {
    pub(super) running: Option<RunningSampler>,
    rings: Vec<RingBuf<MapData>>,
    pub(super) cpus: Array<MapData, CpuState>,
    pub(super) samplers: Array<MapData, Sampler>,
    drops: PerCpuArray<MapData, DropsAbi>,
    io: Option<IoPrograms>,
    /// The programs that see who holds which device; or why that is not seen.
    holders: Option<Result<HolderPrograms, String>>,
    logger: EbpfLogger<&'static dyn log::Log>,
    pub(super) ebpf: Ebpf,
    /// The parsed BTF of the kernel, if it has its own. It takes tens of MiB and is dropped once
    /// the programs are loaded.
    kernel: Option<Btf>,
    /// Whether the kernel has its own BTF.
    has_types: bool,
    pub(super) layouts: BTreeMap<u32, Layout>,
    pub(super) opened: Vec<OpenCounter>,
    statistics: DeviceStatistics,
    unopened: Vec<Unopened>,
    pub(super) follower: CpuFollower,
    options: SessionOptions,
    /// Two slots for each counter, and one for the probe: see [`super::hotplug`].
    pub(super) counters: CounterArray,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("layouts", &self.layouts).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens the plan's counters, disabled, and loads and attaches the programs. `possible` is the
    /// highest CPU number plus one, `online` the CPUs whose tasks are accounted. Sysfs is under
    /// `root`. `btf` is a file with the types of the kernel, for one that has none of its own.
    ///
    /// # Errors
    ///
    /// No counter could be opened, or the kernel refuses the programs.
    pub fn open(
        plan: &Plan,
        root: &Path,
        online: &[u32],
        possible: u32,
        options: SessionOptions,
        btf: Option<&Path>,
    ) -> Result<Self> {
        limits::ensure_memory()?;
        limits::ensure_files(limits::files_needed(&plan.counters, online.len()))?;
        let (mut opened, mut unopened) = open_counter::open_counters(&plan.counters);
        let (statistics, unread) = DeviceStatistics::open(&plan.counters, root);
        unopened.extend(unread);
        for counter in &mut opened {
            counter.directory = pmu::device_directory(root, &counter.pmu);
        }
        if opened.is_empty() && statistics.is_empty() {
            let reason = unopened.first().map(|unopened| unopened.reason.as_str());
            let reason = reason.unwrap_or("the plan is empty");
            bail!("no counter could be opened: {reason}; {SAMPLE}");
        }
        let layouts = open_counter::lay_out(&mut opened, 0);
        let too_many = layouts.iter().find(|(_, layout)| layout.counters.len() > MAX_COUNTERS);
        if let Some((cpu, layout)) = too_many {
            bail!(
                "CPU {cpu} would have {} counters and can read {MAX_COUNTERS} in one tick: count \
                 fewer groups or events",
                layout.counters.len()
            );
        }
        let counters = make_counter_array(2 * opened.len() as u32 + 1)?;
        let at_switch = SwitchReadings::of_counters(&opened, &layouts);
        // First, because its error names the way out.
        let (types, is_own) = KernelTypes::of_kernel(btf)?;
        let read_btf = || Btf::from_sys_fs().context("cannot read the kernel's BTF");
        let kernel = is_own.then(read_btf).transpose()?;
        let io = options.io.then(|| io::IoSettings::from_types(&types));
        // Without a driver of such devices nothing is attached.
        let drivers =
            if options.holders { DeviceDrivers::read(root) } else { DeviceDrivers::default() };
        let files = (!drivers.is_empty()).then(|| holders::HolderSettings::from_types(&types));
        let log = VerifierLogLevel::default();
        let file_settings = files.as_ref().and_then(|files| files.as_ref().ok());
        let optional = OptionalPrograms { io: io.as_ref(), files: file_settings };
        let mut ebpf =
            programs::load_object(&options, possible, at_switch, &counters, &types, optional, log)?;
        drop(types);
        let rings = rings::make_rings(&mut ebpf, online, possible, options.buffer_bytes)?;
        let cpus = take_map(&mut ebpf, "CPUS")?;
        let samplers: Array<MapData, Sampler> = take_map(&mut ebpf, "SAMPLERS")?;
        let drops = take_map(&mut ebpf, "DROPS")?;
        let logger = EbpfLogger::init(&mut ebpf).context("cannot read the BPF programs' log")?;
        if let Some(io) = &io {
            io.attach_programs(&mut ebpf)?;
        }
        let holders = files.map(|files| {
            let attach = |_| {
                HolderPrograms::attach_programs(&mut ebpf, kernel.as_ref(), drivers.major_numbers())
            };
            files.and_then(attach).map_err(|error| format!("{error:#}"))
        });
        programs::attach_programs(&mut ebpf, kernel.as_ref())?;
        // A recorder cannot load programs after it is confined.
        let probe: &mut RawTracePoint = programs::find_program(&mut ebpf, "probe")?;
        programs::check_load("probe", probe.load())?;
        let io = match io {
            Some(kernel) => Some(IoPrograms { kernel, cpus: take_map(&mut ebpf, "IO")? }),
            None => None,
        };
        let mut session = Self {
            running: None,
            rings,
            cpus,
            samplers,
            drops,
            io,
            holders,
            logger,
            ebpf,
            kernel,
            has_types: is_own,
            layouts,
            opened,
            statistics,
            unopened,
            follower: CpuFollower::new(online),
            options,
            counters,
        };
        for counter in &session.opened {
            session.put_in_slot(counter)?;
        }
        if session.options.sample_on_sched {
            session.share_counters()?;
        }
        let Self { layouts, samplers, .. } = &mut session;
        for (&cpu, layout) in &*layouts {
            sampler::assign_layout(samplers, cpu, layout, SAMPLER_OFF)?;
        }
        shared_counters::assign_others(samplers, layouts)?;
        Ok(session)
    }

    /// Puts a counter into its slot.
    pub(super) fn put_in_slot(&self, counter: &OpenCounter) -> Result<()> {
        self.counters
            .insert(counter.slot, counter.event.as_fd())
            .context("cannot put a counter into the perf event array")
    }

    /// Starts the sampler and enables all counters, one right after the other. Returns the timer in
    /// use.
    pub fn start(&mut self) -> Result<Timer> {
        let readers: Vec<u32> = self.layouts.keys().copied().collect();
        let kernel = match self.kernel.take() {
            None if self.has_types => {
                Some(Btf::from_sys_fs().context("cannot read the kernel's BTF")?)
            }
            kernel => kernel,
        };
        let running = sampler::start_sampler(
            &mut self.ebpf,
            kernel.as_ref(),
            &mut self.samplers,
            self.options.timer,
            self.options.tick_ns,
            &readers,
            &self.follower.online,
        )?;
        let timer = running.timer;
        self.running = Some(running);
        for counter in &self.opened {
            counter.event.enable().context("cannot enable a counter")?;
        }
        Ok(timer)
    }

    /// Stops the sampler and the counters, and detaches all programs. The ring and the programs'
    /// state can still be read.
    pub fn stop(&mut self) -> Result<()> {
        let readers: Vec<u32> = self.layouts.keys().copied().collect();
        if let Some(mut running) = self.running.take() {
            running.stop(&mut self.samplers, &readers)?;
        }
        open_counter::disable_counters(&self.opened);
        for (name, program) in self.ebpf.programs_mut() {
            let unloaded = match program {
                Program::BtfTracePoint(program) => program.unload(),
                Program::RawTracePoint(program) => program.unload(),
                Program::FEntry(program) => program.unload(),
                Program::Iter(program) => program.unload(),
                // The object has programs of these types only.
                _ => Ok(()),
            };
            match unloaded {
                // The programs of the other timer were never loaded.
                Ok(()) | Err(ProgramError::NotLoaded) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot unload the program {name}"));
                }
            }
        }
        Ok(())
    }

    /// The counts of all counters that are counting, or were until [`Session::stop`]. A counter
    /// that cannot be read is left out.
    pub fn current_counts(&self) -> Vec<(u32, Count)> {
        let counting =
            self.opened.iter().filter(|counter| !counter.stopped && counter.reader.is_some());
        counting.filter_map(OpenCounter::total_count).collect()
    }

    /// What each reader CPU reads.
    pub const fn layouts(&self) -> &BTreeMap<u32, Layout> {
        &self.layouts
    }

    /// Number of open counters.
    pub const fn opened_count(&self) -> usize {
        self.opened.len() + self.statistics.len()
    }

    /// The counters that are read from the kernel's statistics.
    pub const fn statistics(&self) -> &DeviceStatistics {
        &self.statistics
    }

    /// Counters that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// The rings that the programs write to. All records of a CPU are in one of them.
    pub fn rings(&mut self) -> &mut [RingBuf<MapData>] {
        &mut self.rings
    }

    /// If I/O is recorded: what cannot be seen of it, and why.
    pub fn unseen(&self) -> &[String] {
        self.io.as_ref().map_or(&[], |io| &io.kernel.unseen)
    }

    /// Whether it is seen who holds which device: that was asked for, a driver of such devices is
    /// loaded, and the kernel can do it.
    pub const fn sees_holders(&self) -> bool {
        matches!(self.holders, Some(Ok(_)))
    }

    /// Why holders are not seen, or only when all files are read, if so.
    pub fn unseen_holders(&self) -> Option<&str> {
        match self.holders.as_ref()? {
            Ok(holders) => holders.unfollowed.as_deref(),
            Err(why) => Some(why),
        }
    }

    /// The files of watched devices that all processes have open; `None` if they are not seen.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn open_files(&self) -> Option<Result<OpenFiles>> {
        Some(self.holders.as_ref()?.as_ref().ok()?.read_files())
    }

    /// The unsent state of `cpu`, and that of its I/O if it is recorded.
    pub fn cpu_state(&self, cpu: u32) -> Result<(CpuState, Option<IoState>)> {
        let state = self.cpus.get(&cpu, 0);
        let io = self.io.as_ref().map(|io| io.cpus.get(&cpu, 0)).transpose();
        state
            .and_then(|state| Ok((state, io?)))
            .with_context(|| format!("cannot read the state of CPU {cpu}"))
    }

    /// What was dropped so far.
    pub fn drop_counts(&self) -> Result<DropCounts> {
        let values = self.drops.get(&0, 0).context("cannot read the map DROPS")?;
        let mut sum = DropCounts::sum_cpus(&values);
        sum.missed = self.io.as_ref().map_or(0, |io| io.kernel.missed_events(&self.ebpf));
        Ok(sum)
    }

    /// Passes on log messages of the BPF programs.
    pub fn flush_log(&mut self) {
        self.logger.flush();
    }
}

fn take_map<T>(ebpf: &mut Ebpf, name: &str) -> Result<T>
where
    T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).with_context(|| format!("the BPF object has no map {name}"))?;
    T::try_from(map).with_context(|| format!("the BPF map {name} is of another type"))
}
