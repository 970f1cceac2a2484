//! Common parts of the targets for the attributor: a plan whose counters are divided by different
//! methods, and properties of the resulting rows.
#![expect(clippy::unwrap_used, reason = "a column that is missing is a mistake of the target")]

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::RecordBatch;
use uncore_trace::attribute::{
    AttributionSettings, Attributor, CoreSiblings, Effort, MIN_SHARE, RecordingFacts,
    order_counters,
};
use uncore_trace::catalog::exact::ExactBy;
use uncore_trace::choice::MethodChoice;
use uncore_trace::clock::Snapshot;
use uncore_trace::discover::CpuList;
use uncore_trace::discover::cpus::CpuLocation;
use uncore_trace::plan::{Counter, CounterRole, IoDirection, IoScope, Plan};
use uncore_trace::schema::columns::{f64_column, i32_column, i64_column, nullable_value};
use uncore_trace::schema::origin::RecordingOrigin;
use uncore_trace::schema::row_limit::RowLimit;

pub(crate) const TICK_NS: u64 = 1_000_000;
/// The first tick.
pub(crate) const START: u64 = 1000;

/// The counters of [`counter`].
pub(crate) fn plan() -> Plan {
    Plan {
        tick_ns: TICK_NS,
        window_ns: 10 * TICK_NS,
        counters: (0..4).map(counter).collect(),
        ..Plan::default()
    }
}

/// An attributor for them. CPUs 0 and 1 share a core.
pub(crate) fn attributor(plan: &Plan) -> Attributor {
    let location = |cpu| (cpu, CpuLocation { core: Some(0), ..CpuLocation::default() });
    Attributor::new(&RecordingFacts {
        plan,
        counters: &order_counters(plan, |_| false),
        settings: AttributionSettings {
            choice: MethodChoice::Auto,
            io: true,
            lag_ns: 5 * TICK_NS,
            effort: Effort::Live,
            min_share: MIN_SHARE,
            row_limit: RowLimit::All,
        },
        start_tick: START,
        clock: Snapshot { mono_ns: 0, wall_ns: 0 },
        origin: &RecordingOrigin::from_metadata(&BTreeMap::new()),
        siblings: &CoreSiblings::from_locations(&(0..2).map(location).collect()),
        threads: 2,
        sums: false,
    })
}

/// The counter with this number; each is divided by another method.
fn counter(id: u32) -> Counter {
    let io = IoScope {
        direction: IoDirection::Read,
        devices: vec!["sda".to_owned()],
        label: String::new(),
        is_shared: false,
    };
    Counter {
        id,
        pmu: "pmu".to_owned(),
        family: "family".to_owned(),
        subsystem: "mem".to_owned(),
        event: format!("event{id}"),
        filter: String::new(),
        unit: "bytes".to_owned(),
        scale: 32.0,
        attr_type: 10,
        config: Default::default(),
        cpu: id % 2,
        socket: Some(0),
        sees: if id == 1 { CpuList::from_iter([1]) } else { CpuList::from_iter([0, 1]) },
        far: if id == 3 { CpuList::from_iter([1]) } else { CpuList::default() },
        exclude_guest: false,
        functions: Vec::new(),
        part_of: None,
        exclusive: false,
        per_cpu: id == 1,
        at_switch: id == 1,
        exact_by: [None, None, Some(ExactBy::Time), Some(ExactBy::Switches)][id as usize % 4],
        cause: None,
        causes: BTreeSet::default(),
        io: (id == 2).then_some(io),
        behind: Vec::new(),
        leader: None,
        role: CounterRole::Counted,
        witness_bytes: None,
    }
}

/// In each window the shares of a counter sum to its total, and none is below 0.
pub(crate) fn assert_conserved(fabric: &RecordBatch) {
    let (end, counter) =
        (i64_column(fabric, "mono_ns").unwrap(), i32_column(fabric, "counter").unwrap());
    let (value, total) =
        (f64_column(fabric, "value").unwrap(), f64_column(fabric, "total").unwrap());
    let mut sums: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for row in 0..fabric.num_rows() {
        let Some((value, total)) = nullable_value(value, row).zip(nullable_value(total, row))
        else {
            continue;
        };
        let window = (end.value(row), counter.value(row));
        assert!(value >= 0.0, "{window:?}: a share of {value}");
        let sum = sums.entry(window).or_default();
        *sum = (sum.0 + value, total);
    }
    for (window, (sum, total)) in sums {
        assert!((sum - total).abs() <= total.abs() * 1e-9, "{window:?}: {sum} of {total}");
    }
}
