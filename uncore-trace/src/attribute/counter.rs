//! One counter: its count in each window, and how it is divided.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use super::held::{Claims, TickParts};
use super::history::Use;
use super::learner::Parted;
use super::monitor::bounds::Bounds;
use super::monitor::{self, MeasuredPart};
use super::names::Names;
use super::series::{Clock, End, Series};
use super::waiting::Schedule;
use super::{Attribution, CountedWindow, Histories, Method, Methods, Share, cgroups, grid, small};
use crate::catalog::exact::ExactBy;
use crate::count::Count;
use crate::entries::{Lack, Missing, Moved, Owner, RAN_GUEST, Relief, STANDS_STILL};
use crate::plan::{Counter, Plan};

/// One counter of a recording.
#[derive(Debug)]
pub(super) struct Track {
    /// The counter in the plan.
    pub counter: Counter,
    /// Index of the set of CPUs that it sees.
    pub set: usize,
    /// Its readings.
    pub series: Series,
    /// The method that divides it, if it can.
    pub kind: Method,
    /// Whether the method learns from ticks.
    pub learns: bool,
    /// Tick and count at the begin of its window.
    last: (u64, Count),
    /// The count at the last tick that the method has learnt from.
    last_tick: Option<Count>,
    /// Raw counts by owner since that tick.
    tick_counts: HashMap<Owner, u64>,
    /// Time and raw counts by owner in the earlier intervals of a window that was extended.
    time: HashMap<Owner, u64>,
    counts: HashMap<Owner, u64>,
    /// Bytes by owner on its devices, in the same intervals.
    io: BTreeMap<Owner, u64>,
    /// What the holders of its devices have of its counts in the window.
    claims: Claims,
    /// The shares of its windows since they were last taken, if it is a port.
    said: Vec<(u64, Vec<Share>)>,
    method: Box<dyn Attribution>,
    schedule: Schedule,
    /// The tick at which the window begins that is to be divided next, and the last tick of it that
    /// the method has divided.
    begin: u64,
    advanced: u64,
    /// Whether a failed read was reported and no read was successful since.
    is_failing: bool,
}

/// How a window of a counter ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is extended, or there is nothing to report.
    No,
    /// The recording ended without a reading.
    Unread,
    /// It ended with a reading.
    Read(Span),
}

/// A counter's count in a window, and the use of its CPUs and devices.
#[derive(Debug)]
pub(super) struct Span {
    /// The tick at which it began.
    pub from: u64,
    /// The count.
    delta: Count,
    /// Nanoseconds by owner, sorted.
    time: Arc<[(Owner, u64)]>,
    /// Raw counts by owner, sorted, if they are known: see [`CountedWindow::counts`].
    counts: Vec<(Owner, u64)>,
    /// Bytes by owner on the devices below it, sorted.
    io: Vec<(Owner, f64)>,
    /// The part of these devices' traffic that this counter counted, 0 to 1.
    io_part: f64,
    /// What the holders of its devices have of it.
    claims: Box<Claims>,
    /// The parts of its count that monitors measured.
    pub measured: Vec<MeasuredPart>,
    /// What cgroups have at most of it and of the other counters of memory.
    pub bounds: Option<Bounds>,
}

impl Span {
    /// Keeps this part, 0 to 1, of the bytes moved on its devices. The rest belongs to other
    /// counters.
    pub(super) fn keep_part(&mut self, part: f64) {
        self.io_part = part;
        for (_, bytes) in &mut self.io {
            *bytes *= part;
        }
    }
}

/// A window of a counter, divided.
#[derive(Debug)]
pub(super) struct Divided {
    /// The tick at which it began.
    pub from: u64,
    /// The tick at which it ended.
    pub to: u64,
    /// The count in the counter's unit; `None` if the counter was not read or never ran.
    pub total: Option<f64>,
    /// Time running / time enabled, 0 to 1.
    pub running: f32,
    /// How the shares were made.
    pub method: Method,
    /// The shares of the total; empty if there is nothing to divide.
    pub shares: Vec<Share>,
    /// What cgroups have at most, until the shares are cut to it.
    pub bounds: Option<Bounds>,
}

