use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::discover;
use crate::discover::cpus::{CpuCache, CpuLocation};
use crate::discover::resctrl::fake::FakeResctrl;
use crate::discover::{CpuList, Cpus};

/// A machine with this number of sockets, one CPU and one cache with the socket's number each.
pub(crate) fn machine(root: &Path, sockets: u32) -> Machine {
    let mut machine = discover::captured_machine("vm-no-uncore");
    machine.root = root.to_owned();
    machine.cgroups.v2 = Some("/sys/fs/cgroup".into());
    let mut places = BTreeMap::new();
    for cpu in 0..sockets {
        let (package, node, cache) =
            (Some(cpu as i16), Some(cpu), Some(CpuCache { level: 3, first_cpu: cpu }));
        places.insert(cpu, CpuLocation { package, node, cache, ..CpuLocation::default() });
        let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index3"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("level"), "3\n").unwrap();
        std::fs::write(dir.join("id"), format!("{cpu}\n")).unwrap();
    }
    machine.cpus = Cpus::new((0..sockets).collect(), CpuList::default(), places);
    machine
}

/// Cgroup, socket and bytes.
fn flat(measured: &MonitorReading) -> Vec<(Option<&str>, i16, u64)> {
    let its = measured.bytes.iter();
    its.map(|its| (its.cgroup.as_deref(), its.socket, its.bytes)).collect()
}

/// The default group, and the control group `web` of /pods/a with a monitoring group of /pods/a/x.
pub(crate) fn fill(fake: &FakeResctrl) {
    fake.add_cgroup("/pods", &[]);
    fake.add_cgroup("/pods/a", &[]);
    fake.add_cgroup("/pods/a/x", &[1, 2]);
    fake.add_cgroup("/pods/a/y", &[3]);
    fake.add_cgroup("/pods/b", &[4]);
    fake.add_group("", &[4], "0-1");
    fake.add_group("web", &[1, 2, 3], "");
    fake.add_group("web/mon_groups/x", &[1, 2], "");
}

fn set(fake: &FakeResctrl, group: &str, domain: u32, total: &str, local: &str) {
    fake.write_count(group, domain, "mbm_total_bytes", total);
    fake.write_count(group, domain, "mbm_local_bytes", local);
}

#[test]
fn bytes_are_those_since_the_last_reading() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    for (group, total) in [("", "1000"), ("web", "500"), ("web/mon_groups/x", "100")] {
        fake.write_count(group, 0, "mbm_total_bytes", total);
    }
    let mut reader = MonitorReader::new(&machine(dir.path(), 1)).unwrap();
    assert!(reader.read_groups(1).is_none());
    for (group, total) in [("", "1010"), ("web", "600"), ("web/mon_groups/x", "170")] {
        fake.write_count(group, 0, "mbm_total_bytes", total);
    }
    let measured = reader.read_groups(101).unwrap();
    assert_eq!(measured.span_ns, 100);
    let right = [(None, 0, 110), (Some("/pods/a"), 0, 30), (Some("/pods/a/x"), 0, 70)];
    assert_eq!(flat(&measured), right);
}

#[test]
fn what_is_no_count_is_left_out_until_there_are_two() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    let total = |group: &str, text: &str| fake.write_count(group, 0, "mbm_total_bytes", text);
    let mut reader = MonitorReader::new(&machine(dir.path(), 1)).unwrap();
    let mut read = |texts: [&str; 3]| {
        for (group, text) in ["", "web", "web/mon_groups/x"].into_iter().zip(texts) {
            total(group, text);
        }
        reader
            .read_groups(1)
            .map(|its| its.bytes.into_iter().map(|its| its.bytes).collect::<Vec<_>>())
    };
    assert_eq!(read(["0", "0", "0"]), None);
    // All, /pods/a without x, x.
    assert_eq!(read(["10", "50", "20"]), Some(vec![60, 30, 20]));
    // Without x, the rest of web is not known; all is.
    assert_eq!(read(["20", "100", "Unavailable"]), Some(vec![60]));
    assert_eq!(read(["30", "150", "70"]), Some(vec![60]));
    assert_eq!(read(["Unassigned", "200", "90"]), Some(vec![30, 20]));
    // A group whose count begins anew.
    assert_eq!(read(["0", "5", "95"]), Some(vec![5]));
    assert_eq!(read(["1", "15", "100"]), Some(vec![11, 5, 5]));
}

