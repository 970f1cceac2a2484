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
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
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
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The licences of all linked packages for a target. Fails if a package has neither a licence text
/// nor the name of one.
pub(super) fn text(target: &str) -> Result<String> {
    let output = target::cargo()
        .args(["metadata", "--locked", "--format-version=1", "--filter-platform", target])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .context("cannot read the output of cargo metadata")?;
    let mut linked = BTreeSet::new();
    for program in PROGRAMS {
        linked.extend(self::linked(&metadata, program)?);
    }
    let mut packages: Vec<&Package> = metadata
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
        let Package { name, version, license, .. } = package;
        let license = license.as_deref();
        let texts = texts(package.manifest_path.parent().unwrap_or(Path::new("/")))?;
        ensure!(license.is_some() || !texts.is_empty(), "{name} {version} has no licence");
        writeln!(list, "{name} {version}: {}", license.unwrap_or("see below"))?;
        for text in texts {
            of_text.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    writeln!(list, "musl (the C library): MIT\nthe standard library of Rust: MIT OR Apache-2.0")?;
    for (what, path) in OWN {
        let path = workspace_root().join(path);
        let all =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // In a data file, the notice is the text before the first section.
        let notice = all.split("\n[").next().unwrap_or_default();
        of_text.insert(notice.to_owned(), vec![what.to_owned()]);
    }
    let mut texts: Vec<_> = of_text.into_iter().collect();
    texts.sort_by(|one, other| one.1.cmp(&other.1));
    for (text, names) in texts {
        write!(list, "\n{}\n{}:\n\n{}\n", "-".repeat(79), names.join(", "), text.trim())?;
    }
    Ok(list)
}

/// The ids of a package and of all packages that are linked into it, without build and dev
/// dependencies.
fn linked<'a>(metadata: &'a Metadata, name: &str) -> Result<BTreeSet<&'a str>> {
    let first = metadata.packages.iter().find(|it| it.name == name && it.source.is_none());
    let first = first.with_context(|| format!("cargo metadata has no package {name}"))?;
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let (mut found, mut next) = (BTreeSet::new(), vec![first.id.as_str()]);
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let normal = deps.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        next.extend(normal.map(|dep| dep.pkg.as_str()));
    }
    Ok(found)
}

/// The licence texts in the directory of a package.
fn texts(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            found.push(String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    found.sort();
    Ok(found)
}
