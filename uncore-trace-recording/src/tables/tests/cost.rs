//! Size of a row on disk, compared with the project's goals.

use std::fs;

use super::{pairs, table_path};
use crate::schema::{TableDef, readings, slices};
use crate::tables::sound;
use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

use arrow::array::RecordBatch;

/// Pseudo-random numbers below the argument, the same in each run (xorshift64).
fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Readings like those of a recorder: 6 counters at 1 kHz, of which two follow a clock and four
/// count rarely; +-10 us of jitter; about 25 ns of clock noise in each read.
pub(super) fn readings_of(seconds: i64, per_second: i64, with_times: bool) -> RecordBatch {
    let mut random = random(0x9e37_79b9_7f4a_7c15);
    let mut slow = [0_u64; 6];
    let mut builder = readings::Builder::default();
    for tick in 0..seconds * per_second {
        let mono_ns = 5_000_000_000_000 + tick * 1_000_000 + random(20_001) as i64 - 10_000;
        let width_ns = 1440 + (random(100) * random(100) / 50) as i32;
        for (counter, slow) in slow.iter_mut().enumerate() {
            let read = mono_ns as u64 + counter as u64 * 240 + random(100);
            *slow += match counter {
                2 => random(5),
                3 => u64::from(random(10) < 3),
                4 => u64::from(random(1000) < 1),
                _ => 0,
            };
            let value = match counter {
                0 => read * 21 / 10,
                1 => read - 4_999_000_000_000,
                _ => *slow,
            };
            let time = read - 4_998_000_000_000 - counter as u64 * 31_337;
            builder.append(&readings::Row {
                mono_ns,
                tick,
                counter: counter as i32,
                value: Some(value),
                enabled: with_times.then_some(time),
                running: with_times.then_some(time),
                width_ns,
                trigger: "timer",
                pid: Some(4242),
                tid: Some(4242 + (tick / 300 % 2) as i32),
                cgroup_id: Some(77),
                ..readings::Row::default()
            });
        }
    }
    builder.finish()
}

/// Bytes per row in the finished table, if `batch` is recorded with a seal every `seal` rows.
fn cost(def: &'static TableDef, batch: &RecordBatch, seal: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer =
        Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &pairs())
            .unwrap();
    let mut at = 0;
    while at < batch.num_rows() {
        let rows = seal.min(batch.num_rows() - at);
        writer.write(def, &batch.slice(at, rows)).unwrap();
        writer.seal_rows().unwrap();
        at += rows;
    }
    writer.finish(&pairs()).unwrap();
    let file = table_path(&path, def);
    let (_, footer) = sound::read_footer(&file).unwrap();
    for group in footer.metadata().row_groups() {
        for column in group.columns() {
            println!(
                "{}.{}: {:.3} bytes a row",
                def.name,
                column.column_path(),
                column.compressed_size() as f64 / group.num_rows() as f64
            );
        }
    }
    fs::metadata(file).unwrap().len() as f64 / batch.num_rows() as f64
}

#[test]
fn a_reading_costs_at_most_two_and_a_half_bytes() {
    let bytes = cost(&readings::TABLE, &readings_of(60, 1000, false), 6000);
    println!("readings: {bytes:.2} bytes a row");
    assert!(bytes <= 2.5, "{bytes}");
}

#[test]
fn a_reading_with_its_times_costs_more() {
    let bytes = cost(&readings::TABLE, &readings_of(60, 1000, true), 6000);
    println!("readings with times: {bytes:.2} bytes a row");
    assert!(bytes <= 7.0, "{bytes}");
}

#[test]
fn a_slice_costs_at_most_eight_bytes() {
    let mut random = random(88_172_645_463_325_252);
    let names: Vec<String> = (0..200).map(|n| format!("worker/{n}")).collect();
    let mut clocks = [5_000_000_000_000_i64; 4];
    let mut builder = slices::Builder::default();
    for _ in 0..500_000 {
        let cpu = random(4) as usize;
        let begin_ns = clocks[cpu] + if random(10) == 0 { random(500) as i64 } else { 0 };
        let end_ns = begin_ns + 1000 + (random(1000) * random(1000) / 10) as i64;
        clocks[cpu] = end_ns;
        // A few tasks run most of the time, and many rarely.
        let task = (random(200) * random(200) * random(200) / 40_000) as usize;
        builder.append(&slices::Row {
            cpu: cpu as i32,
            begin_ns,
            end_ns,
            tid: 1000 + task as i32,
            pid: 1000 + task as i32 / 4,
            comm: &names[task],
            cgroup_id: 70 + task as u64 / 20,
            irq_ns: if random(20) == 0 { random(5000) as i64 } else { 0 },
        });
    }
    let bytes = cost(&slices::TABLE, &builder.finish(), 20_000);
    println!("slices: {bytes:.2} bytes a row");
    assert!(bytes <= 8.0, "{bytes}");
}
