//! `--per device`: each function that somebody holds is counted on its own, beside the whole.
//!
//! The expected words are those that the drivers read (Linux 7.2): `NV_PCIE_V2_FILTER_*` in
//! `drivers/perf/arm_cspmu/nvidia_cspmu.c` (id in config1:8-23, enabled by bit 24), `root_port` in
//! config1:0-9 in the same file, `HISI_PCIE_PMU_FILTER_ATTR(bdf, config2, 31, 16)` in
//! `hisi_pcie_pmu.c`, `HNS3_PMU_FILTER_ATTR(bdf, config1, 8, 23)` and `(queue, config1, 24, 39)` in
//! `hns3_pmu.c`, `filter_stream_id` in config1:0-31 and `filter_enable` in bit 33 in
//! `arm_smmuv3_pmu.c`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use uncore_trace::catalog::Catalog;
use uncore_trace::discover::held_functions::SeparateFunctions;
use uncore_trace::discover::{self, Machine};
use uncore_trace::plan::{Plan, PlanRequest};

use crate::command::Place;
use crate::devices::{BRIDGE, Function, NIC, NVME, grace, planned, refused, tegra, with_devices};
use crate::machines::{request, unpacked};

/// A tree in which each of these functions, by its path in `sys/devices`, has a file of InfiniBand,
/// and a process has those open that are `true`.
fn hold(root: &Path, functions: &[(&str, bool)]) {
    let file_in_tree = |path: String| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    fs::write(
        file_in_tree("proc/devices".to_owned()),
        "Character devices:\n231 infiniband_verbs\n",
    )
    .unwrap();
    for (minor, (function, is_held)) in functions.iter().enumerate() {
        let place = format!("{function}/infiniband_verbs/uverbs{minor}");
        symlink(
            format!("../../devices/{place}"),
            file_in_tree(format!("sys/dev/char/231:{minor}")),
        )
        .unwrap();
        let name = format!("infiniband/uverbs{minor}");
        let uevent = file_in_tree(format!("sys/devices/{place}/uevent"));
        fs::write(uevent, format!("DEVNAME={name}\n")).unwrap();
        if *is_held {
            symlink(format!("/dev/{name}"), file_in_tree(format!("proc/77/fd/{minor}"))).unwrap();
        }
    }
}

fn split_request(machine: &Machine, groups: &[&str], events: &[&str]) -> PlanRequest {
    PlanRequest {
        per_device: Some(SeparateFunctions::find_functions(&machine.root)),
        ..request(groups, events)
    }
}

/// Of each counter of a PMU: number in it, event, config words, functions, number of the whole and
/// of the leader, `alone` if its group is exclusive.
fn counter_lines(plan: &Plan, pmu: &str) -> Vec<String> {
    let pmu_counters = plan.counters.iter().filter(|counter| counter.pmu == pmu);
    let first = pmu_counters.clone().map(|counter| counter.id).min().unwrap_or_default();
    let id = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| (id - first).to_string());
    pmu_counters.map(|c| {
        let [config, config1, config2, ..] = c.config;
        let functions: Vec<_> = c.functions.iter().map(ToString::to_string).collect();
        let functions = functions.join("+");
        let (part_of, leader) = (id(c.part_of), id(c.leader));
        let exclusivity = if c.exclusive { " alone" } else { "" };
        format!(
            "{} {} {config:#x},{config1:#x},{config2:#x} [{functions}] of {part_of} leader {leader}{exclusivity}",
            c.id - first,
            c.event
        )
    })
    .collect()
}

fn notes(plan: &Plan) -> String {
    let of_devices = |note: &&String| note.contains("device") || note.contains("turns");
    plan.notes.iter().filter(of_devices).cloned().collect::<Vec<_>>().join("\n")
}

const T410: [&str; 3] = [
    "pci0002:00/0002:00:01.0/0002:01:00.0",
    "pci0002:00/0002:00:02.0/0002:02:00.0",
    "pci0002:00/0002:00:02.0/0002:02:00.1",
];

