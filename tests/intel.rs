//! Intel's uncore: events by the vendor's names, budgets, latency and mesh.

use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::plan::{PlanRequest, plan};

use crate::machines::{brief, captured, planned, refused, request};

#[test]
fn clock_ticks_of_a_memory_controller_take_a_counter() {
    let events = ["cas_count_read", "cas_count_write", "clockticks", "event=0x9", "event=0xa"]
        .map(|event| format!("uncore_imc_0/{event}/"));
    let plan = planned("skylake-sp-2s", &[], &events.each_ref().map(String::as_str));
    assert!(plan.notes.iter().any(|note| note.contains("5 events share 4")), "{:?}", plan.notes);
}

#[test]
fn intel_events_are_found_by_the_vendors_names() {
    let first_counter_of =
        |name: &str, event: &str| brief(&planned(name, &[], &[event]))[0].clone();
    // Case is ignored; the PMU has no such name in sysfs or in the catalog.
    assert_eq!(
        first_counter_of("sapphire-rapids-2s", "UNC_CHA_TOR_INSERTS.IA_MISS_DRD"),
        "uncore_cha_0 unc_cha_tor_inserts.ia_miss_drd [] requestsx1 0xc817fe00000135,0x0,0x0 cpu 0"
    );
    // Skylake-SP has the filter in the upper half of config1.
    assert_eq!(
        first_counter_of("skylake-sp-2s", "unc_cha_tor_inserts.ia_miss_drd"),
        "uncore_cha_0 unc_cha_tor_inserts.ia_miss_drd [] requestsx1 0x2135,0x4043300000000,0x0 cpu 0"
    );
    assert_eq!(
        first_counter_of("skylake-sp-2s", "uncore_iio_1/unc_iio_data_req_of_cpu.mem_read.part2/"),
        "uncore_iio_1 unc_iio_data_req_of_cpu.mem_read [ch_mask=0x4,fc_mask=0x7] bytesx4 \
         0x704000000483,0x0,0x0 cpu 0"
    );
    // The last one is a part of an event of the catalog. An event that no family names:
    assert!(
        first_counter_of("skylake-sp-2s", "unc_m3upi_upi_prefetch_spawn")
            .starts_with("uncore_m3upi_0 ")
    );
    let error = refused("sapphire-rapids-2s", &[], &["unc_cha_tor_inserts.ia_miss_drdd"]);
    assert!(error.contains("did you mean unc_cha_tor_inserts.ia_miss_drd"), "{error}");
    // Another processor has another encoding, and an unknown one has none.
    assert!(refused("zen4-2s", &[], &["unc_cha_clockticks"]).contains("no event"));
    let names = |all| {
        let view = View { shows_all: all, width: None };
        let catalog = Catalog::load_embedded().unwrap();
        render_list(&captured("skylake-sp-2s"), &catalog, What::Events, ListForm::Text(view))
            .unwrap()
    };
    assert!(names(true).contains("unc_m2m_directory_lookup.any"));
    let short = names(false);
    assert!(!short.contains("unc_m2m_directory_lookup.any") && short.contains("--all"), "{short}");
}

#[test]
fn intel_has_latency_and_mesh() {
    let groups = ["mem", "pcie", "c2c", "cache", "mesh", "latency"];
    for name in ["skylake-sp-2s", "sapphire-rapids-2s"] {
        let missing: &[&str] = if name == "skylake-sp-2s" { &[] } else { &["mesh"] };
        let groups_here: Vec<_> =
            groups.iter().copied().filter(|group| !missing.contains(group)).collect();
        let plan = planned(name, &groups_here, &[]);
        for group in groups_here {
            assert!(plan.counters.iter().any(|c| c.subsystem == group), "{name} {group}");
        }
    }
    let latency = planned("skylake-sp-2s", &["latency"], &[]);
    let counter_of = |event: &str| {
        let mut counters = latency.counters.iter().filter(|c| c.event == event);
        counters.next().map(|c| (c.config[0], c.config[1], c.unit.clone()))
    };
    let occupancy = "unc_cha_tor_occupancy.ia_miss_drd_";
    assert_eq!(
        counter_of(&format!("{occupancy}local")),
        Some((0x2136, 0x40432 << 32, "request_cycles".to_owned()))
    );
    assert_eq!(
        counter_of(&format!("{occupancy}remote")),
        Some((0x2136, 0x40431 << 32, "request_cycles".to_owned()))
    );
    let metrics = ["mem_read_latency_local", "mem_read_latency_remote", "mem_read_latency"];
    for name in ["skylake-sp-2s", "sapphire-rapids-2s"] {
        let request =
            PlanRequest { metrics: metrics.map(str::to_owned).to_vec(), ..request(&[], &[]) };
        let plan = plan(&captured(name), &Catalog::load_embedded().unwrap(), &request).unwrap();
        let metric_names: std::collections::BTreeSet<_> =
            plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(metric_names.len(), 3, "{name}: {metric_names:?}");
    }
}
