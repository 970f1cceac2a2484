//! The value of `verified` in the catalog agrees with the lab and the captured machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::family::Family;
use uncore_trace::catalog::pattern::matches;
use uncore_trace::catalog::verified::Verification;
use uncore_trace_lab::fixtures;

use crate::machines::captured;
use crate::reports::causes::OF_DRIVERS;

/// Machines that were written from the source of drivers, not captured.
const WRITTEN: &[&str] = &[
    "altra-2s",
    "amlogic-g12",
    "ampereone",
    "broadwell-ep",
    "client-alder-lake",
    "client-skylake",
    "cmn-s3",
    "cn10k",
    "granite-rapids-2s",
    "imx8mm",
    "rk3588",
    "granite-rapids-old-kernel-2s",
    "kunpeng-920",
    "kunpeng-hip09",
    "monaka",
    "power10",
    "power9-2s",
    "sapphire-rapids-2s",
    "skylake-sp-2s",
    "xeon-max-2s",
    "zen1-2s",
    "zen2",
    "zen3-2s",
    "zen3-dies-2s",
    "zen4-2s",
    "zen4-old-kernel-2s",
    "zen5-2s",
];

fn lab(folder: &str) -> Vec<(PathBuf, toml::Table)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab").join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let table = fs::read_to_string(&path).unwrap().parse().unwrap();
        (path, table)
    };
    files.map(read).collect()
}

/// The names of the PMUs of the lab's machines, with each number replaced by `0`.
fn lab_names() -> BTreeSet<String> {
    let machines = lab("machines");
    let used: BTreeSet<&str> = machines
        .iter()
        .filter_map(|(_, machine)| machine.get("pmu")?.as_array())
        .flatten()
        .map(|pmu| pmu["pmu"].as_str().unwrap())
        .collect();
    let described = lab("pmus");
    let described = described.iter().filter(|(path, _)| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        used.contains(stem)
    });
    let name = |(_, pmu): &(PathBuf, toml::Table)| {
        let name = pmu["name"].as_str().unwrap();
        let parts = name.split('{').map(|part| part.split_once('}').unwrap_or(("", part)));
        let parts: Vec<_> = parts.map(|(_, text)| text).collect();
        parts.join("0")
    };
    let mut names: BTreeSet<_> = described.map(name).collect();
    // On every machine, so also on those of the lab.
    names.extend(["software", "disk_vda", "net_lo"].map(str::to_owned));
    assert!(names.len() > 10, "{names:?}");
    names
}

fn is_named(family: &Family, name: &str) -> bool {
    family.names.iter().any(|pattern| matches(pattern, name))
}

/// The families that have a PMU on one of the machines.
fn families_on(catalog: &Catalog, machines: &[&String]) -> BTreeSet<String> {
    let machines = machines.iter().map(|name| captured(name));
    let pmus: Vec<_> = machines.flat_map(|machine| machine.pmus).collect();
    pmus.iter().filter_map(|pmu| Some(catalog.family_of(pmu)?.family.clone())).collect()
}

#[test]
fn a_family_is_verified_as_the_catalog_says() {
    let catalog = Catalog::load_embedded().unwrap();
    let lab = lab_names();
    let names = fixtures::names().unwrap();
    let real = names.iter().filter(|name| !WRITTEN.contains(&name.as_str()));
    let real: Vec<_> = real.collect();
    let every: Vec<_> = names.iter().collect();
    let (all, real) = (families_on(&catalog, &every), families_on(&catalog, &real));
    for family in &catalog.families {
        let name = &family.family;
        let in_lab = lab.iter().any(|pmu| is_named(family, pmu));
        let has_tree = real.contains(name);
        let expected = match (in_lab, has_tree) {
            (true, _) => Verification::Lab,
            (false, true) => Verification::Captured,
            (false, false) => Verification::Source,
        };
        assert_eq!(family.verified, Some(expected), "{name}");
        // A family without a machine is a fallback for unknown PMUs, or has never been planned.
        let is_made = OF_DRIVERS.iter().any(|(pmu, ..)| is_named(family, pmu));
        let is_planned = all.contains(name) || is_made;
        assert!(is_planned || NO_MACHINE.contains(&name.as_str()), "{name}: no machine");
    }
}

/// Families without a machine in the fixtures.
const NO_MACHINE: &[&str] = &[
    "imx8mn_ddr",
    "imx8mp_ddr",
    "imx9_ddr",
    "amd_df",
    "amd_l3",
    "intel_b2cmi",
    "intel_cxlcm",
    "intel_cxldp",
    "intel_edc",
    "intel_m2hbm",
    "nvidia_uncore",
    "pcie_bdf",
];
