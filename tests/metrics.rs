//! Metrics of the catalog: their values for published counts, the inputs that they open, and
//! groups.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::metric::{DURATION_NS, MetricValue, PlannedMetric, evaluate_metric};
use uncore_trace::catalog::pmu_words::PmuWords;
use uncore_trace::discover::Machine;
use uncore_trace::plan::{Plan, PlanRequest, plan};
use uncore_trace_lab::fixtures;

use crate::machines::captured;

fn request(events: &[&str], metrics: &[&str]) -> PlanRequest {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PlanRequest {
        events: owned(events),
        metrics: owned(metrics),
        tick_ns: 1_000_000,
        window_ns: 10_000_000,
        ..PlanRequest::default()
    }
}

fn try_plan(machine: &Machine, metrics: &[&str]) -> Result<Plan, String> {
    plan(machine, &Catalog::load_embedded().unwrap(), &request(&[], metrics)).map_err(|error| {
        let error = format!("{error:#}");
        assert!(!error.contains('\n'), "more than one line: {error}");
        error
    })
}

fn planned(name: &str, metrics: &[&str]) -> Plan {
    try_plan(&captured(name), metrics).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The value of a metric over the PMUs that `pick` selects, with the raw count `raw` of each event.
fn value(
    plan: &Plan,
    metric: &str,
    pick: impl Fn(&PlannedMetric) -> bool,
    raw: &[(&str, f64)],
    seconds: f64,
) -> f64 {
    let raw: BTreeMap<_, _> = raw.iter().copied().collect();
    let count = |id: u32| {
        let counter = &plan.counters[id as usize];
        Some(raw.get(counter.event.to_lowercase().as_str())? * counter.scale)
    };
    let instances: Vec<_> = plan
        .metrics
        .iter()
        .filter(|planned_metric| planned_metric.name == metric && pick(planned_metric))
        .collect();
    assert!(!instances.is_empty(), "{metric} is not in the plan");
    match evaluate_metric(&instances, &count, seconds * 1e9) {
        MetricValue::Number(value) => value,
        other => panic!("{metric}: {other:?}"),
    }
}

#[track_caller]
fn about(value: f64, expected: f64, part: f64) {
    assert!((value / expected - 1.0).abs() < part, "{value} is not {expected}");
}

/// NVIDIA Grace Performance Tuning Guide: beats of 32 bytes, and a device's reads in 1.97 s.
#[test]
fn published_grace_measurements_are_reproduced() {
    let plan = planned("grace-2s", &["mem_read_bandwidth", "remote_mem_read_bandwidth"]);
    let (on_socket_0, on_socket_1) = (
        |planned_metric: &PlannedMetric| planned_metric.socket == Some(0),
        |planned_metric: &PlannedMetric| planned_metric.socket == Some(1),
    );
    let beats = [("cmem_rd_data", 35_572_420.0)];
    about(value(&plan, "mem_read_bandwidth", on_socket_0, &beats, 1.0), 1.138_317_440, 1e-12);
    let beats = [("remote_socket_rd_data", 36_189_087.0), ("cmem_rd_data", 33_542_984.0)];
    about(
        value(&plan, "remote_mem_read_bandwidth", on_socket_1, &beats, 1.0),
        1.158_050_784,
        1e-12,
    );
    about(value(&plan, "mem_read_bandwidth", on_socket_0, &beats, 1.0), 1.073_375_488, 1e-12);
    about(value(&plan, "mem_read_bandwidth", |_| true, &beats, 1.0), 2.0 * 1.073_375_488, 1e-12);

    let plan = planned("grace-2s", &["pcie_read_bandwidth"]);
    let bytes = [("rd_bytes_loc", 1_168_472_064.0), ("rd_bytes_rem", 0.0)];
    let pcie = value(&plan, "pcie_read_bandwidth", on_socket_0, &bytes, 1.966_391_711);
    about(pcie, 0.594, 0.001);

    let plan = planned("grace-2s", &["c2c_bandwidth"]);
    let bytes = [("rd_bytes_loc", 4_234_927_104.0), ("wr_bytes_loc", 201_326_592.0)];
    let c2c0 = |planned_metric: &PlannedMetric| planned_metric.pmu == "nvidia_nvlink_c2c0_pmu_0";
    about(value(&plan, "c2c_bandwidth", c2c0, &bytes, 1.0), 4.436_253_696, 1e-12);
}

/// Alibaba Cloud's guides to the Yitian 710: fio read 8590 MB, and 4 links at 1.8 GHz.
#[test]
fn published_yitian_measurements_are_reproduced() {
    // The names of the Cloud Kernel for the root port, with its units of 16 bytes.
    let mut machine = captured("yitian");
    let ports = machine.pmus.iter_mut().filter(|pmu| pmu.name.starts_with("dwc_rootport"));
    for (index, port) in ports.enumerate() {
        port.name = format!("pcie_bdf_{}00000", index + 1);
    }
    let plan = try_plan(&machine, &["pcie_*"]).unwrap();
    let port = |planned_metric: &PlannedMetric| planned_metric.pmu == "pcie_bdf_100000";
    let payload = |rx, tx| [("rx_pcie_tlp_data_payload", rx), ("tx_pcie_tlp_data_payload", tx)];
    let (read, write) = ("pcie_read_bandwidth", "pcie_write_bandwidth");
    about(value(&plan, write, port, &payload(536_910_432.0, 0.0), 1.0), 8.590, 1e-4);
    about(value(&plan, write, port, &payload(6_777_637_176.0, 0.0), 1.0), 108.442, 1e-5);
    let shared = payload(211_517_354.0, 221_219_025.0);
    about(value(&plan, write, port, &shared, 1.0), 3.384, 1e-4);
    about(value(&plan, read, port, &shared, 1.0), 3.539, 1e-3);

    // The driver of Linux converts counts to bytes.
    let plan = planned("yitian", &["pcie_*"]);
    let port = |planned_metric: &PlannedMetric| planned_metric.pmu == "dwc_rootport_10000";
    let payload = payload(536_910_432.0 * 16.0, 0.0);
    about(value(&plan, write, port, &payload, 1.0), 8.590, 1e-4);

    // Each of the four links between the dies has a quarter of the count of all.
    let plan = planned("yitian", &["d2d_tx_bandwidth"]);
    let each = [("ccla_tx_cxs", 810_164_744.0)];
    let (die, seconds) = (
        |planned_metric: &PlannedMetric| planned_metric.pmu == "arm_cmn_0",
        12_213_460_910.0 / 1.8e9,
    );
    about(value(&plan, "d2d_tx_bandwidth", die, &each, seconds), 15.28, 1e-3);
    assert_eq!(plan.counters.len(), 8);
    let plan = planned("yitian", &["c2c_*", "mesh_frequency"]);
    let flits = [
        ("ccla_tx_cxs", 4.0 * 810_164_744.0),
        ("ccla_rx_cxs", 0.0),
        ("dtc_cycles", 12_213_460_910.0),
    ];
    about(value(&plan, "c2c_tx_bandwidth", die, &flits, seconds), 15.28, 1e-3);
    about(value(&plan, "mesh_frequency", die, &flits, seconds), 1.8, 1e-12);
    assert!(value(&plan, "c2c_rx_bandwidth", die, &flits, seconds).abs() < 1e-12);
}

/// By the formulas as published, with distinct counts for all events.
#[test]
fn metrics_have_the_values_of_the_published_formulas() {
    let grace = planned("grace-2s", &["mem_*", "socket_1_*", "pcie_*", "c2c_*"]);
    let counts = [
        ("cycles", 3.2e9),
        ("cmem_rd_access", 4.0e8),
        ("cmem_rd_outstanding", 6.0e10),
        ("cmem_wb_access", 1.0e8),
        ("cmem_wr_access", 2.0e7),
        ("socket_1_rd_access", 3.0e7),
        ("socket_1_wb_access", 1.0e7),
        ("socket_1_wr_access", 5.0e6),
        ("socket_1_rd_outstanding", 9.0e9),
        ("rd_req_loc", 1.0e8),
        ("rd_req_rem", 2.0e7),
        ("wr_req_loc", 3.0e8),
        ("wr_req_rem", 4.0e7),
        ("rd_cum_outs_loc", 5.0e10),
        ("rd_cum_outs_rem", 3.0e10),
    ];
    let socket = |family: &'static str| {
        move |planned_metric: &PlannedMetric| {
            planned_metric.family == family && planned_metric.socket == Some(0)
        }
    };
    let t = 2.0;
    for (metric, family, expected) in [
        ("mem_read_utilization", "nvidia_scf", 100.0 * 4.0e8 / (8.0 * 3.2e9)),
        ("mem_write_utilization", "nvidia_scf", 100.0 * 1.2e8 / (8.0 * 3.2e9)),
        ("mem_read_latency", "nvidia_scf", (6.0e10 / 4.0e8) / (3.2e9 / 2.0e9)),
        ("socket_1_mem_read_utilization", "nvidia_scf", 100.0 * 3.0e7 / (2.0 * 3.2e9)),
        ("socket_1_mem_write_utilization", "nvidia_scf", 100.0 * 1.5e7 / (2.0 * 3.2e9)),
        ("socket_1_mem_read_latency", "nvidia_scf", (9.0e9 / 3.0e7) / 1.6),
        ("pcie_frequency", "nvidia_pcie", 1.6),
        ("pcie_read_utilization", "nvidia_pcie", 100.0 * 1.2e8 / (10.0 * 3.2e9)),
        ("pcie_write_utilization", "nvidia_pcie", 100.0 * 3.4e8 / (10.0 * 3.2e9)),
        ("pcie_read_latency_local", "nvidia_pcie", (5.0e10 / 1.0e8) / 1.6),
        ("pcie_read_latency_remote", "nvidia_pcie", (3.0e10 / 2.0e7) / 1.6),
        ("c2c_read_utilization", "nvidia_nvlink_c2c1", 100.0 * 1.0e8 / (10.0 * 3.2e9)),
        ("c2c_write_utilization", "nvidia_nvlink_c2c1", 100.0 * 3.0e8 / (10.0 * 3.2e9)),
        ("c2c_read_latency", "nvidia_nvlink_c2c0", (5.0e10 / 1.0e8) / 1.6),
    ] {
        about(value(&grace, metric, socket(family), &counts, t), expected, 1e-12);
        // Equal counts on both sockets give the same value for both.
        let over_both_sockets =
            value(&grace, metric, |planned_metric| planned_metric.family == family, &counts, t);
        about(over_both_sockets, expected, 1e-12);
    }

    let t410 = planned("t410-2s", &["*_latency", "*_rate"]);
    let counts = [
        ("cycles", 2.0e9),
        ("rd_req", 1.0e7),
        ("rd_cum_outs", 6.0e9),
        ("wr_req", 3.0e7),
        ("mem_access_wr", 5.0e8),
        ("in_rd_req", 2.0e6),
        ("in_rd_cum_outs", 1.0e9),
    ];
    for (metric, family, expected) in [
        ("pcie_read_latency", "nvidia_pcie_rc", (6.0e9 / 1.0e7) / 1.0),
        ("mem_read_latency", "nvidia_cmem_latency", 600.0),
        ("c2c_in_read_latency", "nvidia_nvlink_c2c", 500.0),
        ("cxl_read_latency", "nvidia_nvdlink", 500.0),
        ("mem_write_request_rate", "nvidia_ucf", 0.25),
        ("pcie_target_write_request_rate", "nvidia_pcie_tgt", 0.015),
    ] {
        about(
            value(&t410, metric, |planned_metric| planned_metric.family == family, &counts, t),
            expected,
            1e-12,
        );
    }
}

