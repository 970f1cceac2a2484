//! Metrics with Intel's names: their values for given counts, computed by hand from the formulas of
//! perf's tables (`tools/perf/pmu-events/arch/x86/*/uncore-*.json`, Linux 7.2).

use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::plan::plan;

use crate::golden::{assert_same_value, metrics, value};
use crate::machines::{captured, planned, request};

/// Raw counts of each counter in two seconds.
const COUNTS: &[(&str, f64)] = &[
    ("cas_count_read", 1e6), // unc_m_cas_count.rd and .wr have the encodings of these.
    ("cas_count_write", 5e5),
    ("unc_cha_tor_occupancy.ia_miss_drd", 6e8),
    ("unc_cha_tor_inserts.ia_miss_drd", 2e6),
    ("unc_cha_tor_inserts.ia_miss_drd_local", 2e6),
    ("unc_cha_tor_inserts.ia_miss_drd_pref_local", 1e6),
    ("unc_cha_tor_inserts.ia_miss_drd_remote", 5e5),
    ("unc_cha_tor_inserts.ia_miss_drd_pref_remote", 5e5),
    ("unc_cha_tor_inserts.io_pcirdcur_local", 1e6),
    ("unc_cha_clockticks", 4e9),
    ("unc_upi_txl_flits.all_data", 9e6),
];

#[test]
fn metrics_by_intels_names_have_the_values_of_intels_formulas() {
    for (name, expected, is_sum) in [
        // 1e6 lines of 64 bytes in 2 s are 32 MB/s for each counter.
        ("memory_bandwidth_read", 32.0, true),
        ("memory_bandwidth_total", 48.0, true),
        ("upi_data_transmit_bw", 32.0, true),
        ("io_bandwidth_read_local", 32.0, true),
        // 300 cycles of 2 GHz.
        ("llc_demand_data_read_miss_latency", 150.0, false),
        ("numa_reads_addressed_to_local_dram", 75.0, false),
        ("uncore_frequency", 2.0, false),
    ] {
        let plan = metrics(&captured("sapphire-rapids-2s"), &[name]);
        let count = if is_sum { plan.metrics.len() as f64 } else { 1.0 };
        assert_same_value(name, value(&plan, name, COUNTS, 2.0, |_| true), expected * count);
    }
}

/// A vendor's formula is made of counts, also where the event has bytes by its name in sysfs.
#[test]
fn a_metric_of_intel_is_right_beside_the_event_that_was_typed() {
    let mut asked = request(&[], &["uncore_imc/cas_count_read/"]);
    asked.metrics = vec!["memory_bandwidth_read".to_owned()];
    let plan =
        plan(&captured("sapphire-rapids-2s"), &Catalog::load_embedded().unwrap(), &asked).unwrap();
    assert!(plan.counters.iter().all(|counter| counter.unit == "bytes"));
    let found = value(&plan, "memory_bandwidth_read", COUNTS, 2.0, |_| true);
    assert_same_value("memory_bandwidth_read", found, 32.0 * plan.metrics.len() as f64);
}

#[test]
fn only_the_whole_name_of_a_metric_of_intel_asks_for_it() {
    let catalog = Catalog::load_embedded().unwrap();
    let machine = captured("sapphire-rapids-2s");
    let asked = |name: &str| {
        let mut asked = request(&[], &[]);
        asked.metrics = vec![name.to_owned()];
        plan(&machine, &catalog, &asked)
            .map(|plan| plan.metrics.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>())
    };
    assert!(asked("UNCORE_FREQUENCY").is_ok());
    assert!(asked("uncore_freq*").is_err());
    let all = asked("*").unwrap();
    assert!(!all.contains(&"uncore_frequency".to_owned()), "{all:?}");
    // Skylake-SP has no events for this latency.
    let error = asked("uncore_frequenzy").unwrap_err().to_string();
    assert!(error.contains("did you mean uncore_frequency"), "{error}");
    assert!(planned("sapphire-rapids-2s", &["mem"], &[]).metrics.is_empty());
    let listed = |all| {
        let view = View { shows_all: all, width: None };
        render_list(&machine, &catalog, What::Metrics, ListForm::Text(view)).unwrap()
    };
    assert!(!listed(false).contains("uncore_frequency"));
    assert!(listed(false).contains("more by the vendor's names"));
    assert!(listed(true).contains("uncore_frequency"));
}
