//! A generated recording: links with peaks, tenants that come and go, and unknown times. Its
//! numbers are invented, and the same each time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::path::Path;

use uncore_trace::discover::CpuList;
use uncore_trace::plan::{Counter, CounterRole, Plan};
use uncore_trace::schema::link::{Direction, Link, LinkCounter, PeakRate, PeakSource};
use uncore_trace::schema::marks::MarkKind;
use uncore_trace::schema::{SCHEMA_VERSION, cpus, fabric, links, loss, marks, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

/// Begin of the recording, `CLOCK_MONOTONIC` ns.
pub(crate) const BEGIN: i64 = 5_000_000_000;
/// Wall time at monotonic 0, ns: the recording begins 2026-11-23T09:00:00Z.
const WALL: i64 = 1_795_424_400_000_000_000 - BEGIN;

/// Size of the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub windows: i64,
    pub window_ns: i64,
    /// Links, at most [`LINKS`].
    pub links: usize,
    /// Number of tenants with little traffic, beside those of [`TENANTS`].
    pub small: usize,
    /// Whether counters disappear and return, are read late, and are unknown at different times.
    pub uneven: bool,
    /// Host name.
    pub host: &'static str,
}

/// 20 s of all links.
pub(crate) const USUAL: Size = Size {
    windows: 1000,
    window_ns: 20_000_000,
    links: LINKS,
    small: 40,
    uneven: false,
    host: "made-up",
};

/// The same, with all special cases of sums.
pub(crate) const UNEVEN: Size = Size { uneven: true, ..USUAL };

/// The highest number of links.
pub(crate) const LINKS: usize = 4;

/// Name, kind, subsystem, devices, and the peaks of in, out and both, GB/s.
#[expect(clippy::type_complexity, reason = "a table of literals, read once")]
const NAMES: [(&str, &str, &str, Option<&str>, [Option<f64>; 3]); LINKS] = [
    ("memory 0", "memory", "mem", None, [None, None, Some(48.0)]),
    ("memory 1", "memory", "mem", None, [None, None, Some(48.0)]),
    ("NVLink-C2C 0", "NVLink-C2C", "c2c", None, [None; 3]),
    ("PCIe nvme0n1", "PCIe", "pcie", Some("nvme0n1, nvme1n1"), [Some(15.75), Some(15.75), None]),
];

/// Owner, process, cgroup, confidence, and fraction of each link's load, in and out.
#[expect(clippy::type_complexity, reason = "a table of literals, read once")]
const TENANTS: [(&str, i32, &str, &str, f32, [[f64; 2]; LINKS]); 8] = [
    ("task", 101, "train", "/lab/train", 0.93, [[18.0, 6.0], [3.0, 1.0], [9.0, 9.0], [0.1, 0.0]]),
    ("task", 102, "web", "/lab/web", 0.62, [[2.0, 1.0], [2.5, 1.5], [0.5, 0.3], [0.2, 0.1]]),
    ("task", 103, "backup", "/lab/backup", 0.88, [[1.0, 1.5], [0.5, 0.4], [0.0, 0.0], [6.0, 2.0]]),
    ("task", 104, "build", "/lab/build", 0.2, [[2.0, 2.0], [6.0, 4.0], [0.2, 0.2], [0.3, 0.4]]),
    ("device", 0, "nvme0", "", 0.1, [[0.4, 0.1], [0.0, 0.0], [0.0, 0.0], [0.8, 0.2]]),
    ("irq", 0, "irq:nvme0q1", "", 0.1, [[0.3, 0.2], [0.2, 0.1], [0.0, 0.0], [0.1, 0.1]]),
    ("idle", 0, "", "", 0.1, [[0.2, 0.2], [0.2, 0.2], [0.1, 0.1], [0.0, 0.0]]),
    ("unattributed", 0, "", "", 0.0, [[1.2, 0.8], [0.8, 0.6], [0.6, 0.4], [0.3, 0.2]]),
];

/// The load of a tenant at a time, around 1: each varies in its own way.
fn tenant_load(tenant: usize, at_s: f64, length_s: f64, window: i64) -> f64 {
    let noise = |seed: i64| {
        let mixed = (window * 31 + seed).cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as f64 / (1_u64 << 24) as f64
    };
    let wave = |period: f64| (TAU * at_s / period).sin();
    let spread = 0.93 + 0.14 * noise(tenant as i64);
    let elapsed = at_s / length_s;
    spread
        * match tenant {
            0 if elapsed < 0.1 => 0.05,
            0 => 1.0 + 0.25 * wave(length_s / 7.0),
            1 => (1.0 + 0.9 * wave(length_s / 3.0)).max(0.0),
            // Bursts, some of one window.
            2 if (0.45..0.6).contains(&elapsed) => 1.6,
            2 if noise(7) > 0.985 => 2.2,
            2 => 0.02,
            3 if (0.3..0.8).contains(&elapsed) => 1.0,
            3 => 0.0,
            _ => 1.0,
        }
}

