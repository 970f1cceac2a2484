//! Names of Intel's events and metrics, and memory that is not counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::metric::PlannedMetric;
use uncore_trace::catalog::source::TrafficCause;
use uncore_trace::discover::{Machine, Pmu};
use uncore_trace::plan::{Plan, PlanRequest, plan};

use crate::golden::{assert_same_value, metrics, value};
use crate::machines::{brief, captured, planned, refused, request};

pub(super) fn plan_groups(machine: &Machine, groups: &[&str]) -> Plan {
    plan(machine, &Catalog::load_embedded().unwrap(), &request(groups, &[])).unwrap()
}

pub(super) fn has_note(plan: &Plan, text: &str) -> bool {
    plan.notes.iter().any(|note| note.contains(text))
}

/// A PMU with the fields of every generation.
pub(super) fn pmu(name: &str, processor: &str) -> Pmu {
    let fields = [
        ("event", "config:0-7,21"),
        ("umask", "config:8-15,32-63"),
        ("occ_sel", "config:14-15"),
        ("ch_mask", "config:36-47"),
        ("fc_mask", "config:48-50"),
        ("cmask", "config:24-28"),
        ("thresh", "config:24-31"),
        ("filter_tid", "config1:0-4"),
        ("filter_opc", "config1:20-28"),
        ("filter_opc0", "config1:41-50"),
        ("filter_opc1", "config1:51-60"),
    ];
    let format = |(name, text): (&str, &str)| (name.to_owned(), text.parse().unwrap());
    Pmu {
        name: name.to_owned(),
        attr_type: 300,
        cpumask: Some("0".parse().unwrap()),
        processor: Some(processor.to_owned()),
        formats: fields.into_iter().map(format).collect(),
        ..Pmu::default()
    }
}

/// Report 03: `qpi_data_transmit_bw` of intel/perfmon is the data flits times 8 bytes.
#[test]
fn broadwell_counts_its_links() {
    let machine = captured("broadwell-ep");
    let counts = [
        ("unc_q_txl_flits_g0.data", 2e9),
        ("unc_q_rxl_flits_g1.drs_data", 1e9),
        ("unc_q_rxl_flits_g2.ncb_data", 5e8),
    ];
    let names = ["qpi_data_transmit_bw", "c2c_tx_bandwidth", "c2c_rx_bandwidth"];
    let plan = metrics(&machine, &names);
    // Two links, 2 s: 2e9 flits are 8 GB/s.
    for (name, expected) in names.into_iter().zip([16000.0, 16.0, 12.0]) {
        assert_same_value(name, value(&plan, name, &counts, 2.0, |_| true), expected);
    }
    let c2c = planned("broadwell-ep", &["c2c"], &[]);
    let of_one: Vec<_> = brief(&c2c).into_iter().filter(|line| line.contains("qpi_0")).collect();
    assert_eq!(
        of_one,
        [
            "uncore_qpi_0 unc_q_txl_flits_g0.data [] bytesx8 0x200,0x0,0x0 cpu 0",
            "uncore_qpi_0 unc_q_rxl_flits_g1.drs_data [] bytesx8 0x200802,0x0,0x0 cpu 0",
            "uncore_qpi_0 unc_q_rxl_flits_g2.ncb_data [] bytesx8 0x200403,0x0,0x0 cpu 0",
        ]
    );
    assert!(c2c.links.iter().any(|link| link.kind == "QPI"), "{:?}", c2c.links);
    // Linux 6.1 calls it so.
    assert_eq!(
        brief(&planned("broadwell-ep", &[], &["QPI_DATA_BANDWIDTH_TX"]))[0],
        "uncore_qpi_0 unc_q_txl_flits_g0.data [] bytesx8 0x200,0x0,0x0 cpu 0"
    );
}

