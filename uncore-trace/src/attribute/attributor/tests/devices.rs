//! What devices move is a part of what counters of memory count.

use std::rc::Rc;

use super::*;
use crate::entries::{DeviceHold, DeviceTransfer};
use crate::plan::IoDirection;
use crate::schema::columns::{f64_column, i32_column, nullable_value};

const FUNCTION: &str = "0000:01:00.0";

/// Bytes that the memory counts for each byte of a device.
const MEMORY_BYTES: f64 = 0.8;

/// The owner that hardly runs, and whose device moves most of the bytes.
const DEVICE_USER: u64 = 3;

/// How a recording knows what the device moves, and for whom.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    /// A counter of its root port, and who holds it.
    Held,
    /// A counter of its root port.
    Counted,
    /// Requests to a disk, which may be on PCI.
    Requests {
        is_on_pci: bool,
    },
    /// Requests, and a counter of the root port above the disk.
    CountedRequests,
}

impl Known {
    const fn has_port(self) -> bool {
        matches!(self, Self::Held | Self::Counted | Self::CountedRequests)
    }
}

/// The memory's counter, which counts what is read from memory, or written to it, and that of the
/// root port if there is one.
fn plan_of(known: Known, memory_direction: &str, causes: &[&str]) -> Plan {
    let memory = serde_json::json!({
        "id": 0, "pmu": "memory", "family": "memory", "subsystem": "mem", "event": "read",
        "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1, "config": [0, 0, 0, 0, 0],
        "cpu": 0, "socket": 0, "sees": "0-1", "far": "", "per_cpu": false, "at_switch": false,
        "leader": null, "causes": causes,
    });
    let port = serde_json::json!({
        "id": 1, "pmu": "port", "family": "port", "subsystem": "pcie", "event": "read",
        "filter": "", "unit": "bytes", "scale": 4.0, "attr_type": 2, "config": [0, 0, 0, 0, 0],
        "cpu": 0, "socket": 0, "sees": "", "far": "", "per_cpu": false, "at_switch": false,
        "leader": null, "cause": "device", "behind": [{ "function": FUNCTION }],
        "io": { "direction": "write", "devices": ["nvme0n1"], "label": "nvme0n1" },
    });
    let link = |id: u32, kind: &str, direction: &str| {
        serde_json::json!({
            "name": kind, "kind": kind, "subsystem": "mem", "socket": 0,
            "counters": [{ "counter": id, "direction": direction }],
        })
    };
    let mut counters = vec![memory];
    let mut links = vec![link(0, "memory", memory_direction)];
    if known.has_port() {
        counters.push(port);
        links.push(link(1, "PCIe", "out"));
    }
    serde_json::from_value(serde_json::json!({
        "tick_ns": 1_000_000, "window_ns": 100_000_000, "metrics": [], "notes": [],
        "counters": counters, "links": links,
    }))
    .unwrap()
}

/// A share of the memory's count in the last second.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    /// Its part of the count.
    part: f64,
    /// The mean of its confidences.
    confidence: f64,
}

/// What each owner is given of the memory's count in the last second, by cgroup or kind, and the true
/// part of the device's bytes.
fn divide(known: Known, plan: &Plan, lag_ns: u64) -> (BTreeMap<String, Given>, f64) {
    divide_from(0, known, plan, lag_ns)
}

