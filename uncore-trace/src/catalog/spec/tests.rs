use proptest::prelude::*;

use super::*;

/// Event texts from vendor documentation (NVIDIA Tegra410 and Grace, Alibaba Yitian 710), which
/// users paste. Each is accepted unchanged.
const PUBLISHED: &[&str] = &[
    "nvidia_ucf_pmu_0/event=0x0/",
    "nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/",
    "nvidia_ucf_pmu_1/event=0x0,src_loc_noncpu=0x1,dst_rem=0x1/",
    "nvidia_pcie_pmu_0_rc_0/event=0x0,src_rp_mask=0x1/",
    "nvidia_pcie_pmu_0_rc_1/event=0x1,src_rp_mask=0x3,dst_loc_cmem=0x1/",
    "nvidia_pcie_pmu_1_rc_2/event=0x2,src_rp_mask=0x1/",
    "nvidia_pcie_pmu_1_rc_3/event=0x3,src_rp_mask=0x3,dst_loc_cmem=0x1/",
    "nvidia_pcie_pmu_0_rc_4/event=0x4,src_bdf=0x0180,src_bdf_en=0x1/",
    "nvidia_pcie_tgt_pmu_0_rc_0/event=0x0,dst_rp_mask=0x3/",
    "nvidia_pcie_tgt_pmu_0_rc_1/event=0x1,dst_addr_base=0x10000,dst_addr_mask=0xFFF00,dst_addr_en=0x1/",
    "{nvidia_cmem_latency_pmu_0/rd_req/,nvidia_cmem_latency_pmu_0/rd_cum_outs/,nvidia_cmem_latency_pmu_0/cycles/}",
    "nvidia_nvlink_c2c_pmu_0/in_rd_req/",
    "nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x1/",
    "nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x2/",
    "nvidia_nvlink_c2c_pmu_0/out_rd_req/",
    "nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x1/",
    "nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x2/",
    "nvidia_nvclink_pmu_0/in_rd_req/",
    "nvidia_nvclink_pmu_0/out_rd_req/",
    "{nvidia_nvdlink_pmu_0/in_rd_req/,nvidia_nvdlink_pmu_0/in_rd_cum_outs/}",
    "duration_time,'{nvidia_scf_pmu_0/event=cycles/,nvidia_scf_pmu_0/cmem_wb_access/,nvidia_scf_pmu_0/cmem_wr_access/}'",
    "duration_time,'{nvidia_scf_pmu_0/cmem_wr_total_bytes/,nvidia_scf_pmu_0/cmem_rd_data/}','{nvidia_scf_pmu_1/remote_socket_wr_total_bytes/,nvidia_scf_pmu_1/remote_socket_rd_data/}'",
    "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x3/",
    "duration_time,'{nvidia_pcie_pmu_1/rd_bytes_rem,root_port=0x4/}'",
    "duration_time,'{nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/rd_bytes_rem,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_rem,root_port=0x100/}'",
    "duration_time,'{nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}'",
    "'{nvidia_nvlink_c2c0_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}','{nvidia_nvlink_c2c1_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/wr_bytes_loc/}'",
    "cache-misses,cycles,instructions",
    "cycles,stalled-cycles-backend",
    "cycles,instructions,dTLB-loads,dTLB-load-misses",
    "r80C0",
    "r80C1",
    "pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/",
    "pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/",
    "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=413/",
    "arm_cmn_0/dtc_cycles/",
    "pmu/param1=0x3,param2/",
    "pmu/config=1,config1=0x2,config2=03/",
];

#[test]
fn published_texts_are_taken_unchanged() {
    for text in PUBLISHED {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn items_have_their_parts_and_columns() {
    let items = parse("duration_time,'{a/x=010,y=sym, z/,b}:W'").unwrap();
    let [EventItem::One(time), EventItem::Group { members, weak: true }] = items.as_slice() else {
        panic!("{items:?}")
    };
    assert_eq!((time.pmu.as_deref(), time.terms[0].name.as_str()), (None, "duration_time"));
    assert_eq!(members[0].pmu.as_deref(), Some("a"));
    let terms: Vec<_> =
        members[0].terms.iter().map(|t| (t.name.as_str(), &t.value, t.column)).collect();
    assert_eq!(
        terms,
        [
            ("x", &TermValue::Number(8), 19),
            ("y", &TermValue::Symbol("sym".to_owned()), 25),
            ("z", &TermValue::Bare, 32)
        ]
    );
    assert_eq!(members[1].column, 35);
}

#[test]
fn values_of_terms_have_their_kinds() {
    for (text, value) in [
        ("a/b='x y,z=1:2/'/", TermValue::Symbol("x y,z=1:2/".to_owned())),
        ("a/b=\"x\"/", TermValue::Symbol("x".to_owned())),
        ("a/b=\\'x\\'/", TermValue::Symbol("x".to_owned())),
        ("a/ b = x:y /", TermValue::Symbol("x:y".to_owned())),
        ("a/b=2.0/", TermValue::Symbol("2.0".to_owned())),
        ("a/b=0x1/", TermValue::Number(1)),
        ("a/b/", TermValue::Bare),
    ] {
        let EventItem::One(event) = parse(text).unwrap().remove(0) else { panic!("{text}") };
        assert_eq!(event.terms[0].value, value, "{text}");
    }
    let EventItem::One(event) = parse("a//").unwrap().remove(0) else { panic!("no event") };
    assert!(event.terms.is_empty());
    assert_eq!(parse_numeric("4:0x6530160"), Some((4, 0x0653_0160)));
    assert_eq!(parse_numeric("4294967296:1"), None);
}

#[test]
fn a_list_of_terms_is_parsed_without_a_pmu() {
    let names =
        |text| Some(terms(text).ok()?.into_iter().map(|term| term.name).collect::<Vec<_>>());
    assert_eq!(names("a,b=1").unwrap(), ["a", "b"]);
    for wrong in ["", "a,", "a/b", "a/"] {
        assert_eq!(names(wrong), None, "{wrong}");
    }
}

#[test]
fn errors_of_an_event_text_point_at_their_column() {
    for (text, column) in [
        ("", 1),
        ("a,", 3),
        ("a/b", 2),
        ("a/b=/", 5),
        ("a/b=09/", 5),
        ("a/,/", 3),
        ("a/b='c/", 5),
        ("mem:0x10:rw", 1),
        ("a/b/ukq", 5),
        ("{a,b", 1),
        ("{a,{b}}", 4),
        ("a}", 2),
        ("a/b;c/", 4),
        ("cycles:u", 7),
        ("sched:sched_switch", 6),
        ("a/b/k", 5),
        ("a:", 2),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_event_text_panics(text in "[a-z0-9{}/:,='\\. é*-]{0,30}") {
        let _unused = parse(&text);
    }
}
