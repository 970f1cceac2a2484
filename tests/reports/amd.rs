//! Names of the events and metrics of AMD and of arm64.
//!
//! Encodings and formulas are those of `tools/perf/pmu-events/arch` (Linux 7.2), as
//! `uncore-trace/catalog/perf` has them.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use uncore_trace::catalog::Catalog;
use uncore_trace::discover::{Machine, Pmu, machine};
use uncore_trace::plan::{Plan, plan};

use crate::golden::{assert_same_value, metrics, value};
use crate::machines::{brief, captured, machine_with_files, planned, refused, request, unpacked};

/// A captured machine with another processor.
fn with_processor(name: &str, vendor: &str, family: u32, model: u32) -> Machine {
    let root = unpacked(name);
    let cpuinfo = format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
    fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
    machine(root.path()).unwrap()
}

fn plan_on(
    machine: &Machine,
    groups: &[&str],
    events: &[&str],
    metrics: &[&str],
) -> Result<Plan, String> {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::load_embedded().unwrap());
    let mut plan_request = request(groups, events);
    plan_request.metrics = metrics.iter().map(|&name| name.to_owned()).collect();
    plan(machine, &CATALOG, &plan_request).map_err(|error| format!("{error:#}"))
}

/// Event, PMU, unit, group, encoding, filter and CPU of each counter.
fn counted(plan: &Plan) -> Vec<String> {
    let lines = brief(plan);
    let groups = plan.counters.iter().map(|counter| &counter.subsystem);
    lines.into_iter().zip(groups).map(|(line, group)| format!("{line} {group}")).collect()
}

