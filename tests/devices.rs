//! `--device` and `--per port`: from the name of a device to the PMU and filter that count it, with
//! device trees as in sysfs beside captured PMUs.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::{self, Machine};
use uncore_trace::plan::{Plan, PlanRequest, plan};

use crate::machines::{brief, captured, request, unpacked};

/// A PCI function: its path in `sys/devices`, class, vendor, and the socket, root complex and port
/// in the configuration of a Tegra410 root port.
pub(crate) type Function<'a> = (&'a str, u32, u32, Option<[u8; 3]>);

pub(crate) const BRIDGE: u32 = 0x06_0400;
pub(crate) const NVME: u32 = 0x01_0802;
pub(crate) const NIC: u32 = 0x02_0000;

fn write(path: &Path, text: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn link(path: &Path, to: String) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(to, path).unwrap();
}

/// A captured machine with devices: functions, and (class, name, path in `sys/devices`).
pub(crate) fn with_devices(
    name: &str,
    functions: &[Function<'_>],
    names: &[(&str, &str, &str)],
) -> (tempfile::TempDir, Machine) {
    let dir = unpacked(name);
    for (path, class, vendor, tegra) in functions {
        let device_dir = dir.path().join("sys/devices").join(path);
        write(&device_dir.join("class"), format!("{class:#08x}\n").as_bytes());
        write(&device_dir.join("vendor"), format!("{vendor:#06x}\n").as_bytes());
        write(&device_dir.join("numa_node"), b"-1\n");
        if let Some([socket, complex, port]) = *tegra {
            let mut config = vec![0_u8; 4096];
            config[0x100..0x104].copy_from_slice(&0x0001_0023_u32.to_le_bytes());
            config[0x104..0x108].copy_from_slice(&0x0181_10de_u32.to_le_bytes());
            config[0x108] = 4;
            config[0x10e..0x111].copy_from_slice(&[port, complex, socket]);
            write(&device_dir.join("config"), &config);
        }
        let address = path.rsplit('/').next().unwrap();
        let listed = dir.path().join("sys/bus/pci/devices").join(address);
        link(&listed, format!("../../../devices/{path}"));
    }
    for (class, name, path) in names {
        let listed = dir.path().join("sys/class").join(class).join(name);
        link(&listed, format!("../../devices/{path}"));
    }
    let machine = discover::machine(dir.path()).unwrap();
    (dir, machine)
}

/// Two sockets with a disk and two network functions below root port 8 of each.
pub(crate) fn grace() -> (tempfile::TempDir, Machine) {
    let (port, disk_port) = ("pci0008:00/0008:00:00.0", "pci0018:00/0018:00:00.0");
    with_devices(
        "grace-2s",
        &[
            (port, BRIDGE, 0x10de, None),
            (&format!("{port}/0008:01:00.0"), NVME, 0x144d, None),
            (disk_port, BRIDGE, 0x10de, None),
            (&format!("{disk_port}/0018:01:00.0"), NIC, 0x15b3, None),
            (&format!("{disk_port}/0018:01:00.1"), NIC, 0x15b3, None),
        ],
        &[
            ("block", "nvme0n1", &format!("{port}/0008:01:00.0/nvme/nvme0/nvme0n1")),
            ("net", "eth0", &format!("{disk_port}/0018:01:00.0/net/eth0")),
            ("net", "lo", "virtual/net/lo"),
        ],
    )
}

/// Root complex 4 of socket 0: a port with one disk, and one with two network functions.
pub(crate) fn tegra(readable: bool) -> (tempfile::TempDir, Machine) {
    let (disk_port, network_port) = ("pci0002:00/0002:00:01.0", "pci0002:00/0002:00:02.0");
    let says = |port: u8| readable.then_some([0, 4, port]);
    with_devices(
        "t410-2s",
        &[
            (disk_port, BRIDGE, 0x10de, says(1)),
            (&format!("{disk_port}/0002:01:00.0"), NVME, 0x144d, None),
            (network_port, BRIDGE, 0x10de, says(2)),
            (&format!("{network_port}/0002:02:00.0"), NIC, 0x15b3, None),
            (&format!("{network_port}/0002:02:00.1"), NIC, 0x15b3, None),
        ],
        &[
            ("block", "nvme0n1", &format!("{disk_port}/0002:01:00.0/nvme/nvme0/nvme0n1")),
            ("net", "eth0", &format!("{network_port}/0002:02:00.0/net/eth0")),
            ("net", "eth1", &format!("{network_port}/0002:02:00.1/net/eth1")),
        ],
    )
}

fn of_devices(devices: &[&str], groups: &[&str]) -> PlanRequest {
    let devices = devices.iter().map(|&device| device.to_owned()).collect();
    PlanRequest { devices, ..request(groups, &[]) }
}

pub(crate) fn planned(machine: &Machine, request: &PlanRequest) -> Plan {
    plan(machine, &Catalog::load_embedded().unwrap(), request).unwrap()
}

pub(crate) fn refused(machine: &Machine, request: &PlanRequest) -> String {
    let error = plan(machine, &Catalog::load_embedded().unwrap(), request).unwrap_err();
    let error = format!("{error:#}");
    assert!(!error.contains('\n'), "{error}");
    error
}

/// PMU, event and filter of each counter.
fn counters(plan: &Plan) -> Vec<String> {
    let counter_text =
        |c: &uncore_trace::plan::Counter| format!("{}/{},{}/", c.pmu, c.event, c.filter);
    plan.counters.iter().map(counter_text).collect()
}

/// The bit of a Kunpeng's root port in `port` is not known, so a device is selected by its
/// requester id, on the PMU whose `bdf_min` and `bdf_max` include its root port.
#[test]
fn kunpeng_picks_a_device_by_its_requester_id() {
    let machine = captured("kunpeng-hip09");
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &["pcie"]));
    assert_eq!(
        counters(&plan),
        ["tx_cpl_flux", "rx_mwr_flux"]
            .map(|event| format!("hisi_pcie0_core0/{event},len_mode=0x1,bdf=0x100/"))
    );
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    // Each counter has its own filter: two devices below one port are two counters, and there is no
    // note about other devices.
    let plan = planned(&machine, &of_devices(&["eth0", "eth1"], &["pcie"]));
    assert_eq!(plan.counters.len(), 4);
    assert!(plan.counters.iter().all(|c| c.pmu == "hisi_pcie0_core1"), "{:?}", plan.counters);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let all = PlanRequest { per_port: true, ..request(&["pcie"], &[]) };
    let plan = planned(&machine, &all);
    assert!(plan.counters.iter().all(|c| c.filter.contains("port=0xffff")), "{:?}", plan.counters);
    assert!(plan.notes.iter().any(|note| note.contains("counted together")), "{:?}", plan.notes);
}