/// The same of counters that have this count when the recording begins.
fn divide_from(
    begin_count: u64,
    known: Known,
    plan: &Plan,
    lag_ns: u64,
) -> (BTreeMap<String, Given>, f64) {
    const TICKS: u64 = 4000;
    let settings = AttributionSettings {
        choice: MethodChoice::Auto,
        io: known != Known::Nothing,
        lag_ns,
        ..AttributionSettings::default()
    };
    let mut attributor = attributor_of(plan, settings);
    let mut tables = Builders::default();
    let owner = |cgroup_id| Owner::Task { pid: 1, comm: Comm::default(), cgroup_id };
    let mut random = fastrand::Rng::with_seed(5);
    let (mut memory_bytes, mut device_bytes) = (0, 0);
    let (mut last_device, mut last_memory) = (0.0, 0.0);
    let mut device_runs = false;
    for tick in 10..=10 + TICKS {
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        if tick == 11 && known == Known::Held {
            take(LogEntry::Held(&DeviceHold {
                function: FUNCTION.parse().unwrap(),
                owner: owner(DEVICE_USER),
                ns: 1_000_000,
            }));
        }
        if tick > 10 {
            if tick % 50 == 0 {
                device_runs = random.bool();
            }
            let times = [random.u64(0..900_000), random.u64(0..900_000)];
            let device = if device_runs { random.u64(500_000..1_500_000) } else { 0 };
            let moved = times[0] / 2 + times[1] / 4 + (device as f64 * MEMORY_BYTES) as u64;
            memory_bytes += moved;
            device_bytes += device;
            if tick > 10 + TICKS - 1000 {
                last_device += device as f64 * MEMORY_BYTES;
                last_memory += moved as f64;
            }
            take(LogEntry::Usage { cpu: 0, usage: &[(owner(1), times[0])] });
            let usage = [(owner(2), times[1]), (owner(DEVICE_USER), 2_000)];
            take(LogEntry::Usage { cpu: 1, usage: &usage });
            let is_on_pci = known != Known::Requests { is_on_pci: false };
            if matches!(known, Known::Requests { .. } | Known::CountedRequests) {
                take(LogEntry::Moved(&DeviceTransfer {
                    device: Rc::from("nvme0n1"),
                    is_on_pci,
                    direction: IoDirection::Write,
                    owner: owner(DEVICE_USER),
                    bytes: device,
                    requests: 1,
                }));
            }
        }
        for counter in &plan.counters {
            let since_begin = if counter.id == 0 { memory_bytes } else { device_bytes / 4 };
            let value = begin_count + since_begin;
            take(LogEntry::Reading(CounterReading {
                tick,
                time: tick * 1_000_000,
                counter: counter.id,
                cpu: 0,
                trigger: ReadingTrigger::Timer,
                value: Ok(CounterValue { value, times: None }),
                owner: None,
            }));
        }
        if tick > 10 {
            take(LogEntry::EndOfTick { tick, is_last: tick == 10 + TICKS });
        }
    }
    attributor.finish_windows(&mut tables);
    let batch = tables.fabric.finish();
    let ends = batch.column_by_name("mono_ns").unwrap().as_primitive::<Int64Type>();
    let counters = i32_column(&batch, "counter").unwrap();
    let values = f64_column(&batch, "value").unwrap();
    let confidences = batch.column_by_name("confidence").unwrap();
    let confidences = confidences.as_primitive::<arrow::datatypes::Float32Type>();
    let cgroups = batch.column_by_name("cgroup_id").unwrap().as_primitive::<Int64Type>();
    let kinds = word_column(&batch, "owner").unwrap();
    let mut sums: BTreeMap<String, Given> = BTreeMap::new();
    let mut total = 0.0;
    for row in 0..batch.num_rows() {
        let is_late = ends.value(row) > (10 + TICKS as i64 - 1000) * 1_000_000;
        let value = nullable_value(values, row).unwrap_or_default();
        if counters.value(row) == 0 {
            total += value;
        }
        if counters.value(row) == 0 && is_late {
            let key = match kinds.get(row).unwrap() {
                "task" => cgroups.value(row).to_string(),
                kind => kind.to_owned(),
            };
            let sum = sums.entry(key).or_default();
            sum.part += value / last_memory;
            sum.confidence += value / last_memory * f64::from(confidences.value(row));
        }
    }
    assert!((total - memory_bytes as f64).abs() < 1e-6 * total, "{known:?}: {total}");
    for sum in sums.values_mut() {
        sum.confidence /= sum.part.max(f64::MIN_POSITIVE);
    }
    (sums, last_device / last_memory)
}

fn divide_reads(known: Known) -> (BTreeMap<String, Given>, f64) {
    divide(known, &plan_of(known, "in", &["cpu", "device"]), 1_000_000_000)
}

fn part(given: &BTreeMap<String, Given>, owner: &str) -> f64 {
    given.get(owner).map_or(0.0, |sum| sum.part)
}

#[test]
fn bytes_of_a_device_are_its_users() {
    let user = DEVICE_USER.to_string();
    for known in [Known::Held, Known::Requests { is_on_pci: true }, Known::CountedRequests] {
        for lag_ns in [0, 1_000_000_000] {
            let plan = plan_of(known, "in", &["cpu", "device"]);
            let (given, truth) = divide(known, &plan, lag_ns);
            let of_user = given[&user];
            assert!((of_user.part / truth - 1.0).abs() < 0.05, "{known:?}: {given:?}, {truth}");
            // No counter of the device says that the memory counted the bytes of requests.
            let is_sure = of_user.confidence > 0.5;
            assert_eq!(is_sure, known.has_port(), "{known:?}: {given:?}");
        }
    }
}

#[test]
fn bytes_of_a_device_that_nobody_holds_are_the_devices() {
    let (given, truth) = divide_reads(Known::Counted);
    assert!((part(&given, "device") / truth - 1.0).abs() < 0.05, "{given:?}, {truth}");
    assert!(part(&given, &DEVICE_USER.to_string()) < 0.02, "{given:?}");
}

/// Copies of a loop device or of a virtual interface are made by CPUs.
#[test]
fn requests_to_what_is_not_on_pci_move_nothing_by_themselves() {
    let (given, _) = divide_reads(Known::Requests { is_on_pci: false });
    let (without, _) = divide_reads(Known::Nothing);
    assert_eq!(format!("{given:?}"), format!("{without:?}"));
}

#[test]
fn a_counter_that_counts_no_devices_learns_nothing_from_them() {
    let known = Known::Requests { is_on_pci: true };
    let (without, _) = divide_reads(Known::Nothing);
    let other_direction = plan_of(known, "out", &["cpu", "device"]);
    let cpus_alone = plan_of(known, "in", &["cpu", "remote"]);
    for plan in [other_direction, cpus_alone] {
        let (given, _) = divide(known, &plan, 1_000_000_000);
        assert!(part(&given, &DEVICE_USER.to_string()) < 0.1, "{given:?}");
        for owner in ["1", "2", "unattributed"] {
            let difference = part(&given, owner) - part(&without, owner);
            assert!(difference.abs() < 0.01, "{owner}: {given:?}, {without:?}");
        }
    }
}

/// The second part of a recording, and what was cut from a longer one.
#[test]
fn what_was_counted_before_the_recording_teaches_nothing() {
    let plan = plan_of(Known::Held, "in", &["cpu", "device"]);
    for lag_ns in [0, 1_000_000_000] {
        let from_zero = divide(Known::Held, &plan, lag_ns);
        let later = divide_from(1 << 50, Known::Held, &plan, lag_ns);
        assert_eq!(format!("{later:?}"), format!("{from_zero:?}"));
    }
}
