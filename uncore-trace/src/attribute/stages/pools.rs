//! Counters that share devices, if it is not known which of them counts which device.
//!
//! The bytes of owners are compared with the sum of these counters, and each counter gets a part of
//! them. The sum is divided like the count of one counter. A share of one counter is correct only
//! to the extent that the traffic of all owners went through it in the same proportion, so its
//! confidence is multiplied by the counter's part.

use foldhash::{HashMap, HashMapExt};

use crate::attribute::adjustment::{AdjustedWindow, ShareAdjustment};
use crate::attribute::counter::TrackedCounter;
use crate::attribute::method::Method;
use crate::attribute::share::Share;
use crate::attribute::stage::{DivisionStage, StageSetup};
use crate::attribute::waiting::{WindowAdjustment, WindowState};
use crate::plan::IoScope;

/// The pool of each counter.
#[derive(Debug)]
pub(super) struct CounterPools {
    /// For each counter, the index of the first counter of its pool; `None` if it is alone.
    first_indexes: Vec<Option<usize>>,
}

/// The fraction of its devices' traffic that a counter counted, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct PoolFraction(f64);

impl ShareAdjustment for PoolFraction {
    fn adjust_shares(&self, window: &AdjustedWindow<'_>, shares: &mut Vec<Share>) {
        if window.method == Method::Io {
            for share in shares {
                share.confidence *= self.0 as f32;
                share.lasting *= self.0 as f32;
            }
        }
    }
}

impl CounterPools {
    /// Finds the pools of the counters.
    pub(super) fn new(setup: &StageSetup<'_>) -> Self {
        let mut first_of = HashMap::new();
        let mut first_indexes = Vec::new();
        for (index, track) in setup.tracks.iter().enumerate() {
            let counter = &track.counter;
            let io = counter.io.as_ref().filter(|_| track.planned_method == Method::Io);
            let sharing = io.and_then(IoScope::shared_devices);
            let pool = sharing.map(|sharing| (counter.socket, counter.family.as_str(), sharing));
            first_indexes.push(pool.map(|pool| *first_of.entry(pool).or_insert(index)));
        }
        Self { first_indexes }
    }
}

impl DivisionStage for CounterPools {
    /// Leaves each counter its fraction of the bytes moved on the devices of its pool.
    fn close_window(
        &mut self,
        _tick: u64,
        tracks: &[TrackedCounter],
        states: &mut [WindowState],
    ) -> Option<Box<dyn WindowAdjustment>> {
        let mut sums: HashMap<(usize, u64), f64> = HashMap::new();
        let members = || self.first_indexes.iter().zip(tracks);
        for ((pool, track), state) in members().zip(states.iter()) {
            if let (Some(pool_index), WindowState::Undivided(span)) = (pool, state) {
                let total = track.total_count(span).unwrap_or_default();
                *sums.entry((*pool_index, span.begin_tick)).or_default() += total;
            }
        }
        for ((pool, track), state) in members().zip(states.iter_mut()) {
            if let (Some(pool_index), WindowState::Undivided(span)) = (pool, state) {
                let total = track.total_count(span).unwrap_or_default();
                let sum = sums.get(&(*pool_index, span.begin_tick)).copied().unwrap_or_default();
                if sum > 0.0 {
                    span.scale_io(total / sum);
                    span.add_adjustment(PoolFraction(total / sum));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use crate::attribute::tests::new_attributor;
    use crate::attribute::{AttributionSettings, Effort};
    use crate::choice::MethodChoice;
    use crate::entries::{
        CounterReading, CounterValue, DeviceTransfer, EntryConsumer as _, LogEntry, Owner,
        ReadingTrigger,
    };
    use crate::plan::{IoDirection, Plan};
    use crate::schema::Builders;
    use crate::schema::columns::{f64_column, i32_column, nullable_value, word_column};
    use crate::schema::row_limit::RowLimit;

    /// Two counters with these devices.
    fn plan(is_shared: bool) -> Plan {
        let counter = |id: u32| {
            serde_json::json!({
                "id": id, "pmu": format!("stack_{id}"), "family": "stack", "subsystem": "pcie",
                "event": "write", "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1,
                "config": [id, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": "0", "far": "",
                "per_cpu": false, "at_switch": false, "leader": null,
                "io": { "direction": "read", "devices": ["sda"], "label": "sda",
                        "is_shared": is_shared },
            })
        };
        serde_json::from_value(serde_json::json!({
            "tick_ns": 1, "window_ns": 1, "metrics": [], "notes": [],
            "counters": [counter(0), counter(1)],
        }))
        .unwrap()
    }

    /// The interrupt's share of each counter, if these count 300 and 100 bytes while it moves 200.
    fn shares(is_shared: bool) -> Vec<f64> {
        let plan = plan(is_shared);
        let mut attributor = new_attributor(
            &plan,
            AttributionSettings {
                choice: MethodChoice::Auto,
                io: true,
                lag_ns: 0,
                effort: Effort::Live,
                min_share: 0.0,
                row_limit: RowLimit::All,
            },
            10,
        );
        let mut tables = Builders::default();
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        let bytes = [300, 100];
        for (counter, bytes) in (0..).zip(bytes) {
            for (tick, value) in [(10, 0), (11, bytes)] {
                let value = Ok(CounterValue { value, times: None });
                let (cpu, trigger, owner) = (0, ReadingTrigger::Timer, None);
                take(LogEntry::Reading(CounterReading {
                    tick,
                    time: tick,
                    counter,
                    cpu,
                    trigger,
                    value,
                    owner,
                }));
            }
        }
        let owner = Owner::Irq(1);
        let (device, direction) = (Rc::from("sda"), IoDirection::Read);
        take(LogEntry::Moved(&DeviceTransfer {
            device,
            is_on_pci: true,
            direction,
            owner,
            bytes: 200,
            requests: 1,
        }));
        take(LogEntry::EndOfTick { tick: 11, is_last: true });
        let rows = tables.fabric.finish();
        let (counter, owner) =
            (i32_column(&rows, "counter").unwrap(), word_column(&rows, "owner").unwrap());
        let value = f64_column(&rows, "value").unwrap();
        let of_irq = (0..rows.num_rows()).filter(|row| owner.get(*row) == Some("irq"));
        let shares: BTreeMap<_, _> =
            of_irq.map(|row| (counter.value(row), nullable_value(value, row).unwrap())).collect();
        shares.into_values().collect()
    }

    #[test]
    fn what_is_moved_is_divided_among_the_counters_of_its_devices() {
        assert_eq!(shares(true), [150.0, 50.0]);
        // Each counter is treated as the only one.
        assert_eq!(shares(false), [200.0, 100.0]);
    }
}
