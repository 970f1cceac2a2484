use std::collections::BTreeMap;
use std::fs::{self, File};

use prost::Message as _;

use super::proto::{
    InternedData, TYPE_COUNTER, TYPE_INSTANT, TYPE_SLICE_BEGIN, TYPE_SLICE_END, TracePacket,
};
use super::*;
use crate::schema::link::LinkCounter;
use crate::schema::marks::Mark;
use crate::schema::{self, cgroups, cpus, fabric, loss, slices as stored};
use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};
use crate::view::sample::{
    BEGIN, Broken, INTACT, MARKS, SampleRecording, WALL, sample_link, sample_plan,
};

/// All packets of a trace.
#[derive(Clone, PartialEq, prost::Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

/// A decoded trace.
struct Read {
    packets: Vec<TracePacket>,
    /// Path of each track.
    paths: BTreeMap<u64, String>,
    names: BTreeMap<u64, String>,
    written: PerfettoSummary,
}

impl Read {
    fn of(dataset: bool, broken: &Broken, top: usize) -> Self {
        Self::of_time(dataset, broken, top, [None, None])
    }

    fn of_time(dataset: bool, broken: &Broken, top: usize, time: [Option<&str>; 2]) -> Self {
        let sample = SampleRecording::new(dataset, broken);
        let recording = sample.open();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        let [from, to] = time.map(|time| time.map(|time| time.parse().unwrap()));
        let span = SelectedTime::between_moments(&recording, &table, from.as_ref(), to.as_ref())
            .unwrap()
            .unwrap();
        let mut out = Vec::new();
        let written =
            write_perfetto(&recording, &table, &span, GroupBy::Cgroup, top, &mut out).unwrap();
        Self::decode(&out, written)
    }

    fn decode(out: &[u8], written: PerfettoSummary) -> Self {
        let packets = Trace::decode(out).unwrap().packet;
        let mut paths: BTreeMap<u64, String> = BTreeMap::new();
        for track in packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()) {
            let parent = track.parent_uuid.map(|parent| format!("{} > ", paths[&parent]));
            let path = parent.unwrap_or_default() + track.name.as_deref().unwrap();
            assert!(paths.insert(track.uuid.unwrap(), path).is_none());
        }
        let interned = packets.iter().filter_map(|packet| packet.interned_data.as_ref());
        let names = interned.flat_map(|interned_data: &InternedData| &interned_data.event_names);
        let names = names.map(|name| (name.iid.unwrap(), name.name.clone().unwrap())).collect();
        Self { packets, paths, names, written }
    }

    /// Times (ns after the begin) and values of a track.
    fn values(&self, path: &str) -> Vec<(i64, f64)> {
        let events = self.events(path, TYPE_COUNTER);
        events.map(|(ns, event)| (ns, event.double_counter_value.unwrap())).collect()
    }

    /// Times and names of events of a kind.
    fn named(&self, path: &str, kind: i32) -> Vec<(i64, String)> {
        let name = |event: &proto::TrackEvent| self.names[&event.name_iid.unwrap()].clone();
        self.events(path, kind).map(|(ns, event)| (ns, name(event))).collect()
    }

    fn events(&self, path: &str, kind: i32) -> impl Iterator<Item = (i64, &proto::TrackEvent)> {
        let id = *self.paths.iter().find(|(_, known_path)| *known_path == path).unwrap().0;
        self.packets.iter().filter_map(move |packet| {
            let event = packet.track_event.as_ref()?;
            let is_of_track = event.track_uuid == Some(id) && event.r#type == Some(kind);
            is_of_track.then(|| (packet.timestamp.unwrap() as i64 - BEGIN, event))
        })
    }
}

const BYTES: &str = "test_pmu_0 > read_bytes";
/// 640 kB in 10 ms.
const RATE: f64 = 64e6;

