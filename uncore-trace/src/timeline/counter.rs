//! One counter: what it counted between two boundary ticks, and whose it was.
//!
//! A window of a counter ends with the reading of its boundary tick. Where that reading is
//! missing the window goes on to the next boundary that has one: a row then covers more than one
//! interval and says so in `window_ns`. Nothing is interpolated.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
};

use super::{
    loss::{Cause, Ledger},
    sink::Labels,
};
use crate::{
    align::{clock::Snapshot, io::Moved, who::Who},
    attribute::{Attribution, Design, Method, Methods, Share, Window},
    drain::{Comm, Reading},
    plan::{Counter, Plan},
    tables::fabric,
};

/// One opened counter.
#[derive(Debug)]
pub struct Track {
    pub counter: Counter,
    /// Index of the set of CPUs that it sees.
    pub set: usize,
    /// The boundary at which its window began.
    pub last: (u64, Reading),
    /// Time and raw counts by owner of the window's intervals so far, where it goes on.
    carried_time: HashMap<Who, u64>,
    pub carried_counts: HashMap<Who, u64>,
    /// Bytes by owner on the devices that it is for, likewise.
    carried_io: BTreeMap<Who, u64>,
    /// Raw counts by owner since the last boundary.
    pub exact: HashMap<Who, u64>,
    /// The count of the last sample.
    previous: Option<u64>,
    /// It was read elsewhere, or not at all, since the last sample.
    parted: bool,
    life: Life,
    failing: bool,
    /// What it had counted when the recording stopped it.
    pub last_count: Option<Reading>,
    method: Box<dyn Attribution>,
    /// Whether the method learns from ticks.
    pub learns: bool,
    /// What divides it, where that can.
    pub kind: Method,
    /// Readings of the ticks since the last window, where it learns from them.
    pub ticks: VecDeque<(u64, Reading)>,
    last_tick: Option<Reading>,
}

/// What a counter has counted when it is enabled.
const ZERO: Reading = Reading::Counted { value: 0, enabled: 0, running: 0 };

/// Whether a counter counts.
#[derive(Debug)]
enum Life {
    Counting,
    /// Not any more; its last word is for the first boundary from this tick on that has no reading
    /// of it.
    Ended {
        tick: u64,
        last_word: Reading,
    },
    /// Not any more, and its last word is told. Again from this tick on.
    Silent {
        until: u64,
    },
}

/// What a counter counted in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delta {
    /// In the counter's unit, scaled for multiplexing; `None` if it never ran.
    total: Option<f64>,
    /// Factor from a raw count to the unit, multiplexing included.
    factor: f64,
    /// Time running / time enabled.
    running: f32,
}

/// How a window of a counter ended.
#[derive(Debug)]
pub enum Ended {
    /// It did not, or there is nothing to tell of it.
    No,
    /// The recording is over, and its reading never came.
    Unread,
    /// With a reading.
    Read(Span),
}

/// What a counter counted in a window, and who was there.
#[derive(Debug)]
pub struct Span {
    /// The tick with which it began.
    pub from: u64,
    delta: Delta,
    /// Nanoseconds by owner.
    time: Vec<(Who, u64)>,
    /// Raw counts by owner, sorted, where it is read at every switch.
    pub counts: Vec<(Who, u64)>,
    /// Bytes by owner on the devices below it, sorted.
    io: Vec<(Who, f64)>,
}

impl Span {
    /// Factor from a raw count to the unit, multiplexing included; `None` if it never ran.
    pub fn factor(&self) -> Option<f64> {
        self.delta.total.map(|_| self.delta.factor)
    }
}

/// The window that is closed.
pub struct Close {
    pub tick: u64,
    pub tick_ns: u64,
    pub clock: Snapshot,
    pub is_last: bool,
    /// What devices moved in it, by device, direction and owner.
    pub moved: Vec<Moved>,
}

impl Track {
    /// A counter that sees the set of CPUs with this index, before its first reading.
    ///
    /// It was enabled within a tick before `start_tick` with a count of zero. That stands for the
    /// reading of the start tick until it comes: if it never does, nothing is lost with it.
    pub fn new(
        plan: &Plan,
        counter: Counter,
        set: usize,
        start_tick: u64,
        methods: Methods,
    ) -> Self {
        let io = counter.io.clone().filter(|_| methods.io);
        let counter = Counter { io, ..counter };
        Self {
            set,
            kind: methods.kind(plan, &counter),
            method: methods.of(plan, &counter),
            learns: methods.learns(plan, &counter),
            ticks: VecDeque::new(),
            last_tick: None,
            counter,
            last: (start_tick, ZERO),
            carried_time: HashMap::new(),
            carried_counts: HashMap::new(),
            carried_io: BTreeMap::new(),
            exact: HashMap::new(),
            previous: None,
            parted: false,
            life: Life::Counting,
            failing: false,
            last_count: None,
        }
    }

