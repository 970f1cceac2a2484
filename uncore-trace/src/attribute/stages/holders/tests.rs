use std::collections::BTreeMap;

use super::*;
use crate::attribute::tests::new_attributor;
use crate::attribute::{AttributionSettings, Effort};
use crate::choice::MethodChoice;
use crate::drain::Comm;
use crate::entries::{CounterReading, CounterValue, EntryConsumer as _, LogEntry, ReadingTrigger};
use crate::plan::Plan;
use crate::schema::Builders;
use crate::schema::columns::{f64_column, i32_column, nullable_value, word_column};
use crate::schema::row_limit::RowLimit;

const TICK: u64 = 10;

fn process(pid: u32, cgroup_id: u64) -> Owner {
    Owner::Task { pid, comm: Comm::from_bytes(b""), cgroup_id }
}

/// A counter of traffic of devices with these functions behind it.
fn plan(functions: &[(&str, bool)]) -> Plan {
    let behind: Vec<_> = functions
        .iter()
        .map(|(function, unseen)| serde_json::json!({ "function": function, "unseen": unseen }))
        .collect();
    serde_json::from_value(serde_json::json!({
        "tick_ns": TICK, "window_ns": 4 * TICK, "metrics": [], "notes": [],
        "counters": [{
            "id": 0, "pmu": "c2c", "family": "c2c", "subsystem": "c2c", "event": "rd_bytes_loc",
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1, "config": [0, 0, 0, 0, 0],
            "cpu": 0, "socket": 0, "sees": "", "far": "", "per_cpu": false, "at_switch": false,
            "leader": null, "cause": "device", "behind": behind,
        }],
    }))
    .unwrap()
}

/// A row: process, value, and both confidences and the method.
type Line = (Option<i32>, f64, f64, f64, String);

/// A function, an owner, and how long it holds it in each tick.
type Change<'a> = (&'a str, Owner, u64);