#[test]
fn tracks_are_of_what_is_counted_and_its_tenants() {
    let read = Read::of(false, &INTACT, 1);
    let paths: Vec<&str> = read.paths.values().map(String::as_str).collect();
    let tracks_of_event = |event: &str| {
        let lines =
            ["total", "/tenant\\u{1b}[2J", "(other tenants)", "(irq)", "(idle)", "not known"];
        let event = format!("test_pmu_0 > {event}");
        let lines: Vec<String> = lines.iter().map(|line| format!("{event} > {line}")).collect();
        [vec![event], lines].concat()
    };
    let wanted = [
        vec!["test_pmu_0".to_owned()],
        tracks_of_event("read_bytes"),
        tracks_of_event("page-faults"),
    ]
    .concat();
    assert_eq!(paths, wanted);
    assert_eq!(read.written.tracks, paths.len() as u64);
    assert!(!read.written.has_slices);
    // The rate is the same in all windows, so it is written once.
    assert_eq!(read.values(&format!("{BYTES} > total")), [(0, RATE)]);
    assert_eq!(read.values(&format!("{BYTES} > (other tenants)")), [(0, RATE / 4.0)]);
    let all_others = Read::of(false, &INTACT, 0).values(&format!("{BYTES} > (other tenants)"));
    assert_eq!(all_others, [(0, RATE * 0.75)]);
    let units = read.packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let units: std::collections::BTreeSet<_> =
        units.filter_map(|track| track.counter.as_ref()?.unit_name.as_deref()).collect();
    assert_eq!(units.into_iter().collect::<Vec<_>>(), ["bytes/s", "count/s"]);
}

#[test]
fn tenants_are_what_by_says_and_sum_to_the_total() {
    for (by, tenants) in [
        (GroupBy::Pid, ["train (100)", "serve (200)", "(irq)", "(idle)"]),
        (GroupBy::Comm, ["train", "serve", "(irq)", "(idle)"]),
    ] {
        let sample = SampleRecording::new(false, &INTACT);
        let recording = sample.open();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        let span = SelectedTime::between_moments(&recording, &table, None, None).unwrap().unwrap();
        let mut out = Vec::new();
        let written = write_perfetto(&recording, &table, &span, by, 9, &mut out).unwrap();
        let read = Read::decode(&out, written);
        let first = |line: &str| read.values(&format!("{BYTES} > {line}"))[0].1;
        assert!((tenants.map(first).iter().sum::<f64>() - RATE).abs() < 1e-6, "{by:?}");
        // The tracks of the event itself, its total, and what is not known.
        assert_eq!(read.paths.values().filter(|path| path.starts_with(BYTES)).count(), 7);
    }
}

#[test]
fn times_are_monotonic_with_the_wall_clock_beside_them() {
    let read = Read::of(false, &INTACT, 1);
    let first = &read.packets[0];
    let clocks = first.clock_snapshot.as_ref().unwrap();
    let clocks: Vec<_> =
        clocks.clocks.iter().map(|clock| (clock.clock_id, clock.timestamp)).collect();
    let (mono, wall) = (BEGIN as u64, (WALL + BEGIN) as u64);
    assert_eq!(clocks, [(Some(3), Some(mono)), (Some(1), Some(wall))]);
    assert_eq!(first.sequence_flags, Some(1));
    assert_eq!(first.trace_packet_defaults.as_ref().unwrap().timestamp_clock_id, Some(3));
    assert!(read.packets.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));
}