/// Report 04.
#[test]
fn metrics_of_irp_have_their_values() {
    let plan = metrics(&captured("granite-rapids-2s"), &["io_lost_fwd"]);
    let counts = [("unc_i_misc1.lost_fwd", 600.0), ("unc_i_misc1.sec_rcvd_invld", 400.0)];
    // Two stacks of socket 0.
    let on_cpu_0 = |metric: &PlannedMetric| metric.cpu == 0;
    assert_same_value("io_lost_fwd", value(&plan, "io_lost_fwd", &counts, 2.0, on_cpu_0), 1000.0);
}

/// Every imported metric can be planned where its PMU is.
#[test]
fn every_metric_of_intel_is_planned() {
    let mut unplanned = BTreeSet::new();
    let catalog = Catalog::load_embedded().unwrap();
    let mut count = 0;
    for family in &catalog.families {
        for metric in family.metrics.iter().filter(|metric| metric.vendor) {
            let intel =
                metric.processors.iter().filter(|pattern| pattern.starts_with("GenuineIntel"));
            for processor in intel {
                // A family may have PMUs of several kinds.
                let mut plans = family.names.iter().filter_map(|name| {
                    let mut machine = captured("granite-rapids-2s");
                    machine.pmus = vec![pmu(&name.replace('#', "0"), processor)];
                    let metrics = vec![metric.name.clone()];
                    plan(&machine, &catalog, &PlanRequest { metrics, ..request(&[], &[]) }).ok()
                });
                // Some read PMUs of several families.
                let of_all = || {
                    let mut machine = captured("granite-rapids-2s");
                    let families = catalog.families.iter().flat_map(|family| &family.names);
                    let names = families.filter(|name| name.starts_with("uncore_"));
                    machine.pmus =
                        names.map(|name| pmu(&name.replace('#', "0"), processor)).collect();
                    let metrics = vec![metric.name.clone()];
                    plan(&machine, &catalog, &PlanRequest { metrics, ..request(&[], &[]) }).ok()
                };
                let planned = plans.next().or_else(of_all);
                let metrics = planned.map_or(0, |plan| plan.metrics.len());
                if metrics == 0 {
                    unplanned.insert(metric.name.as_str());
                }
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
    // The PMU `power` has its events in sysfs only. The others need a filter of the real PMU, or
    // the clock of sockets.
    let allowed_unplanned = BTreeSet::from([
        "io_bandwidth_write",
        "lpm_cpu_power_cores",
        "lpm_cpu_power_gpu",
        "lpm_cpu_power_pkg",
        "lpm_cpu_power_psys",
        "lpm_cpu_power_ram",
        "lpm_miss_lat_loc",
        "lpm_miss_lat_rem",
    ]);
    assert!(unplanned.is_subset(&allowed_unplanned), "{unplanned:?}");
}

/// Report 09: names of perf's older tables, and of Intel's experimental files.
#[test]
fn names_of_perfs_tables_are_events() {
    for (name, typed, expected) in [
        (
            "skylake-sp-2s",
            "llc_misses.mem_read",
            "uncore_imc_0 cas_count_read [] bytesx64 0x304,0x0,0x0 cpu 0",
        ),
        (
            "skylake-sp-2s",
            "LLC_MISSES.MEM_WRITE",
            "uncore_imc_0 cas_count_write [] bytesx64 0xc04,0x0,0x0 cpu 0",
        ),
        // However it is typed.
        (
            "skylake-sp-2s",
            "unc_m_cas_count.rd",
            "uncore_imc_0 cas_count_read [] bytesx64 0x304,0x0,0x0 cpu 0",
        ),
        (
            "skylake-sp-2s",
            "llc_misses.pcie_read",
            "uncore_iio_0 unc_iio_data_req_of_cpu.mem_read [ch_mask=0xf,fc_mask=0x7] bytesx4 \
             0x70f000000483,0x0,0x0 cpu 0",
        ),
        // The opcode of UCRdF in FILTER1, and any target.
        (
            "skylake-sp-2s",
            "llc_misses.uncacheable",
            "uncore_cha_0 llc_misses.uncacheable [] requestsx1 0x2135,0x40e3300000000,0x0 cpu 0",
        ),
        (
            "skylake-sp-2s",
            "upi_data_bandwidth_tx",
            "uncore_upi_0 unc_upi_txl_flits.all_data [] bytesx7.111111111111111 \
             0xf02,0x0,0x0 cpu 0",
        ),
        (
            "broadwell-ep",
            "llc_misses.data_read",
            "uncore_cbox_0 llc_misses.data_read [] bytesx64 0x335,0x18200000,0x0 cpu 0",
        ),
        (
            "broadwell-ep",
            "llc_misses.mem_read",
            "uncore_imc_0 cas_count_read [] bytesx64 0x304,0x0,0x0 cpu 0",
        ),
        (
            "xeon-max-2s",
            "unc_mchbm_cas_count.rd",
            "uncore_mchbm_0 unc_mchbm_cas_count.rd [] bytesx32 0xcf05,0x0,0x0 cpu 0",
        ),
        (
            "xeon-max-2s",
            "uncore_mchbm_0/event=0x05,umask=0xcf/",
            "uncore_mchbm_0 unc_mchbm_cas_count.rd [] bytesx32 0xcf05,0x0,0x0 cpu 0",
        ),
    ] {
        assert_eq!(brief(&planned(name, &[], &[typed]))[0], expected, "{typed}");
    }
    // UMask 0xE, UMaskExt 0x00 of skylakex_uncore_experimental.json.
    let experimental = planned("skylake-sp-2s", &[], &["unc_upi_txl_hdr_match.ncb"]);
    assert_eq!(experimental.counters[0].config[0], 0xe04, "{:?}", brief(&experimental));
}

#[test]
fn a_suggestion_has_the_same_meaning() {
    for (name, typed) in [
        ("zen4-2s", "llc_misses.mem_read"),
        ("sapphire-rapids-2s", "unc_mchbm_cas_count.rd"),
        ("xeon-max-2s", "unc_mchbm_pre_clockticks"),
        ("sapphire-rapids-2s", "unc_q_txl_flits_g0.data"),
        ("zen4-2s", "local_processor_read_data_beats_cs99"),
        ("xeon-max-2s", "uncore_mchbm_0/unc_m_cas_count.rd/"),
    ] {
        let error = refused(name, &[], &[typed]);
        assert!(!error.contains("did you mean"), "{name}: {error}");
    }
    for (name, typed, meant) in [
        ("xeon-max-2s", "unc_mchbm_cas_cuont.rd", "unc_mchbm_cas_count.rd"),
        ("xeon-max-2s", "uncore_mchbm_0/unc_mchbm_cas_count.rdd/", "unc_mchbm_cas_count.rd"),
        ("skylake-sp-2s", "unc_upi_txl_hdr_matsch.ncb", "unc_upi_txl_hdr_match.ncb"),
        ("skylake-sp-2s", "uncore_icm_0/event=1/", "uncore_imc"),
    ] {
        let error = refused(name, &[], &[typed]);
        assert!(error.contains(&format!("did you mean {meant}?")), "{name}: {error}");
    }
}

/// Report 10: HBM is in the group `mem` and in its bandwidth, 32 bytes a CAS.
#[test]
fn xeon_max_counts_both_memories() {
    let mem = planned("xeon-max-2s", &["mem"], &[]);
    let counter_count =
        |family: &str| mem.counters.iter().filter(|counter| counter.family == family).count();
    // Two PMUs, two directions, two sockets.
    assert_eq!((counter_count("intel_imc"), counter_count("intel_hbm")), (8, 8));
    assert!(!has_note(&mem, "not counted:"), "{:?}", mem.notes);
    let kinds: BTreeSet<_> = mem.links.iter().map(|link| link.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["HBM", "memory"]));
    let counts = [
        ("cas_count_read", 1e9),
        ("cas_count_write", 0.0),
        ("unc_mchbm_cas_count.rd", 1e9),
        ("unc_mchbm_cas_count.wr", 1e9),
    ];
    let machine = captured("xeon-max-2s");
    let plan = metrics(&machine, &["mem_bandwidth"]);
    // On each of four PMUs of DDR 64e9 bytes, of HBM 64e9 bytes.
    assert_same_value(
        "mem_bandwidth",
        value(&plan, "mem_bandwidth", &counts, 2.0, |_| true),
        256.0,
    );

    // The driver's name for it (spr_uncore_hbm).
    let mut renamed = machine;
    for pmu in &mut renamed.pmus {
        pmu.name = pmu.name.replace("mchbm", "hbm");
    }
    let mem = plan_groups(&renamed, &["mem"]);
    assert_eq!(
        mem.counters.iter().filter(|counter| counter.pmu.starts_with("uncore_hbm_")).count(),
        8
    );
    // Other names of the table too.
    let all = plan_of(&renamed, "unc_mchbm_cas_count.all");
    assert_eq!((all.counters[0].config[0], all.counters[0].unit.as_str()), (0xff05, "bytes"));
}

pub(super) fn plan_of(machine: &Machine, event: &str) -> Plan {
    plan(machine, &Catalog::load_embedded().unwrap(), &request(&[], &[event])).unwrap()
}

#[test]
fn memory_that_is_not_counted_is_reported() {
    // A processor for which no event is known.
    let mut machine = captured("xeon-max-2s");
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.contains("mchbm")) {
        pmu.processor = None;
    }
    let note = "HBM is not counted: no event of uncore_mchbm_0, uncore_mchbm_1 counts its bytes";
    assert!(has_note(&plan_groups(&machine, &["mem"]), note));
    assert!(has_note(&plan_groups(&machine, &["auto"]), note));

    // A part of the channels.
    let mut machine = captured("sapphire-rapids-2s");
    let last = machine.pmus.iter_mut().find(|pmu| pmu.name == "uncore_imc_1").unwrap();
    (last.events, last.processor) = Default::default();
    let note = "a part of DDR is not counted: no event of uncore_imc_1 counts its bytes";
    assert!(has_note(&plan_groups(&machine, &["mem"]), note));

    // CXL memory of processors with and without known events.
    let mut machine = captured("sapphire-rapids-2s");
    machine.pmus.push(pmu("uncore_cxlcm_0", "GenuineIntel-6-8f"));
    machine.pmus.push(pmu("uncore_cxldp_0", "GenuineIntel-6-8f"));
    let counted = plan_groups(&machine, &["mem"]);
    let cxl: Vec<_> = brief(&counted).into_iter().filter(|line| line.contains("cxl")).collect();
    assert_eq!(
        cxl,
        [
            "uncore_cxlcm_0 unc_cxlcm_rxc_pack_buf_inserts.mem_data [] bytesx64 \
             0x1041,0x0,0x0 cpu 0",
            "uncore_cxldp_0 unc_cxldp_txc_agf_inserts.m2s_data [] bytesx64 0x2002,0x0,0x0 cpu 0",
        ]
    );
    assert!(!has_note(&counted, "not counted:"), "{:?}", counted.notes);
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.contains("cxl")) {
        pmu.processor = Some("GenuineIntel-6-99".to_owned());
    }
    assert!(has_note(
        &plan_groups(&machine, &["mem"]),
        "CXL memory is not counted: no event of uncore_cxl"
    ));
    machine.pmus.retain(|pmu| !pmu.name.contains("uncore_cxl"));
    machine.pmus.push(Pmu { name: "cxl_pmu_mem0.0".to_owned(), ..pmu("", "") });
    assert!(has_note(
        &plan_groups(&machine, &["mem"]),
        "CXL memory is not counted: no event of cxl_pmu"
    ));
}

