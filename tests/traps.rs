//! What drivers accept and then do not count: refused before anything is opened, or said with the
//! share of the time that is left.

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::overlay::FamilyFile;
use uncore_trace::plan::plan;

use crate::machines::{captured, made, planned, refused, request};

fn refused_on(name: &str, event: &str) -> String {
    refused(name, &[], &[event])
}

/// The notes but for those on devices, of which these machines have none.
fn notes(name: &str, events: &[&str]) -> Vec<String> {
    let mut notes = planned(name, &[], events).notes;
    notes.retain(|note| !note.contains("no disk or network interface"));
    notes
}

/// `drivers/perf/dwc_pcie_pmu.c`: two time-based events in a group open and never count.
#[test]
fn a_root_port_has_one_time_based_counter() {
    let pmu = "dwc_rootport_10000";
    let both = format!("{pmu}/rx_pcie_tlp_data_payload/,{pmu}/tx_pcie_tlp_data_payload/");
    let turns = "2 events share 1 time-based counter of dwc_rootport_10000: each counts about 50 % of the time";
    assert_eq!(notes("yitian", &[&both]), [turns]);
    let plan = planned("yitian", &[], &[&format!("{{{both}}}")]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    assert!(plan.notes.iter().any(|note| note.contains("opened one by one")), "{:?}", plan.notes);
    assert!(plan.notes.iter().any(|note| note == turns), "{:?}", plan.notes);
    let raw = format!("{pmu}/eventid=0x21,type=0/,{pmu}/eventid=0x22,type=0/");
    assert_eq!(notes("yitian", &[&raw]), [turns]);
    // A lane event has a counter of its own, but one for all lanes.
    let lanes = |event: &str, a, b| {
        notes("yitian", &[&format!("{pmu}/{event},lane={a}/"), &format!("{pmu}/{event},lane={b}/")])
    };
    let lane = format!("{pmu}/rx_memory_read,lane=0/");
    assert!(notes("yitian", &[&lane, &format!("{pmu}/rx_pcie_tlp_data_payload/")]).is_empty());
    assert!(notes("yitian", &[&lane, &format!("{pmu}/rx_memory_write,lane=0/")]).is_empty());
    let same = lanes("rx_memory_read", 0, 3);
    assert!(same[0].contains("share 1 counter for one lane event"), "{same:?}");
}

/// Linux 6.12 has one lane counter, and Alibaba's kernel one counter in all.
#[test]
fn older_root_port_drivers_have_fewer_counters() {
    let (_dir, machine) = made(&[
        ("dwc_rootport_0/type", "20"),
        ("dwc_rootport_0/cpumask", "0"),
        ("dwc_rootport_0/format/eventid", "config:0-15"),
        ("dwc_rootport_0/format/type", "config:16-19"),
        ("dwc_rootport_0/format/lane", "config:20-27"),
        ("dwc_rootport_0/events/Rx_PCIe_TLP_Data_Payload", "eventid=0x21,type=0x0"),
        ("pcie_bdf_200/type", "21"),
        ("pcie_bdf_200/cpumask", "0"),
        ("pcie_bdf_200/format/eventid", "config:0-15"),
        ("pcie_bdf_200/format/type", "config:16-19"),
    ]);
    let catalog = Catalog::embedded().unwrap();
    let notes = |texts: &[&str]| plan(&machine, &catalog, &request(&[], texts)).unwrap().notes;
    let lane = |event: u32| format!("dwc_rootport_0/eventid={event:#x},type=1,lane=0/");
    let two = notes(&[&lane(0x70b), &lane(0x70c)]);
    assert!(two[0].starts_with("2 events share 1 lane counter of dwc_rootport_0"), "{two:?}");
    let two = notes(&["pcie_bdf_200/eventid=0x20,type=1/", "pcie_bdf_200/eventid=0x70b,type=2/"]);
    assert!(two[0].starts_with("2 events share 1 counter of pcie_bdf_200"), "{two:?}");
}

/// `drivers/perf/arm_cspmu`: cycles have a counter of their own, and only they.
#[test]
fn there_is_one_cycle_counter() {
    let two = "nvidia_pcie_pmu_0/cycles,root_port=1/,nvidia_pcie_pmu_0/cycles,root_port=2/";
    let error = refused_on("grace-2s", &format!("{{{two}}}"));
    assert!(error.contains("2 events share 1 cycle counter of nvidia_pcie_pmu_0"), "{error}");
    assert!(error.contains("never runs"), "{error}");
    // A weak group may be opened one by one, as perf does.
    let plan = planned("grace-2s", &[], &[&format!("{{{two}}}:W")]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    let alone = notes("grace-2s", &[two]);
    assert!(alone[0].ends_with("each counts about 50 % of the time"), "{alone:?}");
}

/// `drivers/perf/arm-cmn.c`: an event has a counter of every crosspoint with such a node.
#[test]
fn a_crosspoint_has_four_counters() {
    let event = |id: u32, node: Option<u32>| {
        let node = node.map_or(String::new(), |node| format!(",bynodeid=1,nodeid={node}"));
        format!("arm_cmn_0/type=0x5,eventid={id}{node}/")
    };
    let group = |events: &[String]| format!("{{{}}}", events.join(","));
    let five: Vec<_> = (1..=5).map(|id| event(id, None)).collect();
    planned("yitian", &[], &[&group(&five[..4])]);
    let error = refused_on("yitian", &group(&five));
    assert!(error.contains("5 events share 4 crosspoint counters of arm_cmn_0"), "{error}");
    let said = notes("yitian", &[&five.join(",")]);
    assert!(said[0].ends_with("each counts about 80 % of the time"), "{said:?}");
    // Two nodes at one crosspoint (the low three bits are port and device), and one elsewhere.
    let near: Vec<_> = (1..=5).map(|id| event(id, Some(if id < 3 { 8 } else { 12 }))).collect();
    assert!(refused_on("yitian", &group(&near)).contains("crosspoint"));
    let far: Vec<_> = (1..=5).map(|id| event(id, Some(if id < 3 { 8 } else { 16 }))).collect();
    planned("yitian", &[], &[&group(&far)]);
    // Other types of node may be at other crosspoints.
    let mut types = five[..4].to_vec();
    types.push("arm_cmn_0/rnid_rxdat_flits/".to_owned());
    planned("yitian", &[], &[&group(&types)]);
}

/// Which nodes share the eight counters of a debug domain is not in sysfs, so no group is refused.
#[test]
fn a_debug_domain_has_eight_counters() {
    let nodes: Vec<_> =
        (0..9).map(|n| format!("arm_cmn_0/ccla_rx_cxs,bynodeid=1,nodeid={}/", n * 8)).collect();
    let plan = planned("yitian", &[], &[&format!("{{{}}}", nodes.join(","))]);
    assert_eq!(plan.counters.len(), 9);
    assert!(plan.notes[0].starts_with("9 events may share 8 global counters"), "{:?}", plan.notes);
}

#[test]
fn a_node_narrows_an_event_in_one_way() {
    let event = |occupid: u32, node: u32| {
        format!("arm_cmn_0/type=5,eventid=0xf,occupid={occupid},bynodeid=1,nodeid={node}/")
    };
    let group = |a: String, b: String| format!("{{{a},{b}}}");
    let error = refused_on("yitian", &group(event(1, 8), event(2, 8)));
    assert!(error.contains("2 events share 1 occupid selector of arm_cmn_0"), "{error}");
    planned("yitian", &[], &[&group(event(1, 8), event(2, 16))]);
    planned("yitian", &[], &[&group(event(1, 8), event(1, 16))]);
    let said = notes("yitian", &[&event(1, 8), &event(2, 8)]);
    assert!(said[0].ends_with("each counts about 50 % of the time"), "{said:?}");
}

#[test]
fn a_target_has_eight_address_ranges() {
    let range = |n: u32, event: &str| {
        let base = n * 0x1000;
        format!(
            "nvidia_pcie_tgt_pmu_0_rc_4/{event},dst_addr_en=1,dst_addr_base={base},dst_addr_mask=0xf000/"
        )
    };
    let ranges = |count: u32| (0..count).map(|n| range(n, "rd_bytes")).collect::<Vec<_>>();
    let mut eight = ranges(8);
    eight.push(range(0, "wr_bytes"));
    eight.push("nvidia_pcie_tgt_pmu_0_rc_4/rd_req/".to_owned());
    assert_eq!(planned("t410-2s", &[], &[&eight.join(",")]).counters.len(), 10);
    let error = refused_on("t410-2s", &ranges(9).join(","));
    assert!(error.starts_with("9 events share 8 address ranges of nvidia_pcie_tgt_pmu_0_rc_4"));
    assert!(error.contains("never run; record them one after the other"), "{error}");
}

/// The driver refuses them, with a line in the kernel log (`alibaba_uncore_drw_pmu.c`).
#[test]
fn drw_events_are_opened_one_by_one() {
    let plan = planned("yitian", &[], &["{ali_drw_2008000/hif_rd/,ali_drw_2008000/hif_wr/}"]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    assert!(
        plan.notes[0].contains("cannot count in groups, opened one by one"),
        "{:?}",
        plan.notes
    );
    let many: Vec<_> = (0..17).map(|id| format!("ali_drw_2008000/config={id:#x}/")).collect();
    let said = notes("yitian", &[&many.join(","), "ali_drw_2008000/cycle/"]);
    assert!(said[0].starts_with("17 events share 16 counters of ali_drw_2008000"), "{said:?}");
}

#[test]
fn shares_are_said_once_for_all_pmus_alike() {
    let said = planned("yitian", &["pcie"], &[]).notes;
    let shared: Vec<_> = said.iter().filter(|note| note.contains("share")).collect();
    assert_eq!(
        shared,
        ["2 events share 1 time-based counter of each of dwc_rootport_10000, \
             dwc_rootport_20000: each counts about 50 % of the time"]
    );
}

#[test]
fn a_mistyped_filter_of_a_family_from_outside_is_named() {
    let text = "family = 'mine'\nabout = 'x'\nnames = ['nvidia_pcie_pmu_#']\ngroup = 'pcie'\n\
                [opens]\npcie = ['rd_bytes_loc']\n[[filter]]\nterms = 'root_prot=0x3ff'\n";
    let mut catalog = Catalog::embedded().unwrap();
    let file = FamilyFile { name: "my.toml".to_owned(), text: text.to_owned() };
    catalog.overlay(vec![file]).unwrap();
    let plan = plan(&captured("grace-2s"), &catalog, &request(&["pcie"], &[])).unwrap();
    assert_eq!(
        plan.notes,
        ["my.toml: its default filter root_prot is not set, no PMU of it has such a term \
          (did you mean root_port?)"]
    );
}
