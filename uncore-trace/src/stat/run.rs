//! The main loop of `stat`: counts until the command ends, a signal or a control command arrives,
//! or the time is over, and prints rows when they are due.
//!
//! Guarantees: the counters are enabled before the command's first instruction and disabled before
//! they are read for the last time; the counts are printed whatever ended the run.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep};

use super::control::{Control, ControlCommand};
use super::count::{CounterMeter, Lap};
use super::options::{Delay, StatOptions};
use super::output::StatOutput;
use super::repeat::Repeats;
use super::table::StatTable;
use crate::confine::{self, ThreadNeeds};
use crate::discover::CpuList;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::workload::Workload;

/// Why a run ended.
#[derive(Debug)]
enum RunEnd {
    Command,
    Signal,
    Time,
    /// The last interval was printed.
    Intervals,
    Order,
}

/// One run.
struct Ran {
    total: Lap,
    seconds: f64,
    end: RunEnd,
}

struct Runner<'a> {
    options: &'a StatOptions,
    table: &'a StatTable<'a>,
    meter: &'a mut CounterMeter,
    output: &'a mut StatOutput,
    workload: &'a mut Workload,
    signals: &'a mut Signals,
    control: Option<Control>,
    /// CPUs for which the warning about absent counters was printed.
    absent: BTreeSet<u32>,
    /// Number of runs left, with the current one; `None` if there is no last one.
    runs_left: Option<u32>,
}

/// Measures and prints. Returns the exit code: that of the command, or of several runs that of the
/// last one that failed; 0 without a command.
///
/// # Errors
///
/// A counter cannot be enabled, the command cannot be run, or the rows cannot be written; the
/// command may still run then.
pub async fn run(
    options: &StatOptions,
    meter: &mut CounterMeter,
    table: &StatTable<'_>,
    output: &mut StatOutput,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    let control = options.control.as_ref().map(Control::open).transpose()?;
    let absent = BTreeSet::new();
    let forever = options.repeat == 0;
    let runs_left = (!forever).then_some(options.repeat);
    let mut runner =
        Runner { options, table, meter, output, workload, signals, control, absent, runs_left };
    let mut repeats = Repeats::default();
    let mut code = 0;
    let mut printed = false;
    while runner.runs_left != Some(0) {
        let Ran { total, seconds, end } = runner.run_once().await?;
        runner.warn_of_absent(&total);
        let stopped =
            matches!(end, RunEnd::Signal | RunEnd::Order) || runner.signals.was_interrupted();
        // A run that was interrupted would distort the mean.
        if !stopped || repeats.runs == 0 && !printed {
            repeats.used = total.used;
            repeats.run_seconds.extend(options.table.then_some(seconds));
            repeats.push(table.lap_rows(&total), seconds, total.counted_ns as f64 / 1e9);
        }
        if forever && repeats.runs > 0 {
            runner.output.print_whole(&repeats.mean_rows(), &repeats)?;
            repeats = Repeats::default();
            printed = true;
        }
        code = runner.workload.exit_code().filter(|code| *code != 0).unwrap_or(code);
        if stopped || runner.signals.asked_to_leave() {
            break;
        }
    }
    let rows = repeats.mean_rows();
    match (options.interval, options.summary) {
        _ if forever => {}
        (None, _) => runner.output.print_whole(&rows, &repeats)?,
        (Some(_), true) => runner.output.print_summary(&rows)?,
        (Some(_), false) => {}
    }
    Ok(code)
}

/// Installs handlers for the signals that end a count. As in perf stat, the first SIGINT is only
/// for the command if there is one and neither intervals nor a timeout are given, so that the
/// counts until the command ends are included. Needs a tokio runtime.
///
/// # Errors
///
/// The kernel refuses to install a handler.
pub fn install_signals(has_command: bool, ends_by_itself: bool) -> Result<Signals> {
    if has_command && !ends_by_itself {
        Signals::install_but_first_interrupt()
    } else {
        Signals::install()
    }
}

/// Treats the command as perf stat does after counting (`__run_perf_stat` and `skip_signal`,
/// tools/perf/builtin-stat.c, Linux 6.1): after a signal it is left running; with a timeout it is
/// sent SIGTERM; then it is waited for, here until a signal ends the wait.
///
/// # Errors
///
/// The state of the command cannot be read.
pub async fn release_command(
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
    workload.wait_or_leave(signals).await
}

/// The CPUs whose counters were absent for a part of `lap`, without those in `known`; adds them to
/// `known`.
fn newly_absent(plan: &Plan, lap: &Lap, known: &mut BTreeSet<u32>) -> CpuList {
    let counters = lap.absent_counters().filter_map(|id| plan.counters.get(id as usize));
    let cpus: BTreeSet<u32> = counters.map(|counter| counter.cpu).collect();
    cpus.into_iter().filter(|cpu| known.insert(*cpu)).collect()
}