#[test]
fn an_unknown_window_ends_its_lines_and_is_never_0() {
    let broken = Broken {
        fabric: |row, number| {
            // Two windows of the first counter; a window has eight rows.
            if row.counter == 0 && (100 * 8..102 * 8).contains(&number) {
                (row.value, row.total) = (None, None);
                return row.owner == "idle";
            }
            true
        },
        ..INTACT
    };
    let read = Read::of(false, &broken, 9);
    let (from, to) = (1_000_000_000, 1_020_000_000);
    assert_eq!(read.values(&format!("{BYTES} > total")), [(0, RATE), (to, RATE)]);
    assert_eq!(read.values(&format!("{BYTES} > (idle)")), [(0, RATE / 8.0), (to, RATE / 8.0)]);
    let unknown = format!("{BYTES} > not known");
    assert_eq!(read.named(&unknown, TYPE_SLICE_BEGIN), [(from, "not known".to_owned())]);
    let ends: Vec<i64> = read.events(&unknown, TYPE_SLICE_END).map(|(ns, _)| ns).collect();
    assert_eq!(ends, [to]);
}

#[test]
fn a_tenant_without_a_row_has_nothing_where_the_count_is_known() {
    let broken = Broken {
        fabric: |row, number| {
            let in_middle = (100 * 8..102 * 8).contains(&number);
            if in_middle && row.counter == 0 && row.owner == "idle" {
                row.value = row.value.map(|value| value * 3.0);
            }
            !(in_middle && row.counter == 0 && row.pid == Some(200))
        },
        ..INTACT
    };
    let read = Read::of(false, &broken, 9);
    let (from, to) = (1_000_000_000, 1_020_000_000);
    let expected_points = [(0, RATE / 4.0), (from, 0.0), (to, RATE / 4.0)];
    assert_eq!(read.values(&format!("{BYTES} > /other")), expected_points);
    assert_eq!(read.values(&format!("{BYTES} > total")), [(0, RATE)]);
}

#[test]
fn losses_are_instants_with_their_details() {
    let lost = |cause| loss::Row {
        host: "test",
        boot_id: "3f4e5d6c",
        cluster: None,
        mono_ns: BEGIN + 500_000_000,
        span_ns: 1_000_000,
        cause,
        cpu: Some(1),
        counter: Some(0),
        count: 7,
        detail: Some("a\u{1b}[2J"),
    };
    for (cause, track) in [("ring_full", "Losses"), ("late_tick", "Notes")] {
        let read = Read::of(true, &Broken { loss: Some(lost(cause)), ..INTACT }, 1);
        assert_eq!(read.named(track, TYPE_INSTANT), [(500_000_000, cause.to_owned())]);
        let (_, event) = read.events(track, TYPE_INSTANT).next().unwrap();
        let numbers: Vec<_> =
            event.debug_annotations.iter().map(|annotation| annotation.int_value).collect();
        assert_eq!(numbers, [Some(7), Some(1_000_000), Some(1), None, None]);
        let texts: Vec<_> = event
            .debug_annotations
            .iter()
            .filter_map(|annotation| annotation.string_value.as_deref())
            .collect();
        assert_eq!(texts, ["test_pmu_0 read_bytes", "a\\u{1b}[2J"]);
        assert!(!read.paths.values().any(|path| path == "CPUs"));
    }
}

/// The first counter counts what goes into a memory, and so does the second.
const LINKED: Broken = Broken {
    fabric: |row, _| {
        row.unit = "bytes";
        true
    },
    metadata: |pairs| {
        let mut link = sample_link(Vec::new());
        link.counters.push(LinkCounter { counter: 1, ..link.counters[0] });
        pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![link]));
    },
    ..INTACT
};

#[test]
fn counters_of_a_link_and_direction_are_one_track() {
    let read = Read::of(false, &LINKED, 9);
    let paths: Vec<&str> = read.paths.values().map(String::as_str).collect();
    assert_eq!(paths[..3], ["memory 0", "memory 0 > in", "memory 0 > in > total"]);
    assert_eq!(read.written.tracks, 2 + 1 + 4 + 1);
    let both = RATE + 3000.0;
    assert_eq!(read.values("memory 0 > in > total"), [(0, both)]);
    assert_eq!(read.values("memory 0 > in > /other"), [(0, both / 4.0)]);
}

