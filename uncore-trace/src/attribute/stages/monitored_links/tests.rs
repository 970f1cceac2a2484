mod learning;

use proptest::prelude::*;

use super::*;
use crate::attribute::AttributionSettings;
use crate::attribute::tests::new_attributor;
use crate::choice::MethodChoice;
use crate::drain::Comm;
use crate::entries::{CounterReading, CounterValue, EntryConsumer as _, Owner, ReadingTrigger};
use crate::plan::Plan;
use crate::schema::Builders;
use crate::schema::cgroups::CgroupNames;
use crate::schema::columns::{f32_column, f64_column, nullable_value, word_column};

fn task(pid: u32, cgroup_id: u64) -> Owner {
    Owner::Task { pid, comm: Comm::default(), cgroup_id }
}

fn named(path: &str) -> Arc<CgroupNames> {
    Arc::new(CgroupNames { path: path.into(), ..CgroupNames::default() })
}

/// `/a` is 1, `/a/x` 2, `/ab` 3.
fn names() -> OwnerNames {
    let mut names = OwnerNames::default();
    for (id, path) in [(1, "/a"), (2, "/a/x"), (3, "/ab")] {
        names.set_cgroup(id, &named(path));
    }
    names
}

fn part(cgroup: &str, part: f64) -> MeasuredFraction {
    MeasuredFraction { cgroup: cgroup.into(), fraction: part, confidence: 0.9 }
}

fn values(shares: &[Share]) -> Vec<f64> {
    shares.iter().map(|share| share.value).collect()
}

