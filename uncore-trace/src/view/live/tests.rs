//! Tests of frames and screens, on made rows.

use super::screen::{LiveScreen, OwnerOrder, ScreenOptions};
use super::*;
use crate::schema::link::PeakSource;
use crate::schema::{fabric, runtime};
use crate::view::sample::{sample_link, sample_peak};

const SECOND: i64 = 1_000_000_000;

/// A row of counter 0, which counts direction in, in the window of 500 ms that ends at `half` half
/// seconds.
fn row(
    half: i64,
    owner: &'static str,
    pid: Option<i32>,
    value: Option<f64>,
) -> fabric::Row<'static> {
    fabric::Row {
        ts: 0,
        mono_ns: half * SECOND / 2,
        window_ns: SECOND / 2,
        host: "test",
        boot_id: "3f4e5d6c",
        cluster: None,
        counter: 0,
        socket: Some(0),
        cpu: 0,
        subsystem: "mem",
        pmu: "test_pmu_0",
        event: "read_bytes",
        filter: "",
        unit: "bytes",
        owner,
        pid,
        number: None,
        comm: pid.map(|pid| if pid == 1 { "train" } else { "serve" }),
        cgroup_id: pid.map(|pid| if pid < 3 { 10 } else { 30 }),
        cgroup: pid.map(|pid| if pid < 3 { "/a" } else { "/b\u{1b}[2J" }),
        container: None,
        pod: None,
        value,
        total: Some(100.0),
        running: 1.0,
        method: "residency",
        confidence: pid.map(|pid| if pid == 1 { 0.9 } else { 0.5 }),
        cgroup_confidence: None,
        processes: None,
        job: None,
    }
}

fn batch(rows: &[fabric::Row<'_>]) -> RecordBatch {
    let mut builder = fabric::Builder::default();
    for row in rows {
        builder.append(row);
    }
    builder.finish()
}

/// Three processes and idle time share 100 bytes in each window.
fn busy(live: &mut LiveFrames, halves: std::ops::Range<i64>) {
    let mut rows = Vec::new();
    for half in halves {
        rows.extend([
            row(half, "task", Some(1), Some(50.0)),
            row(half, "task", Some(2), Some(20.0)),
            row(half, "task", Some(3), Some(10.0)),
            row(half, "idle", None, Some(20.0)),
        ]);
    }
    live.add_fabric(&batch(&rows)).unwrap();
}

fn screen(live: &LiveFrames, grouping: GroupBy) -> LiveScreen {
    live.last_screen(&ScreenOptions {
        grouping,
        watched_index: 0,
        filter: "",
        within: None,
        order: OwnerOrder::Share,
    })
}

fn linked() -> LiveFrames {
    LiveFrames::new(
        Links::new(vec![sample_link(vec![sample_peak(PeakSource::Sysfs, 250.0)])]),
        SECOND,
    )
}

fn assert_near(value: Option<f64>, expected: f64) {
    assert!(
        value.is_some_and(|value| (value - expected).abs() < 1e-6 * expected),
        "{value:?} {expected}"
    );
}

#[test]
fn parts_of_tenants_sum_to_the_link() {
    let mut live = linked();
    assert_eq!(screen(&live, GroupBy::Cgroup).owners, []);
    busy(&mut live, 1..6);
    assert_eq!(live.frame_count(), 2);
    for by in GROUPINGS {
        let screen = screen(&live, by);
        assert_near(screen.links[0].in_per_s, 200.0);
        assert_eq!(screen.links[0].out_per_s, None);
        assert_near(screen.links[0].full.map(|full| full.part), 0.8);
        assert_near(Some(screen.owners.iter().map(|line| line.link_per_s.unwrap()).sum()), 200.0);
        assert_near(Some(screen.owners.iter().filter_map(|line| line.share).sum()), 1.0);
    }
    let cgroups = screen(&live, GroupBy::Cgroup);
    let first = &cgroups.owners[0];
    assert_eq!((first.name.as_str(), first.owner.as_str()), ("/a", "task"));
    assert_near(first.confidence, (0.9 * 50.0 + 0.5 * 20.0) / 70.0);
    assert_eq!(first.history, [Some(140.0), Some(140.0)]);
    let within = ScreenOptions {
        grouping: GroupBy::Pid,
        watched_index: 0,
        filter: "",
        within: Some((GroupBy::Cgroup, "/a")),
        order: OwnerOrder::Name,
    };
    let names: Vec<String> =
        live.last_screen(&within).owners.into_iter().map(|line| line.name).collect();
    assert_eq!(names, ["serve (2)", "train (1)"]);
    let filtered = ScreenOptions { filter: "rain", within: None, ..within };
    assert_eq!(live.last_screen(&filtered).owners.len(), 1);
}

#[test]
fn a_window_longer_than_a_frame_is_one_frame() {
    let mut live = LiveFrames::new(
        Links::new(vec![sample_link(vec![sample_peak(PeakSource::Sysfs, 250.0)])]),
        SECOND / 4,
    );
    busy(&mut live, 1..4);
    assert_eq!(live.frame_count(), 2);
    let screen = screen(&live, GroupBy::Cgroup);
    assert_near(screen.links[0].in_per_s, 200.0);
    assert_eq!(screen.links[0].history.len(), 2);
    assert_near(screen.owners[0].share, 0.7);
}

#[test]
fn a_window_without_a_value_is_not_known() {
    let mut live = linked();
    busy(&mut live, 1..3);
    live.add_fabric(&batch(&[
        row(3, "unattributed", None, None),
        row(4, "unattributed", None, None),
        row(5, "task", Some(1), Some(1.0)),
    ]))
    .unwrap();
    let screen = screen(&live, GroupBy::Cgroup);
    assert_eq!((screen.links[0].in_per_s, screen.links[0].per_s), (None, None));
    assert_eq!(screen.links[0].full, None);
    assert_eq!(screen.links[0].history, [Some(200.0), None]);
}

#[test]
fn cpu_time_is_of_the_process_whose_share_it_is() {
    let mut live = linked();
    let mut builder = runtime::Builder::default();
    let rows = [(1, "train", 10), (3, "serve", 30), (3, "serve", 30), (3, "sh", 30), (9, "x", 90)];
    for (pid, process, cgroup) in rows {
        builder.append(&runtime::Row {
            mono_ns: SECOND / 2,
            tick_ns: SECOND / 2,
            cpu: 0,
            owner: "task",
            tid: pid,
            pid,
            comm: "thread",
            cgroup_id: cgroup,
            run_ns: SECOND / 4,
            slices: 1,
            process: Some(process),
            owner_cgroup_id: Some(cgroup),
        });
    }
    live.add_runtime(&builder.finish()).unwrap();
    // Process 3 was a shell before an exec in this window.
    let before = fabric::Row { comm: Some("sh"), ..row(1, "task", Some(3), Some(1.0)) };
    live.add_fabric(&batch(&[row(1, "task", Some(3), Some(0.0)), before])).unwrap();
    busy(&mut live, 1..4);
    let lines = screen(&live, GroupBy::Pid).owners;
    let cpus: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.cpus)).collect();
    let expected = [
        ("train (1)", Some(0.25)),
        ("idle", None),
        ("serve (2)", Some(0.0)),
        ("serve (3)", Some(0.5)),
        ("sh (3)", Some(0.25)),
    ];
    assert_eq!(cpus, expected);
}

