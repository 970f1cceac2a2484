//! perf's names of metrics: what is computed on which machine, and why a metric is not.
//!
//! The values are compared with perf's own by `cargo xtask oracle`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::plan::{Plan, PlanRequest, plan};

use crate::machines::{captured, request};

fn measured(machine: &str, metric: &str) -> anyhow::Result<Plan> {
    let request = PlanRequest { metrics: vec![metric.to_owned()], ..request(&[], &[]) };
    plan(&captured(machine), &Catalog::load_embedded().unwrap(), &request)
}

#[test]
fn metrics_of_perf_7_are_counted() {
    let mut refused = Vec::new();
    for (machine, metric, unit) in [
        ("zen4-2s", "lpm_l3_accesses", "accesses/s"),
        ("zen4-2s", "lpm_l3_hits", "%"),
        ("sapphire-rapids-2s", "lpm_mem_bw_ddr_total", "MB/s"),
        ("skylake-sp-2s", "lpm_mem_remote_write", "MB/s"),
        ("skylake-sp-2s", "lpm_mem_sat", "%"),
        ("skylake-sp-2s", "lpm_upi_bw_read", "MB/s"),
        ("skylake-sp-2s", "lpm_miss_lat_loc", "ns"),
        ("skylake-sp-2s", "lpm_dir_lookup_hits", "%"),
        ("skylake-sp-2s", "power_self_refresh", "1"),
        ("skylake-sp-2s", "LLC_MISSES.PCIE_READ", "Bytes"),
        ("skylake-sp-2s", "numa_reads_addressed_to_local_dram", "%"),
        ("skylake-sp-2s", "tma_info_system_mem_parallel_reads", "1"),
        ("broadwell-ep", "io_bandwidth_read", "MB/s"),
        ("vm-no-uncore", "CPUs_utilized", "CPUs"),
        ("vm-no-uncore", "cs_per_second", "cs/sec"),
        ("grace-2s", "migrations_per_second", "migrations/sec"),
        ("power9-2s", "page_faults_per_second", "faults/sec"),
    ] {
        let plan = match measured(machine, metric) {
            Ok(plan) => plan,
            Err(error) => {
                refused.push(format!("{machine}: {error:#}"));
                continue;
            }
        };
        let of = plan.metrics.iter().filter(|planned| planned.missing_inputs().is_empty());
        let units: Vec<_> = of.map(|planned| planned.unit.as_str()).collect();
        assert!(!units.is_empty() && units.iter().all(|its| *its == unit), "{metric}: {units:?}");
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// perf's `cha_0/event=0x0/` has the clock of one slice of each socket.
#[test]
fn the_clock_of_sockets_is_of_their_first_slice() {
    for (machine, code) in [("skylake-sp-2s", 0), ("sapphire-rapids-2s", 1)] {
        let plan = measured(machine, "tma_info_system_socket_clks").unwrap();
        let opened: Vec<_> =
            plan.counters.iter().map(|its| (its.pmu.as_str(), its.config[0])).collect();
        assert_eq!(opened, [("uncore_cha_0", code), ("uncore_cha_0", code)], "{machine}");
    }
}

/// Each reason is of this processor, not of those that have a metric of the same name.
#[test]
fn a_metric_that_is_not_computed_has_its_own_reason() {
    for (machine, metric, reason) in [
        ("skylake-sp-2s", "lpm_dir_update_bw", "it has events of several PMUs in one formula"),
        ("skylake-sp-2s", "tma_frontend_bound", "it has events of the cores"),
        ("client-skylake", "tma_info_system_mem_read_latency", "it has events of several PMUs"),
        ("skylake-sp-2s", "tma_info_system_mem_dram_read_latency", "without the time"),
        ("zen4-2s", "io_bandwidth_read", "for other processors, not for AuthenticAMD-25-11"),
        ("zen2", "umc_mem_bandwidth", "for other processors, not for AuthenticAMD-23-31"),
        ("vm-no-uncore", "insn_per_cycle", "it has events of the cores"),
    ] {
        let error = format!("{:#}", measured(machine, metric).unwrap_err());
        assert!(error.contains(reason), "{machine} {metric}: {error}");
        assert!(!error.contains("counts the device"), "{machine} {metric}: {error}");
    }
}