#[test]
fn with_two_sockets_the_rest_goes_to_the_other_memory() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    std::fs::remove_dir_all(fake.mount_dir().join("web/mon_groups")).unwrap();
    let mut reader = MonitorReader::new(&machine(dir.path(), 2)).unwrap();
    for domain in 0..2 {
        set(&fake, "", domain, "0", "0");
        set(&fake, "web", domain, "0", "0");
    }
    assert!(reader.read_groups(1).is_none());
    set(&fake, "web", 0, "100", "70");
    set(&fake, "web", 1, "50", "45");
    let measured = reader.read_groups(2).unwrap();
    let right = [(None, 0, 75), (Some("/pods/a"), 0, 75), (None, 1, 75), (Some("/pods/a"), 1, 75)];
    assert_eq!(flat(&measured), right);
    set(&fake, "web", 0, "110", "80");
    let measured = reader.read_groups(3).unwrap();
    assert_eq!(flat(&measured)[1], (Some("/pods/a"), 0, 10));
    assert_eq!(flat(&measured)[3], (Some("/pods/a"), 1, 0));
    assert!(MonitorReader::new(&machine(dir.path(), 3)).is_err());
}

/// Arm MPAM: `info/L3_MON/mon_features` has no `mbm_local_bytes`.
#[test]
fn totals_alone_are_of_the_memory_of_all_sockets() {
    for sockets in [2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeResctrl::new(dir.path());
        fill(&fake);
        std::fs::remove_dir_all(fake.mount_dir().join("web/mon_groups")).unwrap();
        fake.write_file("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\n");
        let mut reader = MonitorReader::new(&machine(dir.path(), sockets)).unwrap();
        let mut read = |now: u64, web: [&str; 2]| {
            for domain in 0..sockets {
                let total = web.get(domain as usize).unwrap_or(&"0");
                fake.write_count("web", domain, "mbm_total_bytes", total);
                fake.write_count("", domain, "mbm_total_bytes", "5");
            }
            reader.read_groups(now)
        };
        assert!(read(1, ["0", "0"]).is_none());
        let measured = read(2, ["100", "50"]).unwrap();
        let right = [(None, ALL_SOCKETS, 150), (Some("/pods/a"), ALL_SOCKETS, 150)];
        assert_eq!(flat(&measured), right);
    }
}

#[test]
fn a_group_of_two_tenants_or_of_cpus_is_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    let mut reader = MonitorReader::new(&machine(dir.path(), 1)).unwrap();
    fake.add_group("web", &[1, 3], "");
    fake.add_group("web/mon_groups/x", &[1, 2], "0");
    for now in 0..3 {
        assert!(reader.read_groups(now).is_none());
    }
    // Seen at the next look.
    fake.add_group("web", &[1, 2, 3], "");
    assert!(reader.read_groups(LOOK_NS - 1).is_none());
    for (group, total) in [("", "1"), ("web", "1")] {
        fake.write_count(group, 0, "mbm_total_bytes", total);
    }
    assert!(reader.read_groups(LOOK_NS).is_none());
    assert_eq!(
        flat(&reader.read_groups(LOOK_NS + 1).unwrap()),
        [(None, 0, 0), (Some("/pods/a"), 0, 0)]
    );
}