fn peak_rates(rates_gb: [Option<f64>; 3]) -> Vec<PeakRate> {
    let sources = [PeakSource::Sysfs, PeakSource::Sysfs, PeakSource::Catalog];
    let details = ["16 GT/s x8", "16 GT/s x8", "a data sheet that nobody wrote, table 1"];
    let directions = [Direction::In, Direction::Out, Direction::Both].into_iter().zip(rates_gb);
    directions
        .zip(sources.into_iter().zip(details))
        .filter_map(|((direction, gb), (source, detail))| {
            let detail = detail.to_owned();
            Some(PeakRate { direction, bytes_per_s: gb? * 1e9, source, detail })
        })
        .collect()
}

fn made_counter(id: u32, pmu: &str, event: &str, unit: &str, subsystem: &str) -> Counter {
    Counter {
        id,
        pmu: pmu.to_owned(),
        family: "made".to_owned(),
        subsystem: subsystem.to_owned(),
        event: event.to_owned(),
        filter: String::new(),
        unit: unit.to_owned(),
        scale: if unit == "bytes" { 32.0 } else { 1.0 },
        attr_type: 40 + id,
        config: [u64::from(id) + 1, 0, 0, 0, 0],
        cpu: 0,
        socket: Some(0),
        sees: CpuList::default(),
        far: CpuList::default(),
        per_cpu: false,
        exclude_guest: false,
        at_switch: false,
        exact_by: None,
        cause: None,
        causes: std::collections::BTreeSet::default(),
        io: None,
        behind: Vec::new(),
        functions: Vec::new(),
        part_of: None,
        exclusive: false,
        leader: None,
        role: CounterRole::Counted,
        witness_bytes: None,
    }
}

/// Two counters for each link, and one without a link.
fn made_plan(size: Size) -> Plan {
    let mut counters = Vec::new();
    let mut made_links = Vec::new();
    for (name, kind, subsystem, devices, peak_gb) in NAMES.into_iter().take(size.links) {
        let first_id = counters.len() as u32;
        let pmu = format!("made_{subsystem}_{}", first_id / 2);
        counters.push(made_counter(first_id, &pmu, "rd_bytes", "bytes", subsystem));
        counters.push(made_counter(first_id + 1, &pmu, "wr_bytes", "bytes", subsystem));
        made_links.push(Link {
            name: name.to_owned(),
            kind: kind.to_owned(),
            subsystem: subsystem.to_owned(),
            socket: Some(0),
            devices: devices.map(str::to_owned),
            counters: vec![
                LinkCounter { counter: first_id, direction: Direction::In },
                LinkCounter { counter: first_id + 1, direction: Direction::Out },
            ],
            peaks: peak_rates(peak_gb),
            latencies: Vec::new(),
        });
    }
    counters.push(made_counter(
        counters.len() as u32,
        "made_cache_0",
        "cache_misses",
        "count",
        "cache",
    ));
    Plan {
        tick_ns: 1_000_000,
        window_ns: size.window_ns as u64,
        counters,
        metrics: Vec::new(),
        links: made_links,
        warnings: Vec::new(),
        notes: vec!["made up: no machine counted this".to_owned()],
    }
}