    /// Gives the count since the last sample to its owner.
    pub fn count(&mut self, after: Reading, who: Who) {
        let Reading::Counted { value, .. } = after else {
            return;
        };
        let who = if mem::take(&mut self.parted) { Who::Unknown } else { who };
        match self.previous.replace(value) {
            Some(before) => *self.exact.entry(who).or_default() += value.saturating_sub(before),
            // Nobody saw who ran before the first sample.
            None => *self.exact.entry(Who::Unknown).or_default() += value,
        }
    }

    /// Its event stopped for ever after `tick`.
    pub fn end(&mut self, tick: u64, last_word: Reading) {
        self.count(last_word, Who::Unknown);
        self.life = Life::Ended { tick, last_word };
    }

    /// Nobody saw who ran between the last sample and the next.
    pub const fn part(&mut self) {
        self.parted = true;
    }

    /// Another CPU reads it from `tick` on, or it counts again.
    pub fn place(&mut self, tick: u64) {
        if let Life::Silent { until } = &mut self.life {
            *until = tick;
            // Who ran while it did not count owns nothing of what it counts from here.
            self.carried_time.clear();
            self.carried_io.clear();
        }
    }

    /// What it had counted in the end, if that is due and no reading tells.
    fn last_word(&mut self, now: u64) -> Option<Reading> {
        let Life::Ended { tick, last_word } = self.life else {
            return None;
        };
        if now < tick {
            return None;
        }
        self.life = Life::Silent { until: u64::MAX };
        // Nothing to tell if it stopped before its last reading.
        Some(last_word).filter(|word| self.last.1 != *word)
    }

    /// Ends its window, or goes on with it where there is no reading.
    pub fn close(
        &mut self,
        window: &Close,
        reading: Option<Reading>,
        time: &[(Who, u64)],
        counts: HashMap<Who, u64>,
        ledger: &mut Ledger,
    ) -> Ended {
        let now = window.tick * window.tick_ns;
        let (cpu, id) = (Some(self.counter.cpu), Some(self.counter.id));
        let mut counts = counts;
        let reading = match reading {
            Some(Reading::Counted { .. }) => {
                // Windows from before its end may be closed only now.
                if !matches!(self.life, Life::Ended { tick, .. } if window.tick < tick) {
                    self.life = Life::Counting;
                }
                reading
            }
            missing => match self.last_word(window.tick) {
                None if window.is_last && matches!(self.life, Life::Counting) => {
                    if let Some(last) = self.last_count {
                        // Nobody saw who ran since the last sample.
                        self.count(last, Who::Unknown);
                        add(&mut counts, mem::take(&mut self.exact));
                    }
                    self.last_count.or(missing)
                }
                None => missing,
                last_word => {
                    add(&mut counts, mem::take(&mut self.exact));
                    last_word
                }
            },
        };
        add(&mut self.carried_time, time.iter().copied());
        add(&mut self.carried_counts, counts);
        self.carry(&window.moved);
        let after = match reading {
            Some(after @ Reading::Counted { .. }) => {
                self.failing = false;
                after
            }
            missing => {
                let silent = matches!(self.life, Life::Silent { until } if window.tick < until);
                // Its driver moves it to another CPU: the next reading has it all.
                let astray = self.astray(missing);
                if let Some(Reading::Failed(errno)) = missing
                    && !self.failing
                    && !astray
                {
                    self.failing = true;
                    let error = std::io::Error::from_raw_os_error(errno);
                    ledger.explain(Cause::ReadFailed, now, id, &error.to_string());
                }
                if (missing.is_none() || astray) && !silent {
                    ledger.add(Cause::NoBoundary, now, window.tick_ns, cpu, id, 1);
                }
                if window.is_last {
                    if astray {
                        let text = "no CPU can read it any longer";
                        ledger.explain(Cause::ReadFailed, now, id, text);
                    }
                    return Ended::Unread;
                }
                return Ended::No;
            }
        };
        let after = not_below(self.last.1, after);
        let (from, before) = mem::replace(&mut self.last, (window.tick, after));
        let mut time: Vec<_> = mem::take(&mut self.carried_time).into_iter().collect();
        let mut counts: Vec<_> = mem::take(&mut self.carried_counts).into_iter().collect();
        let io = mem::take(&mut self.carried_io).into_iter();
        let io: Vec<_> = io.map(|(who, bytes)| (who, bytes as f64)).collect();
        let Some(delta) = delta(before, after, self.counter.scale) else {
            return Ended::No;
        };
        if delta.total.is_none() {
            let span = (window.tick - from) * window.tick_ns;
            ledger.add(Cause::NotScheduled, now, span, cpu, id, 1);
        }
        time.sort_unstable();
        counts.sort_unstable();
        Ended::Read(Span { from, delta, time, counts, io })
    }