/// Events that the formulas need and that Grace's kernel does not name.
const CORE_EVENTS: &[&str] = &[
    "inst_retired",
    "op_retired",
    "op_spec",
    "stall_slot",
    "br_mis_pred",
    "br_retired",
    "br_mis_pred_retired",
    "inst_spec",
    "l1d_cache",
    "l1d_cache_refill",
    "l1i_cache",
    "l1i_cache_refill",
    "l2d_cache",
    "l2d_cache_refill",
    "ll_cache_rd",
    "ll_cache_miss_rd",
    "l1d_tlb",
    "l1d_tlb_refill",
    "l1i_tlb",
    "l1i_tlb_refill",
    "l2d_tlb",
    "l2d_tlb_refill",
    "dtlb_walk",
    "itlb_walk",
];

/// Counts of the core PMU.
const CORE_COUNTS: &[(&str, f64)] = &[
    ("cpu_cycles", 1000.0),
    ("inst_retired", 1500.0),
    ("op_retired", 1600.0),
    ("op_spec", 2000.0),
    ("stall_slot", 2400.0),
    ("stall_backend", 300.0),
    ("stall_frontend", 100.0),
    ("br_mis_pred", 5.0),
    ("br_retired", 200.0),
    ("br_mis_pred_retired", 4.0),
    ("inst_spec", 2000.0),
    ("ld_spec", 500.0),
    ("st_spec", 200.0),
    ("br_immed_spec", 150.0),
    ("br_indirect_spec", 50.0),
    ("dp_spec", 700.0),
    ("vfp_spec", 40.0),
    ("isb_spec", 1.0),
    ("dsb_spec", 2.0),
    ("dmb_spec", 3.0),
    ("crypto_spec", 8.0),
    ("sve_inst_spec", 60.0),
    ("ase_inst_spec", 20.0),
    ("fp_hp_spec", 10.0),
    ("fp_sp_spec", 12.0),
    ("fp_dp_spec", 14.0),
    ("sve_pred_full_spec", 30.0),
    ("sve_pred_partial_spec", 6.0),
    ("sve_pred_empty_spec", 2.0),
    ("fp_scale_ops_spec", 900.0),
    ("fp_fixed_ops_spec", 100.0),
    ("l1d_cache", 800.0),
    ("l1d_cache_refill", 40.0),
    ("l1i_cache", 400.0),
    ("l1i_cache_refill", 4.0),
    ("l2d_cache", 44.0),
    ("l2d_cache_refill", 11.0),
    ("ll_cache_rd", 10.0),
    ("ll_cache_miss_rd", 4.0),
    ("l1d_tlb", 900.0),
    ("l1d_tlb_refill", 9.0),
    ("l1i_tlb", 500.0),
    ("l1i_tlb_refill", 5.0),
    ("l2d_tlb", 14.0),
    ("l2d_tlb_refill", 7.0),
    ("dtlb_walk", 3.0),
    ("itlb_walk", 2.0),
];