/// The machines of each generation of AMD's.
fn generations() -> [(&'static str, Machine); 6] {
    [
        ("amdzen1", captured("zen1-2s")),
        ("amdzen2", captured("zen2")),
        ("amdzen3", captured("zen3-2s")),
        ("amdzen4", captured("zen4-2s")),
        ("amdzen5", captured("zen5-2s")),
        ("amdzen6", with_processor("zen5-2s", "AuthenticAMD", 26, 0x50)),
    ]
}

/// Name and the rest of each line of an import that is for a PMU, which has this part of a name.
fn imported(file: &str, machine: &Machine, pmu: &str, part: &str) -> Vec<(String, String)> {
    let path = format!("{}/catalog/perf/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let pmu_here = machine.pmus.iter().find(|candidate| candidate.name.contains(part)).unwrap();
    let keys =
        [&pmu_here.processor, &pmu_here.identifier].map(|key| key.clone().unwrap_or_default());
    let is_of = |pattern: &str| {
        let glob = globset::Glob::new(pattern).unwrap().compile_matcher();
        keys.iter().any(|key| glob.is_match(key))
    };
    let mut is_its = false;
    let mut entries = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((processors, of)) =
            line.strip_prefix('[').and_then(|line| line.split_once(": "))
        {
            is_its = of.trim_end_matches(']') == pmu && processors.split(' ').any(is_of);
        } else if let (true, Some((name, terms))) = (is_its, line.split_once(' ')) {
            entries.push((name.to_owned(), terms.to_owned()));
        }
    }
    entries
}

/// Report 07: `local_processor_read_data_beats_csN` and its like, N up to 11, 64 bytes each.
#[test]
fn zen_4_without_a_driver_of_memory_controllers_counts_dram_in_the_data_fabric() {
    let name = "zen4-old-kernel-2s";
    let plan = planned(name, &["mem"], &[]);
    assert_eq!(plan.counters.len(), 2 * 48);
    let mut expected = BTreeSet::new();
    for cpu in [0, 2] {
        for station in 0..12_u64 {
            let event = 0x1f + 0x40 * station;
            for (what, umask) in [
                ("local_processor_read", 0x7fe_u64),
                ("local_processor_write", 0x7ff),
                ("remote_processor_read", 0xbfe),
                ("remote_processor_write", 0xbff),
            ] {
                // event=config:0-7,32-37, umask=config:8-15,24-27
                let config =
                    event & 0xff | event >> 8 << 32 | (umask & 0xff) << 8 | umask >> 8 << 24;
                expected.insert(format!(
                    "amd_df {what}_data_beats_cs{station} [] bytesx64 {config:#x},0x0,0x0 cpu {cpu} mem"
                ));
            }
        }
    }
    assert_eq!(counted(&plan).into_iter().collect::<BTreeSet<_>>(), expected);
    let turns = "48 events share 16 counters of amd_df: each counts about 33 %";
    assert!(plan.notes.iter().any(|note| note.contains(turns)), "{:?}", plan.notes);
    for counter in &plan.counters {
        let causes: Vec<_> = counter.causes.iter().map(ToString::to_string).collect();
        let is_local = counter.event.starts_with("local_");
        let expected: &[&str] = if is_local { &["cpu", "device"] } else { &["remote"] };
        let certain_cause = counter.cause.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(
            causes == expected || certain_cause == expected,
            "{} {causes:?} {certain_cause:?}",
            counter.event
        );
    }
    // By name and by terms.
    let by_name = planned(name, &[], &["amd_df/local_processor_read_data_beats_cs0/"]);
    let bare = planned(name, &[], &["local_processor_read_data_beats_cs0"]);
    let by_terms = planned(name, &[], &["amd_df/event=0x1f,umask=0x7fe/"]);
    assert_eq!(counted(&by_name), counted(&by_terms));
    assert_eq!(counted(&by_name), counted(&bare));
    assert_eq!(
        counted(&by_name)[0],
        "amd_df local_processor_read_data_beats_cs0 [] bytesx64 0x700fe1f,0x0,0x0 cpu 0 mem"
    );
    assert_eq!(by_name.counters.len(), 2);
    // 1000 beats of 64 bytes of each event and package in 2 s.
    let machine = captured(name);
    for (metric, events) in
        [("mem_read_bandwidth", 24.0), ("mem_write_bandwidth", 24.0), ("mem_bandwidth", 48.0)]
    {
        let plan = metrics(&machine, &[metric]);
        let counts: Vec<_> = plan.counters.iter().map(|its| (its.event.as_str(), 1000.0)).collect();
        let expected = events * 1000.0 * 64.0 / 2e9;
        assert_same_value(metric, value(&plan, metric, &counts, 2.0, |_| true), 2.0 * expected);
    }
    // Of two views of one traffic, only one is counted without being asked for.
    let auto = planned(name, &["auto"], &[]);
    assert!(auto.counters.iter().any(|its| its.event.contains("_cs0")));
    assert!(!auto.counters.iter().any(|its| its.event.contains("_ccm")));
}

#[test]
fn the_data_fabric_counts_dram_only_where_nothing_counts_it_better() {
    for (name, events) in [("zen4-2s", 48), ("zen5-2s", 24)] {
        let mem = planned(name, &["mem"], &[]);
        assert!(mem.counters.iter().all(|counter| counter.pmu.starts_with("amd_umc")), "{name}");
        let fabric_plan = planned(name, &["mesh", "pcie", "c2c"], &[]);
        assert!(fabric_plan.counters.iter().all(|counter| counter.pmu == "amd_df"), "{name}");
        let metric = plan_on(&captured(name), &[], &[], &["mem_bandwidth"]).unwrap();
        assert!(
            metric.metrics.iter().all(|planned_metric| planned_metric.family == "amd_umc"),
            "{name}"
        );
        // Another kernel has no amd_umc.
        let root = unpacked(name);
        let devices = root.path().join("sys/bus/event_source/devices");
        for device in fs::read_dir(devices).unwrap().flatten() {
            if device.file_name().to_string_lossy().starts_with("amd_umc") {
                fs::remove_dir_all(device.path()).unwrap();
            }
        }
        let machine = machine(root.path()).unwrap();
        let mem = plan_on(&machine, &["mem"], &[], &[]).unwrap();
        assert_eq!(mem.counters.len(), 2 * events, "{name}");
        let is_right = |line: &String| line.starts_with("amd_df ") && line.contains(" bytesx64 ");
        assert!(brief(&mem).iter().all(is_right), "{name}");
        let metric = plan_on(&machine, &[], &[], &["mem_bandwidth"]).unwrap();
        assert_eq!(metric.metrics.len(), 2, "{name}");
    }
}

/// Report 09, lines 5 to 8, and every other name of these tables.
#[test]
fn every_event_of_perf_is_one_event_however_it_is_typed() {
    for name in ["umc_act_cmd.all", "UMC_ACT_CMD.ALL"] {
        let plan = planned("zen4-2s", &[], &[name]);
        let umc = captured("zen4-2s");
        let umc = umc.pmus.iter().filter(|pmu| pmu.name.starts_with("amd_umc")).count();
        assert_eq!(plan.counters.len(), umc);
        assert!(brief(&plan)[0].contains("umc_act_cmd.all [] requestsx1 0x5,"), "{plan:?}");
    }
    let mut count = 0;
    for (generation, machine) in generations() {
        for pmu in ["amd_df", "amd_l3", "amd_umc"] {
            if !machine.pmus.iter().any(|candidate| candidate.name.starts_with(pmu)) {
                continue;
            }
            for (name, terms) in imported("events.txt", &machine, pmu, pmu) {
                let plan_of_text = |text: String| plan_on(&machine, &[], &[&text], &[]).unwrap();
                let (bare, by_terms) =
                    (plan_of_text(name.clone()), plan_of_text(format!("{pmu}/{terms}/")));
                assert_eq!(counted(&bare), counted(&by_terms), "{generation} {name}");
                assert!(
                    bare.counters.iter().all(|counter| counter.unit != "count"),
                    "{generation} {name}"
                );
                count += 1;
            }
        }
    }
    // 12 + 8, three times; 136 + 17 + 13; 204 + 17 + 13; 17 + 13.
    assert_eq!(count, 3 * 20 + 166 + 234 + 30);
}

#[test]
fn every_metric_of_perf_is_found_by_its_name_and_its_group() {
    for (generation, machine) in generations() {
        for pmu in ["amd_df", "amd_l3", "amd_umc"] {
            if !machine.pmus.iter().any(|candidate| candidate.name.starts_with(pmu)) {
                continue;
            }
            for (name, _) in imported("metrics.txt", &machine, pmu, pmu) {
                let (name, group) = name.split_once(':').unwrap();
                let plan = plan_on(&machine, &[], &[], &[name]).unwrap();
                assert!(
                    plan.metrics.iter().any(|planned_metric| planned_metric.name == name),
                    "{generation} {name}"
                );
                let all = plan_on(&machine, &[], &[], &[group]).unwrap();
                assert!(
                    all.metrics.iter().any(|planned_metric| planned_metric.name == name),
                    "{generation} {group}"
                );
            }
        }
    }
    let zen4 = captured("zen4-2s");
    for name in ["nps1_die_to_dram", "umc_mem_bandwidth", "l3_read_miss_latency"] {
        assert!(plan_on(&zen4, &[], &[], &[name]).is_ok(), "{name}");
    }
    let unknown = plan_on(&zen4, &[], &[], &["data_fabrik"]).unwrap_err();
    assert!(unknown.contains("no metric data_fabrik"), "{unknown}");
}

/// The formulas of `recommended.json`, by hand.
#[test]
fn metrics_of_perf_have_the_values_of_its_formulas() {
    const COUNTS: &[(&str, f64)] = &[
        ("umc_cas_cmd.all", 1e6),
        ("umc_cas_cmd.rd", 4e5),
        ("umc_act_cmd.all", 5e4),
        ("umc_mem_clk", 2e9),
        ("umc_data_slot_clks.all", 1e9),
        ("l3_xi_sampled_latency.all", 3e6),
        ("l3_xi_sampled_latency_requests.all", 1e5),
    ];
    let zen4 = captured("zen4-2s");
    let umc = zen4.pmus.iter().filter(|pmu| pmu.name.starts_with("amd_umc")).count() as f64;
    for (name, expected) in [
        // 1e6 lines of 64 bytes in 2 s for each controller.
        ("umc_mem_bandwidth", umc * 32.0),
        ("umc_mem_read_bandwidth", umc * 12.8),
        ("umc_cas_cmd_read_ratio", 40.0),
        ("umc_activate_cmd_rate", 0.025),
        ("umc_data_bus_utilization", 25.0),
        ("l3_read_miss_latency", 300.0),
    ] {
        assert_same_value(
            name,
            value(&metrics(&zen4, &[name]), name, COUNTS, 2.0, |_| true),
            expected,
        );
    }
    // 2^20 beats of 64 bytes are 64 MiB, for each of 8 channels or 12 stations and each die.
    for (machine, beats, expected) in [
        ("zen1-2s", "dram_channel_data_controller_", 8.0 * 8.0 * 6.1e-5 * 1_048_576.0),
        ("zen4-old-kernel-2s", "processor_", 2.0 * 48.0 * 64.0),
    ] {
        let plan = metrics(&captured(machine), &["nps1_die_to_dram"]);
        let dram_counters = plan.counters.iter().filter(|its| its.event.contains(beats));
        let counts: Vec<_> =
            dram_counters.map(|counter| (counter.event.as_str(), 1_048_576.0)).collect();
        assert_same_value(
            machine,
            value(&plan, "nps1_die_to_dram", &counts, 2.0, |_| true),
            expected,
        );
    }
}

/// Each die of the first generation has its data fabric, and each core complex its cache
/// (`amd_uncore_df_ctx_scan`, `amd_uncore_l3_ctx_scan` of arch/x86/events/amd/uncore.c).
#[test]
fn the_first_generation_is_counted_by_die() {
    let plan = planned("zen1-2s", &["mem"], &[]);
    let cpus: BTreeSet<u32> = plan.counters.iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus.into_iter().collect::<Vec<_>>(), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(plan.counters.len(), 8 * 8);
    assert!(plan.notes.iter().any(|note| note.contains("8 events share 4 counters of amd_df")));
    let cache = planned("zen1-2s", &["cache"], &[]);
    assert_eq!(cache.counters.len(), 2 * 16);
    assert!(cache.counters.iter().all(|counter| counter.sees.len() == 1));
}

/// perf's `mapfile.csv` has no Hygon, and `amdzen6` no data fabric.
#[test]
fn a_data_fabric_without_public_events_opens_none_and_says_why() {
    let hygon = with_processor("zen1-2s", "HygonGenuine", 24, 1);
    let zen6 = with_processor("zen5-2s", "AuthenticAMD", 26, 0x50);
    for (machine, groups) in [
        (&hygon, &["mem", "pcie", "c2c", "mesh", "cache", "latency"][..]),
        (&zen6, &["pcie", "c2c", "mesh"]),
    ] {
        for group in groups {
            let error = plan_on(machine, &[group], &[], &[]).unwrap_err();
            let pmu = if ["cache", "latency"].contains(group) { "amd_l3" } else { "amd_df" };
            let why = format!("the group {group} opens nothing on this machine: {pmu} ");
            assert!(error.contains(&why), "{error}");
            let silent =
                "neither this kernel nor this program names events of it on this processor";
            assert_eq!(error.matches(silent).count(), 1, "{error}");
            assert_eq!(error.matches(&format!("-e {pmu}")).count(), 1, "{error}");
            assert!(error.contains("/event=0xNN,umask=0xNN/"), "{error}");
        }
    }
    for name in
        ["dram_channel_data_controller_0", "l3_misses", "local_processor_read_data_beats_cs0"]
    {
        assert!(plan_on(&hygon, &[], &[name], &[]).is_err(), "{name}");
    }
    let raw = plan_on(&hygon, &[], &["amd_df/event=0x7,umask=0x38/"], &[]).unwrap();
    assert_eq!(raw.counters.len(), 8);
    assert!(
        raw.counters
            .iter()
            .all(|counter| counter.unit == "count" && counter.event == "event=0x7,umask=0x38")
    );
    assert!(plan_on(&hygon, &["auto"], &[], &[]).is_ok());
    assert!(plan_on(&zen6, &["mem", "cache", "latency"], &[], &[]).is_ok());
}

/// Report 09, line 4: the tables of perf before Linux 6.1 had `uncore_hisi_ddrc.flux_rd`.
#[test]
fn prefixes_of_perf_name_the_events_of_their_unit() {
    let machine = captured("kunpeng-920");
    let mut count = 0;
    for unit in ["ddrc", "hha", "l3c"] {
        let pmu = machine.pmus.iter().find(|pmu| pmu.name.contains(unit)).unwrap();
        for name in pmu.events.keys() {
            let typed = planned("kunpeng-920", &[], &[&format!("uncore_hisi_{unit}.{name}")]);
            let globbed = planned("kunpeng-920", &[], &[&format!("hisi_sccl*_{unit}*/{name}/")]);
            assert_eq!(counted(&typed), counted(&globbed), "{unit} {name}");
            count += 1;
        }
    }
    assert!(count > 25, "{count}");
    let read = planned("kunpeng-920", &[], &["uncore_hisi_ddrc.flux_rd"]);
    assert_eq!(read.counters.len(), 4);
    assert!(
        read.counters.iter().all(|counter| counter.unit == "bytes" && counter.subsystem == "mem")
    );
    let error = refused("kunpeng-920", &[], &["uncore_hisi_ddrc.rd_spipe"]);
    assert!(error.contains("no event"), "{error}");
    refused("zen4-2s", &[], &["uncore_hisi_ddrc.flux_rd"]);
}

/// The models are those of perf's `mapfile.csv`.
#[test]
fn every_model_has_the_family_of_its_generation() {
    let catalog = Catalog::load_embedded().unwrap();
    for (processor, model) in [23, 24, 25, 26].iter().flat_map(|f| (0..=0xff).map(move |m| (*f, m)))
    {
        let (df, l3) = match (processor, model >> 4) {
            (23, _) => ("amd_df_zen2", "amd_l3_zen2"),
            (25, 0 | 2 | 4 | 5) => ("amd_df_zen2", "amd_l3_zen3"),
            (25, _) => ("amd_df_zen4", "amd_l3_zen4"),
            (26, 0 | 1 | 2 | 4 | 6 | 7) => ("amd_df_zen5", "amd_l3_zen5"),
            (26, _) => ("amd_df", "amd_l3_zen5"),
            _ => ("amd_df", "amd_l3"),
        };
        for (name, family) in [("amd_df", df), ("amd_l3", l3)] {
            let name = name.to_owned();
            let processor = Some(format!("AuthenticAMD-{processor}-{model:x}"));
            let pmu = Pmu { name, processor, ..Pmu::default() };
            assert_eq!(catalog.family_of(&pmu).unwrap().family, family, "{:?}", pmu.processor);
        }
    }
}

#[test]
fn every_event_of_arm64_is_found_without_its_pmu() {
    for (machine, pmu, part) in [
        ("altra-2s", "arm_cmn", "arm_cmn"),
        ("yitian", "arm_cmn", "arm_cmn"),
        ("yitian", "ali_drw", "ali_drw"),
        ("kunpeng-hip09", "hisi_sicl*_cpa*", "_cpa"),
    ] {
        let machine = captured(machine);
        let names = imported("events.txt", &machine, pmu, part);
        assert!(names.len() > 8, "{pmu}: {}", names.len());
        for (name, terms) in names {
            let counters_of_text = |text: String| {
                let counters = plan_on(&machine, &[], &[&text], &[]).unwrap().counters;
                let selected_counters = counters.into_iter().filter(|its| its.pmu.contains(part));
                selected_counters
                    .map(|counter| (counter.pmu, counter.config, counter.unit))
                    .collect::<Vec<_>>()
            };
            let bare = counters_of_text(name.clone());
            assert!(!bare.is_empty(), "{name}");
            // The field `event` is the lowest bits of `config`.
            let terms = terms.replace("config=", "event=");
            assert_eq!(bare, counters_of_text(format!("{pmu}/{terms}/")), "{name}");
        }
    }
    // A family is not needed.
    let (_root, machine) = machine_with_files(&[
        ("imx8_ddr0/type", "9\n"),
        ("imx8_ddr0/cpumask", "0\n"),
        ("imx8_ddr0/identifier", "i.MX8MM\n"),
        ("imx8_ddr0/format/event", "config:0-7\n"),
    ]);
    let plan = plan_on(&machine, &[], &["imx8mm_ddr.read_cycles"], &[]).unwrap();
    assert_eq!(plan.counters[0].config[0], 0x2a);
    assert!(plan_on(&machine, &[], &["imx8mp_ddr.read_cycles"], &[]).is_err());
}

/// Metrics of `sys` tables, which are for PMUs with an identifier.
#[test]
fn metrics_of_arm_are_found_by_perfs_names() {
    for (machine, names) in [
        ("yitian", &["ddr_read_bandwidth.all", "ddr_write_bandwidth.all", "ali_drw"][..]),
        ("kunpeng-hip09", &["cpa_p0_avg_bw", "cpa_p1_avg_bw", "CPA"]),
        ("altra-2s", &["slc_miss_rate", "rni_actual_read_bandwidth.all", "cmn"]),
    ] {
        for name in names {
            let plan = plan_on(&captured(machine), &[], &[], &[name]);
            assert!(plan.is_ok_and(|plan| !plan.metrics.is_empty()), "{machine} {name}");
        }
    }
}
