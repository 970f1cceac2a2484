//! Attribution: divides the count of a counter among owners. Pure functions.
//!
//! A method divides one window of one counter among owners. With every method the shares sum to the
//! count: what cannot be attributed goes to [`Owner::Unattributed`]. A new method is a file, and
//! its lines in [`Method`], [`Choice`] and [`Methods`].

mod agreement;
mod attributor;
mod calibration;
mod cgroups;
mod columns;
mod confidence;
mod counter;
mod credit;
mod exact;
mod grid;
mod held;
mod history;
mod io;
mod learner;
mod monitor;
mod names;
mod pool;
mod ports;
mod regression;
mod residency;
mod rows;
mod series;
#[cfg(test)]
mod simulation;
mod small;
mod solve;
mod source;
mod sums;
mod switches;
mod symmetric;
mod turn;
mod usage;
mod waiting;
mod wide;
mod window_parts;
mod witnessed;
mod witnesses;
mod workers;

pub use self::attributor::{Attributor, RecordingFacts, order_counters};
use self::exact::{ByReadings, ByRequests, ByTime};
use self::history::{Histories, Predictor};
use self::io::IoMethod;
use self::learner::DividedCount;
pub use self::learner::Effort;
use self::regression::Regression;
use self::residency::Residency;
pub use self::small::MIN_SHARE;
use self::source::SourceMethod;
use self::switches::BySwitches;
use self::witnessed::ByWitness;
pub use self::workers::{available_threads, live_threads};
use crate::catalog::exact::ExactBy;
use crate::entries::{Owner, Relief};
use crate::plan::{Counter, Plan};

/// How a share was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Each owner's part of a per-CPU counter is known: see [`ExactBy`].
    Exact,
    /// Not divided: by its hardware, the counter counts only traffic of devices or other systems.
    Source,
    /// Measured by a monitor of the hardware for the owner's cgroup.
    Monitor,
    /// By time on the CPUs whose traffic the counter sees.
    Residency,
    /// By the bytes moved on the counter's devices.
    Io,
    /// Traffic of devices, by who holds them.
    Held,
    /// By each owner's traffic per miss, learnt from ticks.
    Misses,
    /// By each owner's traffic per byte at ports, which count fewer CPUs.
    Ports,
    /// By each owner's traffic per CPU time, learnt from ticks.
    Regression,
    /// Not divided: the counter did not run, or its count is 0.
    None,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 10] = [
        Self::Exact,
        Self::Source,
        Self::Monitor,
        Self::Residency,
        Self::Io,
        Self::Held,
        Self::Misses,
        Self::Ports,
        Self::Regression,
        Self::None,
    ];

    /// The value in the column `method`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Source => "source",
            Self::Monitor => "monitor",
            Self::Residency => "residency",
            Self::Io => "io",
            Self::Held => "held",
            Self::Misses => "misses",
            Self::Ports => "ports",
            Self::Regression => "regression",
            Self::None => "none",
        }
    }
}

/// The requested method. Counters whose parts are known are always `exact`, and traffic
/// that no CPU causes is never divided by the use of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io for PCIe root ports, misses for traffic of CPUs if misses are counted anyway, regression
    /// for other counters that CPUs share, residency for counters of one CPU
    #[default]
    Auto,
    /// In proportion to time on the CPUs that the counter sees
    Residency,
    /// PCIe root ports by the bytes that disks and interfaces moved for each owner, others by
    /// residency
    Io,
    /// Traffic of CPUs by last-level cache misses, others as with auto; reads the core's miss
    /// counter at every context switch and tick of these CPUs
    Misses,
    /// By rates learnt from ticks, or residency where nothing can be learnt
    Regression,
}

impl Choice {
    /// All methods.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::Residency, Self::Io, Self::Misses, Self::Regression];

    /// The choice of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Residency => "residency",
            Self::Io => "io",
            Self::Misses => "misses",
            Self::Regression => "regression",
        }
    }

    /// Whether counters of PCIe devices are divided by the bytes moved on them.
    pub const fn wants_io(self) -> bool {
        matches!(self, Self::Auto | Self::Io | Self::Misses)
    }

    /// Whether the method needs I/O to be recorded for a counter of the plan.
    pub fn needs_io(self, plan: &Plan) -> bool {
        plan.counters
            .iter()
            .any(|counter| counter.is_statistic() || self.wants_io() && counter.io.is_some())
    }
}

/// Which method divides which counter of a recording, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Methods {
    /// The requested method.
    pub choice: Choice,
    /// Whether I/O is recorded.
    pub io: bool,
    /// A window is divided with what was learnt up to this long after its end, ns; see [`waiting`].
    pub lag_ns: u64,
    /// How thoroughly rates are solved.
    pub effort: Effort,
    /// Shares below this part of a window's total are united, 0 to 1; see [`small`].
    pub min_share: f64,
}

