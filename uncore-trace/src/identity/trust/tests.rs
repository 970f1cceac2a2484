use std::os::unix::fs::PermissionsExt as _;

use super::*;

const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";

/// A hierarchy with a cgroup, in which everybody may write to `open`.
fn hierarchy(path: &str, open: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(path)).unwrap();
    if !open.is_empty() {
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.path().join(open), mode).unwrap();
    }
    root
}

fn id(root: &tempfile::TempDir, path: &str) -> u64 {
    fs::metadata(root.path().join(path)).unwrap().ino()
}

#[test]
fn a_name_is_believed_down_to_the_first_directory_that_others_write_to() {
    for (open, believed) in [("", "/a/b/c"), ("a/b/c", "/a/b/c"), ("a/b", "/a/b"), ("a", "/a")] {
        let root = hierarchy("a/b/c", open);
        let trust = Trust::new(Some(root.path()), Vec::new());
        assert_eq!(trust.believed_path(id(&root, "a/b/c"), "/a/b/c"), believed, "{open}");
    }
    let root = hierarchy("a", "");
    let trust = Trust::new(Some(root.path()), Vec::new());
    assert_eq!(trust.believed_path(id(&root, "."), "/"), "");
    assert_eq!(Trust::new(None, Vec::new()).believed_path(1, "/a"), "");
}

#[test]
fn all_names_in_a_trusted_cgroup_are_believed() {
    let root = hierarchy("a/b/c", "a");
    let trust = |trusted: &str| {
        let trust = Trust::new(Some(root.path()), vec![trusted.to_owned()]);
        trust.believed_path(id(&root, "a/b/c"), "/a/b/c").to_owned()
    };
    assert_eq!(trust("/a"), "/a/b/c");
    assert_eq!(trust("/a/b"), "/a/b/c");
    assert_eq!(trust("/a/x"), "/a");
    assert_eq!(trust("/a/b/c/d"), "/a");
}

#[test]
fn a_cgroup_that_is_gone_was_in_older_directories_only() {
    let root = hierarchy("a/b", "");
    let trust = Trust::new(Some(root.path()), Vec::new());
    // Its parents are there, and were there before it.
    assert_eq!(trust.believed_path(u64::MAX, "/a/b/c"), "/a/b/c");
    // They were made after it: it was in others.
    assert_eq!(trust.believed_path(1, "/a/b/c"), "");
    // Of what is gone, nobody knows whose it was.
    assert_eq!(trust.believed_path(u64::MAX, "/a/x/c"), "/a/x");
    // Another cgroup has its path.
    fs::create_dir(root.path().join("a/b/c")).unwrap();
    assert_eq!(trust.believed_path(1, "/a/b/c"), "");
}

#[test]
fn only_units_of_runtimes_name_the_cgroups_in_them() {
    let podman = format!("libpod-payload-{ID}");
    for (component, unit, may) in [
        ("kubepods-burstable.slice:cri-containerd:x", "containerd.service", true),
        ("job_7", "slurmstepd.scope", true),
        ("job_7", "node1_slurmstepd.scope", true),
        ("kubepods.slice", "ci-runner.service", false),
        (podman.as_str(), "web.service", true),
        (podman.as_str(), "web.scope", false),
        ("libpod-payload-x", "web.service", false),
    ] {
        assert_eq!(may_name(component, unit), may, "{unit}/{component}");
    }
}