/// The rows of one window of four ticks, with these counts, and these changes before the end of
/// each.
fn window(functions: &[(&str, bool)], ticks: &[(u64, &[Change<'_>])]) -> Vec<Line> {
    let plan = plan(functions);
    let mut attributor = new_attributor(
        &plan,
        AttributionSettings {
            choice: MethodChoice::Auto,
            io: false,
            lag_ns: 0,
            effort: Effort::Live,
            min_share: 0.0,
            row_limit: RowLimit::All,
        },
        0,
    );
    assert!(attributor.needs_ticks());
    let mut tables = Builders::default();
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
    let reading = |tick: u64, value: u64| {
        let value = Ok(CounterValue { value, times: None });
        let (time, trigger) = (tick * TICK, ReadingTrigger::Timer);
        LogEntry::Reading(CounterReading {
            tick,
            time,
            counter: 0,
            cpu: 0,
            trigger,
            value,
            owner: None,
        })
    };
    take(reading(0, 0));
    let mut sum = 0;
    for (tick, (count, changes)) in (1..).zip(ticks) {
        for &(function, owner, ns) in *changes {
            take(LogEntry::Held(&DeviceHold { function: function.parse().unwrap(), owner, ns }));
        }
        // A tick without a reading.
        if *count != u64::MAX {
            sum += count;
            take(reading(tick, sum));
        }
        take(LogEntry::EndOfTick { tick, is_last: tick == ticks.len() as u64 });
    }
    let rows = tables.fabric.finish();
    let (pid, value) = (i32_column(&rows, "pid").unwrap(), f64_column(&rows, "value").unwrap());
    let confidence = |name: &str, row: usize| {
        let column = rows[name].as_any().downcast_ref::<arrow::array::Float32Array>();
        (f64::from(column.unwrap().value(row)) * 100.0).round() / 100.0
    };
    let methods = word_column(&rows, "method").unwrap();
    let mut lines: Vec<Line> = (0..rows.num_rows())
        .map(|row| {
            (
                nullable_value(pid, row),
                nullable_value(value, row).unwrap(),
                confidence("confidence", row),
                confidence("cgroup_confidence", row),
                methods.get(row).unwrap().to_owned(),
            )
        })
        .collect();
    lines.sort_by_key(|line| line.0);
    let total: f64 = lines.iter().map(|line| line.1).sum();
    assert!((total - sum as f64).abs() <= 1e-9 * sum as f64, "{total} of {sum}");
    lines
}

fn line(pid: Option<i32>, value: f64, both: (f64, f64), method: &str) -> Line {
    (pid, value, both.0, both.1, method.to_owned())
}

const GPU: &str = "0009:01:00.0";
const NIC: &str = "0000:01:00.1";

#[test]
fn one_tenant_that_holds_the_device_has_all() {
    let [one, other] = [process(1, 7), process(2, 7)];
    let held =
        window(&[(GPU, false)], &[(100, &[(GPU, one, TICK)]), (300, &[]), (0, &[]), (50, &[])]);
    assert_eq!(held, [line(Some(1), 450.0, (0.9, 0.9), "held")]);
    // Two processes of one cgroup: how much each has is not known.
    let changes: &[_] = &[(GPU, one, TICK), (GPU, other, TICK)];
    let held = window(&[(GPU, false)], &[(100, changes), (300, &[]), (0, &[]), (50, &[])]);
    let half = |pid| line(Some(pid), 225.0, (0.09, 0.9), "held");
    assert_eq!(held, [half(1), half(2)]);
}

/// Nothing shows a file that is only mapped, in flight in a socket or in a slot of `io_uring`, so a
/// tenant that is the only one with an open file may not be the only one that uses the device.
#[test]
fn no_holder_is_sure_because_another_may_be_hidden() {
    let (one, other) = (process(1, 7), process(2, 8));
    // The other sends its file away in the second tick, and uses the device all the same.
    let sent: &[(u64, &[_])] = &[
        (100, &[(GPU, other, TICK)]),
        (300, &[(GPU, other, 0), (GPU, one, TICK)]),
        (300, &[]),
        (300, &[]),
    ];
    for line in window(&[(GPU, false)], sent).iter().chain(&window(&[(GPU, false)], &sent[1..])) {
        assert!(line.2 <= 0.9 && line.3 <= 0.9, "{line:?}");
    }
}

#[test]
fn nobody_has_what_is_counted_while_nobody_holds_it() {
    let one = process(1, 7);
    let ticks: &[(u64, &[_])] = &[
        (100, &[]),
        (300, &[(GPU, one, TICK)]),
        (40, &[(GPU, one, TICK / 2)]),
        (60, &[(GPU, one, 0)]),
    ];
    let held = window(&[(GPU, false)], ticks);
    let expected =
        [line(None, 180.0, (1.0, 1.0), "source"), line(Some(1), 320.0, (0.9, 0.9), "held")];
    assert_eq!(held, expected);
    let never = window(&[(GPU, false)], &[(100, &[]), (300, &[]), (0, &[]), (0, &[])]);
    assert_eq!(never, [line(None, 400.0, (1.0, 1.0), "source")]);
    // A function that no counter counts.
    let ticks: &[(u64, &[_])] = &[(100, &[(NIC, one, TICK)]), (0, &[]), (0, &[]), (0, &[])];
    assert_eq!(window(&[(GPU, false)], ticks), [line(None, 100.0, (1.0, 1.0), "source")]);
}

#[test]
fn a_hand_over_is_seen_in_its_tick() {
    let (one, two) = (process(1, 7), process(2, 8));
    let ticks: &[(u64, &[_])] = &[
        (100, &[(GPU, one, TICK)]),
        (200, &[(GPU, one, TICK / 2), (GPU, two, TICK / 2)]),
        (400, &[(GPU, one, 0), (GPU, two, TICK)]),
        (800, &[]),
    ];
    let held = window(&[(GPU, false)], ticks);
    let values: Vec<_> = held.iter().map(|line| (line.0, line.1)).collect();
    assert_eq!(values, [(Some(1), 200.0), (Some(2), 1300.0)]);
    // At most 100 of 1300 are in doubt, and up to 100 of 200.
    assert!(held[1].2 >= 0.9 && held[0].2 < 0.5, "{held:?}");
}

#[test]
fn several_tenants_have_equal_parts_of_the_time() {
    let (one, two, three) = (process(1, 7), process(2, 8), process(3, 8));
    let changes: &[_] = &[(GPU, one, TICK), (GPU, two, TICK), (GPU, three, TICK)];
    let held = window(&[(GPU, false)], &[(400, changes), (0, &[]), (0, &[]), (0, &[])]);
    let values: Vec<_> = held.iter().map(|line| (line.0, line.1, line.3)).collect();
    assert_eq!(values, [(Some(1), 200.0, 0.09), (Some(2), 100.0, 0.09), (Some(3), 100.0, 0.09)]);
    // A function in another network namespace may move some of it.
    let changes: &[_] = &[(GPU, one, TICK)];
    let ticks: &[(u64, &[_])] = &[(400, changes), (0, &[]), (0, &[]), (0, &[])];
    let held = window(&[(GPU, false), (NIC, true)], ticks);
    let expected =
        [line(None, 200.0, (0.1, 0.1), "source"), line(Some(1), 200.0, (0.09, 0.09), "held")];
    assert_eq!(held, expected);
}

#[test]
fn a_tick_without_a_reading_is_in_the_next_count() {
    let one = process(1, 7);
    let ticks: &[(u64, &[_])] =
        &[(u64::MAX, &[]), (300, &[(GPU, one, TICK)]), (0, &[(GPU, one, 0)]), (0, &[])];
    let values: Vec<_> =
        window(&[(GPU, false)], ticks).iter().map(|line| (line.0, line.1)).collect();
    assert_eq!(values, [(None, 150.0), (Some(1), 150.0)]);
}

#[test]
fn the_chance_is_that_of_a_uniform_division() {
    let right = |alone: f64, shared: f64, of: f64| {
        HolderClaim { alone, shared, shared_count: of, fair_value: shared }.right_probability()
    };
    assert!((right(0.0, 50.0, 100.0) - 0.1).abs() < 1e-12);
    // Beta(1, 3) between 0.225 and 0.275.
    let four = (1.0_f64 - 0.225).powi(3) - (1.0_f64 - 0.275).powi(3);
    assert!((right(0.0, 25.0, 100.0) - four).abs() < 1e-12);
    assert!(right(1000.0, 50.0, 100.0) >= 1.0 && right(10.0, 0.0, 0.0) >= 1.0);
}

#[test]
fn what_devices_count_themselves_divides_what_several_hold() {
    let (one, two, three) = (process(1, 7), process(2, 8), process(3, 9));
    let [gpu, nic] = [GPU, NIC].map(|name| name.parse::<PciAddress>().unwrap());
    let behind = |function| CountedFunction { function, unseen: false, requests: false };
    let full =
        |owners: &[Owner]| owners.iter().map(|owner| (*owner, TICK)).collect::<BTreeMap<_, _>>();
    let holders = HashMap::from([(gpu, full(&[one, two])), (nic, full(&[three]))]);
    // In thousandths.
    let of = |bytes: &[(PciAddress, u64)], used: &[(u32, u64)]| {
        let mut counted: HashMap<PciAddress, SelfCounted> = HashMap::new();
        for (function, bytes) in bytes {
            counted.entry(*function).or_default().bytes.insert(None, *bytes);
        }
        counted.entry(gpu).or_default().processes = used.iter().copied().collect();
        let parts = HolderFractions::from_holders(
            (&[behind(gpu), behind(nic)], false),
            &holders,
            (&counted, None),
            TICK,
        );
        let part = |who| {
            parts.by_owner.iter().find(|(its, _)| *its == Some(who)).map_or(0.0, |(_, part)| *part)
        };
        [one, two, three].map(|who| (1000.0 * part(who)) as u32)
    };
    assert_eq!(of(&[], &[]), [250, 250, 500]);
    // Only if all functions count bytes.
    assert_eq!(of(&[(gpu, 300)], &[]), [250, 250, 500]);
    assert_eq!(of(&[(gpu, 300), (nic, 100)], &[]), [375, 375, 250]);
    // A process that used it and holds it no longer has no part.
    assert_eq!(of(&[], &[(1, 60), (2, 20), (9, 1000)]), [375, 125, 500]);
    assert_eq!(of(&[(gpu, 300), (nic, 100)], &[(1, 0), (2, 5)]), [0, 750, 250]);
    // What one of them used could not be read.
    assert_eq!(of(&[], &[(2, 5)]), [250, 250, 500]);
}

#[test]
fn what_is_counted_for_one_does_not_make_it_sure() {
    let (one, two) = (process(1, 7), process(2, 8));
    let gpu = GPU.parse::<PciAddress>().unwrap();
    let behind = [CountedFunction { function: gpu, unseen: false, requests: false }];
    let holders = HashMap::from([(gpu, BTreeMap::from([(one, TICK), (two, TICK)]))]);
    let processes = BTreeMap::from([(1, 99), (2, 0)]);
    let counted = HashMap::from([(gpu, SelfCounted { processes, ..SelfCounted::default() })]);
    let mut claims = HolderClaims::default();
    let parts =
        Arc::new(HolderFractions::from_holders((&behind, false), &holders, (&counted, None), TICK));
    claims.add_tick_count(parts, Some(1000.0));
    let mut shares = vec![Share::new(Owner::Device, 1000.0, 1.0)];
    claims.take_counted().apply_to_shares(&mut shares);
    let said: Vec<_> = shares.iter().map(|its| (its.owner, its.value.round())).collect();
    assert_eq!(said, [(one, 1000.0)]);
    assert!(shares[0].lasting < 0.2, "{shares:?}");
    // One of several that are no owners.
    let holders = HashMap::from([(gpu, BTreeMap::from([(one, TICK), (Owner::OtherTasks, TICK)]))]);
    let processes = BTreeMap::from([(1, 1), (5, 90), (6, 9)]);
    let counted = HashMap::from([(gpu, SelfCounted { processes, ..SelfCounted::default() })]);
    let parts = HolderFractions::from_holders((&behind, false), &holders, (&counted, None), TICK);
    let others = parts.by_owner.iter().find(|part| part.0 == Some(Owner::OtherTasks)).unwrap();
    assert!((others.1 - 0.99).abs() < 1e-9, "{parts:?}");
}

#[test]
fn requests_of_the_kernel_are_nobodys_where_nothing_divides_them() {
    let gpu = GPU.parse::<PciAddress>().unwrap();
    let of = |name: &str, requests| CountedFunction {
        function: name.parse().unwrap(),
        unseen: false,
        requests,
    };
    let behind = [of(GPU, false), of(NIC, true)];
    let holders = HashMap::from([(gpu, BTreeMap::from([(process(1, 7), TICK)]))]);
    let parts = |has| {
        HolderFractions::from_holders((&behind, has), &holders, (&HashMap::new(), None), TICK)
            .by_owner
            .len()
    };
    assert_eq!((parts(false), parts(true)), (1, 2));
}

#[test]
fn many_processes_of_a_tenant_are_one() {
    let owners: Vec<Owner> = (1..=100).map(|pid| process(pid, 7)).collect();
    let changes: Vec<Change<'_>> = owners.iter().map(|owner| (GPU, *owner, TICK)).collect();
    let held = window(&[(GPU, false)], &[(400, &changes), (0, &[]), (0, &[]), (0, &[])]);
    assert_eq!(held, [line(None, 400.0, (0.9, 0.9), "held")]);
}
