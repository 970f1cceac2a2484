//! Memory of Intel's processors that is counted, or said not to be; perf's names of free-running
//! counters and its groups of metrics.

use std::collections::BTreeSet;

use uncore_trace::discover::Machine;

use super::intel::{has_note, plan_groups, plan_of, pmu};
use crate::golden::{assert_same_value, metrics, value};
use crate::machines::{brief, captured};

/// A client with the PMUs of Alder Lake and another processor.
fn client(processor: &str, free_running: bool) -> Machine {
    let mut machine = captured("client-alder-lake");
    machine.pmus.retain(|pmu| free_running || !pmu.name.contains("free_running"));
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.starts_with("uncore_")) {
        pmu.processor = Some(processor.to_owned());
    }
    machine
}

/// `UNC_M_RD_DATA` and `UNC_M_WR_DATA` of intel/perfmon: chunks of 32 bytes. A free-running counter
/// takes each CAS for 64.
#[test]
fn clients_since_meteor_lake_count_bytes() {
    for processor in
        ["6-aa", "6-ac", "6-c5", "6-c6", "6-bd", "6-cc", "6-d5", "6-e5", "18-1", "18-3"]
    {
        for free_running in [false, true] {
            let machine = client(&format!("GenuineIntel-{processor}"), free_running);
            let mem = plan_groups(&machine, &["mem"]);
            let expected = ["0", "1"].map(|number| {
                [("rd", "0x3a"), ("wr", "0x3b")].map(|(way, config)| {
                    format!(
                        "uncore_imc_{number} unc_m_{way}_data [] bytesx32 {config},0x0,0x0 cpu 0"
                    )
                })
            });
            assert_eq!(brief(&mem), expected.concat(), "{processor}");
            assert!(mem.links.iter().all(|link| link.kind == "memory"), "{processor}");
            assert!(!mem.links.is_empty(), "{processor}");
            let counts = [("unc_m_rd_data", 1e9), ("unc_m_wr_data", 5e8)];
            let plan = metrics(&machine, &["mem_bandwidth"]);
            // Two controllers, 2 s.
            assert_same_value(
                processor,
                value(&plan, "mem_bandwidth", &counts, 2.0, |_| true),
                48.0,
            );
        }
    }
}

/// A captured server with its processor, which not all of them have.
fn server(name: &str, processor: &str) -> Machine {
    let mut machine = captured(name);
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.starts_with("uncore_")) {
        pmu.processor = Some(processor.to_owned());
    }
    machine
}