#[test]
fn grace_finds_the_root_port_by_the_domain() {
    let (_dir, machine) = grace();
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    let filter = "root_port=0x100";
    assert_eq!(
        counters(&plan),
        ["rd_bytes_loc", "rd_bytes_rem", "wr_bytes_loc", "wr_bytes_rem"]
            .map(|event| format!("nvidia_pcie_pmu_0/{event},{filter}/"))
    );
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let plan = planned(&machine, &of_devices(&["0018:01:00.0"], &["pcie"]));
    assert!(plan.counters.iter().all(|c| c.pmu == "nvidia_pcie_pmu_1" && c.filter == filter));
    assert_eq!(
        plan.notes,
        ["nvidia_pcie_pmu_1: the count for 0018:01:00.0 includes the traffic of 0018:01:00.1, \
          below the same root port"]
    );
    // Two devices are two counters; other groups are not filtered.
    let plan = planned(&machine, &of_devices(&["nvme0n1", "eth0"], &["pcie", "mem"]));
    assert_eq!(plan.counters.iter().filter(|c| c.subsystem == "pcie").count(), 8);
    assert_eq!(
        plan.counters.iter().filter(|c| c.subsystem == "mem").count(),
        planned(&machine, &request(&["mem"], &[])).counters.len()
    );
}

