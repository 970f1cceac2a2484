//! Tests of `upload` with the policy of `docs/fleet.md`, which keeps a host to its own objects.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::Command;

use crate::command::Answer;
use crate::fleet::{Fleet, environment};
use crate::needs::python;
use crate::store::Moto;

/// The hosts, whose names their users have: the second is that of the files.
const HOSTS: [&str; 2] = ["two", "one"];

/// The policy of the document, for this store.
fn policy() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = std::fs::read_to_string(root.join("docs/fleet.md")).unwrap();
    let (_, rest) = document.split_once("```json\n").unwrap();
    let (policy, _) = rest.split_once("```").unwrap();
    let resource = "arn:aws:s3:::BUCKET/PREFIX/cluster=CLUSTER/date=*/hour=*/host=HOST/*";
    assert!(policy.contains(resource), "{policy}");
    let policy = policy.replace("BUCKET", "bucket").replace("PREFIX", "fleet/one");
    policy.replace("CLUSTER", "lab")
}

#[test]
fn a_host_writes_its_own_objects_and_no_others() {
    // A bucket, and of each host a user, a policy and a key.
    let free = (1 + 3 * HOSTS.len()).to_string();
    let moto = Moto::with_env(&[("INITIAL_NO_AUTH_ACTION_COUNT", free.as_str())]);
    let address = format!("http://{}", moto.address());
    let mut command = Command::new(python());
    command.args(["-c", include_str!("policy.py"), &address, &policy()]).args(HOSTS);
    environment(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let keys = String::from_utf8(output.stdout).unwrap();
    let mut fleet = Fleet::to_bucket(&address, "");
    fleet.make(8, 10);
    for (host, line) in HOSTS.into_iter().zip(keys.lines()) {
        let [name, key, secret]: [&str; 3] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(name, host);
        let mut command = fleet.tool(&["--once"]);
        command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
        let answer = Answer::of(command.output().unwrap());
        if host == "one" {
            assert_eq!(answer.ok(), "1 file sent, 10 B\n");
        } else {
            assert_eq!(answer.code, 1, "{answer:?}");
            assert!(
                answer.err.contains("host=one/") && answer.err.contains("AccessDenied"),
                "{answer:?}"
            );
        }
    }
}
