use super::*;
use crate::schema::columns::i64_column;

const MS: u64 = 1_000_000;

/// The mean part of `/a` in windows of 100 ms from 6 s on, if it was measured in the windows that
/// end in `measured` ms. `/a` and `/ab` always run together, so counts tell their sum only; `/a`
/// moves three quarters of it, a fifth more or less in each window.
fn part_of_a(measured: std::ops::Range<u64>) -> f64 {
    let mut plan = plan();
    (plan.tick_ns, plan.window_ns) = (MS, 100 * MS);
    let mut attributor = new_attributor(
        &plan,
        AttributionSettings { choice: MethodChoice::Regression, ..AttributionSettings::default() },
        0,
    );
    let mut tables = Builders::default();
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
    for (id, path) in [(1, "/a"), (3, "/ab")] {
        take(LogEntry::Cgroup { id, names: &named(path) });
    }
    let mut random = fastrand::Rng::with_seed(5);
    // Bytes of the window: of /a, and of both.
    let mut window = [0_u64; 2];
    let mut count = 0_u64;
    for tick in 0..=8000_u64 {
        let time_ns = random.u64(0..MS / 2);
        let rate = if (tick / 100).is_multiple_of(2) { 24 } else { 36 };
        if tick > 0 {
            let bytes = [rate * time_ns / 1000, 10 * time_ns / 1000];
            count += bytes[0] + bytes[1];
            window = [window[0] + bytes[0], window[1] + bytes[0] + bytes[1]];
            take(LogEntry::Usage {
                cpu: 0,
                usage: &[(task(1, 1), time_ns), (task(3, 3), time_ns)],
            });
        }
        for (counter, value) in (0..).zip([count, 0, 0]) {
            let value = Ok(CounterValue { value, times: None });
            let (time, cpu, trigger, owner) = (tick * MS, 0, ReadingTrigger::Timer, None);
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
        if tick > 0 && tick.is_multiple_of(100) {
            let [bytes_of_a, all_bytes] = std::mem::take(&mut window);
            if measured.contains(&tick) {
                for (cgroup, bytes) in [(None, all_bytes), (Some("/a".into()), bytes_of_a)] {
                    take(LogEntry::Monitored(&Monitored { cgroup, socket: 0, bytes }));
                }
            }
        }
        if tick > 0 {
            take(LogEntry::EndOfTick { tick, is_last: tick == 8000 });
        }
    }
    let rows = tables.fabric.finish();
    let (end, value) = (i64_column(&rows, "mono_ns").unwrap(), f64_column(&rows, "value").unwrap());
    let (cgroup, total) =
        (word_column(&rows, "cgroup").unwrap(), f64_column(&rows, "total").unwrap());
    let late = (0..rows.num_rows())
        .filter(|row| cgroup.get(*row) == Some("/a") && end.value(*row) as u64 > 6000 * MS);
    let parts: Vec<f64> = late
        .filter_map(|row| Some(nullable_value(value, row)? / nullable_value(total, row)?))
        .collect();
    assert_eq!(parts.len(), 20);
    parts.iter().sum::<f64>() / parts.len() as f64
}

#[test]
fn a_cgroup_that_was_measured_keeps_its_rate_when_it_has_no_group() {
    let learnt = part_of_a(2000..5000);
    assert!((learnt - 0.75).abs() < 0.06, "{learnt}");
    let unknown = part_of_a(0..0);
    assert!((unknown - 0.5).abs() < 0.1, "{unknown}");
}