/// A better family that has no event for the group does not keep another one from it.
#[test]
fn a_family_does_not_yield_to_one_that_counts_nothing() {
    let mut machine = captured("icelake-2s");
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.starts_with("uncore_imc_")) {
        if !pmu.name.contains("free") {
            (pmu.events, pmu.processor) = Default::default();
        }
    }
    let mem = plan_groups(&machine, &["mem"]);
    assert!(mem.counters.iter().all(|counter| counter.family == "intel_imc_free_running"));
}

/// `data_reads` and `data_writes` of `snb_uncore_imc_events`, and the counters of
/// `tgl_uncore_imc_events` (`arch/x86/events/intel/uncore_snb.c`, Linux 7.2).
#[test]
fn client_processors_count_their_memory() {
    assert_eq!(
        brief(&planned("client-skylake", &["mem"], &[])),
        [
            "uncore_imc data_reads [] bytesx64 0x1,0x0,0x0 cpu 0",
            "uncore_imc data_writes [] bytesx64 0x2,0x0,0x0 cpu 0",
        ]
    );
    assert_eq!(
        brief(&planned("client-alder-lake", &["mem"], &[])),
        [
            "uncore_imc_free_running_0 data_read [] bytesx64 0x20ff,0x0,0x0 cpu 0",
            "uncore_imc_free_running_0 data_write [] bytesx64 0x30ff,0x0,0x0 cpu 0",
            "uncore_imc_free_running_1 data_read [] bytesx64 0x20ff,0x0,0x0 cpu 0",
            "uncore_imc_free_running_1 data_write [] bytesx64 0x30ff,0x0,0x0 cpu 0",
        ]
    );
    let counts =
        [("data_reads", 1e9), ("data_writes", 5e8), ("data_read", 1e9), ("data_write", 5e8)];
    for (name, expected) in [("client-skylake", 48.0), ("client-alder-lake", 96.0)] {
        let plan = metrics(&captured(name), &["mem_bandwidth"]);
        assert_same_value(name, value(&plan, "mem_bandwidth", &counts, 2.0, |_| true), expected);
        let mem = planned(name, &["mem"], &[]);
        assert!(mem.notes.is_empty(), "{name}: {:?}", mem.notes);
        for counter in &mem.counters {
            assert_eq!(
                counter.causes,
                BTreeSet::from([TrafficCause::Cpu, TrafficCause::Device]),
                "{name}"
            );
        }
    }
    let by_origin = planned("client-skylake", &[], &["ia_requests", "gt_requests"]);
    let causes: Vec<_> = by_origin.counters.iter().map(|counter| counter.cause).collect();
    assert_eq!(causes, [Some(TrafficCause::Cpu), Some(TrafficCause::Device)]);
    // Intel's names, and the names of what is not there any more.
    let first_counter_of = |name, event| brief(&planned(name, &[], &[event]))[0].clone();
    assert_eq!(
        first_counter_of("client-alder-lake", "unc_m_cas_count_rd"),
        "uncore_imc_0 unc_m_cas_count_rd [] countx1 0x22,0x0,0x0 cpu 0"
    );
    assert!(
        first_counter_of("client-skylake", "unc_arb_trk_requests.all").starts_with("uncore_arb ")
    );
    assert_eq!(
        first_counter_of("client-alder-lake", "unc_clock.socket"),
        "uncore_clock clockticks [] cyclesx1 0xff,0x0,0x0 cpu 0"
    );
}

#[test]
fn kinds_of_memory_are_of_the_group_mem() {
    let catalog = Catalog::load_embedded().unwrap();
    let of_mem = catalog.families.iter().filter(|family| family.memory.is_some());
    assert!(of_mem.clone().count() > 8);
    assert!(of_mem.clone().all(|family| family.group.name() == "mem"));
}