/// The window that ends.
#[derive(Debug)]
pub(super) struct Close<'a> {
    /// The tick at which it ends.
    pub tick: u64,
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Whether the recording ends with it.
    pub is_last: bool,
    /// Bytes that devices moved in it, by device, direction and owner.
    pub moved: &'a [Moved],
    /// Context switches by CPU and owner.
    pub switches: &'a BTreeMap<u32, HashMap<Owner, u64>>,
}

impl Divided {
    /// Whether its shares are estimates, which are rounded.
    pub(super) const fn is_estimate(&self) -> bool {
        !matches!(self.method, Method::Exact | Method::Source)
    }

    /// Makes its shares those of rows: without small ones, with one lasting confidence for a cgroup, and
    /// rounded.
    pub(super) fn make_rows(&mut self, large: Option<&small::Large>) {
        let is_estimate = self.is_estimate();
        let shares = &mut self.shares;
        if let Some(large) = large.filter(|_| is_estimate) {
            small::unite(large, shares);
        }
        cgroups::unite(shares);
        if is_estimate {
            grid::round(self.total.unwrap_or_default(), shares);
            for share in shares {
                share.confidence = grid::hundredths(share.confidence);
                share.lasting = grid::hundredths(share.lasting);
            }
        }
    }
}

impl Track {
    /// A counter that sees the set of CPUs with this index, before its first reading.
    ///
    /// It was enabled with a count of 0 within a tick before the start tick. That count is used
    /// until the reading of the start tick arrives, so no count is lost if it never does.
    pub(super) fn new(
        plan: &Plan,
        counter: Counter,
        set: usize,
        clock: Clock,
        methods: Methods,
    ) -> Self {
        let io = counter.io.clone().filter(|_| methods.io);
        let counter = Counter { io, ..counter };
        let learns = methods.learns(plan, &counter);
        Self {
            set,
            kind: methods.kind(plan, &counter),
            method: methods.of(plan, &counter),
            learns,
            series: Series::new(clock, learns),
            counter,
            last: (clock.start_tick, Count::default()),
            last_tick: None,
            tick_counts: HashMap::new(),
            time: HashMap::new(),
            counts: HashMap::new(),
            io: BTreeMap::new(),
            claims: Claims::default(),
            said: Vec::new(),
            schedule: Schedule::new(clock.start_tick, clock.tick_ns, methods.lag_ns),
            begin: clock.start_tick,
            advanced: clock.start_tick,
            is_failing: false,
        }
    }

    /// Applies the entries up to the end of `tick`.
    pub(super) fn settle(&mut self, tick: u64, is_last: bool) {
        self.series.settle(tick, is_last);
        if let Some(begin) = self.series.take_begin() {
            // Readings count from before a part of a rotated recording.
            if !self.learns {
                self.last_tick.get_or_insert(begin.1);
            }
            self.last = begin;
        }
        if self.series.take_restarted() {
            self.time.clear();
            self.io.clear();
            self.claims = Claims::default();
            // Counts from readings are only those since the restart; switches are seen all the time.
            if self.counter.exact_by.is_some() {
                self.counts.clear();
            }
            self.method.restart();
        }
    }

    /// Ends its window, or extends it if there is no reading.
    pub(super) fn close(
        &mut self,
        window: &Close<'_>,
        time: &Arc<[(Owner, u64)]>,
        missing: &mut Vec<Missing>,
    ) -> Ended {
        self.add_io(window.moved);
        self.add_switches(window.switches);
        let after = match self.series.end(window.tick, self.last.1) {
            End::Counted(count, counts) => {
                add(&mut self.counts, counts);
                self.is_failing = false;
                count
            }
            End::Missing { expected, errno } => {
                add(&mut self.time, time.iter().copied());
                self.tell_missing(window, expected, errno, missing);
                return if window.is_last { Ended::Unread } else { Ended::No };
            }
        };
        let after = after.not_below(self.last.1);
        let (from, before) = mem::replace(&mut self.last, (window.tick, after));
        let delta = after.since(before);
        if delta.factor().is_none() {
            let span_ns = (window.tick - from) * window.tick_ns;
            missing.push(self.missing(Lack::NotScheduled, window, span_ns));
        }
        let sorted = |map: &mut HashMap<Owner, u64>| {
            let mut parts: Vec<_> = map.drain().collect();
            parts.sort_unstable();
            parts
        };
        let time = if self.time.is_empty() {
            Arc::clone(time)
        } else {
            add(&mut self.time, time.iter().copied());
            sorted(&mut self.time).into()
        };
        let counts = sorted(&mut self.counts);
        let io = mem::take(&mut self.io).into_iter();
        let io = io.map(|(owner, bytes)| (owner, bytes as f64)).collect();
        let claims = Box::new(self.claims.take());
        Ended::Read(Span {
            from,
            delta,
            time,
            counts,
            io,
            io_part: 1.0,
            claims,
            measured: Vec::new(),
            bounds: None,
        })
    }