#[test]
fn persistent_memory_is_counted_or_noted() {
    for (name, model) in [("icelake-2s", "6a"), ("skylake-sp-2s", "55")] {
        let mut machine = server(name, &format!("GenuineIntel-6-{model}"));
        let beside = "mem_bandwidth does not count persistent memory";
        machine.persistent_memory = None;
        let note = "persistent memory is not counted, if there is any";
        assert!(has_note(&plan_groups(&machine, &["mem"]), note), "{name}");
        let maybe = format!("{beside}, if there is any: -M pmem_bandwidth does");
        assert!(has_note(&metrics(&machine, &["mem_bandwidth"]), &maybe), "{name}");

        machine.persistent_memory = Some(false);
        let mem = plan_groups(&machine, &["mem"]);
        assert!(!has_note(&mem, "persistent"), "{name}: {:?}", mem.notes);
        assert!(!has_note(&metrics(&machine, &["mem_bandwidth"]), "persistent"), "{name}");

        machine.persistent_memory = Some(true);
        let mem = plan_groups(&machine, &["mem"]);
        let all = brief(&mem);
        // UNC_M_PMM_RPQ_INSERTS and UNC_M_PMM_WPQ_INSERTS, a line of 64 bytes each.
        for (way, config) in [("rpq", "0xe3"), ("wpq", "0xe7")] {
            let one =
                format!("uncore_imc_0 unc_m_pmm_{way}_inserts [] bytesx64 {config},0x0,0x0 cpu 0");
            assert!(all.contains(&one), "{name}: {all:#?}");
        }
        assert!(!has_note(&mem, "persistent"), "{name}: {:?}", mem.notes);
        assert!(mem.links.iter().any(|link| link.kind == "persistent memory"), "{name}");
        assert!(has_note(&metrics(&machine, &["mem_bandwidth"]), beside), "{name}");
        let counts = [("unc_m_pmm_rpq_inserts", 1e9), ("unc_m_pmm_wpq_inserts", 5e8)];
        let plan = metrics(&machine, &["pmem_bandwidth"]);
        assert!(!has_note(&plan, "does not count"), "{:?}", plan.notes);
        let first = |metric: &uncore_trace::catalog::metric::PlannedMetric| {
            metric.pmu == "uncore_imc_0" && metric.cpu == 0
        };
        assert_same_value(name, value(&plan, "pmem_bandwidth", &counts, 2.0, first), 48.0);
    }
    // Where the programmed counters have no such events, the others count it.
    let mut machine = captured("icelake-2s");
    machine.persistent_memory = Some(true);
    let mem = plan_groups(&machine, &["mem"]);
    for event in ["cas_count_read", "ddrt_read", "ddrt_write"] {
        assert!(mem.counters.iter().any(|counter| counter.event == event), "{:#?}", brief(&mem));
    }
    assert!(mem.counters.iter().all(|counter| counter.event != "read"), "{:#?}", brief(&mem));
    let mut machine = captured("icelake-2s");
    machine.persistent_memory = Some(true);
    for pmu in machine.pmus.iter_mut().filter(|pmu| pmu.name.starts_with("uncore_imc_")) {
        if !pmu.name.contains("free") {
            (pmu.events, pmu.processor) = Default::default();
        }
    }
    let events: BTreeSet<_> =
        plan_groups(&machine, &["mem"]).counters.into_iter().map(|counter| counter.event).collect();
    assert!(events.contains("ddrt_read") && events.contains("ddrt_write"), "{events:?}");
}

#[test]
fn a_metric_of_memory_says_which_memory_it_does_not_count() {
    let with_cxl = |name: &str, processor: &str| {
        let mut machine = captured(name);
        machine.persistent_memory = Some(false);
        machine.pmus.retain(|pmu| !pmu.name.contains("cxl"));
        machine.pmus.push(pmu("uncore_cxlcm_0", processor));
        machine
    };
    for (model, how) in [
        ("ad", "-p mem does"),
        ("af", "-p mem does"),
        ("dd", "-p mem does"),
        ("b6", "no event of uncore_cxlcm_0 counts its bytes"),
    ] {
        let machine = with_cxl("granite-rapids-2s", &format!("GenuineIntel-6-{model}"));
        let plan = metrics(&machine, &["mem_bandwidth"]);
        let note = format!("mem_bandwidth does not count CXL memory: {how}");
        assert!(has_note(&plan, &note), "{model}: {:?}", plan.notes);
    }
    let machine = with_cxl("sapphire-rapids-2s", "GenuineIntel-6-8f");
    let plan = metrics(&machine, &["mem_bandwidth", "mem_read_bandwidth"]);
    for metric in ["mem_bandwidth", "mem_read_bandwidth"] {
        let note = format!("{metric} does not count CXL memory: -p mem does");
        assert!(has_note(&plan, &note), "{:?}", plan.notes);
    }
    for metric in ["cxl_read_bandwidth", "mem_clock"] {
        let plan = metrics(&machine, &[metric]);
        assert!(!has_note(&plan, "does not count"), "{metric}: {:?}", plan.notes);
    }
    // Of both memories of Xeon Max.
    let mut max = captured("xeon-max-2s");
    max.persistent_memory = Some(false);
    assert!(!has_note(&metrics(&max, &["mem_bandwidth"]), "does not count"));
    assert!(has_note(&metrics(&max, &["memory_bandwidth_total"]), "does not count HBM"));
}

