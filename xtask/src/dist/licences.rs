//! Licence texts of the packages that are linked into the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use uncore_trace_ebpf::stamp::workspace_root;

use super::PROGRAMS;
use crate::target;

/// Prefixes of the names of files with licences or notices, in lower case.
const NAMES: [&str; 5] = ["licen", "copying", "notice", "copyright", "unlicense"];

/// Third-party sources in this repository: name, and file with the notice.
const OWN: [(&str, &str); 2] = [
    ("uPlot, in the pages of report --html", "uncore-trace/vendor/uplot/LICENSE"),
    ("Intel's events and metrics", "uncore-trace/catalog/intel/events.txt"),
];

/// The part of the output of `cargo metadata` that is used.
#[derive(Deserialize)]
struct LicenceMetadata {
    packages: Vec<LicencePackage>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct LicencePackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// The licences of all linked packages for a target. Fails if a package has neither a licence text
/// nor the name of one.
pub(super) fn licence_text(target: &str) -> Result<String> {
    let output = target::cargo_command()
        .args(["metadata", "--locked", "--format-version=1", "--filter-platform", target])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: LicenceMetadata = serde_json::from_slice(&output.stdout)
        .context("cannot read the output of cargo metadata")?;
    let mut linked = BTreeSet::new();
    for program in PROGRAMS {
        linked.extend(linked_packages(&metadata, program)?);
    }
    let mut packages: Vec<&LicencePackage> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some() && linked.contains(package.id.as_str()))
        .collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    // Many packages have the same text, so each text is written once, with the names of its
    // packages.
    let mut of_text = BTreeMap::<String, Vec<String>>::new();
    let mut list =
        String::from("Packages that uncore-trace is linked with, and their licences:\n\n");
    for package in packages {
        let LicencePackage { name, version, license, .. } = package;
        let license = license.as_deref();
        let texts = read_licence_texts(package.manifest_path.parent().unwrap_or(Path::new("/")))?;
        ensure!(license.is_some() || !texts.is_empty(), "{name} {version} has no licence");
        writeln!(list, "{name} {version}: {}", license.unwrap_or("see below"))?;
        for text in texts {
            of_text.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    writeln!(list, "musl (the C library): MIT\nthe standard library of Rust: MIT OR Apache-2.0")?;
    for (source_name, path) in OWN {
        let path = workspace_root().join(path);
        let file_text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // In a data file, the notice is the text before the first section.
        let notice = file_text.split("\n[").next().unwrap_or_default();
        of_text.insert(notice.to_owned(), vec![source_name.to_owned()]);
    }
    let mut texts: Vec<_> = of_text.into_iter().collect();
    texts.sort_by(|first_entry, second_entry| first_entry.1.cmp(&second_entry.1));
    for (text, names) in texts {
        write!(list, "\n{}\n{}:\n\n{}\n", "-".repeat(79), names.join(", "), text.trim())?;
    }
    Ok(list)
}

/// The ids of a package and of all packages that are linked into it, without build and dev
/// dependencies.
fn linked_packages<'a>(metadata: &'a LicenceMetadata, name: &str) -> Result<BTreeSet<&'a str>> {
    let root_package = metadata
        .packages
        .iter()
        .find(|candidate| candidate.name == name && candidate.source.is_none());
    let root_package =
        root_package.with_context(|| format!("cargo metadata has no package {name}"))?;
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let (mut linked_ids, mut pending_ids) = (BTreeSet::new(), vec![root_package.id.as_str()]);
    while let Some(id) = pending_ids.pop() {
        if !linked_ids.insert(id) {
            continue;
        }
        let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let normal =
            deps.filter(|dep| dep.dep_kinds.iter().any(|dep_kind| dep_kind.kind.is_none()));
        pending_ids.extend(normal.map(|dep| dep.pkg.as_str()));
    }
    Ok(linked_ids)
}

/// The licence texts in the directory of a package.
fn read_licence_texts(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut licence_texts = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            licence_texts.push(String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    licence_texts.sort();
    Ok(licence_texts)
}
