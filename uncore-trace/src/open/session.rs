//! An open recording: every descriptor and link it holds, and the order in which they go.

use std::{collections::BTreeMap, io};

use anyhow::{Context as _, Result, bail};
use aya::{
    Btf, Ebpf,
    maps::{Array, MapData, PerCpuArray, RingBuf},
    programs::{Program, ProgramError},
};
use aya_log::EbpfLogger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uncore_trace_common::{
    record::{KINDS, MAX_COUNTERS},
    state::{CpuState, Drops as DropsAbi, Sampler},
};

use super::{
    counters::CounterArray,
    options::{Options, Timer},
    perf::{Event, Request},
    programs,
    sampler::{self, Running},
};
use crate::plan::{Counter, Plan};

/// A counter that could not be opened.
#[derive(Clone, Debug)]
pub struct Unopened {
    /// Its id in the plan.
    pub counter: u32,
    /// Why, in one line.
    pub reason: String,
}

/// Records and ticks that the BPF side had to drop, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// By record kind.
    pub records: [u64; KINDS],
    /// Timers that could not be started again.
    pub timer: u64,
    /// Readings that were due in the middle of another.
    pub nested: u64,
}

/// An open recording. Fields are in the order in which they must be dropped: the sampler's thread
/// before the programs it runs, the programs (and with them their links) before the counters.
pub struct Session {
    running: Option<Running>,
    ring: RingBuf<MapData>,
    cpus: Array<MapData, CpuState>,
    samplers: Array<MapData, Sampler>,
    drops: PerCpuArray<MapData, DropsAbi>,
    logger: EbpfLogger<&'static dyn log::Log>,
    ebpf: Ebpf,
    /// Parsed, the kernel's BTF takes tens of MiB: gone once the programs are loaded.
    kernel: Option<Btf>,
    slots: BTreeMap<u32, Vec<u32>>,
    events: Vec<Event>,
    unopened: Vec<Unopened>,
    online: Vec<u32>,
    options: Options,
    _counters: CounterArray,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens the plan's counters, disabled, and loads and attaches the programs. `possible` is
    /// one more than the highest CPU number, `online` the CPUs whose tasks are accounted.
    ///
    /// # Errors
    ///
    /// No counter at all could be opened, or the kernel refuses the programs.
    pub fn open(plan: &Plan, online: &[u32], possible: u32, options: Options) -> Result<Self> {
        raise_file_limit(plan.counters.len());
        let opened = open_counters(&plan.counters);
        let Some(opened) = opened else {
            bail!("the plan has no counter");
        };
        let Opened { events, slots, order, unopened } = opened;
        if events.is_empty() {
            let first = unopened.first().map(|unopened| unopened.reason.as_str());
            bail!("no counter could be opened: {}", first.unwrap_or("the plan is empty"));
        }
        if let Some((cpu, crowd)) = slots.iter().find(|(_, slots)| slots.len() > MAX_COUNTERS) {
            bail!(
                "CPU {cpu} would own {} counters and can read {MAX_COUNTERS} in one tick: ask for fewer groups or events",
                crowd.len()
            );
        }
        let counters = CounterArray::create(events.len() as u32)
            .context("cannot make the perf event array (root, or CAP_BPF and CAP_PERFMON, is needed; `uncore-trace doctor` tells more)")?;
        let kernel = Btf::from_sys_fs().context("cannot read the kernel's BTF")?;
        let mut ebpf = programs::load(&options, possible, &counters)?;
        let ring = take(&mut ebpf, "RECORDS")?;
        let cpus = take(&mut ebpf, "CPUS")?;
        let mut samplers: Array<MapData, Sampler> = take(&mut ebpf, "SAMPLERS")?;
        let drops = take(&mut ebpf, "DROPS")?;
        let logger = EbpfLogger::init(&mut ebpf).context("cannot read the BPF programs' log")?;
        let mut slot = 0;
        for (&cpu, owned) in &order {
            let sampler = Sampler { first: slot, len: owned.len() as u32, ..Sampler::default() };
            samplers.set(cpu, sampler, 0).context("cannot write the map SAMPLERS")?;
            for &event in owned {
                use std::os::fd::AsFd as _;
                let event: &Event = &events[event];
                counters
                    .insert(slot, event.as_fd())
                    .context("cannot put a counter into the perf event array")?;
                slot += 1;
            }
        }
        programs::attach(&mut ebpf, &kernel)?;
        Ok(Self {
            running: None,
            ring,
            cpus,
            samplers,
            drops,
            logger,
            ebpf,
            kernel: Some(kernel),
            slots,
            events,
            unopened,
            online: online.to_vec(),
            options,
            _counters: counters,
        })
    }

    /// Starts the sampler and enables all counters, one right after the other.
    pub fn start(&mut self) -> Result<Timer> {
        let owners: Vec<u32> = self.slots.keys().copied().collect();
        let kernel = match self.kernel.take() {
            Some(kernel) => kernel,
            None => Btf::from_sys_fs().context("cannot read the kernel's BTF")?,
        };
        let running = sampler::start(
            &mut self.ebpf,
            &kernel,
            &mut self.samplers,
            self.options.timer,
            self.options.tick_ns,
            &owners,
            &self.online,
        )?;
        let timer = running.timer;
        self.running = Some(running);
        for event in &self.events {
            event.enable().context("cannot enable a counter")?;
        }
        Ok(timer)
    }

