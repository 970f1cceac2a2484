//! Metrics of core PMUs, compared with published numbers: the number of slots per cycle depends on
//! the processor.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::discover::Machine;
use uncore_trace::discover::event::{AliasValue, EventAlias};
use uncore_trace::plan::{PlanRequest, plan};

use crate::golden::{assert_same_value, metrics, value};
use crate::machines::{captured, request};

/// Counts of one CPU, with five, eight or ten slots per cycle.
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

/// A main ID register, `caps/slots`, then `frontend_bound`, `backend_bound`, `retiring`,
/// `bad_speculation`.
type Core = (&'static str, u64, [f64; 4]);

/// From perf's tables `neoverse-n2-v2`, `neoverse-v1`, `neoverse-v3`, `neoverse-n3`, `nvidia/t410`
/// and `sbsa.json` (tools/perf/pmu-events/arch/arm64, Linux 7.2).
const CORES: &[Core] = &[
    // Neoverse V2, without `slots`: 8 slots.
    ("0x00000000410fd4f0", 0, [17.0, 6.0, 60.0, 17.0]),
    // Neoverse N2 r0p3 with 5 slots, by its register and by `slots`.
    ("0x00000000410fd493", 0, [27.5, 10.5, 48.0, 14.0]),
    ("0x00000000410fd493", 5, [27.5, 10.5, 48.0, 14.0]),
    ("0x00000000411fd490", 0, [27.5, 10.5, 48.0, 14.0]),
    // Before r0p3 one slot too many is counted per cycle.
    ("0x00000000410fd490", 0, [7.5, 10.5, 64.0, 18.0]),
    ("0x00000000410fd492", 5, [7.5, 10.5, 64.0, 18.0]),
    // Neoverse V1.
    ("0x00000000411fd401", 0, [15.5, 7.5, 60.0, 17.0]),
    // Neoverse V3 and N3 count the cycles of a flush.
    ("0x00000000410fd840", 0, [12.0, 6.0, 64.0, 18.0]),
    ("0x00000000410fd8e0", 0, [26.0, 12.0, 48.0, 14.0]),
    // Olympus has the number of slots in `slots`: ten per cycle here, five beside another thread.
    ("0x000000004e0f0100", 10, [12.0, 6.0, 64.0, 18.0]),
    // Any other processor, if the kernel shows its slots.
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
            assert_same_value(&format!("{midr} {slots} {name}"), found, *expected);
        }
        // One metric for each CPU.
        assert_eq!(plan.metrics.len(), names.len() * 4, "{midr}");
    }
    let unknown = PlanRequest { metrics: vec!["retiring".to_owned()], ..request(&[], &[]) };
    let catalog = Catalog::load_embedded().unwrap();
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
        assert_same_value(name, value(&plan, name, SLOTS, 2.0, |m| m.cpu == 0), expected);
    }
}