/// One counter of each held function, by its requester id. The PMU has one register for that, so
/// the whole and the parts take turns, and no two of them run together: the driver would write an
/// error into the kernel's log each time.
#[test]
fn tegra_has_a_counter_of_each_held_function() {
    let (dir, machine) = tegra(true);
    hold(dir.path(), &[(T410[0], false), (T410[1], true), (T410[2], true)]);
    let plan = planned(&machine, &split_request(&machine, &["pcie"], &[]));
    assert_eq!(
        counter_lines(&plan, "nvidia_pcie_pmu_0_rc_4"),
        [
            "0 rd_bytes 0x0,0xff,0x1f [] of - leader - alone",
            "1 rd_bytes 0x0,0x1020000,0x1f [0002:02:00.0] of 0 leader - alone",
            "2 rd_bytes 0x0,0x1020100,0x1f [0002:02:00.1] of 0 leader - alone",
            "3 wr_bytes 0x1,0xff,0x1f [] of - leader 0",
            "4 wr_bytes 0x1,0x1020000,0x1f [0002:02:00.0] of 3 leader 1",
            "5 wr_bytes 0x1,0x1020100,0x1f [0002:02:00.1] of 3 leader 2",
        ]
    );
    let noted = notes(&plan);
    assert!(noted.contains("never add the two"), "{noted}");
    assert!(
        noted.contains(
            "nvidia_pcie_pmu_0_rc_4 has one register for src_bdf, src_bdf_en, so 3 groups of its \
             counters take turns: each counts about 33 % of the time"
        ),
        "{noted}"
    );
    assert!(
        plan.counters
            .iter()
            .filter(|c| c.pmu != "nvidia_pcie_pmu_0_rc_4")
            .all(|c| { c.functions.is_empty() && c.part_of.is_none() && !c.exclusive })
    );
    // Each part is a link of its own.
    let links: Vec<_> = plan.links.iter().map(|link| link.name.as_str()).collect();
    assert!(links.contains(&"PCIe eth0") && links.contains(&"PCIe eth1"), "{links:?}");
    // The clock and latencies are of the whole.
    let plan = planned(&machine, &split_request(&machine, &["pcie", "latency"], &[]));
    let counts_function_bytes =
        |c: &&uncore_trace::plan::Counter| !c.functions.is_empty() && c.event.contains("bytes");
    assert_eq!(plan.counters.iter().filter(counts_function_bytes).count(), 4);
    assert_eq!(plan.counters.iter().filter(|c| !c.functions.is_empty()).count(), 4);
}

