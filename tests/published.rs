//! Published command lines, and their config words, computed by hand from the `format` files of
//! Linux 7.2.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::discover::Machine;
use uncore_trace::plan::{Counter, plan};

use crate::machines::{captured, machine_with_files, request};

/// An event of a text: suffix of its PMU's name, `config`, `config1` and `config2`.
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

/// A captured machine with root complexes of these names.
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
    for (offset, (original, name)) in names.into_iter().enumerate() {
        let mut pmu = machine.find_pmu(original).unwrap().clone();
        (pmu.name, pmu.attr_type) = (name.to_owned(), 200 + offset as u32);
        machine.pmus.push(pmu);
    }
    machine
}

#[test]
fn published_command_lines_become_these_config_words() {
    let catalog = Catalog::load_embedded().unwrap();
    let (_dir, cloud) = machine_with_files(&[
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
            let first = |c: &&Counter| !c.per_cpu || c.cpu == 0;
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