#[test]
fn events_are_shown_where_there_is_no_link() {
    let mut live = LiveFrames::new(Links::default(), SECOND);
    busy(&mut live, 1..4);
    let screen = screen(&live, GroupBy::Cgroup);
    assert_eq!(screen.links[0].name, "read_bytes");
    assert_eq!(screen.groups.len(), 1);
    assert_near(screen.links[0].per_s, 200.0);
    assert_eq!(screen.links[0].full, None);
}

#[test]
fn frames_and_owners_are_bounded() {
    let mut live = linked();
    for half in 1..(2 * FRAMES as i64 + 40) {
        busy(&mut live, half..half + 1);
    }
    assert_eq!(live.frame_count(), FRAMES);
    let rows: Vec<_> =
        (1..2 * OWNERS as i32).map(|pid| row(1000, "task", Some(pid), Some(1.0))).collect();
    live.add_fabric(&batch(&rows)).unwrap();
    busy(&mut live, 1003..1004);
    let lines = screen(&live, GroupBy::Pid).owners;
    assert!(lines.len() <= OWNERS + 1, "{}", lines.len());
    assert_near(
        Some(lines.iter().map(|line| line.link_per_s.unwrap()).sum()),
        2.0 * (2.0 * OWNERS as f64 - 1.0),
    );
}

#[test]
fn a_cgroup_with_nearly_all_is_shown_as_its_processes_unless_one_is_chosen() {
    let grouping = |values: [f64; 2]| {
        let mut live = LiveFrames::new(Links::new(vec![sample_link(Vec::new())]), SECOND);
        for half in 1..=4 {
            let rows = [
                row(half, "task", Some(1), Some(values[0])),
                row(half, "task", Some(3), Some(values[1])),
                row(half, "idle", None, Some(100.0)),
            ];
            live.add_fabric(&batch(&rows)).unwrap();
        }
        live.default_grouping(0)
    };
    assert_eq!(grouping([91.0, 9.0]), GroupBy::Comm);
    assert_eq!(grouping([89.0, 11.0]), GroupBy::Cgroup);
    assert_eq!(grouping([0.0, 0.0]), GroupBy::Cgroup);
}