impl Runner<'_> {
    /// Warns once for each CPU whose counters were absent for a part of the time: their counts are
    /// too low.
    fn warn_of_absent(&mut self, lap: &Lap) {
        let cpus = newly_absent(self.table.plan, lap, &mut self.absent);
        if !cpus.is_empty() {
            log::warn!(
                "the counters read on CPU {cpus} did not count all the time (did it go offline?): \
                 their counts are too low"
            );
        }
    }

    async fn run_once(&mut self) -> Result<Ran> {
        let StatOptions { pre, post, sync, .. } = self.options;
        run_hook("--pre", pre.as_deref()).await?;
        if *sync {
            rustix::fs::sync();
        }
        let mut ran = self.measure_run().await?;
        release_command(self.workload, self.signals, self.options.timeout).await?;
        ran.total.used = self.workload.used;
        // What was counted is not lost.
        if let Err(error) = run_hook("--post", post.as_deref()).await {
            log::warn!("{error:#}");
        }
        Ok(ran)
    }

    async fn measure_run(&mut self) -> Result<Ran> {
        self.meter.restart_measurement();
        let early = self.start_counting().await?;
        // As in perf (`__run_perf_stat`, tools/perf/builtin-stat.c, Linux 7.2), a delay is not part
        // of the time.
        let begin = Instant::now();
        let end = match early {
            Some(end) => end,
            None => self.count_until_end(begin).await?,
        };
        // Disabled before the last reading, so that all counters stop at nearly the same time.
        self.meter.disable();
        let seconds = begin.elapsed().as_secs_f64();
        // The last interval is printed even if it is not complete, unless it was just printed.
        if !matches!(end, RunEnd::Intervals) {
            let lap = self.meter.take_lap();
            if self.options.interval.is_some() {
                self.output
                    .print_interval(&self.table.lap_rows(&lap), begin.elapsed().as_secs_f64())?;
            }
        }
        Ok(Ran { total: self.meter.total_lap(), seconds, end })
    }

    /// Starts the command and enables the counters, in the order that the delay needs.
    async fn start_counting(&mut self) -> Result<Option<RunEnd>> {
        // Before the command starts, so that its first instructions are counted.
        if self.options.delay == Delay::None {
            self.meter.enable()?;
        }
        *self.workload = Workload::start_command(&self.options.command)?;
        self.runs_left = self.runs_left.map(|runs| runs.saturating_sub(1));
        if self.runs_left == Some(0) && self.options.post.is_none() {
            // Only after the last start: a command that is started after this would be confined
            // too.
            let file = self.options.file.as_deref().map(ThreadNeeds::to_remove).unwrap_or_default();
            let command = self.workload.child_pid();
            confine::restrict_process(&ThreadNeeds { command, counts: true, ..file });
        }
        let Delay::For(delay) = self.options.delay else { return Ok(None) };
        let delay_end = sleep(delay);
        tokio::pin!(delay_end);
        // A control command that enables the counters ends the delay.
        while !self.meter.is_on() {
            tokio::select! {
                () = &mut delay_end => self.meter.enable()?,
                ended = self.workload.wait_for_end() => return ended.map(|()| Some(RunEnd::Command)),
                _ = self.signals.next() => return Ok(Some(RunEnd::Signal)),
                order = next_command(&mut self.control) => {
                    if self.obey_command(order?)? {
                        return Ok(Some(RunEnd::Order));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn count_until_end(&mut self, begin: Instant) -> Result<RunEnd> {
        let mut ticks = self.options.interval.map(|period| {
            let mut ticks = interval_at(tokio::time::Instant::from_std(begin) + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        let mut intervals_left = self.options.interval_count;
        let timeout = self.options.timeout;
        let timeout_end = async {
            match timeout {
                Some(timeout) => sleep(timeout).await,
                None => pending().await,
            }
        };
        tokio::pin!(timeout_end);
        loop {
            tokio::select! {
                () = wait_for_tick(&mut ticks) => {
                    let lap = self.meter.take_lap();
                    let elapsed_s = begin.elapsed().as_secs_f64();
                    self.warn_of_absent(&lap);
                    self.output.print_interval(&self.table.lap_rows(&lap), elapsed_s)?;
                    intervals_left = intervals_left.map(|remaining| remaining.saturating_sub(1));
                    if intervals_left == Some(0) {
                        return Ok(RunEnd::Intervals);
                    }
                }
                ended = self.workload.wait_for_end() => return ended.map(|()| RunEnd::Command),
                _ = self.signals.next() => return Ok(RunEnd::Signal),
                () = &mut timeout_end => return Ok(RunEnd::Time),
                order = next_command(&mut self.control) => {
                    if self.obey_command(order?)? {
                        return Ok(RunEnd::Order);
                    }
                }
            }
        }
    }

    /// Carries out a control command and answers it. Returns `true` for `stop`.
    fn obey_command(&mut self, order: ControlCommand) -> Result<bool> {
        match order {
            ControlCommand::Enable => self.meter.enable()?,
            ControlCommand::Disable => self.meter.disable(),
            ControlCommand::Ping | ControlCommand::Stop | ControlCommand::Ack => {}
        }
        if let Some(control) = self.control.as_ref().filter(|_| order != ControlCommand::Ack) {
            control.acknowledge();
        }
        Ok(order == ControlCommand::Stop)
    }
}

/// Runs a command before or after a run, with the shell, as perf does with system(3).
async fn run_hook(option: &str, command: Option<&str>) -> Result<()> {
    let Some(command) = command else { return Ok(()) };
    let ended = tokio::process::Command::new("sh").args(["-c", command]).status().await;
    let status = ended.with_context(|| format!("cannot run sh for {option}"))?;
    ensure!(status.success(), "the command of {option} failed: {status}");
    Ok(())
}

async fn wait_for_tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => pending().await,
    }
}

async fn next_command(control: &mut Option<Control>) -> Result<ControlCommand> {
    match control {
        Some(control) => control.next_command().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;
    use crate::stat::count::Tally;

    #[test]
    fn an_absent_cpu_is_reported_once() {
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
            Lap { tallies: enabled.map(tally).to_vec(), counted_ns: 1_000_000_000, used: None }
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
