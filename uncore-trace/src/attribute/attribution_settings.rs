//! Which method divides which counter.

use super::device_bytes::DeviceDirections;
use super::division_method::DivisionMethod;
use super::exact::{ByReadings, ByRequests, ByTime};
use super::io::IoMethod;
use super::learner::Effort;
use super::method::Method;
use super::predictor::Predictor;
use super::regression::Regression;
use super::residency::Residency;
use super::source::SourceMethod;
use super::switches::BySwitches;
use super::witnessed::ByWitness;
use crate::catalog::exact::ExactBy;
use crate::choice::MethodChoice;
use crate::plan::{Counter, Plan};
use crate::schema::row_limit::RowLimit;

/// Which method divides which counter of a recording, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributionSettings {
    /// The requested method.
    pub choice: MethodChoice,
    /// Whether I/O is recorded.
    pub io: bool,
    /// A window is divided with what was learnt up to this long after its end, ns; see
    /// [`super::waiting`].
    pub lag_ns: u64,
    /// How thoroughly rates are solved.
    pub effort: Effort,
    /// Shares below this part of a window's total are united, 0 to 1; see [`super::small_shares`].
    pub min_share: f64,
    /// Rows of `fabric` at most; see [`super::row_budget`].
    pub row_limit: RowLimit,
}

impl AttributionSettings {
    /// Creates the method for a counter of the plan, which has learnt nothing yet.
    pub fn create_method(self, plan: &Plan, counter: &Counter) -> Box<dyn DivisionMethod> {
        let devices = DeviceDirections::from_counter(plan, counter);
        match self.planned_method(plan, counter) {
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
                let compare = self.choice == MethodChoice::Auto;
                let method = ByWitness::new(predictor, plan.tick_ns, self.effort, compare);
                Box::new(method.using_devices(devices))
            }
            Method::Regression if counter.is_port() => {
                let method = Regression::new(Predictor::Time, plan.tick_ns, self.effort);
                Box::new(method.keeping_divided_counts())
            }
            Method::Regression => {
                let method = Regression::new(Predictor::Time, plan.tick_ns, self.effort);
                Box::new(method.using_devices(devices))
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
            self.planned_method(plan, counter),
            Method::Misses | Method::Ports | Method::Regression
        )
    }

    /// The kind of method that divides a counter, if it can.
    pub fn planned_method(self, plan: &Plan, counter: &Counter) -> Method {
        let Self { choice, io, .. } = self;
        if counter.at_switch || counter.exact_by.is_some() {
            Method::Exact
        } else if io && choice.wants_io() && counter.io.is_some() {
            Method::Io
        } else if counter.sees.is_empty() {
            Method::Source
        } else {
            match choice {
                MethodChoice::Auto if plan.has_ports_of(counter) => Method::Ports,
                MethodChoice::Auto if counter.is_port() => Method::Regression,
                MethodChoice::Auto | MethodChoice::Misses if plan.has_misses_of(counter) => {
                    Method::Misses
                }
                MethodChoice::Regression => Method::Regression,
                MethodChoice::Auto | MethodChoice::Misses if !counter.per_cpu => Method::Regression,
                MethodChoice::Auto
                | MethodChoice::Misses
                | MethodChoice::Residency
                | MethodChoice::Io => Method::Residency,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::division_method::DivisionInput;
    use crate::attribute::share::Share;
    use crate::catalog::source::TrafficCause;
    use crate::choice::MethodChoice;
    use crate::entries::Owner;

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
        let choices =
            [MethodChoice::Auto, MethodChoice::Residency, MethodChoice::Io, MethodChoice::Misses];
        let kind = |choice| {
            AttributionSettings {
                choice,
                io: true,
                lag_ns: 0,
                effort: Effort::Live,
                min_share: 0.0,
                row_limit: RowLimit::All,
            }
            .planned_method(&plan, &plan.counters[0])
        };
        choices.map(kind).to_vec()
    }

    #[test]
    fn what_no_cpu_causes_is_divided_by_nothing_that_cpus_do() {
        for cause in [Some("device"), Some("remote"), None] {
            assert_eq!(kinds(cause, ""), [Method::Source; 4]);
        }
        assert!(!kinds(Some("remote"), "2-3").contains(&Method::Source));
        let window = DivisionInput {
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
        assert_eq!(whose(Some(TrafficCause::Device)), all(Owner::Device, 0.5));
        assert_eq!(whose(Some(TrafficCause::Remote)), all(Owner::Unattributed, 0.0));
        assert_eq!(whose(None), all(Owner::Unattributed, 0.0));
    }
}