impl Methods {
    /// The method for a counter of the plan.
    pub fn make_attribution(self, plan: &Plan, counter: &Counter) -> Box<dyn Attribution> {
        match self.method_for(plan, counter) {
            Method::Exact => match counter.exact_by {
                Some(ExactBy::Time) => Box::new(ByTime),
                Some(ExactBy::Switches) => Box::<BySwitches>::default(),
                Some(ExactBy::Requests) => Box::new(ByRequests),
                Some(ExactBy::Readings) | None => Box::new(ByReadings),
            },
            Method::Source => Box::new(SourceMethod::from_cause(counter.cause)),
            Method::Io => Box::<IoMethod>::default(),
            witness_method @ (Method::Misses | Method::Ports) => {
                let predictor = if witness_method == Method::Ports {
                    Predictor::Ports
                } else {
                    Predictor::Misses
                };
                let compare = self.choice == Choice::Auto;
                Box::new(ByWitness::new(predictor, plan.tick_ns, self.effort, compare))
            }
            Method::Regression if counter.is_port() => {
                let method = Regression::new(Predictor::Time, plan.tick_ns, self.effort);
                Box::new(method.keeping_divided_counts())
            }
            Method::Regression => {
                Box::new(Regression::new(Predictor::Time, plan.tick_ns, self.effort))
            }
            Method::Residency | Method::Monitor | Method::Held | Method::None => {
                Box::new(Residency)
            }
        }
    }

    /// Whether the method for a counter learns from ticks. `misses` and `ports` do, because they
    /// fall back to `regression`.
    pub fn learns_from_ticks(self, plan: &Plan, counter: &Counter) -> bool {
        matches!(
            self.method_for(plan, counter),
            Method::Misses | Method::Ports | Method::Regression
        )
    }

    /// The method that divides a counter, if it can.
    pub fn method_for(self, plan: &Plan, counter: &Counter) -> Method {
        let Self { choice, io, .. } = self;
        if counter.at_switch || counter.exact_by.is_some() {
            Method::Exact
        } else if io && choice.wants_io() && counter.io.is_some() {
            Method::Io
        } else if counter.sees.is_empty() {
            Method::Source
        } else {
            match choice {
                Choice::Auto if plan.has_ports_of(counter) => Method::Ports,
                Choice::Auto if counter.is_port() => Method::Regression,
                Choice::Auto | Choice::Misses if plan.has_misses_of(counter) => Method::Misses,
                Choice::Regression => Method::Regression,
                Choice::Auto | Choice::Misses if !counter.per_cpu => Method::Regression,
                Choice::Auto | Choice::Misses | Choice::Residency | Choice::Io => Method::Residency,
            }
        }
    }
}

/// The share of one owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The owner.
    pub owner: Owner,
    /// Its part of the count, in the counter's unit.
    pub value: f64,
    /// The probability that the value is within 10 % of the truth, 0 to 1.
    pub confidence: f32,
    /// The probability that the sum of the shares of its cgroup, or of its owner if it has none,
    /// is within 10 % of the truth over a longer time, 0 to 1. Errors that cancel out between the
    /// processes of a cgroup, or from window to window, are not in it.
    pub lasting: f32,
    /// The method that made it, if it is not that of the window.
    pub method: Option<Method>,
    /// Number of processes whose small shares it sums up, if it does.
    pub processes: Option<u32>,
}

impl Share {
    /// A share whose errors all last.
    const fn new(owner: Owner, value: f64, confidence: f32) -> Self {
        Self { owner, value, confidence, lasting: confidence, method: None, processes: None }
    }

    /// Adds another share of the same owner. Confidences are weighed by value.
    fn add_share(&mut self, addend: &Self) {
        let sum = self.value + addend.value;
        if sum > 0.0 {
            let weight = (addend.value / sum) as f32;
            self.confidence += weight * (addend.confidence - self.confidence);
            self.lasting += weight * (addend.lasting - self.lasting);
        }
        self.value = sum;
    }
}

/// A counter's count in a window, and the use of its CPUs and devices.
#[derive(Clone, Copy, Debug)]
pub struct CountedWindow<'a> {
    /// The count in its unit, scaled for multiplexing; above 0.
    pub total: f64,
    /// Factor from a raw count to the unit, including the correction for multiplexing.
    pub factor: f64,
    /// The part of the window in which the counter ran, 0 to 1.
    pub running: f32,
    /// Whether the counter sees one CPU only.
    pub sees_one_cpu: bool,
    /// Length, ns.
    pub len_ns: u64,
    /// The tick at which it ends.
    pub end_tick: u64,
    /// Nanoseconds by owner on the CPUs that it sees, sorted.
    pub time: &'a [(Owner, u64)],
    /// Raw counts by owner, sorted, if it is read at every context switch; context switches, if it
    /// counts these.
    pub counts: &'a [(Owner, u64)],
    /// Bytes by owner on the devices below the counter's root ports, in its direction, sorted;
    /// `None` if I/O is not recorded.
    pub io: Option<&'a [(Owner, f64)]>,
    /// The use in each of its ticks; `None` if no counter of these CPUs learns from ticks.
    pub histories: Option<&'a Histories>,
}

