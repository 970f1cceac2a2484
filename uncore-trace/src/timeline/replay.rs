//! The time line of a recording that is over, from what its raw tables say: the same [`Division`]
//! closes the same windows with the same readings.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    counter::{Close, add},
    division::{Boundaries, Division},
    irqnames::IrqNames,
    loss::Ledger,
    sink::Labels,
    window::WindowUse,
};
use crate::{
    align::{
        clock::Snapshot,
        cpu::Bin,
        io::{Moved, Sum},
        names::Names,
        who::Who,
    },
    attribute::Methods,
    drain::Reading,
    plan::Plan,
    tables::fabric,
};

/// What is known of a recording beside its readings and its time.
#[derive(Debug)]
pub struct Told {
    /// The planned counters.
    pub plan: Plan,
    /// Those that were opened, in the order of their rows.
    pub opened: Vec<u32>,
    /// How counts are divided.
    pub methods: Methods,
    /// First tick.
    pub start_tick: u64,
    /// The tick that the recording ended with, unless it was killed.
    pub stop_tick: Option<u64>,
    /// Labels times.
    pub clock: Snapshot,
    /// CPUs whose time was accounted.
    pub cpus: Vec<u32>,
    /// Counters, and ticks that ended a window without a reading of theirs.
    pub no_boundary: HashSet<(u32, u64)>,
    /// Counters that had stopped and counted again at this time, ns.
    pub again: Vec<(u32, u64)>,
    /// Paths of cgroups.
    pub names: Names,
}

/// What made a reading that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The sampler's timer.
    Timer,
    /// Something between its ticks.
    Between,
    /// The counter stopped with it.
    Stop,
}

/// A row of `readings`.
#[derive(Clone, Copy, Debug)]
pub struct Reread {
    /// When, ns.
    pub time: u64,
    /// Its tick.
    pub tick: u64,
    /// Which counter.
    pub counter: u32,
    /// Where it was read.
    pub cpu: u32,
    /// What it said.
    pub reading: Reading,
    /// What made it.
    pub made: Made,
    /// Whose the count since the last reading is, where it matters.
    pub who: Option<Who>,
}

/// A boundary tick's reading of one counter.
#[derive(Debug)]
struct Boundary {
    tick: u64,
    reading: Reading,
    exact: HashMap<Who, u64>,
}

/// The recording so far.
#[derive(Debug)]
pub struct Replay {
    told: Told,
    division: Division,
    window: WindowUse,
    moved: Sum,
    irq_names: IrqNames,
    index_of: HashMap<u32, usize>,
    boundaries: Vec<VecDeque<Boundary>>,
    /// By counter and CPU.
    next_tick: HashMap<(u32, u32), u64>,
    /// Of those that counted again, the ones whose next reading is still to come.
    unparted: Vec<(u32, u64)>,
    /// What is told again is in the recording's own table of losses.
    ledger: Ledger,
}

impl Replay {
    /// Before the first tick.
    pub fn new(told: Told) -> Self {
        let division = Division::new(&told.plan, &told.opened, told.start_tick, told.methods);
        let begin = told.start_tick * told.plan.tick_ns;
        let index_of = division.tracks.iter().enumerate().map(|(at, track)| (track.counter.id, at));
        Self {
            window: WindowUse::new(&told.plan, told.methods, &told.cpus, begin),
            moved: Sum::default(),
            irq_names: IrqNames::new(std::path::Path::new("")),
            index_of: index_of.collect(),
            boundaries: division.tracks.iter().map(|_| VecDeque::new()).collect(),
            next_tick: HashMap::new(),
            unparted: told.again.clone(),
            ledger: Ledger::default(),
            division,
            told,
        }
    }

    /// The name of an interrupt.
    pub fn irq(&mut self, number: u32, name: &str) {
        self.irq_names.learn(number, name);
    }

