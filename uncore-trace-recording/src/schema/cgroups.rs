//! `cgroups`: the path of each cgroup id, and its container, pod and job.
//!
//! Guarantee: ids are never reused within a recording; the first path seen is kept.

use super::column_type::{Bits, I64, Null, Text, Word, table};

table! {
    "cgroups", "path of each cgroup, and its container, pod and job", sorted by [], later ["job"];
    Holds { since: Some("mono_ns"), key: &["id"], last_row: None };
    origin;
    id: Bits => Plain, "Inode number of the cgroup's directory.";
    path: Text => Plain, "Path below the cgroup mount, beginning with a slash.";
    container: Null<Word> => Dict, "Container or virtual machine it is in, as in `fabric`; null where it is in none, or where users other than root may have given the name.";
    pod: Null<Word> => Dict, "Pod it is in, as in `fabric`; null where it is in none, or where users other than root may have given the name.";
    mono_ns: I64 => Plain, "End of the first tick in which `fabric` has the path, `CLOCK_MONOTONIC`, ns.";
    job: Null<Word> => Dict, "Job and step of Slurm that the cgroup is in, as `sacct` names them: `123.0`, `123.batch`, or `123` outside of a step; null where it is in none, or where users other than root may have given the name. Older recordings lack it.";
}

/// The path, container, pod and job of a cgroup. There may be 10^5 of them, so they are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupNames {
    /// Path below the mount point of the hierarchy.
    pub path: Box<str>,
    /// The container: `NAME@ID`, or its id.
    pub container: Option<Box<str>>,
    /// The pod: `NAMESPACE/NAME@UID`, or its uid.
    pub pod: Option<Box<str>>,
    /// The job and its step: `JOB.STEP`, or `JOB`.
    pub job: Option<Box<str>>,
}

/// The job of a step: `123` of `123.batch`. Views sum the steps of a job.
pub fn whole_job(step: &str) -> &str {
    step.split_once('.').map_or(step, |(job, _)| job)
}

/// The ancestor of a path at depth `depth`; the path itself if it is not deeper. 0 is the root. A
/// text that is not a path is returned unchanged.
pub fn ancestor_path(path: &str, depth: usize) -> &str {
    if !path.starts_with('/') {
        return path;
    }
    let ends = path.match_indices('/').map(|(index, _)| index).skip(1).chain([path.len()]);
    match depth.checked_sub(1) {
        None => "/",
        Some(level) => ends.into_iter().nth(level).map_or(path, |end| &path[..end]),
    }
}

/// Whether a cgroup is `parent` or below it.
pub fn is_within(path: &str, parent: &str) -> bool {
    let below = path.strip_prefix(parent.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_at_their_components() {
        let cases = [
            ("/", 0, "/"),
            ("/", 3, "/"),
            ("/a/b", 0, "/"),
            ("/a/b", 1, "/a"),
            ("/a/b", 2, "/a/b"),
        ];
        for (path, depth, short) in cases {
            assert_eq!(ancestor_path(path, depth), short, "{path} {depth}");
        }
        assert_eq!((ancestor_path("", 0), ancestor_path("(other)", 0)), ("", "(other)"));
    }

    #[test]
    fn a_cgroup_stands_for_all_below_it() {
        for (path, parent, expected) in [
            ("/lab/train", "/lab", true),
            ("/lab/train", "/lab/", true),
            ("/lab", "/lab", true),
            ("/lab", "/", true),
            ("/laboratory", "/lab", false),
            ("/", "/lab", false),
        ] {
            assert_eq!(is_within(path, parent), expected, "{path} {parent}");
        }
    }
}