impl CountedWindow<'_> {
    /// The raw count, scaled for multiplexing.
    fn raw_count(&self) -> u64 {
        (self.total / self.factor).round() as u64
    }

    /// The tick at which it begins.
    fn begin_tick(&self, tick_ns: u64) -> u64 {
        self.end_tick.saturating_sub(self.len_ns / tick_ns)
    }
}

/// A method, with what it has learnt about one counter.
pub trait Attribution: std::fmt::Debug + Send {
    /// Adds the count of a tick; `None` if there is no reading at its end, so that the next count
    /// covers both. Ticks come in order.
    fn observe_tick(&mut self, _tick: u64, _count: Option<f64>, _histories: &Histories) {}

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    fn note_restart(&mut self) {}

    /// Learns the ticks since the last review.
    fn learn_ticks(&mut self, _histories: &Histories) {}

    /// Its rates for a predictor, by slot, in any unit.
    fn rate_profile(&self, _predictor: Predictor) -> Option<Vec<f64>> {
        None
    }

    /// Solves the rates from the ticks so far.
    fn solve_rates(&mut self, _histories: &Histories) {}

    /// Sets what is left out from now on.
    fn set_relief(&mut self, _relief: Relief) {}

    /// Divides ticks up to `_last_tick` by the current rates, for a window that began earlier and
    /// is not over. The use of these ticks may be forgotten then.
    fn divide_ticks(&mut self, _histories: &Histories, _begin_tick: u64, _last_tick: u64) {}

    /// The counts of ticks that it divided since the last call, if it is a port.
    fn take_divided_counts(&mut self) -> Vec<DividedCount> {
        Vec::new()
    }

    /// The oldest tick whose history is still needed.
    fn oldest_needed_tick(&self) -> u64 {
        u64::MAX
    }

    /// Skips a window that ends at this tick and has nothing to divide.
    fn skip_window(&mut self, _histories: Option<&Histories>, _end_tick: u64) {}

    /// Divides the next window. The shares sum to its total, and none is negative.
    fn divide_window(&mut self, window: &CountedWindow<'_>) -> (Method, Vec<Share>);
}

/// Adds the rest of `total` as an unattributed share, so that the shares sum to it.
fn add_unattributed(shares: &mut Vec<Share>, total: f64) {
    let remainder = total - shares.iter().map(|share| share.value).sum::<f64>();
    // A smaller difference is a rounding error.
    if remainder > total * 1e-12 {
        shares.push(Share::new(Owner::Unattributed, remainder, 0.0));
    }
}

/// The sum of value x confidence.
fn confident_value(shares: &[Share]) -> f64 {
    shares.iter().map(|share| share.value * f64::from(share.confidence)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::source::Cause;
    use crate::schema::fabric::METHODS;

    /// The method for each choice, for a counter with this cause that sees these CPUs.
    fn kinds(cause: Option<&str>, sees: &str) -> Vec<Method> {
        let plan: Plan = serde_json::from_value(serde_json::json!({
            "tick_ns": 1, "window_ns": 1, "metrics": [], "notes": [], "counters": [{
                "id": 0, "pmu": "a", "family": "a", "subsystem": "pcie", "event": "e",
                "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 9,
                "config": [0, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": sees, "cause": cause,
                "per_cpu": false, "at_switch": false, "leader": null
            }]
        }))
        .unwrap();
        let choices = [Choice::Auto, Choice::Residency, Choice::Io, Choice::Misses];
        let kind = |choice| {
            Methods { choice, io: true, lag_ns: 0, effort: Effort::Live, min_share: 0.0 }
                .method_for(&plan, &plan.counters[0])
        };
        choices.map(kind).to_vec()
    }

    #[test]
    fn what_no_cpu_causes_is_divided_by_nothing_that_cpus_do() {
        for cause in [Some("device"), Some("remote"), None] {
            assert_eq!(kinds(cause, ""), [Method::Source; 4]);
        }
        assert!(!kinds(Some("remote"), "2-3").contains(&Method::Source));
        let window = CountedWindow {
            total: 8.0,
            factor: 1.0,
            running: 0.5,
            sees_one_cpu: false,
            len_ns: 1,
            end_tick: 1,
            time: &[(Owner::Idle, 1)],
            counts: &[],
            io: None,
            histories: None,
        };
        let whose = |cause| SourceMethod::from_cause(cause).divide_window(&window).1;
        let all = |who, confidence| vec![Share::new(who, 8.0, confidence)];
        assert_eq!(whose(Some(Cause::Device)), all(Owner::Device, 0.5));
        assert_eq!(whose(Some(Cause::Remote)), all(Owner::Unattributed, 0.0));
        assert_eq!(whose(None), all(Owner::Unattributed, 0.0));
    }

    #[test]
    fn the_schema_has_the_word_of_each_method() {
        assert_eq!(Method::ALL.map(Method::name), METHODS);
    }
}
