//! The packages that `cargo publish` makes: what a registry requires of them, and that all files
//! are in them from which they are built. Nothing is compiled here.
//!
//! `cargo xtask dist --check` installs the programs from the packages.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use regex::Regex;
use serde_json::{Value, json};

/// The packages that are published; all others are for those who change the project.
const PUBLISHED: [&str; 5] = [
    "uncore-trace",
    "uncore-trace-common",
    "uncore-trace-ebpf",
    "uncore-trace-recording",
    "uncore-trace-upload",
];

/// What a registry wants of a manifest, and what this project wants of its own.
const REQUIRED: [&str; 6] =
    ["description", "license", "repository", "readme", "keywords", "categories"];

/// Runs cargo in the workspace, without the network; returns what it printed.
fn run_cargo(args: &[&str]) -> String {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).args(["--locked", "--offline"]);
    let output = cargo.current_dir(workspace_root()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The packages of the workspace, as `cargo metadata` describes them.
fn workspace_packages() -> Vec<Value> {
    let metadata = run_cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Those that may be published.
fn published_packages() -> Vec<Value> {
    let mut packages = workspace_packages();
    packages.retain(|package| package["publish"] != json!([]));
    packages
}

fn name_of(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn only_packages_for_users_are_published() {
    let packages = published_packages();
    let names: BTreeSet<&str> = packages.iter().map(name_of).collect();
    assert_eq!(names, BTreeSet::from(PUBLISHED));
}

#[test]
fn published_manifests_are_complete() {
    let mut wrong = Vec::new();
    for package in published_packages() {
        for field in REQUIRED {
            let value = &package[field];
            if value.is_null() || *value == json!([]) || *value == json!("") {
                wrong.push(format!("{} has no {field}", name_of(&package)));
            }
        }
        // The limits of the registry.
        let keywords = package["keywords"].as_array().unwrap();
        if keywords.len() > 5 || keywords.iter().any(|word| word.as_str().unwrap().len() > 20) {
            wrong.push(format!("{} has too many or too long keywords", name_of(&package)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Cargo takes the path of a dependency out of a published manifest, and needs the version. A
/// dependency of tests without a version is taken out whole.
#[test]
fn published_packages_depend_on_published_versions() {
    let mut wrong = Vec::new();
    let exact = concat!("=", env!("CARGO_PKG_VERSION"));
    for package in published_packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let (target, required) =
                (dependency["name"].as_str().unwrap(), dependency["req"].as_str().unwrap());
            let is_for_tests = dependency["kind"] == "dev";
            if dependency["path"].is_null() || is_for_tests && required == "*" {
                continue;
            }
            if !PUBLISHED.contains(&target) || required != exact {
                wrong.push(format!("{} needs {target} {required}", name_of(&package)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The files of a package.
fn packaged_files(package: &str) -> BTreeSet<String> {
    let list = run_cargo(&["package", "--list", "--allow-dirty", "--package", package]);
    list.lines().map(str::to_owned).collect()
}

/// The source files of a package: those that are compiled where it is installed.
fn sources(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// A path without `..`, which need not exist.
fn normal_path(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        if component.as_os_str() == ".." {
            normal.pop();
        } else {
            normal.push(component);
        }
    }
    normal
}

#[test]
fn packages_have_all_files_that_they_include() {
    let include = Regex::new(r#"include(?:_str|_bytes)?!\(\s*"([^"]+)""#).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for package in published_packages() {
        let name = name_of(&package);
        let packaged = packaged_files(name);
        let dir = workspace_root().join(name);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            // Benchmarks are not in a package.
            if path.is_dir() && !path.ends_with("benches") {
                sources(&path, &mut paths);
            }
        }
        let build_script = dir.join("build.rs");
        paths.extend(build_script.exists().then_some(build_script));
        for path in paths {
            let text = fs::read_to_string(&path).unwrap();
            let included = include.captures_iter(&text).map(|captures| captures[1].to_owned());
            let included: Vec<PathBuf> =
                included.map(|file| normal_path(&path.parent().unwrap().join(file))).collect();
            for file in [path].into_iter().chain(included) {
                tried += 1;
                let relative = file.strip_prefix(&dir).map(|relative| relative.to_str().unwrap());
                if !relative.is_ok_and(|relative| packaged.contains(relative)) {
                    wrong.push(format!("{name} lacks {}", file.display()));
                }
            }
        }
        // A macro includes the families, by names that are no paths.
        let catalog = fs::read_dir(dir.join("catalog")).into_iter().flatten();
        for entry in catalog.map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            tried += 1;
            let file = format!("catalog/{}", entry.file_name().to_str().unwrap());
            if !packaged.contains(&*file) {
                wrong.push(format!("{name} lacks {file}"));
            }
        }
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            if !packaged.contains(file) {
                wrong.push(format!("{name} lacks {file}"));
            }
        }
    }
    assert!(tried > 900, "{tried}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Who installs the program has no toolchain for BPF.
#[test]
fn the_package_of_the_programs_has_the_compiled_object() {
    let packaged = packaged_files("uncore-trace-ebpf");
    for file in ["object/uncore-trace.bpf.o", "object/uncore-trace.stamp", "LICENSE-GPL2"] {
        assert!(packaged.contains(file), "{file}: {packaged:?}");
    }
}