/// A dataset with rows of the test, and a span of one second.
fn dataset(rows: impl FnOnce(&mut Writer)) -> (tempfile::TempDir, Recording, SelectedTime) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let pairs = [(metadata::SCHEMA_VERSION.to_owned(), schema::SCHEMA_VERSION.to_string())].into();
    let mut writer =
        Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &pairs)
            .unwrap();
    rows(&mut writer);
    writer.finish(&pairs).unwrap();
    let (begin_ns, end_ns) = (BEGIN, BEGIN + 1_000_000_000);
    let expected_times = begin_ns + 1..=end_ns;
    let span = SelectedTime {
        start_ns: begin_ns,
        wall_ns: WALL,
        wanted: expected_times,
        begin_ns,
        end_ns,
    };
    (dir, Recording::open(&path).unwrap(), span)
}

/// The trace that `add` writes for the recording.
fn trace(
    (dir, recording, span): (tempfile::TempDir, Recording, SelectedTime),
    add: fn(&Recording, &SelectedTime, &mut TracePackets<File>) -> Result<()>,
) -> Read {
    let path = dir.path().join("trace");
    let clocks = Snapshot { mono_ns: BEGIN, wall_ns: WALL + BEGIN };
    let mut packets = TracePackets::new(File::create(&path).unwrap(), clocks).unwrap();
    add(&recording, &span, &mut packets).unwrap();
    let (tracks, events) = packets.end_trace();
    Read::decode(&fs::read(path).unwrap(), PerfettoSummary { tracks, events, has_slices: true })
}

#[test]
fn slices_are_cut_at_the_ends_of_the_span_and_idle_time_is_left_out() {
    let second = 1_000_000_000;
    let slice = |cpu, begin: i64, end: i64, tid, cgroup_id| stored::Row {
        cpu,
        begin_ns: BEGIN + begin,
        end_ns: BEGIN + end,
        tid,
        pid: tid,
        comm: "a\nb",
        cgroup_id,
        irq_ns: 7,
    };
    let set = dataset(|writer| {
        let mut builder = stored::Builder::default();
        for row in [
            slice(0, -50, 10, 5, 1),
            slice(0, 10, 20, 0, 1),
            slice(0, 20, 30, 6, 2),
            slice(2, second - 5, second + 5, 5, 1),
            slice(2, second + 5, second + 9, 5, 1),
        ] {
            builder.append(&row);
        }
        writer.write(&stored::TABLE, &builder.finish()).unwrap();
        let mut builder = cgroups::Builder::default();
        let (host, boot_id) = ("test", "3f4e5d6c");
        let (container, pod, job, cluster) = (None, None, None, None);
        let (path, mono_ns) = ("/a\u{1b}", BEGIN);
        builder.append(&cgroups::Row {
            host,
            boot_id,
            cluster,
            id: 1,
            path,
            container,
            pod,
            mono_ns,
            job,
        });
        writer.write(&cgroups::TABLE, &builder.finish()).unwrap();
    });
    let read = trace(set, |recording, span, packets| {
        assert!(slices::write_slices(recording, span, packets)?);
        Ok(())
    });
    let names = |path: &str| read.named(path, TYPE_SLICE_BEGIN);
    let ends = |path: &str| read.events(path, TYPE_SLICE_END).map(|(ns, _)| ns).collect::<Vec<_>>();
    let thread = || "a\\nb".to_owned();
    let first = "Who ran > CPU 0";
    assert_eq!(names(first), [(0, thread()), (20, thread())]);
    assert_eq!(ends(first), [10, 30]);
    assert_eq!(names("Who ran > CPU 2"), [(second - 5, thread())]);
    assert_eq!(ends("Who ran > CPU 2"), [second]);
    let cgroups = read.events(first, TYPE_SLICE_BEGIN);
    let cgroups = cgroups.map(|(_, event)| event.debug_annotations[0].string_value.as_deref());
    let cgroups: Vec<Option<&str>> = cgroups.collect();
    assert_eq!(cgroups, [Some("/a\\u{1b}"), Some("(cgroup id 2)")]);
}