/// The same through the program.
#[test]
fn record_shows_the_plan_of_a_tree() {
    let (dir, _) = tegra(true);
    hold(dir.path(), &[(T410[1], false), (T410[2], true)]);
    let root = dir.path().display().to_string();
    let dry = ["record", "--dry-run", "--root", &root, "-p", "pcie", "--per", "device"];
    let place = Place::new();
    let ok = |more: &[&str]| place.run([&dry[..], more].concat()).ok();
    let text = ok(&[]);
    let counters: Vec<_> = text.lines().filter(|line| line.contains("src_bdf=")).collect();
    assert_eq!(counters.len(), 2, "{text}");
    assert!(counters.iter().all(|line| line.contains("src_bdf=0x201,src_bdf_en=0x1")), "{text}");
    let json = ok(&["--json"]);
    let plan: Plan = serde_json::from_str(&json).unwrap();
    let parts: Vec<_> = plan.counters.iter().filter(|counter| counter.part_of.is_some()).collect();
    assert!(parts.len() == 2 && json.contains(r#""0002:02:00.1""#), "{json}");
    // Without a holder: all that have a device file.
    fs::remove_dir_all(dir.path().join("proc/77")).unwrap();
    let text = ok(&[]);
    assert_eq!(text.lines().filter(|line| line.contains("src_bdf=")).count(), 4, "{text}");
    assert!(text.contains("nobody holds a device"), "{text}");
    // The user names it, whoever holds it.
    let named = ok(&["--device", "nvme0n1"]);
    assert_eq!(named.lines().filter(|line| line.contains("src_bdf=0x100")).count(), 2, "{named}");
    fs::remove_file(dir.path().join("proc/devices")).unwrap();
    let error = place.run(dry).refused();
    assert!(error.contains("has a device file here"), "{error}");
}

/// Which root complex it is below is in a part of the configuration that only root can read.
#[test]
fn a_tegra_without_readable_ports_is_refused_with_the_reason() {
    let (dir, machine) = tegra(false);
    hold(dir.path(), &[(T410[1], true)]);
    let error = refused(&machine, &split_request(&machine, &["pcie"], &[]));
    assert!(error.contains("0002:02:00.0 is below root port 0002:00:02.0"), "{error}");
    assert!(error.contains("only root can read it"), "{error}");
    // Nothing of memory is of a device.
    let (dir, machine) = tegra(true);
    hold(dir.path(), &[(T410[1], true)]);
    let error = refused(&machine, &split_request(&machine, &["mem"], &[]));
    assert!(error.contains("PMUs with such a filter count other events"), "{error}");
}

/// Grace selects root ports only: what is below one of them is counted together.
#[test]
fn grace_has_a_counter_of_each_root_port_with_a_held_function() {
    let (dir, machine) = grace();
    let disk = "pci0008:00/0008:00:00.0/0008:01:00.0";
    let card = "pci0018:00/0018:00:00.0/0018:01:00.0";
    hold(dir.path(), &[(disk, true), (card, true)]);
    let plan = planned(&machine, &split_request(&machine, &["pcie"], &[]));
    for (pmu, functions) in
        [("nvidia_pcie_pmu_0", "0008:01:00.0"), ("nvidia_pcie_pmu_1", "0018:01:00.0+0018:01:00.1")]
    {
        let expected: Vec<_> = [
            ("rd_bytes_loc", "0x0"),
            ("rd_bytes_rem", "0x1"),
            ("wr_bytes_loc", "0x2"),
            ("wr_bytes_rem", "0x3"),
        ]
        .iter()
        .zip([0, 2, 4, 6])
        .flat_map(|((event, config), id)| {
            [
                format!("{id} {event} {config},0x3ff,0x0 [] of - leader -"),
                format!("{} {event} {config},0x100,0x0 [{functions}] of {id} leader -", id + 1),
            ]
        })
        .collect();
        assert_eq!(counter_lines(&plan, pmu), expected);
    }
    let noted = notes(&plan);
    assert!(
        noted.contains(
            "nvidia_pcie_pmu_1: its filter is for root ports, so all devices below 0018:00:00.0 are \
             counted together"
        ),
        "{noted}"
    );
    assert!(
        !noted.contains("0008:00:00.0 are counted together") && !noted.contains("turns"),
        "{noted}"
    );
    // A metric is of each part.
    let metrics = vec!["pcie_read_bandwidth".to_owned()];
    let plan_request = PlanRequest { metrics, ..split_request(&machine, &[], &[]) };
    let plan = planned(&machine, &plan_request);
    assert!(plan.metrics.iter().all(|metric| metric.filter == "root_port=0x100"));
    assert_eq!(plan.metrics.len(), 2);
}

#[test]
fn kunpeng_has_a_counter_of_each_held_function() {
    let dir = unpacked("kunpeng-hip09");
    let port = "pci0000:00/0000:00:08.0";
    hold(
        dir.path(),
        &[(&format!("{port}/0000:39:00.0"), true), (&format!("{port}/0000:39:00.1"), true)],
    );
    let machine = discover::machine(dir.path()).unwrap();
    let plan = planned(&machine, &split_request(&machine, &["pcie"], &[]));
    assert_eq!(
        counter_lines(&plan, "hisi_pcie0_core1"),
        [
            "0 tx_cpl_flux 0x1005,0x400,0xffff [] of - leader -",
            "1 tx_cpl_flux 0x1005,0x400,0x39000000 [0000:39:00.0] of 0 leader -",
            "2 tx_cpl_flux 0x1005,0x400,0x39010000 [0000:39:00.1] of 0 leader -",
            "3 rx_mwr_flux 0x104,0x400,0xffff [] of - leader -",
            "4 rx_mwr_flux 0x104,0x400,0x39000000 [0000:39:00.0] of 3 leader -",
            "5 rx_mwr_flux 0x104,0x400,0x39010000 [0000:39:00.1] of 3 leader -",
        ]
    );
    assert!(counter_lines(&plan, "hisi_pcie0_core0").iter().all(|text| text.contains("[] of -")));
    // 6 of its 8 counters.
    assert!(!plan.notes.iter().any(|note| note.contains("of the time")), "{:?}", plan.notes);
}

/// More functions than counters: they are multiplexed, and the plan says so.
#[test]
fn kunpeng_has_too_few_counters_for_many_functions() {
    let port = "pci0000:00/0000:00:00.0";
    let paths: Vec<String> =
        (2..7).map(|device| format!("{port}/0000:01:{device:02x}.0")).collect();
    let functions: Vec<Function<'_>> =
        paths.iter().map(|path| (path.as_str(), NIC, 0x19e5, None)).collect();
    let (dir, machine) = with_devices("kunpeng-hip09", &functions, &[]);
    hold(dir.path(), &paths.iter().map(|path| (path.as_str(), true)).collect::<Vec<_>>());
    let plan = planned(&machine, &split_request(&machine, &["pcie"], &[]));
    assert_eq!(counter_lines(&plan, "hisi_pcie0_core0").len(), 12);
    let noted = plan.notes.iter().any(|note| {
        note.contains("12 events may share 8 counters of hisi_pcie0_core0") && note.contains("67 %")
    });
    assert!(noted, "{:?}", plan.notes);
}

/// Adds a PMU to a tree.
fn pmu(root: &Path, name: &str, files: &[(&str, &str)]) {
    let dir = root.join("sys/bus/event_source/devices").join(name);
    for (file, text) in files {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
}

/// A card's PMU counts a function by its id, with all its queues, if the event can
/// (`HNS3_PMU_FILTER_*`).
#[test]
fn hns3_has_a_counter_of_each_held_function() {
    let dir = unpacked("kunpeng-hip09");
    let port = "pci0000:00/0000:00:08.0";
    hold(
        dir.path(),
        &[(&format!("{port}/0000:39:00.0"), false), (&format!("{port}/0000:39:00.1"), true)],
    );
    for (name, range) in
        [("hns3_pmu_sicl_0", ["0x3900", "0x39ff"]), ("hns3_pmu_sicl_2", ["0xbd00", "0xbdff"])]
    {
        pmu(
            dir.path(),
            name,
            &[
                ("type", "77"),
                ("cpumask", "0"),
                ("bdf_min", range[0]),
                ("bdf_max", range[1]),
                ("events/bw_ssu_rpu_byte_num", "config=0x2"),
                ("events/bw_ssu_egu_byte_num", "config=0x1"),
                ("format/subevent", "config:0-7"),
                ("format/event_type", "config:8-15"),
                ("format/ext_counter_used", "config:16"),
                ("format/port", "config1:0-3"),
                ("format/tc", "config1:4-7"),
                ("format/bdf", "config1:8-23"),
                ("format/queue", "config1:24-39"),
                ("format/intr", "config1:40-51"),
                ("format/global", "config1:52"),
            ],
        );
    }
    let machine = discover::machine(dir.path()).unwrap();
    let events = ["hns3_pmu_sicl/bw_ssu_rpu_byte_num/", "hns3_pmu_sicl/bw_ssu_egu_byte_num/"];
    let plan = planned(&machine, &split_request(&machine, &[], &events));
    assert_eq!(
        counter_lines(&plan, "hns3_pmu_sicl_0"),
        [
            "0 bw_ssu_rpu_byte_num 0x2,0x10000000000000,0x0 [] of - leader -",
            "1 bw_ssu_rpu_byte_num 0x2,0xffff390100,0x0 [0000:39:00.1] of 0 leader -",
            "2 bw_ssu_egu_byte_num 0x1,0x10000000000000,0x0 [] of - leader -",
        ]
    );
    assert!(counter_lines(&plan, "hns3_pmu_sicl_2").iter().all(|text| text.contains("[] of -")));
    let error = refused(&machine, &split_request(&machine, &[], &events[1..]));
    assert!(error.contains("--per device has no effect"), "{error}");
}

/// Events of a kind: its name, their names with their filters, and how these end.
type Kind<'a> = (&'a str, &'a [(&'a str, u32)], [&'a str; 2]);

/// The events of `hns3_pmu.c` whose `HNS3_PMU_FILTER_*` has `HNS3_PMU_FILTER_SUPPORT_FUNC`, and no
/// others.
#[test]
fn hns3_filters_functions_of_the_events_that_can() {
    let catalog = Catalog::load_embedded().unwrap();
    let family = catalog.families.iter().find(|candidate| candidate.family == "hns3_pmu").unwrap();
    let ports = family.ports.as_ref().unwrap();
    let can = |event: &str| {
        ports.events.iter().any(|glob| uncore_trace::catalog::pattern::matches_event(glob, event))
    };
    let bytes_and_packets = [
        ("ssu_egu", 0x07),
        ("ssu_rpu", 0x1f),
        ("ssu_roce", 0x0f),
        ("roce_ssu", 0x0f),
        ("tpu_ssu", 0x1f),
        ("rpu_rcbrx", 0x11),
        ("rcbtx_txsch", 0x11),
        ("wr_fbd", 0x1b),
        ("wr_ebd", 0x11),
        ("rd_fbd", 0x01),
        ("rd_ebd", 0x1b),
        ("rd_pay_m0", 0x01),
        ("rd_pay_m1", 0x01),
        ("wr_pay_m0", 0x01),
        ("wr_pay_m1", 0x01),
    ];
    let packets =
        [("igu_ssu", 0x07), ("rcbtx_tpu", 0x1f), ("nicroh_tx_pre", 0x01), ("nicroh_rx_pre", 0x01)];
    let delays = [
        ("tx_push", 0x01),
        ("tx", 0x01),
        ("ssu_tx_nic", 0x07),
        ("ssu_tx_roce", 0x07),
        ("ssu_rx_nic", 0x07),
        ("ssu_rx_roce", 0x07),
        ("rpu", 0x11),
        ("tpu", 0x1f),
        ("rpe", 0x01),
        ("tpe", 0x0b),
        ("tpe_push", 0x1b),
        ("wr_fbd", 0x1b),
        ("wr_ebd", 0x11),
        ("rd_fbd", 0x01),
        ("rd_ebd", 0x1b),
        ("rd_pay_m0", 0x01),
        ("rd_pay_m1", 0x01),
        ("wr_pay_m0", 0x01),
        ("wr_pay_m1", 0x01),
        ("msix_write", 0x01),
    ];
    let kinds: [Kind<'_>; 4] = [
        ("bw", &bytes_and_packets, ["byte_num", "time"]),
        ("pps", &bytes_and_packets, ["packet_num", "time"]),
        ("pps", &packets, ["packet_num", "time"]),
        ("dly", &delays, ["time", "packet_num"]),
    ];
    for (kind, events, ends) in kinds {
        for (name, modes) in events {
            for end in ends {
                let event = format!("{kind}_{name}_{end}");
                assert_eq!(can(&event), modes & 0x08 != 0, "{event}");
            }
        }
    }
    assert!(!can("pps_intr_msix_nic_intr_num") && !can("pps_msix_nic_time"));
}

/// An IORT with an `SMMUv3` that sees segment 2, its ids plus 0x10000, and counters at page
/// 0x2b442.
fn iort() -> Vec<u8> {
    let mut table = b"IORT".to_vec();
    table.resize(48, 0);
    table[36..40].copy_from_slice(&3_u32.to_le_bytes());
    table[40..44].copy_from_slice(&48_u32.to_le_bytes());
    let mut node = |kind: u8, words: &[u32], maps: u32| {
        let length = 16 + 4 * words.len() as u16;
        table.push(kind);
        table.extend(length.to_le_bytes());
        table.extend([0; 5]);
        table.extend(maps.to_le_bytes());
        table.extend((u32::from(length) - 20 * maps).to_le_bytes());
        for word in words {
            table.extend(word.to_le_bytes());
        }
    };
    node(4, &[0; 11], 0);
    node(2, &[0, 0, 0, 2, 0, 0, /* mapping */ 0, 0xffff, 0x10000, 48, 0], 1);
    node(5, &[0x2b44_2000, 0, 0, 48, 0, 0], 0);
    table
}

/// Sysfs has no `StreamID`s; the firmware's table says how they are made of requester ids.
#[test]
fn an_smmu_has_a_counter_of_each_held_function() {
    let (dir, _) = tegra(true);
    hold(dir.path(), &[(T410[1], true), (T410[2], false)]);
    for name in ["smmuv3_pmcg_2b442", "smmuv3_pmcg_2b462"] {
        pmu(
            dir.path(),
            name,
            &[
                ("type", "88"),
                ("cpumask", "0"),
                ("events/transaction", "event=0x01"),
                ("events/cycles", "event=0x00"),
                ("format/event", "config:0-15"),
                ("format/filter_stream_id", "config1:0-31"),
                ("format/filter_span", "config1:32"),
                ("format/filter_enable", "config1:33"),
            ],
        );
    }
    let machine = discover::machine(dir.path()).unwrap();
    let events = ["smmuv3_pmcg_*/transaction/", "smmuv3_pmcg_*/cycles/"];
    // Without the table, which only root can read.
    let error = refused(&machine, &split_request(&machine, &[], &events));
    assert!(error.contains("--per device has no effect") && error.contains("IORT"), "{error}");
    let tables = dir.path().join("sys/firmware/acpi/tables");
    fs::create_dir_all(&tables).unwrap();
    fs::write(tables.join("IORT"), iort()).unwrap();
    let machine = discover::machine(dir.path()).unwrap();
    let plan = planned(&machine, &split_request(&machine, &[], &events));
    assert_eq!(
        counter_lines(&plan, "smmuv3_pmcg_2b442"),
        [
            "0 transaction 0x1,0x0,0x0 [] of - leader -",
            "1 transaction 0x1,0x200010200,0x0 [0002:02:00.0] of 0 leader -",
            "2 cycles 0x0,0x0,0x0 [] of - leader -",
        ]
    );
    assert!(counter_lines(&plan, "smmuv3_pmcg_2b462").iter().all(|text| text.contains("[] of -")));
}

/// A root port of Yitian has no filter: its counter is that of a function if nothing else is below
/// it.
#[test]
fn yitian_counts_a_function_that_is_alone() {
    let port = "pci0001:00/0001:00:00.0";
    let (disk, card) = (format!("{port}/0001:01:00.0"), format!("{port}/0001:01:00.1"));
    let functions_alone: [Function<'_>; 2] =
        [(port, BRIDGE, 0x1ded, None), (&disk, NVME, 0x1ded, None)];
    let (dir, machine) = with_devices("yitian", &functions_alone, &[]);
    hold(dir.path(), &[(&disk, true)]);
    let plan = planned(&machine, &split_request(&machine, &["pcie"], &[]));
    assert!(
        plan.counters
            .iter()
            .all(|counter| counter.functions.is_empty() && counter.part_of.is_none())
    );
    assert!(!notes(&plan).contains("no filter"), "{}", notes(&plan));
    let three_functions =
        [functions_alone[0], functions_alone[1], (card.as_str(), NIC, 0x1ded, None)];
    let (dir, machine) = with_devices("yitian", &three_functions, &[]);
    hold(dir.path(), &[(&disk, true)]);
    let error = refused(&machine, &split_request(&machine, &["pcie"], &[]));
    assert!(error.contains("no filter for 0001:01:00.0"), "{error}");
}