#[test]
fn typed_events_are_narrowed_unless_they_name_a_port() {
    let (_dir, machine) = grace();
    let events = ["nvidia_pcie_pmu/rd_bytes_loc/", "nvidia_pcie_pmu_0/wr_bytes_loc,root_port=0x3/"];
    let plan_request = PlanRequest { devices: vec!["eth0".to_owned()], ..request(&[], &events) };
    assert_eq!(
        counters(&planned(&machine, &plan_request)),
        [
            "nvidia_pcie_pmu_1/rd_bytes_loc,root_port=0x100/",
            "nvidia_pcie_pmu_0/wr_bytes_loc,root_port=0x3/"
        ]
    );
    let raw = "nvidia_pcie_pmu_0/event=0x0,config1=0x1/";
    let plan_request = PlanRequest { per_port: true, ..request(&["pcie"], &[raw]) };
    assert!(
        counters(&planned(&machine, &plan_request))
            .contains(&"nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x1/".to_owned())
    );
    let group = "{nvidia_pcie_pmu_0/rd_bytes_loc/,nvidia_pcie_pmu_0/wr_bytes_loc/}";
    let plan_request =
        PlanRequest { devices: vec!["nvme0n1".to_owned()], ..request(&[], &[group]) };
    let plan = planned(&machine, &plan_request);
    assert!(plan.counters.iter().all(|c| c.filter == "root_port=0x100"));
    assert_eq!(plan.counters[1].leader, Some(0));
}

#[test]
fn tegra_finds_the_root_port_by_its_configuration_space() {
    let (_dir, machine) = tegra(true);
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    nvidia_pcie_pmu_0_rc_4 rd_bytes [src_rp_mask=0x2,dst_loc_cmem=0x1,dst_loc_gmem=0x1,dst_loc_pcie_p2p=0x1,dst_loc_pcie_cxl=0x1,dst_rem=0x1] bytesx1 0x0,0x2,0x1f cpu 0
    nvidia_pcie_pmu_0_rc_4 wr_bytes [src_rp_mask=0x2,dst_loc_cmem=0x1,dst_loc_gmem=0x1,dst_loc_pcie_p2p=0x1,dst_loc_pcie_cxl=0x1,dst_rem=0x1] bytesx1 0x1,0x2,0x1f cpu 0
    nvidia_pcie_tgt_pmu_0_rc_4 rd_bytes [dst_rp_mask=0x2] bytesx1 0x10,0x0,0x0 cpu 0
    nvidia_pcie_tgt_pmu_0_rc_4 wr_bytes [dst_rp_mask=0x2] bytesx1 0x11,0x0,0x0 cpu 0
    ");
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    // One of two functions below a port: by its requester id, which is valid for the root complex.
    let plan = planned(&machine, &of_devices(&["eth1"], &["pcie"]));
    let counters_of = counters(&plan);
    assert!(
        counters_of[0].contains("/rd_bytes,src_bdf=0x201,src_bdf_en=0x1,dst_"),
        "{counters_of:?}"
    );
    assert_eq!(counters_of[2], "nvidia_pcie_tgt_pmu_0_rc_4/rd_bytes,dst_rp_mask=0x4/");
    let warns = |words: &str| plan.notes.iter().any(|note| note.contains(words));
    assert!(warns("counters of other traffic take turns with it"), "{:?}", plan.notes);
    assert!(warns("nvidia_pcie_tgt_pmu_0_rc_4: the count for 0002:02:00.1 includes the traffic"));
    for devices in [["eth0", "eth1"], ["nvme0n1", "eth1"]] {
        let plan = planned(&machine, &of_devices(&devices, &[]));
        let pcie_counters =
            plan.counters.iter().filter(|counter| counter.pmu == "nvidia_pcie_pmu_0_rc_4");
        let groups: Vec<_> =
            pcie_counters.map(|counter| (counter.leader, counter.exclusive)).collect();
        assert_eq!(groups, [(None, true), (None, true), (Some(0), false), (Some(1), false)]);
    }
    // The root port itself has the traffic of both.
    let plan = planned(&machine, &of_devices(&["0002:00:02.0"], &[]));
    assert!(counters(&plan)[0].contains("src_rp_mask=0x4"), "{:?}", counters(&plan));
    let (_dir, machine) = tegra(false);
    let error = refused(&machine, &of_devices(&["nvme0n1"], &[]));
    assert!(error.contains("only root can read it"), "{error}");
}

