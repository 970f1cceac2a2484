//! Runs the commands of `docs/fleet.md` from the beginning to the answer.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::harness::{python, root_or_skip, text};

/// Commands at the beginning of the document that `.ci/run` has run before the tests.
const DONE: [&str; 3] = ["cargo build ", "cargo xtask setup", "export PATH="];

/// The port in the document.
const PORT: &str = "5555";

#[test]
fn the_commands_of_the_document_lead_to_an_answer() {
    let _machine = root_or_skip!();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let document = fs::read_to_string(root.join("docs/fleet.md")).unwrap();
    let (_, rest) = document.split_once("```sh\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let lines: Vec<&str> = block.lines().collect();
    assert_eq!(lines.len(), 10, "{lines:?}");
    for (line, begin) in lines.iter().zip(DONE) {
        assert!(line.starts_with(begin), "{line}");
    }
    // No other program takes the port before it is bound again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = lines[DONE.len()..].join("\n").replace(PORT, &port.to_string());
    // Background jobs are killed at the end.
    let script = format!("trap 'kill $(jobs -p)' EXIT\n{script}");
    let dir = tempfile::tempdir().unwrap();
    symlink(root.join("queries"), dir.path().join("queries")).unwrap();
    let programs = Path::new(crate::PROGRAM).parent().unwrap();
    let path = format!(
        "{}:{}:{}",
        programs.display(),
        python().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        // Jobs have numbers only with job control.
        .args(["-e", "-m", "-c", &script])
        .current_dir(dir.path())
        .env("PATH", path)
        .envs([("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing")])
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .output()
        .unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for host in ["node-1", "node-2", "node-3"] {
        let line = said.lines().find(|line| line.contains(host) && line.contains("task"));
        assert!(line.is_some(), "no {host}: {said}");
    }
    assert!(said.contains("1 file sent"), "{said}");
}

#[test]
fn a_question_may_be_about_the_files_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("cluster=a/date=2026-11-01/hour=00/host=a");
    fs::create_dir_all(&host).unwrap();
    let write = "import pyarrow, pyarrow.parquet, sys; \
                 rows = pyarrow.table({'host': ['a']}); \
                 pairs = {'uncore_trace.rollup_version': '7'}; \
                 pyarrow.parquet.write_table(rows.replace_schema_metadata(pairs), sys.argv[1])";
    let file = host.join("0_0.parquet");
    let made = Command::new(python()).args(["-c", write]).arg(file).status().unwrap();
    assert!(made.success());
    let ask = Path::new(env!("CARGO_MANIFEST_DIR")).join("../queries/ask.py");
    for root in [dir.path().to_owned(), dir.path().join("")] {
        let mut command = Command::new(python());
        let output = command.arg(&ask).args(["duckdb", "versions"]).arg(root).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said, "rollup_version\ttool_version\tfiles\tlacks\n7\t\t1\t\n");
    }
}