    /// Divides a window that ended.
    pub fn divide(
        &mut self,
        window: &Close,
        span: &Span,
        misses: Option<&[(Who, u64)]>,
        design: Option<&Design>,
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
    ) {
        let Span { from, delta, ref time, ref counts, ref io } = *span;
        let (method, shares) = match delta.total {
            Some(total) if total > 0.0 => self.method.divide(&Window {
                total,
                factor: delta.factor,
                running: delta.running,
                own_cpu: self.counter.per_cpu,
                len_ns: (window.tick - from) * window.tick_ns,
                time,
                counts,
                misses,
                io: self.counter.io.is_some().then_some(io),
                design,
            }),
            _ => (Method::None, Vec::new()),
        };
        self.rows(window, from, delta, method, &shares, labels, fabric);
    }

    /// Adds what was moved on the devices that it is for, in its direction.
    fn carry(&mut self, moved: &[Moved]) {
        let Some(io) = &self.counter.io else {
            return;
        };
        for moved in moved.iter().filter(|moved| moved.direction == io.direction) {
            if io.devices.iter().any(|device| **device == *moved.device) {
                *self.carried_io.entry(moved.who).or_default() += moved.bytes;
            }
        }
    }

    /// Whether a reading failed as that of a counter does which is on another CPU: -EINVAL, see
    /// `perf_event_read_local` (kernel/events/core.c, Linux 6.18).
    pub fn astray(&self, reading: Option<Reading>) -> bool {
        !self.counter.per_cpu && reading == Some(Reading::Failed(libc::EINVAL))
    }

    /// Tells the method what was counted in each of the ticks since the last window.
    pub fn learn(&mut self, tick: u64, design: &Design) {
        while self.ticks.front().is_some_and(|(read, _)| *read < tick) {
            if let Some((_, reading @ Reading::Counted { .. })) = self.ticks.pop_front()
                && self.last_tick.is_none()
            {
                self.last_tick = Some(reading);
            }
        }
        let reading = self.ticks.pop_front_if(|(read, _)| *read == tick);
        let before = self.last_tick.unwrap_or(ZERO);
        let delta = reading.and_then(|(_, after)| {
            let after = not_below(before, after);
            delta(before, after, self.counter.scale).map(|delta| (delta.total, after))
        });
        match delta {
            Some((Some(count), after)) => {
                self.last_tick = Some(after);
                self.method.tick(design, Some(count));
            }
            _ => self.method.tick(design, None),
        }
    }

    /// A row for the end of a recording whose last window never got its reading.
    pub fn unread(&self, window: &Close, labels: &mut Labels<'_>, fabric: &mut fabric::Builder) {
        let delta = Delta { total: None, factor: 1.0, running: 0.0 };
        self.rows(window, self.last.0, delta, Method::None, &[], labels, fabric);
    }