/// The values of the metrics of one CPU for these counts.
const CORE_METRICS: &[(&str, f64)] = &[
    ("ipc", 1.5),
    ("retiring", 100.0 * 0.8 * 0.7),
    ("bad_speculation", 100.0 * (0.2 * 0.7 + 5.0 * 4.0 / 1000.0)),
    ("backend_stalled", 30.0),
    ("frontend_stalled", 10.0),
    ("load_instructions", 25.0),
    ("store_instructions", 10.0),
    ("branch_instructions", 10.0),
    ("integer_instructions", 35.0),
    ("fp_instructions", 2.0),
    ("sync_instructions", 0.3),
    ("crypto_instructions", 0.4),
    ("sve_instructions", 3.0),
    ("asimd_instructions", 1.0),
    ("simd_instructions", 4.0),
    ("fp16_instructions", 0.5),
    ("fp32_instructions", 0.6),
    ("fp64_instructions", 0.7),
    ("sve_predicate_full", 1.5),
    ("sve_predicate_partial", 0.3),
    ("sve_predicate_empty", 0.1),
    ("l1d_miss_ratio", 0.05),
    ("l1d_mpki", 40.0 / 1.5),
    ("l1i_miss_ratio", 0.01),
    ("l1i_mpki", 4.0 / 1.5),
    ("l2_miss_ratio", 0.25),
    ("l2_mpki", 11.0 / 1.5),
    ("ll_read_hit_ratio", 0.6),
    ("ll_read_miss_ratio", 0.4),
    ("ll_read_mpki", 4.0 / 1.5),
    ("l1d_tlb_miss_ratio", 0.01),
    ("l1d_tlb_mpki", 6.0),
    ("l1i_tlb_miss_ratio", 0.01),
    ("l1i_tlb_mpki", 5.0 / 1.5),
    ("l2_tlb_miss_ratio", 0.5),
    ("l2_tlb_mpki", 7.0 / 1.5),
    ("dtlb_walk_ratio", 3.0 / 900.0),
    ("dtlb_walk_mpki", 2.0),
    ("itlb_walk_ratio", 0.004),
    ("itlb_walk_mpki", 2.0 / 1.5),
    ("branch_mispredict_ratio", 0.02),
    ("branch_mispredict_mpki", 4.0 / 1.5),
];