/// Writes a dataset to `path`.
pub(crate) fn write(path: &Path, size: Size) {
    let plan = made_plan(size);
    let end = BEGIN + size.windows * size.window_ns;
    let clock = |mono: i64| format!(r#"{{"mono_ns":{mono},"wall_ns":{}}}"#, mono + WALL);
    let pairs = BTreeMap::from(
        [
            (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
            (metadata::TOOL_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
            (metadata::COMMAND_LINE, "uncore-trace record -p mem,c2c,pcie -o run/".to_owned()),
            (metadata::HOST, size.host.to_owned()),
            (metadata::BOOT_ID, "3f4e5d6c".to_owned()),
            (metadata::KERNEL, "6.18.0".to_owned()),
            (metadata::CLOCKS, format!("[{},{}]", clock(BEGIN), clock(end))),
            (metadata::INTERVAL_NS, size.window_ns.to_string()),
            (metadata::TICK_NS, "1000000".to_owned()),
            (metadata::METHOD, "auto".to_owned()),
            (metadata::PLAN, serde_json::to_string(&plan).unwrap()),
            (metadata::LOSS, r#"{"late_tick":12,"ring_full":3}"#.to_owned()),
            (metadata::COMPLETE, "false".to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    let target = RecordingTarget::Dataset(path.to_owned());
    let mut writer = Writer::create(target, CreateOptions::default(), &pairs).unwrap();
    write_fabric(&mut writer, &plan, size);
    write_rest(&mut writer, &plan, size);
    writer.finish(&pairs).unwrap();
}

/// How a window of a counter differs from the others.
#[derive(Clone, Copy)]
struct UnevenWindow {
    is_absent: bool,
    is_unread: bool,
    /// Number of windows it covers: the previous ones were not read.
    windows: i64,
    running: f32,
}

impl Default for UnevenWindow {
    fn default() -> Self {
        Self { is_absent: false, is_unread: false, windows: 1, running: 1.0 }
    }
}

impl UnevenWindow {
    /// `elapsed`: elapsed fraction of the recording.
    fn for_window(window: i64, elapsed: f64, (link, direction): (usize, usize)) -> Self {
        match (link, direction) {
            // The reader CPU of the last link was offline.
            (3, _) if (0.4..0.55).contains(&elapsed) => Self { is_absent: true, ..Self::default() },
            // Each 17th reading is missing.
            (0, 0) if window % 17 == 5 => Self { is_absent: true, ..Self::default() },
            (0, 0) if window % 17 == 6 => Self { windows: 2, ..Self::default() },
            // Multiplexed: one of the two counters is not on in each 11th window.
            (1, 0) if window % 11 == 0 => Self { is_unread: true, ..Self::default() },
            (1, _) if window % 3 == 0 => Self { running: 0.5, ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// Divides a row of a cgroup among two processes. Of these less is known than of their sum, and in
/// some windows nothing is known of the sum.
fn append_two(builder: &mut fabric::Builder, row: &fabric::Row<'_>, window: i64) {
    let cgroup_confidence = match window % 4 {
        0 => row.confidence.map(|_| 0.1),
        1 => None,
        _ => row.confidence.map(|confidence| (confidence + 0.25).min(1.0)),
    };
    for (process, fraction) in [(row.comm, 0.75), (Some("helper"), 0.25)] {
        builder.append(&fabric::Row {
            pid: if process == row.comm { row.pid } else { row.pid.map(|pid| pid + 500) },
            comm: process,
            value: row.value.map(|value| value * fraction),
            confidence: row.confidence.map(|confidence| confidence * fraction as f32),
            cgroup_confidence,
            ..*row
        });
    }
}

fn write_fabric(writer: &mut Writer, plan: &Plan, size: Size) {
    let smalls: Vec<String> =
        (0..size.small).map(|n| format!("/batch.slice/job-{n:03}.scope")).collect();
    let length_s = (size.windows * size.window_ns) as f64 / 1e9;
    let seconds = size.window_ns as f64 / 1e9;
    let mut builder = fabric::Builder::default();
    for window in 1..=size.windows {
        let mono_ns = BEGIN + window * size.window_ns;
        let at_s = window as f64 * seconds;
        for counter in &plan.counters {
            let (link, direction) = (counter.id as usize / 2, counter.id as usize % 2);
            // Bytes of a link; the counter without a link has a miss for each 64 bytes of the first
            // link.
            let (link, per) = if link < size.links { (link, 1e9) } else { (0, 1e9 / 64.0) };
            // A second of the second link is unknown, and a late reading makes a long window.
            let is_gap = link == 1 && (0.2..0.25).contains(&(at_s / length_s));
            let uneven = size
                .uneven
                .then(|| UnevenWindow::for_window(window, at_s / length_s, (link, direction)));
            let UnevenWindow { is_absent, is_unread, windows, running } =
                uneven.unwrap_or_default();
            if is_absent {
                continue;
            }
            let (is_gap, seconds) = (is_gap || is_unread, seconds * windows as f64);
            let mut shares: Vec<(usize, f64)> = Vec::new();
            for (tenant, (.., loads)) in TENANTS.iter().enumerate() {
                let share = loads[link][direction]
                    * tenant_load(tenant, at_s, length_s, window)
                    * per
                    * seconds;
                shares.push((tenant, share));
            }
            let active =
                smalls.iter().enumerate().filter(|(n, _)| (window / 50 + *n as i64) % 7 == 0);
            let active_shares: Vec<(usize, f64)> =
                active.map(|(n, _)| (n, 0.01 * (1.0 + n as f64 / 10.0) * per * seconds)).collect();
            let total: f64 = shares.iter().chain(&active_shares).map(|(_, value)| value).sum();
            let base = fabric::Row {
                ts: WALL + mono_ns,
                mono_ns,
                window_ns: size.window_ns * windows,
                host: size.host,
                boot_id: "3f4e5d6c",
                counter: counter.id as i32,
                socket: Some(if size.uneven { (link % 2) as i16 } else { 0 }),
                subsystem: &counter.subsystem,
                pmu: &counter.pmu,
                event: &counter.event,
                unit: &counter.unit,
                owner: "unattributed",
                running,
                method: "regression",
                ..fabric::Row::default()
            };
            if is_gap {
                builder.append(&fabric::Row { running: 0.0, method: "none", ..base });
                continue;
            }
            let known = fabric::Row { total: Some(total), ..base };
            for (tenant, value) in shares.into_iter().filter(|(_, value)| *value > 0.0) {
                let (owner, pid, comm, cgroup, confidence, _) = TENANTS[tenant];
                // Some shares have no confidence.
                let confidence = Some(confidence).filter(|_| !size.uneven || window % 5 > 0);
                let row = fabric::Row {
                    owner,
                    pid: (pid > 0).then_some(pid),
                    number: (owner == "irq").then_some(30),
                    comm: (!comm.is_empty()).then_some(comm),
                    cgroup_id: (!cgroup.is_empty()).then_some(pid as u64),
                    cgroup: (!cgroup.is_empty()).then_some(cgroup),
                    value: Some(value),
                    confidence,
                    cgroup_confidence: confidence,
                    ..known
                };
                if size.uneven && owner == "task" {
                    append_two(&mut builder, &row, window);
                } else {
                    builder.append(&row);
                }
            }
            for (n, value) in active_shares {
                builder.append(&fabric::Row {
                    owner: "task",
                    pid: Some(1000 + n as i32),
                    comm: Some("job"),
                    cgroup_id: Some(1000 + n as u64),
                    cgroup: Some(&smalls[n]),
                    value: Some(value),
                    confidence: Some(0.4),
                    cgroup_confidence: Some(0.4),
                    ..known
                });
            }
        }
        if window % 100 == 0 || window == size.windows {
            writer.write(&fabric::TABLE, &builder.finish()).unwrap();
        }
    }
    writer.seal_rows().unwrap();
}

fn write_rest(writer: &mut Writer, plan: &Plan, size: Size) {
    let length = size.windows * size.window_ns;
    let time_at = |fraction: f64| BEGIN + (length as f64 * fraction) as i64;
    let mut rows = loss::Builder::default();
    for (cause, to, span, count, detail) in [
        ("ring_full", time_at(0.72), length / 100, 3, Some("records of switches")),
        ("late_tick", time_at(0.33), 0, 12, None),
    ] {
        rows.append(&loss::Row {
            host: size.host,
            boot_id: "3f4e5d6c",
            cluster: None,
            mono_ns: to,
            span_ns: span,
            cause,
            cpu: Some(1),
            counter: None,
            count,
            detail,
        });
    }
    writer.write(&loss::TABLE, &rows.finish()).unwrap();
    let mut rows = cpus::Builder::default();
    for (mono_ns, cpu, state) in [
        (BEGIN, 0, cpus::ONLINE),
        (BEGIN, 1, cpus::ONLINE),
        (time_at(0.85), 1, cpus::OFFLINE),
        (time_at(0.9), 1, cpus::ONLINE),
    ] {
        let (socket, node, core) = (Some(0), Some(0), Some(cpu));
        rows.append(&cpus::Row { mono_ns, cpu, state, socket, node, core, counters: "" });
    }
    writer.write(&cpus::TABLE, &rows.finish()).unwrap();
    let mut rows = marks::Builder::default();
    for (begin, end, kind, name) in [
        (0.1, Some(0.45), MarkKind::Span, "epoch 1"),
        (0.45, Some(0.95), MarkKind::Span, "epoch 2"),
        (0.62, None, MarkKind::Instant, "checkpoint"),
    ] {
        rows.append(&marks::Row {
            host: size.host,
            boot_id: "3f4e5d6c",
            cluster: None,
            mono_ns: time_at(begin),
            end_ns: end.map(time_at),
            kind: kind.kind_name(),
            text: name,
            source: marks::COMMAND,
            pid: Some(101),
        });
    }
    writer.write(&marks::TABLE, &rows.finish()).unwrap();
    let mut rows = links::Builder::default();
    for link in &plan.links {
        for link_counter in &link.counters {
            let peak = link.peaks.first();
            rows.append(&links::Row {
                host: size.host,
                boot_id: "3f4e5d6c",
                cluster: None,
                counter: link_counter.counter as i32,
                link: &link.name,
                kind: &link.kind,
                subsystem: &link.subsystem,
                socket: link.socket.map(i32::from),
                devices: link.devices.as_deref(),
                direction: link_counter.direction.direction_name(),
                peak: peak.map(|peak| peak.bytes_per_s),
                peak_direction: peak.map(|peak| peak.direction.direction_name()),
                peak_source: peak.map(|peak| peak.source.source_name()),
                peak_detail: peak.map(|peak| peak.detail.as_str()),
            });
        }
    }
    writer.write(&links::TABLE, &rows.finish()).unwrap();
}
