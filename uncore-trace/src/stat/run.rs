//! The loop: count until the command ends, a signal or an order comes or the time is over, and
//! print the rows when they are due.
//!
//! Guarantees: the counters are enabled before the command's first instruction and disabled before
//! they are read for the last time; whatever ends it, what was counted is printed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::pending;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep};

use super::control::{Address, Control, Order};
use super::count::{Lap, Meter};
use super::output::{Ending, Output};
use super::repeat::Repeats;
use super::table::Table;
use crate::confine::{self, Needs};
use crate::discover::CpuList;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::workload::Workload;

/// When counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// With the command.
    None,
    /// This long after its start.
    For(Duration),
    /// When an order says so.
    Off,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// From one set of rows to the next; `None`: one set at the end.
    pub interval: Option<Duration>,
    /// End after so many of them.
    pub interval_count: Option<u32>,
    /// After them, rows of all of it.
    pub summary: bool,
    /// End after this long.
    pub timeout: Option<Duration>,
    /// When counting begins.
    pub delay: Delay,
    /// How often to measure.
    pub repeat: u32,
    /// Who else may give orders.
    pub control: Option<Address>,
    /// The command to run; empty for none.
    pub command: Vec<OsString>,
    /// The file that rows go to, if it is one.
    pub file: Option<PathBuf>,
}

/// Why a run ended.
#[derive(Debug)]
enum End {
    Command,
    Signal,
    Time,
    /// All intervals are printed.
    Intervals,
    Order,
}

/// One run.
struct Ran {
    total: Lap,
    seconds: f64,
    end: End,
}

struct Runner<'a> {
    options: &'a Options,
    table: &'a Table<'a>,
    meter: &'a mut Meter,
    output: &'a mut Output,
    workload: &'a mut Workload,
    signals: &'a mut Signals,
    control: Option<Control>,
    /// The CPUs that were warned of because they were absent.
    absent: BTreeSet<u32>,
    /// This run and those after it.
    left: u32,
}

/// Measures and prints. Returns the exit code: of a command that ended, its own, and of several
/// runs the last one's that failed; else 0.
///
/// # Errors
///
/// A counter cannot be enabled, the command cannot be run, or the rows cannot be written; the
/// command may still run then.
pub async fn run(
    options: &Options,
    meter: &mut Meter,
    table: &Table<'_>,
    output: &mut Output,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    let control = options.control.as_ref().map(Control::open).transpose()?;
    let absent = BTreeSet::new();
    let left = options.repeat;
    let mut runner =
        Runner { options, table, meter, output, workload, signals, control, absent, left };
    let mut repeats = Repeats::default();
    let mut code = 0;
    for _ in 0..options.repeat {
        let Ran { total, seconds, end } = runner.once().await?;
        runner.warn_of_absent(&total);
        let stopped = matches!(end, End::Signal | End::Order) || runner.signals.was_interrupted();
        // A run that was cut short says nothing about the others.
        if !stopped || repeats.runs == 0 {
            repeats.push(table.rows(&total), seconds, total.counted_ns as f64 / 1e9);
        }
        code = runner.workload.exit_code().filter(|code| *code != 0).unwrap_or(code);
        if stopped || runner.signals.asked_to_leave() {
            break;
        }
    }
    let rows = repeats.rows();
    match (options.interval, options.summary) {
        (None, _) => {
            let Repeats { runs, seconds, counted, .. } = repeats;
            runner.output.whole(&rows, &Ending { runs, seconds, counted })?;
        }
        (Some(_), true) => runner.output.summary(&rows)?,
        (Some(_), false) => {}
    }
    Ok(code)
}

/// The signals that end a count. As in perf stat, the first SIGINT is for the command alone where
/// there is one and neither intervals nor a timeout are asked for: what it counts while it ends is
/// counted too. Needs a tokio runtime.
///
/// # Errors
///
/// The kernel refuses a handler.
pub fn signals(has_command: bool, ends_by_itself: bool) -> Result<Signals> {
    if has_command && !ends_by_itself {
        Signals::install_but_first_interrupt()
    } else {
        Signals::install()
    }
}

/// Does with the command what perf stat does when it has counted (`__run_perf_stat` and
/// `skip_signal`, tools/perf/builtin-stat.c, Linux 6.1): after a signal it is left running;
/// with a timeout it is sent SIGTERM; and it is waited for, here until a signal says not to.
///
/// # Errors
///
/// The kernel does not say how it ended.
pub async fn release(
    workload: &mut Workload,
    signals: &mut Signals,
    timeout: Option<Duration>,
) -> Result<()> {
    if signals.was_interrupted() || signals.asked_to_leave() {
        return Ok(());
    }
    if timeout.is_some() {
        workload.terminate();
    }
    workload.wait(signals).await
}

/// The CPUs whose counters were absent for some of `lap`, but those `known` already, and then they
/// are.
fn newly_absent(plan: &Plan, lap: &Lap, known: &mut BTreeSet<u32>) -> CpuList {
    let counters = lap.absent().filter_map(|id| plan.counters.get(id as usize));
    let cpus: BTreeSet<u32> = counters.map(|counter| counter.cpu).collect();
    cpus.into_iter().filter(|cpu| known.insert(*cpu)).collect()
}

