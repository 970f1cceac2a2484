//! Requests that drivers accept but do not count: they are refused before anything is opened, or a
//! note names the fraction of the time that is left.

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::overlay::FamilyFile;
use uncore_trace::plan::plan;

use crate::machines::{captured, machine_with_files, planned, refused, request};

fn refused_on(name: &str, event: &str) -> String {
    refused(name, &[], &[event])
}

/// The notes except those about devices, of which these machines have none.
fn notes(name: &str, events: &[&str]) -> Vec<String> {
    let mut notes = planned(name, &[], events).notes;
    notes.retain(|note| !note.contains("no disk or network interface"));
    notes
}

/// `drivers/perf/dwc_pcie_pmu.c`: two time-based events in a group open and never count.
#[test]
fn a_root_port_has_one_time_based_counter() {
    let pmu = "dwc_rootport_10000";
    let both_payloads = format!("{pmu}/rx_pcie_tlp_data_payload/,{pmu}/tx_pcie_tlp_data_payload/");
    let turns = "2 events share 1 time-based counter of dwc_rootport_10000: each counts about 50 % of the time";
    assert_eq!(notes("yitian", &[&both_payloads]), [turns]);
    let plan = planned("yitian", &[], &[&format!("{{{both_payloads}}}")]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    assert!(plan.notes.iter().any(|note| note.contains("opened one by one")), "{:?}", plan.notes);
    assert!(plan.notes.iter().any(|note| note == turns), "{:?}", plan.notes);
    let raw = format!("{pmu}/eventid=0x21,type=0/,{pmu}/eventid=0x22,type=0/");
    assert_eq!(notes("yitian", &[&raw]), [turns]);
    // Lane events have a counter of their own, but only one for all lanes.
    let lanes = |event: &str, a, b| {
        notes("yitian", &[&format!("{pmu}/{event},lane={a}/"), &format!("{pmu}/{event},lane={b}/")])
    };
    let lane = format!("{pmu}/rx_memory_read,lane=0/");
    assert!(notes("yitian", &[&lane, &format!("{pmu}/rx_pcie_tlp_data_payload/")]).is_empty());
    assert!(notes("yitian", &[&lane, &format!("{pmu}/rx_memory_write,lane=0/")]).is_empty());
    let same_lane = lanes("rx_memory_read", 0, 3);
    assert!(same_lane[0].contains("share 1 counter for one lane event"), "{same_lane:?}");
}

/// Linux 6.12 has one lane counter, and Alibaba's kernel one counter in all.
#[test]
fn older_root_port_drivers_have_fewer_counters() {
    let (_dir, machine) = machine_with_files(&[
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
    let catalog = Catalog::load_embedded().unwrap();
    let notes = |texts: &[&str]| plan(&machine, &catalog, &request(&[], texts)).unwrap().notes;
    let lane = |event: u32| format!("dwc_rootport_0/eventid={event:#x},type=1,lane=0/");
    let two_events = notes(&[&lane(0x70b), &lane(0x70c)]);
    assert!(
        two_events[0].starts_with("2 events share 1 lane counter of dwc_rootport_0"),
        "{two_events:?}"
    );
    let two_types =
        notes(&["pcie_bdf_200/eventid=0x20,type=1/", "pcie_bdf_200/eventid=0x70b,type=2/"]);
    assert!(two_types[0].starts_with("2 events share 1 counter of pcie_bdf_200"), "{two_types:?}");
}

/// `drivers/perf/arm_cspmu`: cycles, and only they, have a counter of their own.
#[test]
fn an_nvidia_pmu_has_one_cycle_counter() {
    let two_cycles = "nvidia_pcie_pmu_0/cycles,root_port=1/,nvidia_pcie_pmu_0/cycles,root_port=2/";
    let error = refused_on("grace-2s", &format!("{{{two_cycles}}}"));
    assert!(error.contains("2 events share 1 cycle counter of nvidia_pcie_pmu_0"), "{error}");
    assert!(error.contains("never runs"), "{error}");
    // A weak group may be opened event by event, as in perf.
    let plan = planned("grace-2s", &[], &[&format!("{{{two_cycles}}}:W")]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    let ungrouped = notes("grace-2s", &[two_cycles]);
    assert!(ungrouped[0].ends_with("each counts about 50 % of the time"), "{ungrouped:?}");
}

/// `drivers/perf/arm-cmn.c`: an event uses a counter of every crosspoint with such a node.
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
    let five_event_notes = notes("yitian", &[&five.join(",")]);
    assert!(
        five_event_notes[0].ends_with("each counts about 80 % of the time"),
        "{five_event_notes:?}"
    );
    // Two nodes at one crosspoint (the low three bits are port and device), and one elsewhere.
    let crosspoint_events: Vec<_> =
        (1..=5).map(|id| event(id, Some(if id < 3 { 8 } else { 12 }))).collect();
    assert!(refused_on("yitian", &group(&crosspoint_events)).contains("crosspoint"));
    let far: Vec<_> = (1..=5).map(|id| event(id, Some(if id < 3 { 8 } else { 16 }))).collect();
    planned("yitian", &[], &[&group(&far)]);
    // Other types of node may be at other crosspoints.
    let mut types = five[..4].to_vec();
    types.push("arm_cmn_0/rnid_rxdat_flits/".to_owned());
    planned("yitian", &[], &[&group(&types)]);
}

/// sysfs does not show which nodes share the eight counters of a debug domain, so no group is
/// refused.
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
    let two_event_notes = notes("yitian", &[&event(1, 8), &event(2, 8)]);
    assert!(
        two_event_notes[0].ends_with("each counts about 50 % of the time"),
        "{two_event_notes:?}"
    );
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

/// The driver refuses groups, with a line in the kernel's log (`alibaba_uncore_drw_pmu.c`).
#[test]
fn drw_events_are_opened_one_by_one() {
    let plan = planned("yitian", &[], &["{ali_drw_2008000/hif_rd/,ali_drw_2008000/hif_wr/}"]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    assert!(
        plan.notes[0].contains("cannot count in groups, so events are opened one by one"),
        "{:?}",
        plan.notes
    );
    let many_events: Vec<_> =
        (0..17).map(|id| format!("ali_drw_2008000/config={id:#x}/")).collect();
    let event_notes = notes("yitian", &[&many_events.join(","), "ali_drw_2008000/cycle/"]);
    assert!(
        event_notes[0].starts_with("17 events share 16 counters of ali_drw_2008000"),
        "{event_notes:?}"
    );
}

#[test]
fn the_share_of_counting_time_is_one_note_for_like_pmus() {
    let plan_notes = planned("yitian", &["pcie"], &[]).notes;
    let shared: Vec<_> = plan_notes.iter().filter(|note| note.contains("share")).collect();
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
    let mut catalog = Catalog::load_embedded().unwrap();
    let file = FamilyFile { name: "my.toml".to_owned(), text: text.to_owned() };
    catalog.add_files(vec![file]).unwrap();
    let plan = plan(&captured("grace-2s"), &catalog, &request(&["pcie"], &[])).unwrap();
    let notes: Vec<_> = plan.notes.iter().filter(|note| note.contains("filter")).collect();
    assert_eq!(
        notes,
        ["my.toml: its default filter root_prot is not set, because no PMU of it has such a term \
          (did you mean root_port?)"]
    );
}

/// Requests that the drivers of Tegra410 and Grace accept and then count as something else, or
/// never (`drivers/perf/arm_cspmu/nvidia_cspmu.c` and `nvidia_t410_c2c_pmu.c`, Linux 7.2).
#[test]
fn filters_that_would_count_something_else_are_refused() {
    let (rc, tgt, ucf) =
        ("nvidia_pcie_pmu_0_rc_4", "nvidia_pcie_tgt_pmu_0_rc_4", "nvidia_ucf_pmu_0");
    for (machine, event, why) in [
        // A range that is not enabled is not programmed: all BAR traffic is counted.
        (
            "t410-2s",
            format!("{tgt}/rd_bytes,dst_addr_base=0x10000,dst_addr_mask=0xfff00/"),
            "add dst_addr_en=1",
        ),
        ("t410-2s", format!("{tgt}/rd_bytes,dst_addr_mask=0xfff00/"), "add dst_addr_en=1"),
        ("t410-2s", format!("{tgt}/rd_bytes,dst_addr_base=0/"), "add dst_addr_en=1"),
        ("t410-2s", format!("{tgt}/rd_bytes,dst_addr_base=1,dst_addr_en=0/"), "add dst_addr_en=1"),
        ("t410-2s", format!("{rc}/rd_bytes,src_bdf=0x108/"), "add src_bdf_en=1"),
        // An empty selection would count everything.
        ("t410-2s", format!("{tgt}/rd_bytes,dst_rp_mask=0/"), "no bit of dst_rp_mask is set"),
        ("t410-2s", format!("{rc}/rd_bytes,src_rp_mask=0/"), "no bit of src_rp_mask is set"),
        ("t410-2s", format!("{rc}/rd_bytes,config1=0/"), "no bit of src_rp_mask is set"),
        ("t410-2s", format!("{rc}/rd_bytes,dst_rem=0/"), "leave out dst_rem to count everything"),
        ("t410-2s", format!("{ucf}/mem_bytes_rd,src_loc_cpu=0/"), "leave out src_loc_cpu"),
        ("t410-2s", format!("{ucf}/mem_bytes_rd,src_loc_cpu=0,src_rem=0/"), "src_loc_cpu, src_rem"),
        ("t410-2s", format!("{ucf}/mem_bytes_rd,dst_rem=0/"), "no bit of dst_loc_cmem"),
        (
            "t410-2s",
            "nvidia_nvlink_c2c_pmu_0/in_rd_req,gpu_mask=0/".to_owned(),
            "no bit of gpu_mask",
        ),
        (
            "grace-2s",
            "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0/".to_owned(),
            "no bit of root_port",
        ),
        ("grace-2s", "nvidia_pcie_pmu_0/event=0,config1=0/".to_owned(), "no bit of root_port"),
        ("grace-2s", "nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc,port=0/".to_owned(), "no bit of port"),
        (
            "grace-2s",
            "nvidia_cnvlink_pmu_0/rd_bytes_loc,rem_socket=0/".to_owned(),
            "no bit of rem_socket",
        ),
    ] {
        // Alone, and as a member of a group.
        let pmu = event.split('/').next().unwrap_or_default();
        for text in [
            event.clone(),
            format!("{{{event},{pmu}/cycles/}}"),
            format!("{{{pmu}/cycles/,{event}}}"),
        ] {
            let error = refused_on(machine, &text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
    // Filters that select something are allowed.
    for event in [
        format!(
            "{tgt}/rd_bytes,dst_addr_base=0,dst_addr_mask=0xfff00,dst_addr_en=1,dst_rp_mask=0/"
        ),
        format!("{rc}/rd_bytes,src_rp_mask=0,src_bdf=0x108,src_bdf_en=1/"),
        format!("{ucf}/mem_bytes_rd,src_loc_cpu=0,src_rem=1/"),
        "nvidia_nvlink_c2c_pmu_0/in_rd_req,gpu_mask=3/".to_owned(),
    ] {
        planned("t410-2s", &[], &[&event]);
    }
}

/// The driver ignores bits of GPUs that do not exist, and counts all traffic if no bit is left.
#[test]
fn a_mask_has_a_bit_for_each_peer() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut machine = captured("t410-2s");
    let link = machine.pmus.iter_mut().find(|pmu| pmu.name == "nvidia_nvlink_c2c_pmu_0").unwrap();
    assert_eq!(link.peers.get("gpu"), Some(&2), "the peer file is read");
    link.peers.insert("gpu".to_owned(), 1);
    let on = |mask: u32| {
        let text = format!("nvidia_nvlink_c2c_pmu_0/in_rd_req,gpu_mask={mask}/");
        plan(&machine, &catalog, &request(&[], &[&text])).map_err(|error| error.to_string())
    };
    assert!(on(1).is_ok());
    for mask in [2, 3] {
        let error = on(mask).unwrap_err();
        assert!(
            error.contains("the PMU's peer file says nr_gpu=1: give gpu_mask up to 0x1"),
            "{error}"
        );
    }
}

/// The driver compares each member of a group with its leader, also if that is `cycles`, and treats
/// a leader of another PMU as one of its own.
#[test]
fn a_leader_has_the_device_of_its_group() {
    let pmu = "nvidia_pcie_pmu_0_rc_4";
    let (device, cycles) =
        (format!("{pmu}/rd_bytes,src_bdf=0x108,src_bdf_en=1/"), format!("{pmu}/cycles/"));
    let error = refused_on("t410-2s", &format!("{{{cycles},{device}}}"));
    assert!(error.contains("cycles, which leads the group, has no src_bdf,src_bdf_en"), "{error}");
    assert!(error.contains("give cycles the same terms or put it last"), "{error}");
    for text in [
        format!("{{{device},{cycles}}}"),
        format!("{{{pmu}/cycles,src_bdf=0x108,src_bdf_en=1/,{device}}}"),
        format!("{{{pmu}/cycles,src_bdf=0x108,src_bdf_en=1/,{pmu}/rd_bytes/}}"),
        format!("{{{cycles},{pmu}/rd_bytes/}}"),
    ] {
        let plan = planned("t410-2s", &[], &[&text]);
        assert_eq!(plan.counters[1].leader, Some(0), "{text}");
    }
    // A weak group is opened one by one.
    let plan = planned("t410-2s", &[], &[&format!("{{{cycles},{device}}}:W")]);
    assert!(plan.counters.iter().all(|counter| counter.leader.is_none()));
    let error = refused_on("t410-2s", &format!("{{cs,{pmu}/rd_bytes/}}"));
    assert!(error.contains("cannot lead a group of nvidia_pcie_pmu_0_rc_4"), "{error}");
    planned("t410-2s", &[], &[&format!("{{{pmu}/rd_bytes/,cs}}")]);
    // A group for root ports takes turns with a device.
    let ports = format!("{{{pmu}/rd_bytes/,{pmu}/wr_bytes/}}");
    let plan = planned("t410-2s", &[], &[&format!("{device},{ports}")]);
    let groups: Vec<_> = plan
        .counters
        .iter()
        .map(|planned_counter| (planned_counter.leader, planned_counter.exclusive))
        .collect();
    assert_eq!(groups, [(None, true), (None, true), (Some(1), false)]);
}

/// `arm_dmc620_pmu.c` had no `cpumask` at first: a counter on each CPU would count everything
/// several times.
#[test]
fn a_pmu_without_a_cpumask_is_one_counter() {
    let (_dir, machine) = machine_with_files(&[
        ("arm_dmc620_10008c000/type", "20"),
        ("arm_dmc620_10008c000/format/eventid", "config:0-8"),
        ("software/type", "1"),
    ]);
    let catalog = Catalog::load_embedded().unwrap();
    let text = "arm_dmc620_10008c000/eventid=0x12/";
    let plan = plan(&machine, &catalog, &request(&[], &[text, "context-switches"])).unwrap();
    let counter_count =
        |family: &str| plan.counters.iter().filter(|c| c.pmu.starts_with(family)).count();
    assert_eq!((counter_count("arm_dmc620"), counter_count("software")), (1, 2));
    let counter = &plan.counters[0];
    assert!(!counter.per_cpu && !counter.at_switch && counter.socket.is_none(), "{counter:?}");
    assert_eq!(counter.sees.to_string(), "0-1");
    assert!(plan.notes[0].contains("it has no cpumask file"), "{:?}", plan.notes);
}

/// The links of Grace, one of which reads 0 on a machine without GPUs.
#[test]
fn links_that_may_read_zero_are_named() {
    let c2c = planned("grace-2s", &["c2c"], &[]).notes;
    for family in ["nvidia_nvlink_c2c1 counts what a GPU does", "nvidia_cnvlink reads 0"] {
        assert_eq!(c2c.iter().filter(|note| note.contains(family)).count(), 1, "{c2c:?}");
    }
    let pcie = planned("grace-2s", &["pcie"], &[]).notes;
    assert!(!pcie.iter().any(|note| note.contains("reads 0")), "{pcie:?}");
}