/// The core list, on a core whose kernel names every event the formulas need.
#[test]
fn core_metrics_have_the_values_of_the_published_formulas() {
    let mut machine = captured("grace-2s");
    let core = machine.pmus.iter_mut().find(|pmu| pmu.name == "armv8_pmuv3").unwrap();
    let event = core.events["cpu_cycles"].clone();
    for (index, name) in CORE_EVENTS.iter().enumerate() {
        let mut event = event.clone();
        event.terms[0].value =
            uncore_trace::discover::event::AliasValue::Number(index as u64 + 0x100);
        core.events.insert((*name).to_owned(), event);
    }
    core.processor = Some("0x00000000410fd4f0".to_owned());
    let flops = [("sve_flops", 450.0), ("non_sve_flops", 50.0), ("flops", 500.0)];
    let all: Vec<_> = CORE_METRICS.iter().chain(&flops).map(|(name, _)| *name).collect();
    let plan = try_plan(&machine, &all).unwrap();
    assert!(plan.metrics.iter().all(|metric| metric.missing_inputs().is_empty()));
    for &(metric, expected) in CORE_METRICS {
        about(value(&plan, metric, |_| true, CORE_COUNTS, 2.0), expected, 1e-12);
    }
    // Operations of four CPUs are summed.
    for (metric, expected) in flops {
        about(
            value(&plan, metric, |planned_metric| planned_metric.cpu == 0, CORE_COUNTS, 2.0),
            expected,
            1e-12,
        );
        about(value(&plan, metric, |_| true, CORE_COUNTS, 2.0), 4.0 * expected, 1e-12);
    }
}