impl Runner<'_> {
    /// A count of a part of the time must not look like one of all of it; once for each CPU.
    fn warn_of_absent(&mut self, lap: &Lap) {
        let cpus = newly_absent(self.table.plan, lap, &mut self.absent);
        if !cpus.is_empty() {
            log::warn!(
                "the counters read on CPU {cpus} were not there all the time (did it go \
                 offline?): their counts are too low"
            );
        }
    }

    async fn once(&mut self) -> Result<Ran> {
        let ran = self.measure().await?;
        release(self.workload, self.signals, self.options.timeout).await?;
        Ok(ran)
    }

    async fn measure(&mut self) -> Result<Ran> {
        self.meter.restart();
        let started = Instant::now();
        let early = self.begin().await?;
        let begin = Instant::now();
        let end = match early {
            Some(end) => end,
            None => self.count(begin).await?,
        };
        self.meter.disable();
        let seconds = started.elapsed().as_secs_f64();
        // The last interval is printed even if it is not whole, unless it has just been.
        if !matches!(end, End::Intervals) {
            let lap = self.meter.lap();
            if self.options.interval.is_some() {
                self.output.interval(&self.table.rows(&lap), begin.elapsed().as_secs_f64())?;
            }
        }
        Ok(Ran { total: self.meter.total(), seconds, end })
    }

    /// Starts the command and enables the counters, in the order that the delay asks for.
    async fn begin(&mut self) -> Result<Option<End>> {
        if self.options.delay == Delay::None {
            self.meter.enable()?;
        }
        *self.workload = Workload::start(&self.options.command)?;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            // A command that is started later would be confined too.
            let file = self.options.file.as_deref().map(Needs::to_remove).unwrap_or_default();
            confine::process(&Needs { command: self.workload.id(), ..file });
        }
        let Delay::For(delay) = self.options.delay else { return Ok(None) };
        let over = sleep(delay);
        tokio::pin!(over);
        // An order to count ends the delay.
        while !self.meter.is_on() {
            tokio::select! {
                () = &mut over => self.meter.enable()?,
                ended = self.workload.ended() => return ended.map(|()| Some(End::Command)),
                _ = self.signals.next() => return Ok(Some(End::Signal)),
                order = order(&mut self.control) => {
                    if self.obey(order?)? {
                        return Ok(Some(End::Order));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn count(&mut self, begin: Instant) -> Result<End> {
        let mut ticks = self.options.interval.map(|period| {
            let mut ticks = interval_at(tokio::time::Instant::from_std(begin) + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        let mut left = self.options.interval_count;
        let timeout = self.options.timeout;
        let over = async {
            match timeout {
                Some(timeout) => sleep(timeout).await,
                None => pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = due(&mut ticks) => {
                    let lap = self.meter.lap();
                    let at = begin.elapsed().as_secs_f64();
                    self.warn_of_absent(&lap);
                    self.output.interval(&self.table.rows(&lap), at)?;
                    left = left.map(|left| left.saturating_sub(1));
                    if left == Some(0) {
                        return Ok(End::Intervals);
                    }
                }
                ended = self.workload.ended() => return ended.map(|()| End::Command),
                _ = self.signals.next() => return Ok(End::Signal),
                () = &mut over => return Ok(End::Time),
                order = order(&mut self.control) => {
                    if self.obey(order?)? {
                        return Ok(End::Order);
                    }
                }
            }
        }
    }

    /// Carries an order out and says so; `true` if it is to end.
    fn obey(&mut self, order: Order) -> Result<bool> {
        match order {
            Order::Enable => self.meter.enable()?,
            Order::Disable => self.meter.disable(),
            Order::Ping | Order::Stop | Order::Ack => {}
        }
        if let Some(control) = self.control.as_ref().filter(|_| order != Order::Ack) {
            control.ack();
        }
        Ok(order == Order::Stop)
    }
}

async fn due(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => pending().await,
    }
}

async fn order(control: &mut Option<Control>) -> Result<Order> {
    match control {
        Some(control) => control.next().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;
    use crate::stat::count::Tally;

    #[test]
    fn an_absent_cpu_is_told_of_once() {
        let counter = |id: u32| {
            serde_json::json!({
                "id": id, "pmu": "software", "family": "software", "subsystem": "host",
                "event": "page-faults", "filter": "", "unit": "count", "scale": 1.0,
                "attr_type": 1, "config": [2, 0, 0, 0, 0], "cpu": id, "socket": null,
                "sees": "0", "per_cpu": true, "at_switch": true, "leader": null
            })
        };
        let counters = (0..2).map(|id| serde_json::from_value(counter(id)).unwrap()).collect();
        let plan = Plan { tick_ns: 1, window_ns: 1, counters, ..Plan::default() };
        let lap = |enabled: [u64; 2]| {
            let tally = |enabled| Tally::Counted(Count { value: 0, enabled, running: enabled });
            Lap { tallies: enabled.map(tally).to_vec(), counted_ns: 1_000_000_000 }
        };
        let whole = 1_000_000_000;
        let mut known = BTreeSet::new();
        let mut told = |enabled| newly_absent(&plan, &lap(enabled), &mut known).to_string();
        assert_eq!(told([whole, whole]), "");
        assert_eq!(told([whole, whole / 2]), "1");
        assert_eq!(told([0, 0]), "0");
        assert_eq!(told([0, 0]), "");
    }
}
