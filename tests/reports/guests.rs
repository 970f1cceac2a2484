//! Virtual machines, and uncore counters that any CPU of a package reads.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::discover::machine;
use uncore_trace::identity::containers::Inside;
use uncore_trace::plan::allowance::WitnessAllowance;
use uncore_trace::plan::misses::WitnessDemand;
use uncore_trace::plan::{CounterRole, Plan, PlanRequest, plan};

use crate::harness::run_ok;
use crate::machines::{request, unpacked};

const WANTED: WitnessDemand =
    WitnessDemand::Within(WitnessAllowance { percent: 2.0, switches: Some(1000.0) });

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A captured machine with a core PMU, as it is on x86.
fn with_core(name: &str) -> TempDir {
    let dir = unpacked(name);
    let pmu = |file: &str| format!("sys/bus/event_source/devices/cpu/{file}");
    write(dir.path(), &pmu("type"), "4\n");
    write(dir.path(), &pmu("format/event"), "config:0-7\n");
    write(dir.path(), &pmu("format/umask"), "config:8-15\n");
    write(dir.path(), &pmu("events/cache-misses"), "event=0x2e,umask=0x41\n");
    write(dir.path(), &pmu("events/cpu-cycles"), "event=0x3c\n");
    dir
}

fn mediated(dir: &TempDir, module: &str, value: &str) {
    let file = format!("sys/module/{module}/parameters/enable_mediated_pmu");
    write(dir.path(), &file, value);
}

fn planned(dir: &TempDir, groups: &[&str], events: &[&str]) -> Plan {
    let request = PlanRequest { misses: WANTED, ..request(groups, events) };
    plan(&machine(dir.path()).unwrap(), &Catalog::load_embedded().unwrap(), &request).unwrap()
}

/// Linux 7.2: `mediated_pmu_account_event` of kernel/events/core.c refuses what counts guests on
/// PMUs with `PERF_PMU_CAP_MEDIATED_VPMU`, which are those of the cores (arch/x86/events).
#[test]
fn counters_of_cores_leave_virtual_machines_alone_where_these_have_the_pmu() {
    let dir = with_core("icelake-2s");
    let events = ["cycles", "instructions", "page-faults", "msr/tsc/"];
    let excluded = |plan: &Plan| -> Vec<String> {
        let excluding = plan.counters.iter().filter(|counter| counter.exclude_guest);
        let mut pmus: Vec<String> = excluding.map(|counter| counter.pmu.clone()).collect();
        pmus.dedup();
        pmus
    };
    let note = "what virtual machines execute is not counted by cpu: \
                kvm_intel.enable_mediated_pmu is on";
    for value in ["absent", "N\n"] {
        if value != "absent" {
            mediated(&dir, "kvm_intel", value);
        }
        let plan = planned(&dir, &["mem"], &events);
        assert_eq!(excluded(&plan), [] as [String; 0], "{value}");
        assert!(!plan.notes.iter().any(|text| text.contains("virtual machines")), "{value}");
    }
    mediated(&dir, "kvm_intel", "Y\n");
    let plan = planned(&dir, &["mem"], &events);
    assert_eq!(excluded(&plan), ["cpu"]);
    let of_cores = plan.counters.iter().filter(|counter| counter.pmu == "cpu");
    assert!(
        of_cores.clone().count() > 0
            && of_cores.clone().all(|core_counter| core_counter.exclude_guest)
    );
    assert!(plan.notes.iter().any(|note_here| note_here == note), "{:?}", plan.notes);
    // Without core events of the user, nothing that the user sees is without guests.
    let plan = planned(&dir, &["mem"], &[]);
    assert!(!plan.notes.iter().any(|note_here| note_here == note), "{:?}", plan.notes);
}

#[test]
fn a_witness_says_that_it_does_not_count_virtual_machines() {
    let dir = with_core("icelake-2s");
    mediated(&dir, "kvm_amd", "Y\n");
    let plan = planned(&dir, &["mem"], &[]);
    assert!(plan.only_witnesses().count() > 0);
    assert!(
        plan.only_witnesses()
            .all(|planned_witness| planned_witness.exclude_guest
                && planned_witness.is_blind_witness())
    );
    let note = plan.notes.iter().find(|note| note.starts_with("witness ")).unwrap();
    let blind_note = "; kvm_amd.enable_mediated_pmu is on, so it does not count virtual machines: where \
                  one ran in a window, the method is regression or residency";
    assert!(note.ends_with(blind_note), "{note}");
    // The readings of the user's own counter are kept, so the witness is another one.
    let typed = planned(&dir, &["mem"], &["cache-misses"]);
    let roles = |role| {
        typed.counters.iter().filter(|counter| counter.pmu == "cpu" && counter.role == role).count()
    };
    assert!(roles(CounterRole::Counted) > 0);
    assert_eq!(
        (roles(CounterRole::Weight), roles(CounterRole::Both)),
        (roles(CounterRole::Counted), 0)
    );
    mediated(&dir, "kvm_amd", "N\n");
    let typed = planned(&dir, &["mem"], &["cache-misses"]);
    assert!(typed.counters.iter().any(|counter| counter.role == CounterRole::Both));
    assert_eq!(typed.only_witnesses().count(), 0);
}

#[test]
fn a_dry_run_says_that_virtual_machines_are_not_counted() {
    let dir = with_core("icelake-2s");
    mediated(&dir, "kvm_intel", "Y\n");
    let root = dir.path().to_str().unwrap();
    let text = run_ok(["record", "--root", root, "--dry-run", "-e", "cycles"]);
    assert!(text.contains("note: what virtual machines execute is not counted by cpu"), "{text}");
}

#[test]
fn virtual_machines_are_tenants_with_a_name() {
    for (path, name) in [
        (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "web"),
        (r"/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000002f.scope/libvirt/vcpu3", {
            "instance-0000002f"
        }),
        ("/machine/qemu-2-db.libvirt-qemu/emulator", "db"),
        ("/qemu.slice/100.scope", "100"),
        (r"/machine.slice/machine-fedora\x2drawhide.scope", "fedora-rawhide"),
        ("/firecracker/my-vm", "my-vm"),
    ] {
        let inside = Inside::parse(path);
        assert_eq!(inside.container.as_deref(), Some(name), "{path}");
        assert_eq!(inside.pod, None, "{path}");
    }
}
