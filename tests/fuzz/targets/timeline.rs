//! Records of any CPUs in any order, with times around now, some of which contradict each other:
//! none makes the time line overflow, panic or loop forever. The times of a CPU sum to the tick,
//! and the shares of a window to its total.
#![no_main]
#![expect(clippy::unwrap_used, reason = "a column that is missing is a mistake of this target")]

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::RecordBatch;
use libfuzzer_sys::fuzz_target;
use uncore_trace::assemble::{CpuTimeSplit, Sink, Timeline, TimelineSetup};
use uncore_trace::clock::{Snapshot, TimeSpan};
use uncore_trace::count::Count;
use uncore_trace::discover::CgroupMounts;
use uncore_trace::discover::cpus::CpuLocation;
use uncore_trace::drain::{
    CgroupChange, CgroupRecord, Comm, CpuContext, DrainedRecord, IoKind, IoRecord, IoTransfer,
    IrqRecord, IrqTime, Mover, Peek, RawReading, RunRecord, SampleRecord, SampleTrigger,
    TaskChange, TaskIdentity, TaskRecord, TaskSlot,
};
use uncore_trace::open::{Layout, PlacedCounter};
use uncore_trace::schema::columns::{i32_column, i64_column};
use uncore_trace::schema::origin::RecordingOrigin;
use uncore_trace::schema::{RowStore, TableDef};

use self::made::{START, TICK_NS, assert_conserved, attributor, plan};

mod made;

/// Requests the rows of every table, which stay in the sink.
struct All;

impl RowStore for All {
    fn wants_table(&self, _table: &TableDef) -> bool {
        true
    }

    fn write_rows(&mut self, _table: &'static TableDef, _rows: RecordBatch) -> anyhow::Result<()> {
        Ok(())
    }

    fn offer_rows(
        &mut self,
        _table: &'static TableDef,
        _rows: RecordBatch,
    ) -> anyhow::Result<bool> {
        Ok(true)
    }
}

fn task(byte: u8) -> TaskIdentity {
    let tid = u32::from(byte % 16);
    TaskIdentity {
        tid,
        pid: tid / 2,
        cgroup_id: u64::from(byte / 64),
        comm: Comm::from_bytes(&[byte; 3]),
    }
}

fn context(byte: u8) -> CpuContext {
    match byte % 3 {
        0 => CpuContext::Task,
        1 => CpuContext::Irq(u32::from(byte)),
        _ => CpuContext::Softirq(u32::from(byte % 10)),
    }
}

/// A run with 1 to 3 slices from `begin` on that fill the time, as `decode` ensures. One in four
/// that cross the end of a tick are combined anyway.
fn run(cpu: u32, begin: u64, end: u64, who: u8, amount: u8) -> RunRecord {
    let crosses = begin / TICK_NS != end / TICK_NS && !amount.is_multiple_of(4);
    let parts = if crosses { 1 } else { u64::from(amount % 3) + 1 };
    let ns = (end - begin) / parts;
    let rest = (end - begin) - ns * (parts - 1);
    let last = match parts {
        1 if crosses => begin,
        _ if amount.is_multiple_of(2) => end,
        1 => begin,
        _ => end - ns,
    };
    let irq_ns = if amount > 127 { u64::from(amount) << 8 } else { 0 };
    let slots = (0..parts).map(|part| {
        let task = task(who.wrapping_add(part as u8));
        // The first slice has the remainder, the last begins at `last`.
        let wall_ns = if part == 0 { rest } else { ns };
        TaskSlot { task, wall_ns, irq_ns, slices: 1 }
    });
    RunRecord { cpu, begin_ns: begin, last_slot_begin: last, end, slots: slots.collect() }
}

fn record(bytes: [u8; 8], now: u64) -> DrainedRecord {
    let [kind, cpu, early, long, who, amount, what, number] = bytes;
    let cpu = u32::from(cpu % 4);
    let begin = now.saturating_sub(u64::from(early) << 14);
    let end = begin + (u64::from(long) << 13);
    let tick_end_ns = end.next_multiple_of(TICK_NS);
    let span = (what > 127 && begin < end).then_some(TimeSpan::new(begin, end));
    match kind % 6 {
        0 => DrainedRecord::Run(run(cpu, begin, end, who, amount)),
        1 => {
            // `decode` refuses other contexts.
            let source = match context(who) {
                CpuContext::Task => CpuContext::Irq(u32::from(who)),
                interrupt => interrupt,
            };
            let slot = IrqTime { source, ns: u64::from(amount) << 10, count: u64::from(number) };
            DrainedRecord::Irq(IrqRecord { cpu, tick_end_ns, span, slots: vec![slot] })
        }
        2 => {
            let count = u64::from(amount) << (what % 40);
            let reading = |id: u64| match amount {
                255 => RawReading::Failed(5),
                _ => RawReading::Counted { value: count + id, enabled: end, running: end - id },
            };
            let trigger = [
                SampleTrigger::Timer,
                SampleTrigger::Sched,
                SampleTrigger::Irq,
                SampleTrigger::Softirq,
            ];
            DrainedRecord::Sample(SampleRecord {
                cpu,
                begin_ns: begin,
                end_ns: begin + u64::from(long),
                sequence: u64::from(number),
                trigger: trigger[usize::from(what % 4)],
                context: context(who),
                task: task(who),
                first_slot: 2 * cpu,
                readings: (0..2).map(reading).collect(),
            })
        }
        3 => {
            let change = if what > 127 { TaskChange::Exec } else { TaskChange::Exit };
            DrainedRecord::Task(TaskRecord { time_ns: begin, change, task: task(who) })
        }
        4 => {
            let change = match what % 3 {
                0 => CgroupChange::Created,
                1 => CgroupChange::Removed,
                _ => CgroupChange::Attached(u32::from(who % 16)),
            };
            let path = (amount > 63).then(|| format!("/{number}"));
            let cgroup_id = u64::from(who / 64);
            DrainedRecord::Cgroup(CgroupRecord { time_ns: begin, change, cgroup_id, path })
        }
        _ => {
            let kinds =
                [IoKind::Read, IoKind::Write, IoKind::Sent, IoKind::Received, IoKind::Taken];
            let mover = match amount % 4 {
                0 => Mover::Task(task(who)),
                1 => Mover::Cgroup(u64::from(who / 64)),
                2 => Mover::Interrupt(context(who)),
                _ => Mover::Nobody,
            };
            let slot = IoTransfer {
                kind: kinds[usize::from(what % 5)],
                mover,
                device: if number > 127 { "sda".to_owned() } else { String::new() },
                interface: (u32::from(number / 16), u32::from(number % 16)),
                bytes: u64::from(amount) << 9,
                requests: 1,
            };
            let sequence = (long > 9).then(|| u64::from(long));
            DrainedRecord::Io(IoRecord { cpu, tick_end_ns, span, sequence, slots: vec![slot] })
        }
    }
}

