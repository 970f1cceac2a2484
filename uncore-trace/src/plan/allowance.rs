//! The allowed cost of a witness, which is an additional counter that is read at every context
//! switch of each CPU.

use uncore_trace_common::record::MAX_COUNTERS;

/// Duration of the hook of `sched_switch` with a reading, ns: 0.8 to 0.95 us on an AMD EPYC virtual
/// machine (docs/cost.md). It is measured during a recording.
pub const READ_NS: f64 = 900.0;

/// Most readings of a witness that the recorder can drain per second, over all CPUs: one thread
/// drains them, at 1.2 us each (docs/cost.md), besides its other work.
pub const MOST_READINGS: f64 = 250_000.0;

/// The allowed cost of a witness, and its expected cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WitnessAllowance {
    /// Part of each CPU's time, in percent; 0: no witness is opened.
    pub percent: f64,
    /// Context switches per second and CPU, averaged over the online CPUs; `None` if not measured.
    pub switches: Option<f64>,
}

/// Why a witness is not opened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WitnessRefusal {
    /// The allowed cost is 0.
    Never,
    /// Its readings would take this part of each CPU's time, in percent.
    Time(f64),
    /// It would be read this often per second.
    Readings(f64),
    /// A CPU has no room for another counter.
    Room,
}

impl WitnessAllowance {
    /// Readings per second and CPU: one per switch and one per tick.
    fn reading_rate(self, tick_ns: u64) -> Option<f64> {
        Some(self.switches? + 1e9 / tick_ns as f64)
    }

    /// The part of each CPU's time that a witness takes, in percent; `None` if the rate of switches
    /// is unknown.
    pub fn witness_cost(self, tick_ns: u64) -> Option<f64> {
        self.reading_rate(tick_ns).map(|readings| percent(readings, READ_NS))
    }

    /// Why no witness is opened on `cpus` CPUs; the one with most counters reads `counters`.
    pub fn refusal_reason(
        self,
        tick_ns: u64,
        cpus: usize,
        counters: usize,
    ) -> Option<WitnessRefusal> {
        if self.percent <= 0.0 {
            return Some(WitnessRefusal::Never);
        }
        if counters >= MAX_COUNTERS {
            return Some(WitnessRefusal::Room);
        }
        if let Some(cost) = self.witness_cost(tick_ns).filter(|cost| *cost > self.percent) {
            return Some(WitnessRefusal::Time(cost));
        }
        let total_rate = self.reading_rate(tick_ns).map(|rate| rate * cpus as f64);
        total_rate.filter(|total| *total > MOST_READINGS).map(WitnessRefusal::Readings)
    }

    /// The reason as text.
    pub fn explain_refusal(self, refusal: WitnessRefusal) -> String {
        let percent = self.percent;
        match refusal {
            WitnessRefusal::Never => "--witness-budget is 0".to_owned(),
            WitnessRefusal::Time(cost) => format!(
                "at {:.0} context switches a second it would take {cost:.1} % of the time of each \
                 CPU, and --witness-budget is {percent} %",
                self.switches.unwrap_or_default()
            ),
            WitnessRefusal::Readings(readings) => format!(
                "the CPUs would read it {readings:.0} times a second, and the recorder takes \
                 {MOST_READINGS:.0} readings a second at most: choose a longer --tick"
            ),
            WitnessRefusal::Room => {
                format!("a CPU already reads {MAX_COUNTERS} counters, the maximum")
            }
        }
    }
}

/// The part of a CPU's time that `readings` per second of `read_ns` take, in percent.
pub fn percent(readings: f64, read_ns: f64) -> f64 {
    readings * read_ns * 1e-9 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 1_000_000;

    fn refusal(percent: f64, switches: f64, cpus: usize) -> Option<WitnessRefusal> {
        WitnessAllowance { percent, switches: Some(switches) }.refusal_reason(TICK_NS, cpus, 3)
    }

    #[test]
    fn a_witness_is_opened_within_its_budget_and_not_above_it() {
        // 1000 ticks and 21 000 switches of 0.9 us are 1.98 %.
        assert_eq!(refusal(2.0, 21_000.0, 2), None);
        assert!(
            matches!(refusal(2.0, 22_000.0, 2), Some(WitnessRefusal::Time(cost)) if cost > 2.0)
        );
        assert_eq!(refusal(0.0, 0.0, 2), Some(WitnessRefusal::Never));
        // 144 CPUs with 1000 ticks and 800 switches each: too many readings for one recorder.
        let many = Some(WitnessRefusal::Readings(259_200.0));
        assert_eq!(refusal(2.0, 800.0, 144), many);
        let longer = WitnessAllowance { percent: 2.0, switches: Some(800.0) };
        assert_eq!(longer.refusal_reason(10 * TICK_NS, 144, 3), None);
        assert_eq!(longer.refusal_reason(TICK_NS, 2, MAX_COUNTERS), Some(WitnessRefusal::Room));
    }

    #[test]
    fn an_unknown_rate_of_switches_refuses_no_witness() {
        let unknown = WitnessAllowance { percent: 2.0, switches: None };
        assert_eq!(
            (unknown.witness_cost(TICK_NS), unknown.refusal_reason(TICK_NS, 1000, 0)),
            (None, None)
        );
    }
}