#[test]
fn a_cgroup_has_what_was_measured_and_the_others_the_rest() {
    let mut shares = vec![
        Share::new(task(1, 1), 10.0, 0.2),
        Share::new(task(2, 2), 30.0, 0.2),
        Share::new(task(3, 3), 20.0, 0.3),
        Share::new(Owner::Idle, 40.0, 0.1),
    ];
    apply_measured(100.0, 0.5, &[part("/a", 0.7)], &names(), &mut shares);
    let right = [17.5, 52.5, 10.0, 20.0];
    assert!(values(&shares).iter().zip(right).all(|(its, right)| (its - right).abs() < 1e-9));
    assert_eq!(
        shares.iter().map(|its| its.method.is_some()).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    // Of the cgroup, half of the window; of a process, that of its part.
    assert!((shares[0].lasting - 0.45).abs() < 1e-6 && (shares[0].confidence - 0.2).abs() < 1e-6);
    assert!((shares[2].confidence - 0.3).abs() < 1e-6);
}

#[test]
fn the_innermost_cgroup_with_a_group_has_an_owner() {
    let mut shares = vec![Share::new(task(1, 1), 50.0, 0.2), Share::new(task(2, 2), 50.0, 0.2)];
    apply_measured(100.0, 1.0, &[part("/a", 0.2), part("/a/x", 0.7)], &names(), &mut shares);
    assert_eq!(values(&shares), [20.0, 70.0, 10.0]);
    assert_eq!(shares[2].owner, Owner::Unattributed);
}

#[test]
fn a_cgroup_that_is_not_there_takes_nothing() {
    let mut shares = vec![Share::new(task(1, 3), 50.0, 0.2), Share::new(task(2, 9), 50.0, 0.2)];
    let before = shares.clone();
    apply_measured(100.0, 1.0, &[part("/a", 0.7)], &names(), &mut shares);
    assert_eq!(shares, before);
}

#[test]
fn more_than_was_counted_is_scaled_and_trusted_less() {
    let groups = [("/a".into(), 300), ("/b".into(), 100)];
    let mut steady = ByteAgreement::default();
    let mut last = Vec::new();
    for _ in 0..60 {
        last = measured_fractions(1000.0, &groups, Some(1000.0), &mut steady);
    }
    assert!((last[0].fraction - 0.3).abs() < 1e-9 && last[0].confidence > 0.95, "{last:?}");
    // The count is half of what was measured.
    let over = measured_fractions(500.0, &groups, Some(1000.0), &mut steady);
    assert!((over[0].fraction - 0.3).abs() < 1e-9 && over[0].confidence < 0.2, "{over:?}");
    let sum = measured_fractions(200.0, &groups, None, &mut steady);
    assert!(
        (sum[0].fraction + sum[1].fraction - 1.0).abs() < 1e-9 && sum[0].confidence <= 0.5,
        "{sum:?}"
    );
    assert!(measured_fractions(0.0, &groups, None, &mut steady).is_empty());
    assert!(measured_fractions(9.0, &[("/a".into(), 0)], Some(0.0), &mut steady).is_empty());
}

/// Three counters of a socket's memory: reads of CPUs, writes of CPUs, and writes of devices.
fn plan() -> Plan {
    let counter = |id: u32, sees: &str, cause: Option<&str>| {
        serde_json::json!({
            "id": id, "pmu": "imc", "family": "imc", "subsystem": "mem", "event": format!("{id}"),
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1,
            "config": [id, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": sees, "cause": cause,
            "far": "",
            "per_cpu": false, "at_switch": false, "leader": null,
        })
    };
    let of_link =
        |id: u32, direction: &str| serde_json::json!({ "counter": id, "direction": direction });
    serde_json::from_value(serde_json::json!({
        "tick_ns": 1, "window_ns": 1, "metrics": [], "notes": [],
        "counters": [counter(0, "0", None), counter(1, "0", None), counter(2, "", Some("device"))],
        "links": [{ "name": "memory 0", "kind": "memory", "subsystem": "mem", "socket": 0,
                    "counters": [of_link(0, "in"), of_link(1, "out"), of_link(2, "out")] }],
    }))
    .unwrap()
}

/// Value, method and confidence of the rows of `/a`, if the counters are read at these ticks and
/// `/a` and `/ab` run equally long, but `/a` moves three quarters.
fn rows_of_a(read: &[u64], last: u64) -> Vec<(f64, String, f32)> {
    let plan = plan();
    let mut attributor = new_attributor(
        &plan,
        AttributionSettings { choice: MethodChoice::Residency, ..AttributionSettings::default() },
        10,
    );
    let mut tables = Builders::default();
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
    for (id, path) in [(1, "/a"), (3, "/ab")] {
        take(LogEntry::Cgroup { id, names: &named(path) });
    }
    for tick in 10..=last {
        for (counter, bytes) in (0..).zip([300, 100, 800]) {
            if tick == 10 || read.contains(&tick) {
                let value = Ok(CounterValue { value: bytes * (tick - 10), times: None });
                let (cpu, trigger, owner) = (0, ReadingTrigger::Timer, None);
                let time = tick;
                take(LogEntry::Reading(CounterReading {
                    tick,
                    time,
                    counter,
                    cpu,
                    trigger,
                    value,
                    owner,
                }));
            }
        }
        if tick == 10 {
            continue;
        }
        take(LogEntry::Usage { cpu: 0, usage: &[(task(1, 1), 50), (task(3, 3), 50)] });
        for (cgroup, bytes) in [(None, 400), (Some("/a".into()), 300)] {
            take(LogEntry::Monitored(&Monitored { cgroup: cgroup.clone(), socket: 0, bytes }));
            // Another socket's.
            take(LogEntry::Monitored(&Monitored { cgroup, socket: 1, bytes: 7 * bytes }));
        }
        take(LogEntry::EndOfTick { tick, is_last: tick == last });
    }
    let rows = tables.fabric.finish();
    let (value, method) =
        (f64_column(&rows, "value").unwrap(), word_column(&rows, "method").unwrap());
    let (cgroup, sure) =
        (word_column(&rows, "cgroup").unwrap(), f32_column(&rows, "confidence").unwrap());
    let of_a = (0..rows.num_rows()).filter(|row| cgroup.get(*row) == Some("/a"));
    let row = |row| {
        let method = method.get(row).unwrap().to_owned();
        (nullable_value(value, row).unwrap(), method, nullable_value(sure, row).unwrap())
    };
    of_a.map(row).collect()
}

#[test]
fn each_counter_of_the_link_gives_the_measured_part() {
    let all: Vec<u64> = (11..=70).collect();
    let rows = rows_of_a(&all, 70);
    assert_eq!(rows.len(), 120);
    assert!(rows.iter().all(|(_, method, _)| method == "monitor"), "{rows:?}");
    let mut last: Vec<_> = rows[118..].iter().map(|(value, ..)| *value).collect();
    last.sort_by(f64::total_cmp);
    // Rounded to a 1024th.
    assert!((last[0] - 75.0).abs() < 0.1 && (last[1] - 225.0).abs() < 0.3, "{last:?}");
    // Reads are three quarters of the bytes: so sure are they.
    let sure = rows[118..].iter().map(|(_, _, sure)| *sure).fold(0.0, f32::max);
    assert!((0.7..0.76).contains(&sure), "{sure}");
}

#[test]
fn a_window_that_is_extended_has_the_bytes_of_all_of_it() {
    let rows = rows_of_a(&[12, 13], 13);
    assert_eq!(rows.len(), 4);
    let sum: f64 = rows.iter().map(|(value, ..)| value).sum();
    assert!((sum - 900.0).abs() < 2.0, "{rows:?}");
    assert!(rows.iter().all(|(_, method, _)| method == "monitor"), "{rows:?}");
}

proptest! {
    #[test]
    fn parts_sum_to_the_whole(
        total in 1.0f64..1e15,
        values in prop::collection::vec((0_u64..5, 0.0f64..1.0), 1..9),
        bytes in prop::collection::vec(0_u64..1 << 50, 0..3),
        all in prop::option::of(0.0f64..1e15),
    ) {
        let groups: Vec<(Arc<str>, u64)> =
            ["/a", "/a/x", "/ab"].into_iter().map(Arc::from).zip(bytes).collect();
        let measured = measured_fractions(total, &groups, all, &mut ByteAgreement::default());
        let whole: f64 = values.iter().map(|(_, value)| value).sum::<f64>().max(1e-9);
        let mut shares: Vec<Share> = values
            .iter()
            .enumerate()
            .map(|(pid, (id, value))| Share::new(task(pid as u32, *id), value / whole * total, 0.5))
            .collect();
        add_unattributed(&mut shares, total);
        apply_measured(total, 1.0, &measured, &names(), &mut shares);
        let sum: f64 = shares.iter().map(|share| share.value).sum();
        prop_assert!((sum - total).abs() <= total * 1e-9, "{sum} {total}");
        for share in shares {
            prop_assert!(share.value >= 0.0 && (0.0..=1.0).contains(&share.confidence));
        }
    }
}