#[test]
fn what_is_missing_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    let mut reader = MonitorReader::new(&machine(dir.path(), 1)).unwrap();
    let mut read = |now: u64, texts: [&str; 3]| {
        for (group, text) in ["", "web", "web/mon_groups/x"].into_iter().zip(texts) {
            fake.write_count(group, 0, "mbm_total_bytes", text);
        }
        let lost = reader.read_groups(now).map(|its| its.lost).unwrap_or_default();
        lost.into_iter()
            .map(|its| (its.time_ns, its.span_ns, its.count, its.detail))
            .collect::<Vec<_>>()
    };
    // Its inode is kept: resctrl numbers groups in turn, but other file systems reuse a number.
    let remove = |to: &str| {
        std::fs::rename(fake.mount_dir().join("web/mon_groups/x"), dir.path().join(to)).unwrap();
    };
    let none: Vec<(u64, u64, u64, String)> = Vec::new();
    assert_eq!(read(10, ["0", "0", "0"]), none);
    assert_eq!(read(20, ["1", "1", "1"]), none);
    assert_eq!(read(30, ["2", "2", "Unavailable"]), none);
    assert_eq!(read(40, ["3", "3", "Unavailable"]), none);
    // Has no begin.
    assert_eq!(read(50, ["4", "4", "2"]), none);
    let group = "group web/mon_groups/x: mbm_total_bytes of domain 0";
    let right = (60, 40, 3, format!("{group} is Unavailable"));
    assert_eq!(read(60, ["5", "5", "3"]), [right]);
    assert_eq!(read(70, ["5", "5", "2"]), none);
    assert_eq!(read(80, ["5", "5", "2"]), [(80, 20, 1, format!("{group} decreases"))]);
    assert_eq!(read(90, ["Unassigned", "5", "2"]), none);
    remove("gone-1");
    assert_eq!(read(100, ["Error", "5", ""]), none);
    remove("gone-2");
    fake.add_group("mon_groups/y", &[4], "");
    fake.write_count("mon_groups/y", 0, "mbm_total_bytes", "0");
    let lost = reader.read_groups(LOOK_NS + 10).unwrap().lost;
    let lost: Vec<_> = lost.into_iter().map(|its| its.detail).collect();
    let removed = "group web/mon_groups/x: the group was removed".to_owned();
    assert_eq!(lost, [format!("{group} cannot be read"), removed]);
    let lost = reader.end_reading(LOOK_NS + 20).unwrap().lost;
    let default = "the default group: mbm_total_bytes of domain 0 is Unassigned";
    let right = [(LOOK_NS + 20, 3, default)];
    let its = lost.iter().map(|its| (its.time_ns, its.count, &*its.detail));
    assert_eq!(its.collect::<Vec<_>>(), right);
}

#[test]
fn a_group_of_this_recorder_is_read_from_its_second_reading_on() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeResctrl::new(dir.path());
    fill(&fake);
    fake.write_file("info/L3_MON/num_rmids", "16\n");
    let mut reader = MonitorReader::new(&machine(dir.path(), 1)).unwrap();
    reader.make_groups(4, Box::new(fake.clone()));
    let set = |bytes: u64| {
        for group in fake.group_names() {
            fake.write_count(&group, 0, "mbm_total_bytes", &bytes.to_string());
        }
    };
    set(0);
    assert!(reader.read_groups(0).is_none());
    set(10);
    // /pods/a is measured by `web`, and x has a group of somebody else.
    reader.rank_tenants(["/pods/b", "/pods/a", "/pods/a/x"].map(Arc::from).into());
    let of_b = |measured: Option<MonitorReading>| {
        let MonitorReading { bytes, lost, .. } = measured.unwrap();
        assert!(lost.is_empty(), "{lost:?}");
        bytes.iter().find(|its| its.cgroup.as_deref() == Some("/pods/b")).map(|its| its.bytes)
    };
    assert_eq!(of_b(reader.read_groups(LOOK_NS)), None);
    set(1000);
    assert_eq!(of_b(reader.read_groups(LOOK_NS + 10)), None);
    set(1030);
    assert_eq!(of_b(reader.read_groups(LOOK_NS + 20)), Some(30));
    assert_eq!(fake.group_names().len(), 4);
    assert!(reader.end_reading(LOOK_NS + 30).is_none());
    assert_eq!(fake.group_names(), ["", "web", "web/mon_groups/x"]);
}