/// `Unit` `imc_free_running_0` and `iio_free_running` of perf's tables are the kernel's events.
#[test]
fn perfs_names_of_free_running_counters_are_the_kernels_events() {
    let same_counters = |machine: &Machine, typed: &str, event: &str| {
        let (by_perf_name, by_kernel_name) = (plan_of(machine, typed), plan_of(machine, event));
        assert_eq!(by_perf_name.counters, by_kernel_name.counters, "{typed}");
    };
    let machine = client("GenuineIntel-6-aa", true);
    for prefix in ["unc", "unc_m"] {
        for controller in [0, 1] {
            for (name, event) in [
                ("total_reqcount", "data_total"),
                ("rdcas_count", "data_read"),
                ("WRCAS_COUNT", "data_write"),
            ] {
                let typed = format!("{prefix}_mc{controller}_{name}_freerun");
                let event = format!("uncore_imc_free_running_{controller}/{event}/");
                same_counters(&machine, &typed, &event);
            }
        }
    }
    let machine = captured("client-alder-lake");
    same_counters(&machine, "UNC_MC1_RDCAS_COUNT_FREERUN", "uncore_imc_free_running_1/data_read/");
    let machine = server("icelake-2s", "GenuineIntel-6-6a");
    for (typed, event) in [
        ("unc_iio_bandwidth_in.part3_freerun", "uncore_iio_free_running/bw_in_port3/"),
        ("unc_m_clockticks_freerun", "uncore_imc_free_running/dclk/"),
    ] {
        same_counters(&machine, typed, event);
    }
}

/// Of the kernel's `mdf_sbo`, `hac_cbox` and `cncu` (`uncore_snbep.c` and `uncore_snb.c`, Linux
/// 7.2).
#[test]
fn events_are_found_by_the_kernels_names_of_units() {
    let mut machine = captured("granite-rapids-2s");
    machine.pmus.push(pmu("uncore_mdf_sbo_0", "GenuineIntel-6-ad"));
    let plan = plan_of(&machine, "unc_mdf_rxr_inserts.ad_bnc");
    assert_eq!(plan.counters[0].pmu, "uncore_mdf_sbo_0");
    let mut machine = client("GenuineIntel-6-aa", true);
    machine.pmus.retain(|pmu| pmu.name != "uncore_clock");
    machine.pmus.push(pmu("uncore_hac_cbox_0", "GenuineIntel-6-aa"));
    machine.pmus.push(pmu("uncore_cncu", "GenuineIntel-6-aa"));
    for (event, expected) in [
        ("unc_hac_cbo_tor_allocation.all", "uncore_hac_cbox_0"),
        ("unc_clock.socket", "uncore_cncu"),
    ] {
        assert_eq!(plan_of(&machine, event).counters[0].pmu, expected);
    }
}

/// A group of perf's counts what it can, and names the rest.
#[test]
fn a_group_of_perfs_metrics_counts_what_it_can_and_names_the_rest() {
    let mut machine = captured("sapphire-rapids-2s");
    machine.persistent_memory = Some(false);
    machine.pmus.push(pmu("uncore_pcu_0", "GenuineIntel-6-8f"));
    let plan = metrics(&machine, &["MemoryBW"]);
    let names: BTreeSet<_> = plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert!(names.contains("tma_info_system_dram_bw_use"), "{names:?}");
    let rest = plan.notes.iter().find(|note| note.starts_with("-M MemoryBW does not count"));
    let rest = rest.cloned().unwrap_or_default();
    assert!(rest.contains("tma_mem_bandwidth") && !rest.contains("dram_bw_use"), "{rest}");
    // Counts of 64 bytes, from two channels of one of two sockets.
    let counts = [("cas_count_read", 1e9), ("cas_count_write", 5e8)];
    let first = |metric: &uncore_trace::catalog::metric::PlannedMetric| {
        metric.pmu == "uncore_imc_0" && metric.cpu == 0
    };
    let name = "tma_info_system_dram_bw_use";
    assert_same_value(name, value(&plan, name, &counts, 2.0, first), 48.0);
    for group in ["cpu_cstate", "memorybw", "MemOffcore", "IoBW", "SoC"] {
        assert!(!metrics(&machine, &[group]).metrics.is_empty(), "{group}");
    }
    for (group, name) in [("HPC", "tma_info_system_dram_bw_use"), ("SoC", "UNCORE_FREQ")] {
        let plan = metrics(&machine, &[group]);
        assert!(plan.metrics.iter().any(|metric| metric.name == name), "{group}");
    }
}