    fn tell_missing(
        &mut self,
        window: &Close<'_>,
        expected: bool,
        errno: Option<i32>,
        missing: &mut Vec<Missing>,
    ) {
        if errno == Some(RAN_GUEST) {
            return;
        }
        // While the driver moves the counter to another CPU, no loss is entered: the next reading
        // includes the count. For a counter that has stopped, the loss is entered with its stop.
        let moves = !self.counter.per_cpu
            && errno.is_some_and(|errno| [libc::EINVAL, STANDS_STILL].contains(&errno));
        if let Some(errno) = errno
            && !self.is_failing
            && !moves
        {
            self.is_failing = true;
            missing.push(self.missing(Lack::ReadFailed(errno), window, 0));
        }
        if (errno.is_none() || moves) && expected {
            missing.push(self.missing(Lack::NoBoundary, window, window.tick_ns));
        }
        if window.is_last && moves {
            missing.push(self.missing(Lack::NoReader, window, 0));
        }
    }

    const fn missing(&self, lack: Lack, window: &Close<'_>, span_ns: u64) -> Missing {
        let Counter { id, cpu, .. } = self.counter;
        Missing { lack, counter: id, cpu, time: window.tick * window.tick_ns, span_ns }
    }

    /// Its count in a window, in its unit; `None` if it never ran.
    pub(super) fn total(&self, span: &Span) -> Option<f64> {
        Some(span.delta.value as f64 * self.counter.scale * span.delta.factor()?)
    }

    /// Divides a window that ended with a reading in tick `to`. Windows are divided in order.
    pub(super) fn divide(
        &mut self,
        to: u64,
        tick_ns: u64,
        span: &Span,
        histories: Option<&Histories>,
        names: &Names,
    ) -> Divided {
        let Span {
            from,
            delta,
            ref time,
            ref counts,
            ref io,
            io_part,
            ref claims,
            ref measured,
            ref bounds,
        } = *span;
        let running = delta.factor().map_or(0.0, |_| delta.running_part());
        let factor = delta.factor().map(|factor| self.counter.scale * factor);
        let total = factor.map(|factor| delta.value as f64 * factor);
        if let Some(histories) = histories
            && self.schedule.is_long(to - from)
        {
            self.step(histories, to);
        }
        self.begin = to;
        let (method, mut shares) = match total.zip(factor) {
            Some((total, factor)) if total > 0.0 => self.method.divide(&CountedWindow {
                total,
                factor,
                running,
                own_cpu: self.counter.per_cpu,
                len_ns: (to - from) * tick_ns,
                to,
                time,
                counts,
                io: self.counter.io.is_some().then_some(io),
                histories,
            }),
            _ => {
                self.method.skip(histories, to);
                (Method::None, Vec::new())
            }
        };
        if self.counter.is_port() {
            self.said.push((to, shares.clone()));
        }
        if method == Method::Io {
            for share in &mut shares {
                share.confidence *= io_part as f32;
                share.lasting *= io_part as f32;
            }
        }
        claims.apply(&mut shares);
        let is_divided = !matches!(method, Method::Exact | Method::Source | Method::None);
        if !measured.is_empty() && is_divided {
            monitor::apply(total.unwrap_or_default(), running, measured, names, &mut shares);
        }
        let bounds = bounds.clone().filter(|_| is_divided);
        Divided { from, to, total, running, method, shares, bounds }
    }

    /// The last window of a recording if its reading never arrived.
    pub(super) const fn unread(&self, window: &Close<'_>) -> Divided {
        Divided {
            from: self.last.0,
            to: window.tick,
            total: None,
            running: 0.0,
            method: Method::None,
            shares: Vec::new(),
            bounds: None,
        }
    }