/// Every name in a formula is a constant, the time, or an event that some machine here or the
/// catalog has; any other name is a typing error.
#[test]
fn every_name_of_a_formula_is_known() {
    /// Events of processors and kernels that no machine here has.
    const ELSEWHERE: [&str; 21] = [
        // drivers/perf/fsl_imx8_ddr_perf.c and fsl_imx9_ddr_perf.c, Linux 7.2.
        "axid-",
        "eddrtq_pm_",
        "read-cycles",
        "write-cycles",
        "ib_tlp_",
        "ob_tlp_",
        "cas_count_read_sch",
        "cas_count_write_sch",
        "bw_out_port",
        "sbsx_txdat_flitv",
        "umc_",
        "unc_upi_",
        "inst_retired",
        "out_wr_",
        "in_wr_",
        "rx_pcie",
        "unc_m_rd_data",
        "unc_m_wr_data",
        "energy-cores",
        "energy-psys",
        "energy-ram",
    ];
    /// Arm's common events (`drivers/perf/arm_pmuv3.c`, Linux 7.2), of which a core has some.
    const ARM: &str = "inst_retired op_retired op_spec stall_slot br_mis_pred br_retired \
        br_mis_pred_retired inst_spec l1d_cache l1d_cache_refill l1i_cache l1i_cache_refill \
        l2d_cache l2d_cache_refill ll_cache_rd ll_cache_miss_rd l1d_tlb l1d_tlb_refill l1i_tlb \
        l1i_tlb_refill l2d_tlb l2d_tlb_refill dtlb_walk itlb_walk cpu_cycles stall_backend \
        stall_frontend stall_slot_frontend stall_slot_backend l3d_cache l3d_cache_refill";
    let mut unknown = Vec::new();
    let catalog = Catalog::load_embedded().unwrap();
    let machines = fixtures::names().unwrap();
    let machines: Vec<_> = machines.iter().map(|name| captured(name)).collect();
    for family in &catalog.families {
        let pmus: Vec<_> = machines
            .iter()
            .flat_map(|machine| &machine.pmus)
            .filter(|pmu| {
                catalog.family_of(pmu).is_some_and(|candidate| candidate.family == family.family)
            })
            .collect();
        let base = catalog.families.iter().find(|f| Some(&f.family) == family.events_of.as_ref());
        // Metrics with the vendor's names are compared with the vendor's events where they are
        // read.
        for metric in family.metrics.iter().filter(|metric| !metric.vendor) {
            for name in metric.formula.distinct_names() {
                let named = family.events.iter().chain(base.iter().flat_map(|base| &base.events));
                let is_known = name == DURATION_NS
                    || metric.inputs.contains_key(name)
                    || family.constants.iter().any(|constant| constant.name == name)
                    || named.flat_map(|event| &event.names).any(|event_name| event_name == name)
                    || pmus
                        .iter()
                        .any(|pmu| PmuWords::new(&catalog, pmu).find_event(name).is_some())
                    || ELSEWHERE.iter().any(|prefix| name.starts_with(prefix))
                    || family.family == "arm_core"
                        && ARM.split(' ').any(|event_name| event_name == name)
                    || family.family == "pcie_bdf" && name.ends_with("_pcie_tlp_data_payload")
                    || ["unc_m2m_", "unc_b2cmi_", "unc_cxl"]
                        .iter()
                        .any(|prefix| name.starts_with(prefix))
                    || family.family == "intel_imc_free_running"
                        && ["read", "write"].contains(&name);
                if !is_known {
                    unknown.push(format!("{}: {}: {name}", family.family, metric.name));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The inputs of a ratio are counted at the same time, if the PMU can do that.
#[test]
fn the_inputs_of_a_ratio_are_a_group() {
    let plan = planned("grace-2s", &["pcie_read_latency_local", "pcie_read_utilization"]);
    let events_and_leaders = |pmu: &str| -> Vec<_> {
        let pmu_counters = plan.counters.iter().filter(|counter| counter.pmu == pmu);
        pmu_counters.map(|counter| (counter.event.as_str(), counter.leader)).collect()
    };
    assert_eq!(
        events_and_leaders("nvidia_pcie_pmu_0"),
        [
            ("rd_cum_outs_loc", None),
            ("rd_req_loc", Some(0)),
            ("cycles", Some(0)),
            ("rd_req_rem", Some(0))
        ]
    );
    assert_eq!(events_and_leaders("nvidia_pcie_pmu_1")[0].1, None);
    assert_eq!(plan.counters.len(), 8, "an event of two metrics is one counter");

    // A bandwidth has one input and needs no group; a PMU without groups gets none.
    for (name, metric) in [("grace-2s", "pcie_bandwidth"), ("yitian", "mem_write_bandwidth")] {
        assert!(planned(name, &[metric]).counters.iter().all(|counter| counter.leader.is_none()));
    }
    for name in ["all-drivers-acpi", "grace-2s", "icelake-2s", "t410-2s", "yitian"] {
        let plan = planned(name, &["*"]);
        for counter in &plan.counters {
            let Some(leader) = counter.leader else { continue };
            let leader = &plan.counters[leader as usize];
            assert!(leader.id < counter.id && leader.leader.is_none(), "{counter:?}");
            assert_eq!((&leader.pmu, leader.cpu), (&counter.pmu, counter.cpu));
        }
        for metric in &plan.metrics {
            assert!(metric.missing_inputs().is_empty(), "{metric:?}");
        }
    }
}

/// A group that the PMU cannot count at once would never run.
#[test]
fn a_group_is_within_the_budget() {
    let machine = captured("yitian");
    for (counters, grouped) in [(1, 0), (2, 2)] {
        let mut catalog = Catalog::load_embedded().unwrap();
        let mesh = catalog.families.iter_mut().find(|family| family.family == "arm_cmn").unwrap();
        mesh.budgets[0].counters = counters;
        let plan = plan(&machine, &catalog, &request(&[], &["slc_miss_rate"])).unwrap();
        assert_eq!(plan.counters.iter().filter(|c| c.leader.is_some()).count(), grouped);
    }
}

#[test]
fn groups_that_the_user_typed_keep_their_members() {
    let pmu = "nvidia_pcie_pmu_0";
    let text = format!("{{{pmu}/rd_req_loc/,{pmu}/wr_req_loc/}}");
    let request = request(&[&text], &["pcie_read_utilization"]);
    let plan = plan(&captured("grace-2s"), &Catalog::load_embedded().unwrap(), &request).unwrap();
    let pmu_counters = plan.counters.iter().filter(|counter| counter.pmu == pmu);
    let typed_members: Vec<_> =
        pmu_counters.map(|counter| (counter.event.as_str(), counter.leader)).collect();
    let remaining = plan.counters.iter().find(|c| c.pmu == pmu && c.event == "rd_req_rem").unwrap();
    assert_eq!(
        typed_members,
        [
            ("rd_req_loc", None),
            ("wr_req_loc", Some(0)),
            ("rd_req_rem", None),
            ("cycles", Some(remaining.id))
        ]
    );
}

/// Events that `-p` opens individually become a group if a metric divides them.
#[test]
fn metrics_share_the_counters_of_groups() {
    let mut request = request(&[], &["mem_read_latency"]);
    request.groups.push("latency".to_owned());
    let plan = plan(&captured("grace-2s"), &Catalog::load_embedded().unwrap(), &request).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    assert!(plan.counters.iter().all(|c| seen.insert((c.attr_type, c.config, c.cpu))));
    let scf: Vec<_> = plan.counters.iter().filter(|c| c.pmu == "nvidia_scf_pmu_0").collect();
    assert_eq!(scf.iter().filter(|c| c.leader == Some(scf[0].id)).count(), 2);
}

#[test]
fn errors_about_metrics_name_missing_and_present_events() {
    let cases = [
        ("grace-2s", "pcie_read_latncy_local"),
        ("grace-2s", "slc_read_bandwidth"),
        ("grace-2s", "slc_*"),
        ("grace-2s", "["),
        ("grace-2s", "retiring"),
        ("icelake-2s", "c2c_tx_bandwidth"),
        ("yitian", "mem_utilization"),
        ("vm-no-uncore", "ipc"),
        ("bare", "s2s_rx_bandwidth"),
        ("vm-no-uncore", "*"),
        ("vm-no-uncore", "mem_*"),
        ("icelake-2s", "*_latency*"),
    ];
    let errors = cases.map(|(name, metric)| match try_plan(&captured(name), &[metric]) {
        Ok(plan) => panic!("{name} {metric} was planned:\n{}", plan.render_plan()),
        Err(error) => {
            assert!(error.len() < 500, "{} characters: {error}", error.len());
            format!("{name} -M {metric}\n  {error}")
        }
    });
    insta::assert_snapshot!("metric-errors", errors.join("\n"));
}

/// The same traffic is counted once.
#[test]
fn a_family_that_yields_is_left_out() {
    let plan = planned("icelake-2s", &["mem_read_bandwidth"]);
    assert!(plan.metrics.iter().all(|metric| metric.family == "intel_imc"));
    assert!(plan.notes[0].contains("intel_imc counts the same traffic"), "{:?}", plan.notes);
    // Metrics that the other family does not have.
    assert_eq!(planned("icelake-2s", &["iio_clock"]).metrics.len(), 12);
}

#[test]
fn plans_of_metrics_are_as_reviewed_and_survive_json() {
    let grace = ["pcie_bandwidth", "pcie_read_utilization", "mem_read_latency", "backend_stalled"];
    let plans = [
        planned("grace-2s", &grace),
        planned("t410-2s", &["pcie_read_latency", "c2c_in_read_latency", "ipc"]),
        planned("yitian", &["slc_miss_rate", "mem_*", "pcie_read_bandwidth"]),
        planned("icelake-2s", &["mem_*"]),
    ];
    insta::assert_snapshot!("metric-plans", plans.map(|plan| plan.render_plan()).join("\n"));
    for plan in plans_again() {
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

fn plans_again() -> [Plan; 2] {
    [planned("grace-2s", &["*"]), planned("yitian", &["*"])]
}