    /// Takes a reading; those of a counter come in the order of their time.
    pub fn reading(&mut self, reread: &Reread) {
        let Reread { tick, counter, reading, .. } = *reread;
        let Some(&index) = self.index_of.get(&counter) else {
            return;
        };
        let Some(track) = self.division.tracks.get_mut(index) else {
            return;
        };
        if reread.made == Made::Stop {
            if self.told.stop_tick == Some(tick) {
                track.last_count = Some(reading);
            } else {
                track.end(tick, reading);
            }
            return;
        }
        if let Some(who) = reread.who {
            self.unparted.retain(|&(id, time)| {
                let due = id == counter && time <= reread.time;
                if due {
                    track.part();
                }
                !due
            });
            track.count(reading, who);
        }
        if reread.made != Made::Timer {
            return;
        }
        let next = self.next_tick.entry((counter, reread.cpu)).or_insert(tick);
        let first = tick >= *next;
        *next = (*next).max(tick + 1);
        if !first {
            return;
        }
        if track.learns {
            track.ticks.push_back((tick, reading));
        }
        // Until the last tick: where that came too late, the count at the end has what is after it.
        let counts = self.told.stop_tick.is_none_or(|stop| tick <= stop);
        if counts && (tick == self.told.start_tick || self.told.ends_window(tick)) {
            let exact = std::mem::take(&mut track.exact);
            if let Some(own) = self.boundaries.get_mut(index) {
                own.push_back(Boundary { tick, reading, exact });
            }
        }
    }

    /// Takes who used a CPU in the tick that is to be closed; `owners` are those of its tasks.
    pub fn bin(&mut self, cpu: u32, bin: &Bin, owners: &[Who]) {
        self.window.add(cpu, bin, owners);
    }

    /// Takes what a device moved in the tick that is to be closed.
    pub fn moved(&mut self, moved: &Moved) {
        self.moved.add(moved);
    }

    /// Closes a tick; all readings up to it have been taken, and the time of every CPU.
    pub fn close(&mut self, tick: u64, fabric: &mut fabric::Builder) {
        let end = tick * self.told.plan.tick_ns;
        self.window.end_bin(tick);
        let ends = self.told.ends_window(tick);
        if ends || self.division.ends_lesson(end) {
            self.division.learn(&self.window.take_ticks());
        }
        if !ends {
            return;
        }
        for &(counter, time) in &self.told.again {
            let placed = time / self.told.plan.tick_ns;
            let window_ticks = self.told.plan.window_ns / self.told.plan.tick_ns;
            let index = self.index_of.get(&counter).filter(|_| tick <= placed + window_ticks);
            if placed < tick
                && let Some(track) = index.and_then(|&index| self.division.tracks.get_mut(index))
            {
                track.place(placed);
            }
        }
        let found = self.take(tick);
        let window = Close {
            tick,
            tick_ns: self.told.plan.tick_ns,
            clock: self.told.clock,
            is_last: self.told.stop_tick == Some(tick),
            moved: self.moved.take(),
        };
        let times = self.window.take();
        let Self { told, division, irq_names, ledger, .. } = self;
        let mut labels = Labels { names: &mut told.names, irq_names, now: end };
        division.close(&window, found, &times, &mut labels, fabric, ledger);
        *ledger = Ledger::default();
    }

    /// The boundaries of `tick`, of the counters that have one.
    fn take(&mut self, tick: u64) -> Boundaries {
        let mut found = Boundaries::new();
        for (index, own) in self.boundaries.iter_mut().enumerate() {
            let Some(track) = self.division.tracks.get_mut(index) else { continue };
            while let Some(first) = own.pop_front_if(|first| first.tick <= tick) {
                let Boundary { tick: at, reading, exact } = first;
                let counted = matches!(reading, Reading::Counted { .. });
                let late = counted && self.told.no_boundary.contains(&(track.counter.id, at));
                if at == tick && !late {
                    // While a counter moves, two CPUs may have tried to read it.
                    let (best, sum) = found.entry(index).or_insert((reading, HashMap::new()));
                    if counted {
                        *best = reading;
                    }
                    add(sum, exact);
                } else if at != self.told.start_tick {
                    add(&mut track.carried_counts, exact);
                } else if counted {
                    track.last = (at, reading);
                }
            }
        }
        found
    }
}

impl Told {
    fn ends_window(&self, tick: u64) -> bool {
        (tick * self.plan.tick_ns).is_multiple_of(self.plan.window_ns)
            || self.stop_tick == Some(tick)
    }
}