#[test]
fn yitian_has_a_pmu_for_each_root_port() {
    let port = "pci0001:00/0001:00:00.0";
    let (dir, machine) = with_devices(
        "yitian",
        &[(port, BRIDGE, 0x1ded, None), (&format!("{port}/0001:01:00.0"), NVME, 0x1ded, None)],
        &[("block", "nvme0n1", &format!("{port}/0001:01:00.0/nvme/nvme0/nvme0n1"))],
    );
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    assert!(
        plan.counters.len() == 2 && plan.counters.iter().all(|c| c.pmu == "dwc_rootport_10000")
    );
    let pmus = dir.path().join("sys/bus/event_source/devices");
    fs::rename(pmus.join("dwc_rootport_10000"), pmus.join("pcie_bdf_1000000")).unwrap();
    let machine = discover::machine(dir.path()).unwrap();
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    assert!(plan.counters.len() == 2 && plan.counters.iter().all(|c| c.pmu == "pcie_bdf_1000000"));
}

#[test]
fn intel_tells_the_die_of_a_stack() {
    let port = "pci0000:e2/0000:e2:02.0";
    let (dir, without) = with_devices(
        "icelake-2s",
        &[(port, BRIDGE, 0x8086, None), (&format!("{port}/0000:e3:00.0"), NVME, 0x144d, None)],
        &[("block", "nvme0n1", &format!("{port}/0000:e3:00.0/nvme/nvme0/nvme0n1"))],
    );
    let error = refused(&without, &of_devices(&["nvme0n1"], &[]));
    assert!(error.contains("die* files"), "{error}");
    let pmu = dir.path().join("sys/bus/event_source/devices/uncore_iio_4");
    fs::write(pmu.join("die0"), "0000:64\n").unwrap();
    fs::write(pmu.join("die1"), "0000:e2\n").unwrap();
    let machine = discover::machine(dir.path()).unwrap();
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    uncore_iio_4 unc_iio_data_req_of_cpu.mem_read [ch_mask=0xff,fc_mask=0x7] bytesx4 0x70ff000000483,0x0,0x0 cpu 2
    uncore_iio_4 unc_iio_data_req_of_cpu.mem_write [ch_mask=0xff,fc_mask=0x7] bytesx4 0x70ff000000183,0x0,0x0 cpu 2
    ");
}

