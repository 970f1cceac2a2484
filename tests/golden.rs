//! Published command lines and formulas with golden numbers: the config words that a text must become,
//! and the value that counts must give. Both are worked out by hand, from the `format` files of Linux 7.2
//! and from the formulas as their sources print them.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::metric::{Planned, Value, evaluate};
use uncore_trace::discover::Machine;
use uncore_trace::discover::event::{AliasValue, EventAlias};
use uncore_trace::plan::{Plan, Request, plan};

use crate::machines::{captured, made, request};

/// One event of a text: the end of its PMU's name, its `config`, `config1` and `config2`.
type Words = (&'static str, u64, u64, u64);

const CYCLES: u64 = 1 << 32;

/// `Documentation/admin-guide/perf/nvidia-tegra410-pmu.rst`, Linux 7.2.
const T410: &[(&str, &[Words])] = &[
    ("nvidia_ucf_pmu_0/event=0x0/", &[("ucf_pmu_0", 0, 0xf07, 0)]),
    ("nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/", &[("ucf_pmu_0", 0, 0x102, 0)]),
    ("nvidia_ucf_pmu_1/event=0x0,src_loc_noncpu=0x1,dst_rem=0x1/", &[("ucf_pmu_1", 0, 0x801, 0)]),
    ("nvidia_pcie_pmu_0_rc_0/event=0x0,src_rp_mask=0x1/", &[("pcie_pmu_0_rc_0", 0, 1, 0x1f)]),
    (
        "nvidia_pcie_pmu_0_rc_1/event=0x1,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        &[("pcie_pmu_0_rc_1", 1, 3, 1)],
    ),
    ("nvidia_pcie_pmu_1_rc_2/event=0x2,src_rp_mask=0x1/", &[("pcie_pmu_1_rc_2", 2, 1, 0x1f)]),
    (
        "nvidia_pcie_pmu_1_rc_3/event=0x3,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        &[("pcie_pmu_1_rc_3", 3, 3, 1)],
    ),
    (
        "nvidia_pcie_pmu_0_rc_4/event=0x4,src_bdf=0x0180,src_bdf_en=0x1/",
        &[("pcie_pmu_0_rc_4", 4, 0x101_8000, 0x1f)],
    ),
    ("nvidia_pcie_tgt_pmu_0_rc_0/event=0x0,dst_rp_mask=0x3/", &[("tgt_pmu_0_rc_0", 0x18, 0, 0)]),
    (
        "nvidia_pcie_tgt_pmu_0_rc_1/event=0x1,dst_addr_base=0x10000,dst_addr_mask=0xFFF00,dst_addr_en=0x1/",
        &[("tgt_pmu_0_rc_1", 0x801, 0x1_0000, 0xf_ff00)],
    ),
    (
        "{nvidia_cmem_latency_pmu_0/rd_req/,nvidia_cmem_latency_pmu_0/rd_cum_outs/,nvidia_cmem_latency_pmu_0/cycles/}",
        &[
            ("cmem_latency_pmu_0", 1, 0, 0),
            ("cmem_latency_pmu_0", 2, 0, 0),
            ("cmem_latency_pmu_0", 0, 0, 0),
        ],
    ),
    ("nvidia_nvlink_c2c_pmu_0/in_rd_req/", &[("nvlink_c2c_pmu_0", 2, 0, 0)]),
    ("nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x1/", &[("nvlink_c2c_pmu_0", 1, 1, 0)]),
    ("nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x2/", &[("nvlink_c2c_pmu_0", 1, 2, 0)]),
    ("nvidia_nvlink_c2c_pmu_0/out_rd_req/", &[("nvlink_c2c_pmu_0", 6, 0, 0)]),
    ("nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x1/", &[("nvlink_c2c_pmu_0", 5, 1, 0)]),
    ("nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x2/", &[("nvlink_c2c_pmu_0", 5, 2, 0)]),
    ("nvidia_nvclink_pmu_0/in_rd_req/", &[("nvclink_pmu_0", 2, 0, 0)]),
    ("nvidia_nvclink_pmu_0/out_rd_req/", &[("nvclink_pmu_0", 6, 0, 0)]),
    (
        "{nvidia_nvdlink_pmu_0/in_rd_req/,nvidia_nvdlink_pmu_0/in_rd_cum_outs/}",
        &[("nvdlink_pmu_0", 2, 0, 0), ("nvdlink_pmu_0", 1, 0, 0)],
    ),
];

/// NVIDIA Grace Performance Tuning Guide.
const GRACE: &[(&str, &[Words])] = &[
    (
        "duration_time,'{nvidia_scf_pmu_0/event=cycles/,nvidia_scf_pmu_0/cmem_wb_access/,nvidia_scf_pmu_0/cmem_wr_access/}'",
        &[("scf_pmu_0", CYCLES, 0, 0), ("scf_pmu_0", 0x1ac, 0, 0), ("scf_pmu_0", 0x1ca, 0, 0)],
    ),
    (
        "duration_time,'{nvidia_scf_pmu_0/cmem_wr_total_bytes/,nvidia_scf_pmu_0/cmem_rd_data/}','{nvidia_scf_pmu_1/remote_socket_wr_total_bytes/,nvidia_scf_pmu_1/remote_socket_rd_data/}'",
        &[
            ("scf_pmu_0", 0x1db, 0, 0),
            ("scf_pmu_0", 0x1a5, 0, 0),
            ("scf_pmu_1", 0x1a1, 0, 0),
            ("scf_pmu_1", 0x1a2, 0, 0),
        ],
    ),
    ("nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x3/", &[("pcie_pmu_0", 0, 3, 0)]),
    ("duration_time,'{nvidia_pcie_pmu_1/rd_bytes_rem,root_port=0x4/}'", &[("pcie_pmu_1", 1, 4, 0)]),
    (
        "duration_time,'{nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/rd_bytes_rem,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_rem,root_port=0x100/}'",
        &[
            ("pcie_pmu_0", 0, 0x100, 0),
            ("pcie_pmu_0", 2, 0x100, 0),
            ("pcie_pmu_0", 1, 0x100, 0),
            ("pcie_pmu_0", 3, 0x100, 0),
        ],
    ),
    (
        "duration_time,'{nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}'",
        &[("c2c0_pmu_0", 0, 3, 0), ("c2c0_pmu_0", 2, 3, 0)],
    ),
    (
        "'{nvidia_nvlink_c2c0_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}','{nvidia_nvlink_c2c1_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/wr_bytes_loc/}'",
        &[
            ("c2c0_pmu_0", 4, 3, 0),
            ("c2c0_pmu_0", 0, 3, 0),
            ("c2c0_pmu_0", 2, 3, 0),
            ("c2c1_pmu_0", 4, 3, 0),
            ("c2c1_pmu_0", 0, 3, 0),
            ("c2c1_pmu_0", 2, 3, 0),
        ],
    ),
    // `PERF_COUNT_HW_*` and `PERF_COUNT_HW_CACHE_*` of include/uapi/linux/perf_event.h.
    (
        "cache-misses,cycles,instructions",
        &[("pmuv3", 3, 0, 0), ("pmuv3", 0, 0, 0), ("pmuv3", 1, 0, 0)],
    ),
    ("cycles,stalled-cycles-backend", &[("pmuv3", 0, 0, 0), ("pmuv3", 8, 0, 0)]),
    (
        "cycles,instructions,dTLB-loads,dTLB-load-misses",
        &[("pmuv3", 0, 0, 0), ("pmuv3", 1, 0, 0), ("pmuv3", 3, 0, 0), ("pmuv3", 0x1_0003, 0, 0)],
    ),
    ("r80C0", &[("pmuv3", 0x80c0, 0, 0)]),
    ("r80C1", &[("pmuv3", 0x80c1, 0, 0)]),
];

/// Alibaba Cloud's guides to the Yitian 710.
const YITIAN: &[(&str, &[Words])] = &[
    (
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=413/",
        &[("arm_cmn_0", 0x19d_8022_0105, 0, 0)],
    ),
    (
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=421/",
        &[("arm_cmn_0", 0x1a5_8022_0105, 0, 0)],
    ),
    (
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=429/",
        &[("arm_cmn_0", 0x1ad_8022_0105, 0, 0)],
    ),
    (
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=437/",
        &[("arm_cmn_0", 0x1b5_8022_0105, 0, 0)],
    ),
    ("arm_cmn_0/dtc_cycles/", &[("arm_cmn_0", 3, 0, 0)]),
];

/// The machine with root complexes of these names, made of one that was captured.
fn with_root_complexes() -> Machine {
    let mut machine = captured("t410-2s");
    let names = [
        ("nvidia_pcie_pmu_0_rc_4", "nvidia_pcie_pmu_0_rc_0"),
        ("nvidia_pcie_pmu_0_rc_4", "nvidia_pcie_pmu_0_rc_1"),
        ("nvidia_pcie_pmu_1_rc_0", "nvidia_pcie_pmu_1_rc_2"),
        ("nvidia_pcie_pmu_1_rc_0", "nvidia_pcie_pmu_1_rc_3"),
        ("nvidia_pcie_tgt_pmu_0_rc_4", "nvidia_pcie_tgt_pmu_0_rc_0"),
        ("nvidia_pcie_tgt_pmu_0_rc_4", "nvidia_pcie_tgt_pmu_0_rc_1"),
    ];
    for (at, (of, name)) in names.into_iter().enumerate() {
        let mut pmu = machine.pmu(of).unwrap().clone();
        (pmu.name, pmu.attr_type) = (name.to_owned(), 200 + at as u32);
        machine.pmus.push(pmu);
    }
    machine
}

#[test]
fn published_command_lines_become_these_config_words() {
    let catalog = Catalog::embedded().unwrap();
    let (_dir, cloud) = made(&[
        ("pcie_bdf_200/type", "20"),
        ("pcie_bdf_200/cpumask", "1"),
        ("pcie_bdf_200/format/eventid", "config:0-15"),
        ("pcie_bdf_200/format/type", "config:16-19"),
        ("pcie_bdf_200/events/Rx_PCIe_TLP_Data_Payload", "eventid=0x21, type=0x1"),
        ("pcie_bdf_200/events/Tx_PCIe_TLP_Data_Payload", "eventid=0x20, type=0x1"),
    ]);
    let ports: &[(&str, &[Words])] = &[
        ("pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", &[("bdf_200", 0x1_0021, 0, 0)]),
        ("pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/", &[("bdf_200", 0x1_0020, 0, 0)]),
    ];
    let all = [
        (with_root_complexes(), T410),
        (captured("grace-2s"), GRACE),
        (captured("yitian"), YITIAN),
        (cloud, ports),
    ];
    for (machine, lines) in &all {
        for (text, expected) in *lines {
            let plan = plan(machine, &catalog, &request(&[], &[text]));
            let plan = plan.unwrap_or_else(|error| panic!("{text}: {error:#}"));
            // Core events are opened on every CPU.
            let first = |c: &&uncore_trace::plan::Counter| !c.per_cpu || c.cpu == 0;
            let counters: Vec<_> = plan.counters.iter().filter(first).collect();
            assert_eq!(counters.len(), expected.len(), "{text}");
            for (counter, (pmu, config, config1, config2)) in counters.iter().zip(*expected) {
                assert!(counter.pmu.ends_with(pmu), "{text}: {}", counter.pmu);
                assert_eq!(counter.config, [*config, *config1, *config2, 0, 0], "{text}");
            }
            if text.matches('{').count() == 1 {
                let siblings = counters[1..].iter().all(|c| c.leader == Some(counters[0].id));
                assert!(siblings, "{text}");
            }
        }
    }
}

/// A metric, its family or PMU, and its value there; of a family over the PMUs of socket 0.
type Golden = (&'static str, &'static str, f64);

/// What the hardware counts in two seconds of each event, whichever PMU has it: 2 GHz of clock.
const COUNTS: &[(&str, f64)] = &[
    ("cycles", 4e9),
    // Tegra410 fabric.
    ("slc_bytes_rd", 64e9),
    ("slc_bytes_wr", 10e9),
    ("mem_bytes_rd", 40e9),
    ("mem_bytes_wr", 6e9),
    ("slc_access_rd", 1e9),
    ("slc_access_wr", 2e8),
    ("slc_hit_rd", 7.5e8),
    ("mem_access_rd", 8e8),
    ("mem_access_wr", 4e8),
    // Tegra410 PCIe and memory.
    ("rd_bytes", 50e9),
    ("wr_bytes", 30e9),
    ("rd_req", 8e8),
    ("wr_req", 1e9),
    ("rd_cum_outs", 4e11),
    // Tegra410 links.
    ("in_rd_cum_outs", 9e9),
    ("in_rd_req", 3e7),
    ("in_wr_cum_outs", 1e9),
    ("in_wr_req", 1e7),
    ("out_rd_cum_outs", 8e9),
    ("out_rd_req", 2e7),
    ("out_wr_cum_outs", 4.8e9),
    ("out_wr_req", 4e7),
    // Grace fabric: *_rd_data are beats of 32 bytes.
    ("cmem_rd_data", 1e9),
    ("cmem_wr_total_bytes", 8e9),
    ("gmem_rd_data", 5e8),
    ("gmem_wr_total_bytes", 4e9),
    ("remote_socket_rd_data", 2.5e8),
    ("remote_socket_wr_total_bytes", 1e9),
    ("cmem_rd_access", 1.6e9),
    ("cmem_wb_access", 6e8),
    ("cmem_wr_access", 2e8),
    ("cmem_rd_outstanding", 4.8e11),
    ("gmem_rd_access", 4e8),
    ("gmem_wb_access", 1e8),
    ("gmem_wr_access", 6e7),
    ("gmem_rd_outstanding", 2e11),
    ("socket_1_rd_access", 2e8),
    ("socket_1_wb_access", 5e7),
    ("socket_1_wr_access", 3e7),
    ("socket_1_rd_outstanding", 1.6e11),
    // Grace PCIe and links.
    ("rd_bytes_loc", 24e9),
    ("rd_bytes_rem", 6e9),
    ("wr_bytes_loc", 10e9),
    ("wr_bytes_rem", 2e9),
    ("rd_req_loc", 1.2e9),
    ("rd_req_rem", 4e8),
    ("wr_req_loc", 6e8),
    ("wr_req_rem", 2e8),
    ("rd_cum_outs_loc", 6e11),
    ("rd_cum_outs_rem", 3.2e11),
    // Yitian 710; what dwc_rootport gives is bytes.
    ("rx_pcie_tlp_data_payload", 16e9),
    ("tx_pcie_tlp_data_payload", 4e9),
    ("ccla_rx_cxs", 5e8),
    ("ccla_tx_cxs", 1e9),
    ("dtc_cycles", 3.6e9),
    ("hif_rd", 1e9),
    ("hif_wr", 2.5e8),
    ("hif_rmw", 5e7),
];

/// `Documentation/admin-guide/perf/nvidia-tegra410-pmu.rst`, Linux 7.2.
const T410_METRICS: &[Golden] = &[
    ("ucf_frequency", "nvidia_ucf", 2.0),
    ("slc_read_bandwidth", "nvidia_ucf", 32.0),
    ("slc_write_bandwidth", "nvidia_ucf", 5.0),
    ("mem_read_bandwidth", "nvidia_ucf", 20.0),
    ("mem_write_bandwidth", "nvidia_ucf", 3.0),
    ("mem_bandwidth", "nvidia_ucf", 23.0),
    ("slc_read_request_rate", "nvidia_ucf", 0.25),
    ("slc_write_request_rate", "nvidia_ucf", 0.05),
    ("mem_read_request_rate", "nvidia_ucf", 0.2),
    ("mem_write_request_rate", "nvidia_ucf", 0.1),
    ("slc_read_hit_ratio", "nvidia_ucf", 0.75),
    // Two root complexes of the socket.
    ("pcie_frequency", "nvidia_pcie_rc", 2.0),
    ("pcie_read_bandwidth", "nvidia_pcie_rc", 2.0 * 25.0),
    ("pcie_write_bandwidth", "nvidia_pcie_rc", 2.0 * 15.0),
    ("pcie_bandwidth", "nvidia_pcie_rc", 2.0 * 40.0),
    ("pcie_read_request_rate", "nvidia_pcie_rc", 0.2),
    ("pcie_write_request_rate", "nvidia_pcie_rc", 0.25),
    ("pcie_read_latency", "nvidia_pcie_rc", 250.0),
    ("pcie_target_frequency", "nvidia_pcie_tgt", 2.0),
    ("pcie_target_read_bandwidth", "nvidia_pcie_tgt", 2.0 * 25.0),
    ("pcie_target_write_bandwidth", "nvidia_pcie_tgt", 2.0 * 15.0),
    ("pcie_target_bandwidth", "nvidia_pcie_tgt", 2.0 * 40.0),
    ("pcie_target_read_request_rate", "nvidia_pcie_tgt", 0.2),
    ("pcie_target_write_request_rate", "nvidia_pcie_tgt", 0.25),
    ("cmem_frequency", "nvidia_cmem_latency", 2.0),
    ("mem_read_latency", "nvidia_cmem_latency", 250.0),
    ("c2c_frequency", "nvidia_nvlink_c2c", 2.0),
    ("c2c_in_read_latency", "nvidia_nvlink_c2c", 150.0),
    ("c2c_in_write_latency", "nvidia_nvlink_c2c", 50.0),
    ("c2c_out_read_latency", "nvidia_nvlink_c2c", 200.0),
    ("c2c_out_write_latency", "nvidia_nvlink_c2c", 60.0),
    ("c2c_frequency", "nvidia_nvclink", 2.0),
    ("c2c_in_read_latency", "nvidia_nvclink", 150.0),
    ("c2c_out_read_latency", "nvidia_nvclink", 200.0),
    ("c2c_frequency", "nvidia_nvdlink", 2.0),
    ("cxl_read_latency", "nvidia_nvdlink", 150.0),
];

/// NVIDIA Grace Performance Tuning Guide.
const GRACE_METRICS: &[Golden] = &[
    ("scf_frequency", "nvidia_scf", 2.0),
    ("mem_read_bandwidth", "nvidia_scf", 16.0),
    ("mem_write_bandwidth", "nvidia_scf", 4.0),
    ("mem_bandwidth", "nvidia_scf", 20.0),
    ("gpu_mem_read_bandwidth", "nvidia_scf", 8.0),
    ("gpu_mem_write_bandwidth", "nvidia_scf", 2.0),
    ("remote_mem_read_bandwidth", "nvidia_scf", 4.0),
    ("remote_mem_write_bandwidth", "nvidia_scf", 0.5),
    ("mem_read_utilization", "nvidia_scf", 5.0),
    ("mem_write_utilization", "nvidia_scf", 2.5),
    ("mem_read_latency", "nvidia_scf", 150.0),
    ("gpu_mem_read_utilization", "nvidia_scf", 2.5),
    ("gpu_mem_write_utilization", "nvidia_scf", 1.0),
    ("gpu_mem_read_latency", "nvidia_scf", 250.0),
    ("socket_1_mem_read_utilization", "nvidia_scf", 2.5),
    ("socket_1_mem_write_utilization", "nvidia_scf", 1.0),
    ("socket_1_mem_read_latency", "nvidia_scf", 400.0),
    ("pcie_frequency", "nvidia_pcie", 2.0),
    ("pcie_read_bandwidth", "nvidia_pcie", 15.0),
    ("pcie_write_bandwidth", "nvidia_pcie", 6.0),
    ("pcie_bandwidth", "nvidia_pcie", 21.0),
    ("pcie_read_utilization", "nvidia_pcie", 4.0),
    ("pcie_write_utilization", "nvidia_pcie", 2.0),
    ("pcie_read_latency_local", "nvidia_pcie", 250.0),
    ("pcie_read_latency_remote", "nvidia_pcie", 400.0),
    ("c2c_frequency", "nvidia_nvlink_c2c0", 2.0),
    ("c2c_read_bandwidth", "nvidia_nvlink_c2c0", 12.0),
    ("c2c_write_bandwidth", "nvidia_nvlink_c2c0", 5.0),
    ("c2c_bandwidth", "nvidia_nvlink_c2c0", 17.0),
    ("c2c_read_utilization", "nvidia_nvlink_c2c0", 3.0),
    ("c2c_write_utilization", "nvidia_nvlink_c2c0", 1.5),
    ("c2c_read_latency", "nvidia_nvlink_c2c0", 250.0),
    ("c2c_read_bandwidth", "nvidia_nvlink_c2c1", 12.0),
    ("c2c_write_bandwidth", "nvidia_nvlink_c2c1", 5.0),
    ("c2c_bandwidth", "nvidia_nvlink_c2c1", 17.0),
    ("c2c_read_utilization", "nvidia_nvlink_c2c1", 3.0),
    ("c2c_write_utilization", "nvidia_nvlink_c2c1", 1.5),
    ("c2c_read_latency", "nvidia_nvlink_c2c1", 250.0),
    ("c2c_frequency", "nvidia_cnvlink", 2.0),
    ("c2c_read_bandwidth", "nvidia_cnvlink", 12.0),
    ("c2c_write_bandwidth", "nvidia_cnvlink", 5.0),
    ("c2c_bandwidth", "nvidia_cnvlink", 17.0),
    ("c2c_read_utilization", "nvidia_cnvlink", 3.0),
    ("c2c_read_latency", "nvidia_cnvlink", 250.0),
];

/// Alibaba Cloud's guides, and `Documentation/admin-guide/perf/{dwc_pcie_pmu,alibaba_pmu}.rst`. Links
/// move 32 bytes a flit and the four of a metric count alike; a memory channel moves 64 bytes a
/// request.
const YITIAN_METRICS: &[Golden] = &[
    ("mesh_frequency", "arm_cmn", 1.8),
    ("d2d_rx_bandwidth", "arm_cmn", 4.0 * 8.0),
    ("d2d_tx_bandwidth", "arm_cmn", 4.0 * 16.0),
    ("s2s_rx_bandwidth", "arm_cmn", 4.0 * 8.0),
    ("s2s_tx_bandwidth", "arm_cmn", 4.0 * 16.0),
    ("pcie_write_bandwidth", "dwc_rootport", 8.0),
    ("pcie_read_bandwidth", "dwc_rootport", 2.0),
    ("mem_read_bandwidth", "ali_drw_2008000", 32.0),
    ("mem_write_bandwidth", "ali_drw_2008000", 9.6),
    ("mem_bandwidth", "ali_drw_2008000", 41.6),
];

/// The plan of these metrics.
pub(crate) fn metrics(machine: &Machine, names: &[&str]) -> Plan {
    let request = Request {
        metrics: names.iter().map(|&name| name.to_owned()).collect(),
        ..request(&[], &[])
    };
    let plan = plan(machine, &Catalog::embedded().unwrap(), &request);
    plan.unwrap_or_else(|error| panic!("{names:?}: {error:#}"))
}

/// The value of a metric over instances, with the raw count of each event by its name.
pub(crate) fn value(
    plan: &Plan,
    name: &str,
    counts: &[(&str, f64)],
    seconds: f64,
    pick: impl Fn(&Planned) -> bool,
) -> f64 {
    let counts: BTreeMap<_, _> = counts.iter().copied().collect();
    let count = |id: u32| {
        let counter = &plan.counters[id as usize];
        Some(counts.get(counter.event.to_lowercase().as_str())? * counter.scale)
    };
    let instances: Vec<_> = plan.metrics.iter().filter(|m| m.name == name && pick(m)).collect();
    assert!(!instances.is_empty(), "{name} is not in the plan");
    match evaluate(&instances, &count, seconds * 1e9) {
        Value::Number(value) => value,
        other => panic!("{name}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn same(name: &str, value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-12, "{name}: {value} is not {expected}");
}

#[test]
fn every_published_metric_of_the_fabric_has_its_value() {
    let all = [("t410-2s", T410_METRICS), ("grace-2s", GRACE_METRICS), ("yitian", YITIAN_METRICS)];
    for (machine, golden) in all {
        let machine = captured(machine);
        let names: Vec<_> = golden.iter().map(|(name, ..)| *name).collect();
        let plan = metrics(&machine, &names);
        for (name, family, expected) in golden {
            let of = |m: &Planned| m.pmu == *family || m.family == *family && m.socket == Some(0);
            same(&format!("{family} {name}"), value(&plan, name, COUNTS, 2.0, of), *expected);
        }
    }
    // The Cloud Kernel's root port counts 16 bytes.
    let mut machine = captured("yitian");
    let port = machine.pmus.iter_mut().find(|pmu| pmu.name.starts_with("dwc_rootport")).unwrap();
    port.name = "pcie_bdf_100000".to_owned();
    let plan = metrics(&machine, &["pcie_*"]);
    let of = |m: &Planned| m.family == "pcie_bdf";
    same("pcie_bdf", value(&plan, "pcie_write_bandwidth", COUNTS, 2.0, of), 128.0);
    same("pcie_bdf", value(&plan, "pcie_read_bandwidth", COUNTS, 2.0, of), 32.0);
}

/// One root port of ten can pass on a tenth: the divisor is the number of ports that are counted.
#[test]
fn the_utilization_of_one_root_port_is_of_that_port() {
    let request = Request {
        metrics: vec!["pcie_read_utilization".to_owned()],
        per_port: true,
        ..request(&[], &[])
    };
    let plan = plan(&captured("grace-2s"), &Catalog::embedded().unwrap(), &request).unwrap();
    let of = |m: &Planned| m.pmu == "nvidia_pcie_pmu_0" && m.filter == "root_port=0x8";
    same("per port", value(&plan, "pcie_read_utilization", COUNTS, 2.0, of), 40.0);
}

/// What one CPU counted, in slots of which a cycle has five, eight or ten.
const SLOTS: &[(&str, f64)] = &[
    ("cpu_cycles", 1000.0),
    ("inst_retired", 1500.0),
    ("inst_spec", 2000.0),
    ("op_retired", 1600.0),
    ("op_spec", 2000.0),
    ("stall_slot", 2000.0),
    ("stall_slot_frontend", 1400.0),
    ("stall_slot_backend", 600.0),
    ("br_mis_pred", 5.0),
    ("br_retired", 300.0),
    ("l3d_cache", 50.0),
    ("l3d_cache_refill", 10.0),
    // STALL_FRONTEND_FLUSH, CPU_SLOT and STALL_SLOT_FRONTEND_WITHOUT_MISPRED.
    ("event=0x8162", 20.0),
    ("event=0x1e1", 10_000.0),
    ("event=0x1e2", 1200.0),
];

/// A main ID register, `caps/slots`, then `frontend_bound`, `backend_bound`, `retiring`, `bad_speculation`.
type Core = (&'static str, u64, [f64; 4]);

/// perf's tables `neoverse-n2-v2`, `neoverse-v1`, `neoverse-v3`, `neoverse-n3`, `nvidia/t410` and
/// `sbsa.json` (tools/perf/pmu-events/arch/arm64, Linux 7.2).
const CORES: &[Core] = &[
    // Neoverse V2, which says nothing: 8 slots.
    ("0x00000000410fd4f0", 0, [17.0, 6.0, 60.0, 17.0]),
    // Neoverse N2 r0p3 with 5 slots, by its register and by what the kernel says.
    ("0x00000000410fd493", 0, [27.5, 10.5, 48.0, 14.0]),
    ("0x00000000410fd493", 5, [27.5, 10.5, 48.0, 14.0]),
    ("0x00000000411fd490", 0, [27.5, 10.5, 48.0, 14.0]),
    // Before r0p3 one slot a cycle is counted too many.
    ("0x00000000410fd490", 0, [7.5, 10.5, 64.0, 18.0]),
    ("0x00000000410fd492", 5, [7.5, 10.5, 64.0, 18.0]),
    // Neoverse V1.
    ("0x00000000411fd401", 0, [15.5, 7.5, 60.0, 17.0]),
    // Neoverse V3 and N3 count the cycles of a flush.
    ("0x00000000410fd840", 0, [12.0, 6.0, 64.0, 18.0]),
    ("0x00000000410fd8e0", 0, [26.0, 12.0, 48.0, 14.0]),
    // Olympus counts its slots: ten a cycle here, five beside another thread.
    ("0x000000004e0f0100", 10, [12.0, 6.0, 64.0, 18.0]),
    // Any other, if the kernel knows its slots.
    ("0x00000000610f0390", 8, [17.5, 7.5, 60.0, 15.0]),
];

/// The core of Grace, with names for Arm's common events.
fn core(midr: &str, slots: u64) -> Machine {
    let mut machine = captured("grace-2s");
    let core = machine.pmus.iter_mut().find(|pmu| pmu.name == "armv8_pmuv3").unwrap();
    let named = SLOTS.iter().filter(|(name, _)| !name.contains('='));
    for (at, (name, _)) in named.enumerate() {
        let mut event: EventAlias = core.events["cpu_cycles"].clone();
        event.terms[0].value = AliasValue::Number(at as u64 + 0x100);
        core.events.insert((*name).to_owned(), event);
    }
    core.processor = Some(midr.to_owned());
    core.caps.insert("slots".to_owned(), format!("{slots:#010x}"));
    machine
}

#[test]
fn slots_are_those_of_the_processor() {
    let names = ["frontend_bound", "backend_bound", "retiring", "bad_speculation"];
    for (midr, slots, expected) in CORES {
        let plan = metrics(&core(midr, *slots), &names);
        for (name, expected) in names.iter().zip(expected) {
            let found = value(&plan, name, SLOTS, 2.0, |m| m.cpu == 0);
            same(&format!("{midr} {slots} {name}"), found, *expected);
        }
        // One of them on each CPU.
        assert_eq!(plan.metrics.len(), names.len() * 4, "{midr}");
    }
    let unknown = Request { metrics: vec!["retiring".to_owned()], ..request(&[], &[]) };
    let catalog = Catalog::embedded().unwrap();
    let error = plan(&core("0x00000000610f0390", 0), &catalog, &unknown).unwrap_err().to_string();
    assert!(error.contains("slots") && !error.contains('\n'), "{error}");
}

#[test]
fn rates_of_cores_have_their_values() {
    let golden = [
        ("spec_ipc", 2.0),
        ("retired_rate", 80.0),
        ("wasted_rate", 20.0),
        ("l3d_cache_miss_rate", 20.0),
        ("l3d_cache_mpki", 10.0 / 1.5),
        ("branch_pki", 200.0),
    ];
    let plan = metrics(&core("0x00000000410fd4f0", 0), &golden.map(|(name, _)| name));
    for (name, expected) in golden {
        same(name, value(&plan, name, SLOTS, 2.0, |m| m.cpu == 0), expected);
    }
}