    /// Stops the sampler and the counters and detaches all programs. What is in the ring can still
    /// be drained, and what the programs had not sent can still be looked at.
    pub fn stop(&mut self) -> Result<()> {
        let owners: Vec<u32> = self.slots.keys().copied().collect();
        if let Some(running) = &mut self.running {
            running.stop(&mut self.samplers, &owners)?;
        }
        for event in &self.events {
            event.disable().context("cannot disable a counter")?;
        }
        for (name, program) in self.ebpf.programs_mut() {
            let unloaded = match program {
                Program::BtfTracePoint(program) => program.unload(),
                Program::RawTracePoint(program) => program.unload(),
                // The object has programs of these two types.
                _ => Ok(()),
            };
            match unloaded {
                // Those of the other timer were never loaded.
                Ok(()) | Err(ProgramError::NotLoaded) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot unload the program {name}"));
                }
            }
        }
        Ok(())
    }

    /// Counter ids by owner CPU, in the order of their readings in a sample.
    pub const fn slots(&self) -> &BTreeMap<u32, Vec<u32>> {
        &self.slots
    }

    /// Counters that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// The ring with everything that the programs send.
    pub const fn ring(&mut self) -> &mut RingBuf<MapData> {
        &mut self.ring
    }

    /// What the programs of `cpu` know and have not sent yet.
    pub fn cpu_state(&self, cpu: u32) -> Result<CpuState> {
        self.cpus.get(&cpu, 0).with_context(|| format!("cannot read the state of CPU {cpu}"))
    }

    /// What was dropped so far.
    pub fn drops(&self) -> Result<Drops> {
        let mut sum = Drops::default();
        let values = self.drops.get(&0, 0).context("cannot read the map DROPS")?;
        for drops in values.iter() {
            for (total, count) in sum.records.iter_mut().zip(drops.records) {
                *total += count;
            }
            sum.timer += drops.timer;
            sum.nested += drops.nested;
        }
        Ok(sum)
    }

    /// Hands on what the BPF programs had to say.
    pub fn flush_log(&mut self) {
        self.logger.flush();
    }
}

fn take<T>(ebpf: &mut Ebpf, name: &str) -> Result<T>
where
    T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).with_context(|| format!("the BPF object has no map {name}"))?;
    T::try_from(map).with_context(|| format!("the BPF map {name} is of another type"))
}

struct Opened {
    events: Vec<Event>,
    /// Counter ids by owner CPU.
    slots: BTreeMap<u32, Vec<u32>>,
    /// Indices into `events`, in the same order.
    order: BTreeMap<u32, Vec<usize>>,
    unopened: Vec<Unopened>,
}

fn open_counters(counters: &[Counter]) -> Option<Opened> {
    if counters.is_empty() {
        return None;
    }
    let mut opened = Opened {
        events: Vec::new(),
        slots: BTreeMap::new(),
        order: BTreeMap::new(),
        unopened: Vec::new(),
    };
    let mut index_of: BTreeMap<u32, usize> = BTreeMap::new();
    for counter in counters {
        let leader = counter.leader.map(|leader| index_of.get(&leader).copied());
        let result = match leader {
            Some(None) => Err("the leader of its group could not be opened".to_owned()),
            Some(Some(leader)) => open_one(counter, opened.events.get(leader)),
            None => open_one(counter, None),
        };
        match result {
            Ok(event) => {
                let index = opened.events.len();
                opened.events.push(event);
                index_of.insert(counter.id, index);
                opened.slots.entry(counter.cpu).or_default().push(counter.id);
                opened.order.entry(counter.cpu).or_default().push(index);
            }
            Err(reason) => opened.unopened.push(Unopened { counter: counter.id, reason }),
        }
    }
    Some(opened)
}

fn open_one(counter: &Counter, leader: Option<&Event>) -> Result<Event, String> {
    let request =
        Request { attr_type: counter.attr_type, config: counter.config, cpu: counter.cpu };
    Event::open(&request, leader).map_err(|error| {
        format!(
            "perf_event_open of {}/{}/ on CPU {} failed: {}",
            counter.pmu,
            counter.event,
            counter.cpu,
            explain(&error)
        )
    })
}

/// What the errno means for a counting event, and the way out.
fn explain(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "root, or CAP_PERFMON, is needed; `uncore-trace doctor` tells more"
        }
        Some(libc::EINVAL) => "the driver refuses this encoding, filter or group",
        Some(libc::ENOENT) => "the PMU has no such event",
        Some(libc::ENODEV) => "the PMU's owner CPU is offline",
        Some(libc::ENOSPC) => "the PMU has no counter left for it",
        Some(libc::EOPNOTSUPP) => "the driver does not support it",
        Some(libc::EMFILE) => "too many open files; raise `ulimit -n`",
        Some(libc::EBUSY) => "another tool holds the PMU",
        _ => return error.to_string(),
    };
    format!("{error}: {hint}")
}

/// One descriptor a counter and some to spare; the soft limit may be raised up to the hard one.
/// Where that is not enough, opening says so.
fn raise_file_limit(counters: usize) {
    let wanted = counters as u64 + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = Rlimit { current: Some(current), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            log::info!("cannot raise the limit of open files to {current}: {error}");
        }
    }
}