    /// Adds bytes that were moved on its devices, in its direction.
    fn add_io(&mut self, moved: &[Moved]) {
        let Some(io) = &self.counter.io else {
            return;
        };
        for moved in moved.iter().filter(|moved| moved.direction == io.direction) {
            if io.devices.iter().any(|device| **device == *moved.device) {
                *self.io.entry(moved.owner).or_default() += moved.bytes;
            }
        }
    }

    /// Adds the context switches of its CPU, if it counts these.
    fn add_switches(&mut self, switches: &BTreeMap<u32, HashMap<Owner, u64>>) {
        if self.counter.exact_by == Some(ExactBy::Switches)
            && let Some(its) = switches.get(&self.counter.cpu)
        {
            add(&mut self.counts, its.iter().map(|(owner, count)| (*owner, *count)));
        }
    }

    /// Gives the method the count of a tick.
    pub(super) fn learn(&mut self, tick: u64, histories: &Histories) {
        let count = self.series.of_tick(tick).and_then(|(count, _)| {
            let (delta, factor) = self.since_tick(count)?;
            Some(delta as f64 * self.counter.scale * factor)
        });
        self.method.tick(tick, count, histories);
    }

    /// Gives the holders of its devices their parts of the count of a tick.
    pub(super) fn hold(&mut self, tick: u64, parts: TickParts) {
        let count = self.series.of_tick(tick).and_then(|(count, _)| self.since_tick(count));
        self.claims.tick(parts, count.map(|(delta, factor)| delta as f64 * factor));
    }

    /// Raw counts by owner since the last tick with a reading, and the factor for multiplexing;
    /// `None` if there is no reading at the end of this tick.
    pub(super) fn by_owner(&mut self, tick: u64) -> Option<(HashMap<Owner, u64>, f64)> {
        let (count, by_owner) = self.series.of_tick(tick)?;
        add(&mut self.tick_counts, by_owner);
        let (_, factor) = self.since_tick(count)?;
        Some((mem::take(&mut self.tick_counts), factor))
    }

    /// The count since the last tick with a reading, and the factor for multiplexing; `None` if the
    /// counter did not run since.
    fn since_tick(&mut self, count: Count) -> Option<(u64, f64)> {
        let before = self.last_tick.unwrap_or_default();
        let after = count.not_below(before);
        let delta = after.since(before);
        let factor = delta.factor()?;
        self.last_tick = Some(after);
        Some((delta.value, factor))
    }

    /// Gives the method the ticks that were reviewed.
    pub(super) fn review(&mut self, histories: &Histories) {
        self.method.learn(histories);
    }

    /// What the method's rates make expect of a tick.
    pub(super) fn profile(&self, by: Use) -> Option<Vec<f64>> {
        self.method.profile(by)
    }

    /// Has the method find rates from the ticks so far.
    pub(super) fn solve(&mut self, histories: &Histories) {
        self.method.solve(histories);
    }

    /// Sets what the method leaves out from now on.
    pub(super) fn relieve(&mut self, relief: Relief) {
        self.method.relieve(relief);
    }

    /// Has the method divide the ticks up to `to` of the next window.
    pub(super) fn advance(&mut self, histories: &Histories, to: u64) {
        self.step(histories, to);
        self.method.advance(histories, self.begin, to);
    }

    /// Has the method divide the ticks of the next window before `to`, in pieces that are the same for all
    /// counters, which so share the sums of their use.
    fn step(&mut self, histories: &Histories, to: u64) {
        let first = self.begin.max(self.advanced);
        let mut end = self.schedule.next(first);
        while end < to {
            self.method.advance(histories, self.begin, end);
            end = self.schedule.next(end);
        }
        self.advanced = self.advanced.max(to);
    }

    /// The parts of each tick's count since the last call, if it is a port.
    pub(super) fn take_parted(&mut self) -> Vec<Parted> {
        self.method.take_parted()
    }

    /// The shares of the windows that were divided since the last call, if it is a port.
    pub(super) fn take_said(&mut self) -> Vec<(u64, Vec<Share>)> {
        mem::take(&mut self.said)
    }

    /// The oldest tick whose history the method still needs.
    pub(super) fn needs(&self) -> u64 {
        self.method.needs()
    }
}

/// Adds parts to the sums of their owners.
fn add(sum: &mut HashMap<Owner, u64>, parts: impl IntoIterator<Item = (Owner, u64)>) {
    for (owner, part) in parts {
        *sum.entry(owner).or_default() += part;
    }
}