#[test]
fn cpus_that_are_offline_at_the_begin_or_change_are_instants() {
    let set = dataset(|writer| {
        let mut builder = cpus::Builder::default();
        for (ns, cpu, state) in [
            (-9, 0, cpus::ONLINE),
            (-9, 1, cpus::OFFLINE),
            (-9, 2, cpus::OFFLINE),
            (-5, 2, cpus::ONLINE),
            (10, 0, cpus::OFFLINE),
            (20, 1, cpus::OFFLINE),
            (30, 0, cpus::ONLINE),
            (2_000_000_000, 0, cpus::OFFLINE),
        ] {
            let (socket, node, core) = (None, None, None);
            let mono_ns = BEGIN + ns;
            builder.append(&cpus::Row { mono_ns, cpu, state, socket, node, core, counters: "" });
        }
        writer.write(&cpus::TABLE, &builder.finish()).unwrap();
    });
    let read = trace(set, changes::write_cpu_changes);
    let named = |ns, name: &str| (ns, name.to_owned());
    let expected_names =
        [named(0, "CPU 1 offline"), named(10, "CPU 0 offline"), named(30, "CPU 0 online")];
    assert_eq!(read.named("CPUs", TYPE_INSTANT), expected_names);
}

#[test]
fn marks_are_instants_and_slices_that_do_not_overlap() {
    let broken = Broken {
        marks: || {
            let mut marks = MARKS();
            let second = |tenths: i64| BEGIN + tenths * 100_000_000;
            let other_marks =
                [(15, 26, "other"), (21, 22, "later")].map(|(begin, end, text)| Mark {
                    mono_ns: second(begin),
                    end_ns: Some(second(end)),
                    text: text.to_owned(),
                    ..marks[2].clone()
                });
            marks.extend(other_marks);
            marks
        },
        ..INTACT
    };
    let ms = 1_000_000;
    let named = |milliseconds: i64, name: &str| (milliseconds * ms, name.to_owned());
    let ends = |read: &Read, path: &str| {
        read.events(path, TYPE_SLICE_END).map(|(ns, _)| ns / ms).collect::<Vec<_>>()
    };
    let read = Read::of(false, &broken, 1);
    let instants = [named(500, "warm\\u{1b}[2J\\nup"), named(1500, "epoch 1")];
    assert_eq!(read.named("Marks", TYPE_INSTANT), instants);
    let first = [named(1000, "epoch 1"), named(2100, "later"), named(2500, "save")];
    assert_eq!(read.named("Marks > spans", TYPE_SLICE_BEGIN), first);
    // The last span was not ended.
    assert_eq!(ends(&read, "Marks > spans"), [2000, 2200]);
    assert_eq!(read.named("Marks > spans 2", TYPE_SLICE_BEGIN), [named(1500, "other")]);
    assert_eq!(ends(&read, "Marks > spans 2"), [2600]);
    let (_, event) = read.events("Marks > spans", TYPE_SLICE_BEGIN).next().unwrap();
    assert_eq!(event.debug_annotations[0].string_value.as_deref(), Some("command"));
    assert_eq!(event.debug_annotations[1].int_value, Some(7));

    let part = Read::of_time(false, &broken, 1, [Some("1.8s"), Some("2.3s")]);
    assert_eq!(part.named("Marks", TYPE_INSTANT), []);
    let first = [named(1800, "epoch 1"), named(2100, "later")];
    assert_eq!(part.named("Marks > spans", TYPE_SLICE_BEGIN), first);
    assert_eq!(ends(&part, "Marks > spans"), [2000, 2200]);
    assert_eq!(part.named("Marks > spans 2", TYPE_SLICE_BEGIN), [named(1800, "other")]);
    assert_eq!(ends(&part, "Marks > spans 2"), [2300]);
}
