//! Published formulas of fabric metrics: the value for given counts, computed by hand from the
//! formulas as published.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::metric::{MetricValue, PlannedMetric, evaluate_metric};
use uncore_trace::discover::Machine;
use uncore_trace::plan::{Plan, PlanRequest, plan};

use crate::machines::{captured, request};

/// A metric, its family or PMU, and its value; for a family over the PMUs of socket 0.
type Golden = (&'static str, &'static str, f64);

/// Counts of each event in two seconds on any PMU, with a clock of 2 GHz.
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
    // Yitian 710; counts of dwc_rootport are bytes.
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

/// Alibaba Cloud's guides, and `Documentation/admin-guide/perf/{dwc_pcie_pmu,alibaba_pmu}.rst`.
/// Links move 32 bytes per flit, and the four links of a metric have equal counts; a memory channel
/// moves 64 bytes per request.
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
    let request = PlanRequest {
        metrics: names.iter().map(|&name| name.to_owned()).collect(),
        ..request(&[], &[])
    };
    let plan = plan(machine, &Catalog::load_embedded().unwrap(), &request);
    plan.unwrap_or_else(|error| panic!("{names:?}: {error:#}"))
}

/// The value of a metric over instances, with the raw count of each event by its name.
pub(crate) fn value(
    plan: &Plan,
    name: &str,
    counts: &[(&str, f64)],
    seconds: f64,
    pick: impl Fn(&PlannedMetric) -> bool,
) -> f64 {
    let counts: BTreeMap<_, _> = counts.iter().copied().collect();
    let count = |id: u32| {
        let counter = &plan.counters[id as usize];
        Some(counts.get(counter.event.to_lowercase().as_str())? * counter.scale)
    };
    let instances: Vec<_> = plan.metrics.iter().filter(|m| m.name == name && pick(m)).collect();
    assert!(!instances.is_empty(), "{name} is not in the plan");
    match evaluate_metric(&instances, &count, seconds * 1e9) {
        MetricValue::Number(value) => value,
        other => panic!("{name}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_same_value(name: &str, value: f64, expected: f64) {
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
            let is_of_family =
                |m: &PlannedMetric| m.pmu == *family || m.family == *family && m.socket == Some(0);
            assert_same_value(
                &format!("{family} {name}"),
                value(&plan, name, COUNTS, 2.0, is_of_family),
                *expected,
            );
        }
    }
    // The root port of the Cloud Kernel counts units of 16 bytes.
    let mut machine = captured("yitian");
    let port = machine.pmus.iter_mut().find(|pmu| pmu.name.starts_with("dwc_rootport")).unwrap();
    port.name = "pcie_bdf_100000".to_owned();
    let plan = metrics(&machine, &["pcie_*"]);
    let is_of_root_port = |m: &PlannedMetric| m.family == "pcie_bdf";
    assert_same_value(
        "pcie_bdf",
        value(&plan, "pcie_write_bandwidth", COUNTS, 2.0, is_of_root_port),
        128.0,
    );
    assert_same_value(
        "pcie_bdf",
        value(&plan, "pcie_read_bandwidth", COUNTS, 2.0, is_of_root_port),
        32.0,
    );
}

/// One root port of ten can carry a tenth: the divisor is the number of counted ports.
#[test]
fn the_utilization_of_one_root_port_is_of_that_port() {
    let request = PlanRequest {
        metrics: vec!["pcie_read_utilization".to_owned()],
        per_port: true,
        ..request(&[], &[])
    };
    let plan = plan(&captured("grace-2s"), &Catalog::load_embedded().unwrap(), &request).unwrap();
    let is_of_port =
        |m: &PlannedMetric| m.pmu == "nvidia_pcie_pmu_0" && m.filter == "root_port=0x8";
    assert_same_value(
        "per port",
        value(&plan, "pcie_read_utilization", COUNTS, 2.0, is_of_port),
        40.0,
    );
}