#[test]
fn counters_are_split_by_root_port() {
    let split = |machine: &Machine| {
        let plan_request = PlanRequest { per_port: true, ..request(&["pcie"], &[]) };
        planned(machine, &plan_request)
    };
    // Without known devices: all ten.
    let bare = captured("grace-2s");
    let plan = split(&bare);
    assert_eq!(plan.counters.len(), 2 * 4 * 10);
    assert!(plan.counters.iter().any(|c| c.filter == "root_port=0x200"));
    let (_dir, grace) = grace();
    let filters: Vec<_> = split(&grace).counters.into_iter().map(|c| c.filter).collect();
    assert_eq!(filters, ["root_port=0x100"; 8]);
    let (_dir, tegra) = tegra(true);
    let plan = split(&tegra);
    let port_filters = |pmu: &str| {
        let mine = plan.counters.iter().filter(|c| c.pmu == pmu && c.event == "rd_bytes");
        mine.map(|c| c.filter.split(',').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(port_filters("nvidia_pcie_pmu_0_rc_4"), ["src_rp_mask=0x2", "src_rp_mask=0x4"]);
    assert_eq!(port_filters("nvidia_pcie_tgt_pmu_0_rc_4"), ["dst_rp_mask=0x2", "dst_rp_mask=0x4"]);
    assert_eq!(port_filters("nvidia_pcie_pmu_1_rc_9").len(), 8);
    // Two of sixteen at a time.
    let intel = split(&captured("icelake-2s"));
    assert_eq!(intel.counters.len(), 6 * 2 * 8 * 2);
    // Skylake-SP has four ports a stack; the other bits are not of devices.
    let four = split(&captured("skylake-sp-2s"));
    assert_eq!(four.counters.len(), 4 * 2 * 4 * 2);
    assert!(intel.notes.iter().any(|note| note.contains("about 12 % of the time")));
    // An instance is a port.
    assert_eq!(split(&captured("yitian")).counters.len(), 4);
    let group = "{nvidia_pcie_pmu_0/rd_bytes_loc/,nvidia_pcie_pmu_0/wr_bytes_loc/}";
    let plan_request = PlanRequest { per_port: true, ..request(&[], &[group]) };
    assert!(refused(&bare, &plan_request).contains("leave out the braces"));
}

/// Devices on both dies of a stack are both counted, each once.
#[test]
fn metrics_are_of_the_dies_of_all_devices() {
    let ports = ["pci0000:64/0000:64:02.0", "pci0000:e2/0000:e2:02.0"];
    let disks = [format!("{}/0000:65:00.0", ports[0]), format!("{}/0000:e3:00.0", ports[1])];
    let (dir, _) = with_devices(
        "icelake-2s",
        &[
            (ports[0], BRIDGE, 0x8086, None),
            (&disks[0], NVME, 0x144d, None),
            (ports[1], BRIDGE, 0x8086, None),
            (&disks[1], NVME, 0x144d, None),
        ],
        &[],
    );
    let pmu = dir.path().join("sys/bus/event_source/devices/uncore_iio_4");
    fs::write(pmu.join("die0"), "0000:64\n").unwrap();
    fs::write(pmu.join("die1"), "0000:e2\n").unwrap();
    let machine = discover::machine(dir.path()).unwrap();
    let metrics = vec!["pcie_read_bandwidth".to_owned()];
    let cpus = |devices: &[&str]| -> Vec<_> {
        let plan_request = PlanRequest { metrics: metrics.clone(), ..of_devices(devices, &[]) };
        planned(&machine, &plan_request).metrics.iter().map(|m| (m.pmu.clone(), m.cpu)).collect()
    };
    let stack_4_on = |cpu| ("uncore_iio_4".to_owned(), cpu);
    assert_eq!(cpus(&["0000:e3:00.0"]), [stack_4_on(2)]);
    assert_eq!(cpus(&["0000:65:00.0", "0000:e3:00.0"]), [stack_4_on(0), stack_4_on(2)]);
}

/// The events of a metric are filtered too, and the number of ports is one.
#[test]
fn metrics_are_of_one_device_or_of_each_port() {
    let (_dir, machine) = grace();
    let metrics = vec!["pcie_read_utilization".to_owned(), "pcie_read_bandwidth".to_owned()];
    let plan_request = PlanRequest { metrics: metrics.clone(), ..of_devices(&["nvme0n1"], &[]) };
    let plan = planned(&machine, &plan_request);
    let metric_lines: Vec<_> = plan
        .metrics
        .iter()
        .map(|m| (m.name.as_str(), m.pmu.as_str(), m.filter.as_str(), m.constants.get("ports")))
        .collect();
    let filter = "root_port=0x100";
    assert_eq!(
        metric_lines,
        [
            ("pcie_read_utilization", "nvidia_pcie_pmu_0", filter, Some(&1.0)),
            ("pcie_read_bandwidth", "nvidia_pcie_pmu_0", filter, None)
        ]
    );
    assert!(plan.counters.iter().all(|c| !c.event.starts_with("wr_")), "{}", plan.render_plan());
    let plan_request =
        PlanRequest { metrics: vec!["c2c_bandwidth".to_owned()], ..of_devices(&["lo"], &[]) };
    assert!(refused(&machine, &plan_request).contains("not on PCI"));
    let bare = captured("grace-2s");
    let plan_request = PlanRequest { per_port: true, metrics, ..request(&[], &[]) };
    let plan = planned(&bare, &plan_request);
    let instance_count = |name: &str| plan.metrics.iter().filter(|m| m.name == name).count();
    assert_eq!(
        (instance_count("pcie_read_bandwidth"), instance_count("pcie_read_utilization")),
        (20, 20)
    );
}

/// Names come from the tree and can have any content: they must not reach a terminal unescaped.
#[test]
fn hostile_names_are_shown_escaped() {
    let function = "pci0000:00/0000:00:01.0";
    let evil = "evil\u{1b}[2J";
    let (_dir, machine) = with_devices(
        "bare",
        &[(function, NIC, 1, None)],
        &[("net", evil, &format!("{function}/net/x")), ("net", "evil", "virtual/net/evil")],
    );
    let text = render_list(
        &machine,
        &Catalog::load_embedded().unwrap(),
        What::Devices,
        ListForm::Text(View::default()),
    )
    .unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("evil\\u{1b}[2J"), "{text}");
    for device in [evil, "evil", "evil\u{1b}["] {
        let error = refused(&machine, &of_devices(&[device], &[]));
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}

#[test]
fn errors_about_devices_name_those_that_exist() {
    let (_dir, machine) = grace();
    let (_other, none) = with_devices("bare", &[("pci0000:00/0000:00:01.0", NIC, 1, None)], &[]);
    let mut errors = Vec::new();
    for device in ["nvme0n2", "lo", "0008:02:00.0", "0008:0"] {
        errors.push(refused(&machine, &of_devices(&[device], &["pcie"])));
    }
    errors.push(refused(&machine, &of_devices(&["nvme0n1"], &["mem"])));
    errors.push(refused(&machine, &PlanRequest { per_port: true, ..request(&["host"], &[]) }));
    errors.push(refused(&none, &of_devices(&["00:01.0"], &[])));
    insta::assert_snapshot!(errors.join("\n"), @r"
    there is no device nvme0n2 (did you mean nvme0n1?); `uncore-trace list devices` shows those of this machine
    lo is not on PCI, so no root port is above it; `uncore-trace list devices` shows those of this machine
    there is no PCI device 0008:02:00.0; `uncore-trace list devices` shows those of this machine
    there is no device 0008:0; `uncore-trace list devices` shows those of this machine
    --device has no effect: no selected counter is of PCIe root ports that can be told apart; the PCIe PMUs here are nvidia_pcie_pmu_0, nvidia_pcie_pmu_1
    --per port has no effect: no selected counter is of PCIe root ports that can be told apart; the PCIe PMUs here are nvidia_pcie_pmu_0, nvidia_pcie_pmu_1
    00:01.0 (0000:00:01.0) is on a root bus, below no root port, and no PMU of this machine tells root ports apart: uncore-trace doctor says whether a driver is missing
    ");
}

#[test]
fn devices_are_listed_with_the_pmus_that_count_them() {
    let catalog = Catalog::load_embedded().unwrap();
    let device_list = |machine: &Machine| {
        render_list(machine, &catalog, What::Devices, ListForm::Text(View::default())).unwrap()
    };
    let ((_a, grace), (_b, tegra)) = (grace(), tegra(true));
    insta::assert_snapshot!("devices-grace-2s", device_list(&grace));
    insta::assert_snapshot!("devices-t410-2s", device_list(&tegra));
    let json: serde_json::Value = serde_json::from_str(
        &render_list(&grace, &catalog, What::Devices, ListForm::Json).unwrap(),
    )
    .unwrap();
    assert_eq!(json["devices"][0]["counted_by"][0]["part"], "root_port=0x100");
}

/// The stacks of Sapphire Rapids have no die* files: it is not known which of them counts a device.
#[test]
fn stacks_without_die_files_share_the_devices_of_their_socket() {
    let machine = captured("sapphire-rapids-2s");
    let plan = planned(&machine, &request(&["pcie"], &[]));
    for counter in &plan.counters {
        let io = counter.io.as_ref().unwrap();
        let expected: &[&str] =
            if counter.socket == Some(0) { &["nvme0n1"] } else { &["ens0", "ens1"] };
        assert_eq!(io.devices, expected, "{} on CPU {}", counter.pmu, counter.cpu);
        assert!(io.is_shared, "{}", counter.pmu);
    }
    let noted = |plan: &Plan, words: &str| plan.notes.iter().any(|note| note.contains(words));
    assert!(noted(&plan, "it is not known which of these counters counts which device"));
    let error = refused(&machine, &of_devices(&["nvme0n1"], &[]));
    assert!(
        error.contains("die* files") && error.contains("only for Skylake-SP to Ice Lake-SP"),
        "{error}"
    );
    // A stack with die* files has its own devices, on each die those of that die.
    let machine = captured("skylake-sp-2s");
    let plan = planned(&machine, &request(&["pcie"], &[]));
    let devices = |pmu: &str, cpu: u32| {
        let counter = plan.counters.iter().find(|c| c.pmu == pmu && c.cpu == cpu).unwrap();
        let io = counter.io.as_ref().unwrap();
        assert!(!io.is_shared, "{pmu}");
        io.devices.clone()
    };
    assert_eq!(devices("uncore_iio_1", 0), ["nvme0n1", "nvme1n1"]);
    assert_eq!(devices("uncore_iio_1", 2), [""; 0]);
    assert_eq!(devices("uncore_iio_3", 2), ["ens1f0"]);
    assert!(plan.counters.iter().all(|c| c.filter == "ch_mask=0xf,fc_mask=0x7"));
    assert!(noted(&plan, "no disk or network interface is known below"), "{:?}", plan.notes);
    // Two disks are below ports of one stack, so neither can be counted alone.
    let plan = planned(&machine, &of_devices(&["nvme0n1"], &[]));
    assert!(noted(&plan, "0000:19:00.0, below the same part of the PMU"), "{:?}", plan.notes);
}

/// A tree has the files of its devices; who has them open is known on a running machine only.
#[test]
fn device_files_are_listed_with_their_functions() {
    let (dir, _) = grace();
    let function = fs::read_dir(dir.path().join("sys/bus/pci/devices")).unwrap().flatten();
    let mut addresses: Vec<String> =
        function.map(|driver_link| driver_link.file_name().into_string().unwrap()).collect();
    addresses.sort_unstable();
    let disk = addresses.iter().find(|file_name| file_name.ends_with("01:00.0")).unwrap();
    let link_of = fs::read_link(dir.path().join("sys/bus/pci/devices").join(disk)).unwrap();
    let place = link_of.to_str().unwrap().trim_start_matches("../").to_owned();
    write(&dir.path().join("proc/devices"), b"Character devices:\n240 vfio-dev\n");
    let node = format!("{place}/vfio-dev/vfio0");
    write(
        &dir.path().join("sys").join(&node).join("uevent"),
        b"DEVNAME=vfio/devices/vfio\x1b[2J0\n",
    );
    link(&dir.path().join("sys/dev/char/240:0"), format!("../../{node}"));
    let machine = discover::machine(dir.path()).unwrap();
    let catalog = Catalog::load_embedded().unwrap();
    let device_list =
        render_list(&machine, &catalog, What::Devices, ListForm::Text(View::default())).unwrap();
    let line = device_list.lines().find(|line| line.contains(disk)).unwrap();
    assert!(
        line.contains("/dev/vfio/devices/vfio\\u{1b}[2J0") && line.ends_with('?'),
        "{device_list}"
    );
    assert!(device_list.contains("run as root on the machine itself"), "{device_list}");
    let json: serde_json::Value = serde_json::from_str(
        &render_list(&machine, &catalog, What::Devices, ListForm::Json).unwrap(),
    )
    .unwrap();
    let rows = json["devices"].as_array().unwrap();
    let row = rows.iter().find(|row| row["address"] == **disk).unwrap();
    assert_eq!(row["files"][0]["kind"], "vfio", "{row}");
    assert!(row["files"][0]["holders"].is_null(), "{row}");
}