/// The times of a CPU in a tick sum to its length; `tables` are `runtime` and `irqs`.
fn assert_adds_up(tables: [(&RecordBatch, &str); 2]) {
    let mut sums: BTreeMap<_, (i64, i64)> = BTreeMap::new();
    for (rows, time) in tables {
        let (end, cpu) = (i64_column(rows, "mono_ns").unwrap(), i32_column(rows, "cpu").unwrap());
        let (ns, tick_ns) = (i64_column(rows, time).unwrap(), i64_column(rows, "tick_ns").unwrap());
        for row in 0..rows.num_rows() {
            let tick = (cpu.value(row), end.value(row));
            assert!(ns.value(row) >= 0, "{tick:?}: {} ns", ns.value(row));
            let sum = sums.entry(tick).or_default();
            *sum = (sum.0 + ns.value(row), tick_ns.value(row));
        }
    }
    for (tick, (sum, tick_ns)) in sums {
        assert_eq!(sum, tick_ns, "{tick:?}");
    }
}

fn assert_all_told(time: &CpuTimeSplit) {
    let seen = time.task_ns + time.idle_ns + time.irq_ns + time.softirq_ns;
    let told = seen + time.unattributed_ns + time.offline_ns;
    assert_eq!(told, time.end_ns - time.begin_ns, "{time:?}");
}

fuzz_target!(|input: &[u8]| {
    let plan = plan();
    let placed = |id| PlacedCounter { id, base: Count::default() };
    let layout = |cpu: u32| {
        // In a plan, counter n is on CPU n % 2.
        let counters = vec![placed(cpu), placed(cpu + 2)];
        Layout { first_slot: 2 * cpu, counters, at_switch: cpu, ..Layout::default() }
    };
    let setup = TimelineSetup {
        plan: &plan,
        layouts: &[(0, layout(0)), (1, layout(1))].into(),
        opened: &(0..4).collect(),
        cpus: &[0, 1],
        offline: &[],
        cpu_locations: &(0..4).map(|cpu| (cpu, CpuLocation::default())).collect(),
        start_tick: START,
        clock: Snapshot { mono_ns: 0, wall_ns: 0 },
        root: Path::new("/nonexistent"),
        cgroups: &CgroupMounts::default(),
        trusted_cgroups: Vec::new(),
        only_cgroups: Vec::new(),
        cgroup_depth: None,
        io: true,
        holders: false,
    };
    let mut sink = Sink::new(&All, true, RecordingOrigin::from_metadata(&BTreeMap::new()));
    let mut timeline = Timeline::new(&setup, Box::new(attributor(&plan)), &mut sink);
    let mut now = START * TICK_NS;
    for entry in input.as_chunks::<8>().0 {
        let [kind, cpu, later, long, who, amount, what, _] = *entry;
        if kind % 8 < 6 {
            timeline.feed_record(record(*entry, now), &mut sink);
            continue;
        }
        now += u64::from(later) << 14;
        let run = run(u32::from(cpu % 4), now, now + (u64::from(long) << 13), who, amount);
        let run = RunRecord { last_slot_begin: run.end, ..run };
        let irqs = Vec::from_iter((context(who) != CpuContext::Task).then(|| IrqRecord {
            cpu: run.cpu,
            tick_end_ns: now / TICK_NS * TICK_NS,
            span: None,
            slots: vec![IrqTime { source: context(who), ns: u64::from(long) << 8, count: 1 }],
        }));
        let state =
            (what > 127).then(|| Peek { run, next_tid: u32::from(amount % 16), irqs, io: None });
        // The inputs are too short to fill the sink.
        assert!(timeline.close_bins(now, what % 2 == 0, &mut sink, &mut |_| state.clone()));
    }
    let stop = now / TICK_NS + 1;
    timeline.stop_at(stop);
    // Long enough after the end that missing records are given up.
    for later in 1..=3 {
        let horizon = (stop + 5000 * later) * TICK_NS;
        assert!(timeline.close_bins(horizon, true, &mut sink, &mut |_| None));
    }
    timeline.give_up(now, &mut sink);
    assert!(timeline.is_done(), "time is left over");
    timeline.cpu_times().iter().for_each(assert_all_told);
    assert_conserved(&sink.rows.fabric.finish());
    assert_adds_up([(&sink.rows.runtime.finish(), "run_ns"), (&sink.rows.irqs.finish(), "ns")]);
});
