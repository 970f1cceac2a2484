//! A small recording that satisfies every invariant, and ways to break it, for tests of views.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::schema::link::Direction;
use crate::schema::link::{Link, LinkCounter, PeakRate, PeakSource};
use crate::schema::marks::{COMMAND, ListedMarks, Mark, MarkKind};
use crate::schema::origin::RecordingOrigin;
use crate::schema::{
    SCHEMA_VERSION, counters, cpus, fabric, io, irqs, loss, marks, metadata, readings, runtime,
    sums,
};
use crate::tables::reader::Recording;
use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

/// Begin of the recording, `CLOCK_MONOTONIC` ns.
pub(super) const BEGIN: i64 = 5_000_000_000;
/// Wall time at monotonic 0, ns.
pub(super) const WALL: i64 = 1_700_000_000_000_000_000;
const WINDOW: i64 = 10_000_000;
/// Number of windows in a second.
const SECOND_WINDOWS: i64 = 100;
const TICK: i64 = 1_000_000;
/// Number of windows.
pub(super) const WINDOWS: i64 = 300;

/// Changes a row before it is written; `false` leaves it out. The number is the index of the row.
pub(super) struct Broken {
    pub(super) fabric: fn(&mut fabric::Row<'_>, usize) -> bool,
    /// Whether there are rows of `sums`.
    pub(super) has_sums: bool,
    pub(super) readings: fn(&mut readings::Row<'_>, usize) -> bool,
    pub(super) runtime: fn(&mut runtime::Row<'_>, usize) -> bool,
    pub(super) irqs: fn(usize) -> bool,
    pub(super) io: fn(&mut io::Row<'_>, usize),
    pub(super) loss: Option<loss::Row<'static>>,
    pub(super) marks: fn() -> Vec<Mark>,
    pub(super) metadata: fn(&mut BTreeMap<String, String>),
}

/// Nothing broken.
pub(super) const INTACT: Broken = Broken {
    fabric: |_, _| true,
    has_sums: false,
    readings: |_, _| true,
    runtime: |_, _| true,
    irqs: |_| true,
    io: |_, _| {},
    loss: None,
    marks: Vec::new,
    metadata: |_| {},
};

/// In the order in which they ended, as a recorder writes them: an instant, a span, an instant with
/// the name of the span, and a span that was not ended.
pub(super) const MARKS: fn() -> Vec<Mark> = || {
    let mark = |at_ms: i64, end_ms: Option<i64>, kind, text: &str, source: &str, pid| Mark {
        mono_ns: BEGIN + at_ms * 1_000_000,
        end_ns: end_ms.map(|end| BEGIN + end * 1_000_000),
        kind,
        text: text.to_owned(),
        source: source.to_owned(),
        pid,
    };
    vec![
        mark(500, None, MarkKind::Instant, "warm\u{1b}[2J\nup", COMMAND, None),
        mark(1500, None, MarkKind::Instant, "epoch 1", COMMAND, None),
        mark(1000, Some(2000), MarkKind::Span, "epoch 1", COMMAND, Some(7)),
        mark(2500, None, MarkKind::Span, "save", COMMAND, Some(7)),
    ]
};

/// A recording and its directory.
pub(super) struct SampleRecording {
    pub(super) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl SampleRecording {
    /// A dataset, or a file with only the table `fabric`.
    pub(super) fn new(dataset: bool, broken: &Broken) -> SampleRecording {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(if dataset { "run" } else { "run.parquet" });
        let target = if dataset {
            RecordingTarget::Dataset(path.clone())
        } else {
            RecordingTarget::File(path.clone())
        };
        let mut pairs = metadata_pairs();
        let listed = (broken.marks)();
        if !listed.is_empty() {
            let listed = ListedMarks { marks: listed, left_out: 0 };
            pairs.insert(metadata::MARKS.to_owned(), serde_json::to_string(&listed).unwrap());
        }
        (broken.metadata)(&mut pairs);
        let mut writer = Writer::create(target, CreateOptions::default(), &pairs).unwrap();
        write_fabric(&mut writer, broken);
        write_raw(&mut writer, broken);
        writer.finish(&pairs).unwrap();
        SampleRecording { path, _dir: dir }
    }

    pub(super) fn open(&self) -> Recording {
        Recording::open(Path::new(&self.path)).unwrap()
    }
}

/// The link of the first counter, which counts direction in.
pub(super) fn sample_link(peaks: Vec<PeakRate>) -> Link {
    Link {
        name: "memory 0".to_owned(),
        kind: "memory".to_owned(),
        subsystem: "mem".to_owned(),
        socket: Some(0),
        devices: None,
        counters: vec![LinkCounter { counter: 0, direction: Direction::In }],
        peaks,
        latencies: Vec::new(),
    }
}

/// A peak of direction in.
pub(super) fn sample_peak(source: PeakSource, bytes_per_s: f64) -> PeakRate {
    PeakRate { direction: Direction::In, bytes_per_s, source, detail: "16 GT/s x4".to_owned() }
}

/// The plan of a recording with these links, as in the metadata.
pub(super) fn sample_plan(links: Vec<Link>) -> String {
    let (tick_ns, window_ns) = (TICK as u64, WINDOW as u64);
    let plan = Plan { tick_ns, window_ns, links, ..Plan::default() };
    serde_json::to_string(&plan).unwrap()
}

fn metadata_pairs() -> BTreeMap<String, String> {
    let end = BEGIN + WINDOWS * WINDOW;
    let span = WINDOWS * WINDOW;
    let clocks = format!(
        r#"[{{"mono_ns":{BEGIN},"wall_ns":{}}},{{"mono_ns":{end},"wall_ns":{}}}]"#,
        WALL + BEGIN,
        WALL + end
    );
    let cpu_time = format!(
        r#"[{{"cpu":0,"begin_ns":{BEGIN},"end_ns":{end},"task_ns":{},"irq_ns":{},"softirq_ns":0,
            "idle_ns":{},"unattributed_ns":0,"worst_window_error_ns":900}}]"#,
        span / 2,
        span / 10,
        span - span / 2 - span / 10
    );
    BTreeMap::from([
        (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string()),
        (metadata::COMPLETE.to_owned(), "true".to_owned()),
        (metadata::TICK_NS.to_owned(), TICK.to_string()),
        (metadata::LOSS.to_owned(), r#"{"late_tick":0}"#.to_owned()),
        (metadata::CLOCKS.to_owned(), clocks),
        (metadata::CPU_TIME.to_owned(), cpu_time),
    ])
}

/// Two counters: one with 1000 counts per tick in units of 64 bytes, the other with 3 per tick.
const COUNTERS: [(&str, &str, f64, u64); 2] =
    [("read_bytes", "bytes", 64.0, 1000), ("page-faults", "count", 1.0, 3)];
/// The owners' fractions.
#[expect(clippy::type_complexity, reason = "a table of literals, read once")]
const OWNERS: [(&str, Option<i32>, Option<&str>, Option<&str>, f64); 4] = [
    ("task", Some(100), Some("train"), Some("/tenant\u{1b}[2J"), 0.5),
    ("task", Some(200), Some("serve"), Some("/other"), 0.25),
    ("irq", None, Some("irq:nvme0q1"), None, 0.125),
    ("idle", None, None, None, 0.125),
];

fn write_fabric(writer: &mut Writer, broken: &Broken) {
    let (mut builder, mut second_builder) = (fabric::Builder::default(), sums::Builder::default());
    let mut number = 0;
    for window in 1..=WINDOWS {
        let is_end = window % SECOND_WINDOWS == 0;
        let mono_ns = BEGIN + window * WINDOW;
        for (counter, (event, unit, scale, per_tick)) in (0..).zip(COUNTERS) {
            let total = per_tick as f64 * (WINDOW / TICK) as f64 * scale;
            for (owner, pid, comm, cgroup, fraction) in OWNERS {
                let mut row = fabric::Row {
                    ts: WALL + mono_ns,
                    mono_ns,
                    window_ns: WINDOW,
                    host: "test",
                    boot_id: "3f4e5d6c",
                    cluster: None,
                    counter,
                    socket: Some(0),
                    cpu: 0,
                    subsystem: "host",
                    pmu: "test_pmu_0",
                    event,
                    filter: "",
                    unit,
                    owner,
                    pid,
                    number: (owner == "irq").then_some(30),
                    comm,
                    cgroup_id: cgroup.map(|path| path.len() as u64),
                    cgroup,
                    container: cgroup.map(|_| "web@3f4e5d6c7b8a"),
                    pod: pid.filter(|pid| *pid == 100).map(|_| "shop/web-0"),
                    value: Some(total * fraction),
                    total: Some(total),
                    running: 1.0,
                    method: "residency",
                    confidence: Some(0.5),
                    cgroup_confidence: None,
                    processes: None,
                    job: None,
                };
                if broken.has_sums && is_end {
                    let in_second = |value: f64| value * SECOND_WINDOWS as f64;
                    let window_ns = SECOND_WINDOWS * WINDOW;
                    let (value, total) = (row.value.map(in_second), row.total.map(in_second));
                    let second = fabric::Row { window_ns, value, total, ..row };
                    second_builder.append(&sums::Row::from_share(second, window_ns));
                }
                if (broken.fabric)(&mut row, number) {
                    builder.append(&row);
                }
                number += 1;
            }
        }
        if is_end {
            writer.write(&fabric::TABLE, &builder.finish()).unwrap();
            writer.write(&sums::TABLE, &second_builder.finish()).unwrap();
            writer.seal_rows().unwrap();
        }
    }
}

fn write_raw(writer: &mut Writer, broken: &Broken) {
    let mut raw = readings::Builder::default();
    let mut run = runtime::Builder::default();
    let (mut irq, mut moved) = (irqs::Builder::default(), io::Builder::default());
    let mut number = 0;
    let ticks = WINDOWS * WINDOW / TICK;
    for tick in 0..=ticks {
        let mono_ns = BEGIN + tick * TICK;
        for (counter, (_, _, _, per_tick)) in COUNTERS.into_iter().enumerate() {
            let mut row =
                timer_reading(mono_ns, BEGIN / TICK + tick, counter as i32, per_tick * tick as u64);
            if (broken.readings)(&mut row, number) {
                raw.append(&row);
            }
            number += 1;
        }
        for (tid, run_ns) in [(0, 400_000), (100, 500_000)].into_iter().filter(|_| tick > 0) {
            let mut row = runtime::Row {
                mono_ns,
                tick_ns: TICK,
                cpu: 0,
                owner: if tid == 0 { "idle" } else { "task" },
                tid,
                pid: tid,
                comm: if tid == 0 { "swapper/0" } else { "train" },
                cgroup_id: 1,
                run_ns,
                slices: 1,
                process: (tid != 0).then_some("train"),
                owner_cgroup_id: (tid != 0).then_some(1),
            };
            if (broken.runtime)(&mut row, tick as usize) {
                run.append(&row);
            }
        }
        if tick > 0 {
            let mut row = io::Row {
                mono_ns,
                tick_ns: TICK,
                device: "nvme0n1",
                bdf: Some("0000:01:00.0"),
                direction: "read",
                owner: "task",
                pid: Some(100),
                comm: Some("train"),
                cgroup_id: Some(1),
                number: None,
                bytes: 4096,
                requests: 1,
            };
            (broken.io)(&mut row, tick as usize);
            moved.append(&row);
            let row = irqs::Row {
                mono_ns,
                tick_ns: TICK,
                cpu: 0,
                owner: "irq",
                number: 30,
                name: "nvme0q1",
                ns: 100_000,
                count: 2,
            };
            if (broken.irqs)(tick as usize) {
                irq.append(&row);
            }
        }
        if tick % 1000 == 0 {
            writer.write(&readings::TABLE, &raw.finish()).unwrap();
            writer.write(&runtime::TABLE, &run.finish()).unwrap();
            writer.write(&irqs::TABLE, &irq.finish()).unwrap();
            writer.write(&io::TABLE, &moved.finish()).unwrap();
            writer.seal_rows().unwrap();
        }
    }
    write_counters(writer);
    write_cpus(writer);
    let mut marked = marks::Builder::default();
    let origin =
        RecordingOrigin { host: "test".to_owned(), boot_id: "3f4e5d6c".to_owned(), cluster: None };
    for mark in (broken.marks)() {
        marked.append(&mark.to_row(&origin));
    }
    writer.write(&marks::TABLE, &marked.finish()).unwrap();
    if let Some(row) = broken.loss {
        let mut builder = loss::Builder::default();
        builder.append(&row);
        writer.write(&loss::TABLE, &builder.finish()).unwrap();
    }
}

fn timer_reading(mono_ns: i64, tick: i64, counter: i32, value: u64) -> readings::Row<'static> {
    readings::Row {
        mono_ns,
        tick,
        counter,
        cpu: 0,
        value: Some(value),
        enabled: None,
        running: None,
        width_ns: 1500,
        trigger: "timer",
        error: None,
        pid: None,
        tid: None,
        cgroup_id: None,
        owner: None,
        process: None,
        owner_cgroup_id: None,
        number: None,
    }
}

fn write_cpus(writer: &mut Writer) {
    let mut builder = cpus::Builder::default();
    builder.append(&cpus::Row {
        mono_ns: BEGIN,
        cpu: 0,
        state: cpus::ONLINE,
        socket: Some(0),
        node: Some(0),
        core: Some(0),
        counters: "0-9",
    });
    writer.write(&cpus::TABLE, &builder.finish()).unwrap();
}

fn write_counters(writer: &mut Writer) {
    let mut builder = counters::Builder::default();
    for (counter, (event, unit, scale, _)) in COUNTERS.into_iter().enumerate() {
        builder.append(&counters::Row {
            host: "test",
            boot_id: "3f4e5d6c",
            cluster: None,
            counter: counter as i32,
            pmu: "test_pmu_0",
            family: "test_pmu",
            attr_type: 40,
            subsystem: "host",
            event,
            filter: "",
            unit,
            scale,
            config: 1,
            config1: 0,
            config2: 0,
            config3: 0,
            config4: 0,
            cpu: 0,
            socket: Some(0),
            sees: "0-1",
            leader: None,
            functions: None,
            part_of: None,
            role: "counted",
            state: "opened",
            error: None,
        });
    }
    writer.write(&counters::TABLE, &builder.finish()).unwrap();
}
