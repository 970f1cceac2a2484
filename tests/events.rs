//! Groups of events in braces, filters that several events share, and an event that is given twice.

use crate::machines::{brief, planned};

#[test]
fn requesters_of_a_root_complex_take_turns() {
    let pmu = "nvidia_pcie_pmu_0_rc_4";
    let device = |bdf: &str| format!("{pmu}/rd_bytes,src_bdf={bdf},src_bdf_en=1/");
    let (first, other_device, ports) =
        (device("0x100"), device("0x200"), format!("{pmu}/wr_bytes/"));
    for second in [&other_device, &ports] {
        let plan = planned("all-drivers-acpi", &[], &[&first, second]);
        let exclusive_groups: Vec<_> =
            plan.counters.iter().map(|counter| (counter.leader, counter.exclusive)).collect();
        assert_eq!(exclusive_groups, [(None, true), (None, true)]);
        let says_turns = |note: &String| {
            note.contains("one register for src_bdf") && note.contains("about 50 % of the time")
        };
        assert!(plan.notes.iter().any(says_turns), "{:?}", plan.notes);
    }
    // The clock has no requester.
    let cycles = format!("{pmu}/cycles/");
    let plan = planned("all-drivers-acpi", &[], &[&first, &cycles]);
    assert!(plan.counters.len() == 2 && plan.counters.iter().all(|counter| !counter.exclusive));
    let plan = planned("all-drivers-acpi", &[], &[&first, &cycles, &ports]);
    let groups: Vec<_> =
        plan.counters.iter().map(|counter| (counter.leader, counter.exclusive)).collect();
    assert_eq!(groups, [(None, true), (None, true), (Some(1), false)]);
}

#[test]
fn groups_are_per_pmu_and_cpu_and_software_may_lead() {
    let plan = planned(
        "icelake-2s",
        &[],
        &["{uncore_imc_0/cas_count_read/,imc_1/cas_count_read/,imc_0/cas_count_write/}"],
    );
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    uncore_imc_0 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 0
    uncore_imc_0 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 2
    uncore_imc_1 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 0
    uncore_imc_1 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 2
    uncore_imc_0 cas_count_write [] bytesx64 0x3004,0x0,0x0 cpu 0 leader 0
    uncore_imc_0 cas_count_write [] bytesx64 0x3004,0x0,0x0 cpu 2 leader 1
    ");
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);

    let plan =
        planned("grace-2s", &[], &["{cs,nvidia_scf_pmu_1/cycles/,nvidia_scf_pmu_1/bus_cycles/}"]);
    let leaders: Vec<_> = plan.counters.iter().map(|c| (c.cpu, c.leader)).collect();
    assert_eq!(leaders, [(0, None), (1, None), (2, None), (3, None), (2, Some(2)), (2, Some(2))]);

    let plan = planned("all-drivers-acpi", &[], &["{ali_drw/hif_rd/,ali_drw/hif_wr/}"]);
    assert!(plan.counters.iter().all(|c| c.leader.is_none()) && plan.notes.len() == 1);
}

#[test]
fn the_same_event_twice_is_one_counter() {
    let plan = planned(
        "grace-2s",
        &["pcie"],
        &["nvidia_pcie_pmu_0/rd_bytes_loc/", "nvidia_pcie_pmu_0/event=0,root_port=1023/"],
    );
    assert_eq!(plan.counters.len(), 8);
}

/// The driver uses the leader's device filter for all members; a port mask on a sibling would
/// conflict.
#[test]
fn a_sibling_leaves_the_filter_to_its_leader() {
    let plan = planned(
        "all-drivers-acpi",
        &[],
        &[
            "{nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0x108,src_bdf_en/,nvidia_pcie_pmu_0_rc_4/wr_bytes/}",
        ],
    );
    assert_eq!(plan.counters[0].config[1], 0x108 << 8 | 1 << 24);
    assert_eq!(plan.counters[1].config[1], 0);
    assert_eq!(plan.counters[1].leader, Some(0));
}