    /// One row an owner; a window in which nothing was counted, or the counter did not run, is
    /// one row that nobody owns.
    #[expect(clippy::too_many_arguments, reason = "a struct would only rename them")]
    fn rows(
        &self,
        window: &Close,
        from: u64,
        delta: Delta,
        method: Method,
        shares: &[Share],
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
    ) {
        let mono_ns = (window.tick * window.tick_ns) as i64;
        let counter = &self.counter;
        let mut append = |who: Who, value: Option<f64>, confidence: Option<f32>| {
            let own = match who {
                Who::Task { comm, .. } => comm,
                _ => Comm::default(),
            };
            let device = counter.io.as_ref().filter(|_| who == Who::Device);
            let label = labels.of(who, &own);
            fabric.append(&fabric::Row {
                ts: window.clock.wall(mono_ns),
                mono_ns,
                window_ns: ((window.tick - from) * window.tick_ns) as i64,
                socket: counter.socket,
                cpu: counter.cpu as i32,
                group: &counter.group,
                pmu: &counter.pmu,
                event: &counter.event,
                filter: &counter.filter,
                unit: &counter.unit,
                owner: who.owner(),
                pid: label.pid,
                comm: label.comm.as_deref().or(device.map(|io| io.label.as_str())),
                cgroup_id: label.cgroup_id,
                cgroup: label.cgroup,
                container: label.container,
                pod: label.pod,
                value,
                total: delta.total,
                running: delta.running,
                method: method.name(),
                confidence,
            });
        };
        if shares.is_empty() {
            append(Who::Unknown, delta.total, None);
        }
        for share in shares {
            append(share.who, Some(share.value), Some(share.confidence));
        }
    }
}

/// A count that fell back stays where it was: what it had too much is taken out of what comes, and
/// the windows sum to what was counted in the end.
///
/// Counts do fall back: the driver of an Arm CMN reads the 16-bit lanes of the crosspoints before the
/// counters that they carry into, so what carries between the two is there twice until the next
/// reading (`arm_cmn_event_read`, drivers/perf/arm-cmn.c, Linux 7.2).
fn not_below(before: Reading, after: Reading) -> Reading {
    match (before, after) {
        (Reading::Counted { value: high, .. }, Reading::Counted { value, enabled, running }) => {
            Reading::Counted { value: value.max(high), enabled, running }
        }
        _ => after,
    }
}

/// Adds up by owner.
pub fn add(sum: &mut HashMap<Who, u64>, parts: impl IntoIterator<Item = (Who, u64)>) {
    for (who, part) in parts {
        *sum.entry(who).or_default() += part;
    }
}

/// What was counted between two readings: perf's scaling, count x enabled / running
/// (tools/lib/perf/evsel.c, `perf_counts_values__scale`).
fn delta(before: Reading, after: Reading, scale: f64) -> Option<Delta> {
    let (
        Reading::Counted { value: value0, enabled: enabled0, running: running0 },
        Reading::Counted { value: value1, enabled: enabled1, running: running1 },
    ) = (before, after)
    else {
        return None;
    };
    let value = value1.saturating_sub(value0);
    let enabled = enabled1.saturating_sub(enabled0);
    let running = running1.saturating_sub(running0);
    if running == 0 || enabled == 0 {
        return Some(Delta { total: None, factor: scale, running: 0.0 });
    }
    let factor = if running == enabled { scale } else { scale * enabled as f64 / running as f64 };
    let part = (running as f64 / enabled as f64).min(1.0) as f32;
    Some(Delta { total: Some(value as f64 * factor), factor, running: part })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counted(value: u64, enabled: u64, running: u64) -> Reading {
        Reading::Counted { value, enabled, running }
    }

    #[test]
    fn a_multiplexed_count_is_scaled() {
        let delta = delta(counted(100, 1000, 500), counted(150, 2000, 1000), 32.0).unwrap();
        assert_eq!(delta.total, Some(50.0 * 32.0 * 2.0));
        assert!((delta.running - 0.5).abs() < 1e-6);
    }

    #[test]
    fn never_scheduled_is_not_zero() {
        let delta = delta(counted(100, 1000, 500), counted(100, 2000, 500), 1.0).unwrap();
        assert_eq!(delta.total, None);
        assert!(delta.running.abs() < f32::EPSILON);
    }

    #[test]
    fn what_was_counted_twice_for_a_moment_is_counted_once() {
        let mut last = counted(0, 0, 0);
        let mut sum = 0.0;
        for (tick, value) in [(1, 100_000), (2, 65_000), (3, 90_000), (4, 120_000)] {
            let after = not_below(last, counted(value, tick, tick));
            let before = mem::replace(&mut last, after);
            sum += delta(before, after, 1.0).unwrap().total.unwrap();
        }
        assert!((sum - 120_000.0_f64).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn really_nothing_is_zero() {
        let delta = delta(counted(100, 1000, 1000), counted(100, 2000, 2000), 1.0).unwrap();
        assert_eq!(delta.total, Some(0.0));
    }
}
