//! The release workflow, as far as it can be tried without the network: its scripts run with
//! programs that stand in for `cargo` and `gh`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::script;
use crate::harness::{python, python_answers};

fn workflow() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows/release.yml");
    let parse = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    python_answers(&python(), parse, &[path.as_os_str()])
}

fn steps(job: &Value) -> &[Value] {
    job["steps"].as_array().unwrap()
}

/// Runs the script of a step in a directory, as GitHub does, with `stand_in` for a program.
fn run(job: &str, step: &str, dir: &TempDir, (program, stand_in): (&str, &str)) -> Output {
    let workflow = workflow();
    let of_name = steps(&workflow["jobs"][job])
        .iter()
        .find(|workflow_step| workflow_step["name"] == step)
        .unwrap();
    let programs = dir.path().join("bin");
    fs::create_dir_all(&programs).unwrap();
    script(&programs.join(program), stand_in);
    let path = env::join_paths([programs, PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
    let mut bash = Command::new("bash");
    bash.args(["-e", "-c", of_name["run"].as_str().unwrap()]).current_dir(dir.path());
    bash.env("PATH", path.unwrap()).env("GITHUB_REPOSITORY", "owner/name");
    bash.env("GITHUB_REF_NAME", "v0.2.0").output().unwrap()
}

#[test]
fn jobs_with_write_permission_run_no_code_of_the_repository() {
    let workflow = workflow();
    assert_eq!(workflow["permissions"], json!({"contents": "read"}));
    let jobs = workflow["jobs"].as_object().unwrap();
    let may_write: Vec<&str> = jobs
        .iter()
        .filter_map(|(name, job)| (!job["permissions"].is_null()).then_some(name.as_str()))
        .collect();
    assert_eq!(may_write, ["publish"]);
    for step in steps(&jobs["publish"]) {
        let uses = step["uses"].as_str().unwrap_or_default();
        let runs = step["run"].as_str().unwrap_or_default();
        assert!(!uses.starts_with("actions/checkout") && !runs.contains("cargo"), "{step}");
    }
}

#[test]
fn notes_are_the_section_of_the_version_that_is_tagged() {
    let notes = |pkgid: &str, changes: &str| {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("CHANGELOG.md"), changes).unwrap();
        let cargo = format!("#!/bin/sh\necho '{pkgid}'\n");
        let output = run("build", "Notes of the release", &dir, ("cargo", &cargo));
        (output.status.success(), fs::read_to_string(dir.path().join("notes.md")).ok())
    };
    let changes =
        "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- one\n\n## 0.1.0 (2026-11-01)\n\n- two\n";
    let id = "path+file:///work/uncore-trace#0.2.0";
    assert_eq!(notes(id, changes), (true, Some("\n- one\n\n".to_owned())));
    assert_eq!(notes("path+file:///work/x#uncore-trace@0.2.1", changes), (false, None));
    assert!(!notes(id, "# Changelog\n\n## Unreleased\n\n- one\n").0);
}

#[test]
fn every_file_that_has_a_digest_is_published() {
    let dir = TempDir::new().unwrap();
    let line = |name: &str| format!("{}  {name}\n", "0".repeat(64));
    let names = ["uncore-trace-0.2.0-x86_64", "uncore-trace_0.2.0-1_arm64.deb"];
    fs::write(dir.path().join("SHA256SUMS"), names.map(line).concat()).unwrap();
    let output = run("publish", "Release", &dir, ("gh", "#!/bin/sh\necho \"$@\"\n"));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("release create v0.2.0 SHA256SUMS --repo owner/name "), "{said}");
    assert!(said.ends_with(&format!(" --notes-file notes.md {}\n", names.join(" "))), "{said}");
}
