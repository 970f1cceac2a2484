//! `cgroups`: the path of each cgroup id, and what it is in.
//!
//! Guarantee: ids are never reused within a recording; the first path seen is kept.

use super::kind::{Bits, I64, Null, Text, Word, table};
use super::when::When;

table! {
    "cgroups", "path of each cgroup, and its container and pod", sorted by [];
    When::Holds { since: Some("mono_ns"), key: &["id"], last: None };
    host: Word => Dict, "Host name.";
    boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): times of `CLOCK_MONOTONIC` and ids compare within one boot.";
    cluster: Null<Word> => Dict, "Cluster the host is in, as `--cluster` named it; null where it was not named.";
    id: Bits => Plain, "Inode number of the cgroup's directory.";
    path: Text => Plain, "Path below the cgroup mount, beginning with a slash.";
    container: Null<Word> => Dict, "Container it is in, as in `fabric`; null where it is in none.";
    pod: Null<Word> => Dict, "Pod it is in, as in `fabric`; null where it is in none.";
    mono_ns: I64 => Plain, "End of the first tick in which `fabric` has the path, `CLOCK_MONOTONIC`, ns.";
}

/// Where a cgroup is. There may be 10^5: who keeps one shares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Path below the mount point of the hierarchy.
    pub path: Box<str>,
    /// `NAME@ID` or id of the container it is in.
    pub container: Option<Box<str>>,
    /// `NAMESPACE/NAME@UID` or uid of the pod it is in.
    pub pod: Option<Box<str>>,
}

/// The ancestor of depth `depth` of a cgroup, or itself where it is not as deep; 0 is the root.
/// A text that is not a path stays as it is.
pub fn ancestor(path: &str, depth: usize) -> &str {
    if !path.starts_with('/') {
        return path;
    }
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    match depth.checked_sub(1) {
        None => "/",
        Some(last) => ends.into_iter().nth(last).map_or(path, |end| &path[..end]),
    }
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
            assert_eq!(ancestor(path, depth), short, "{path} {depth}");
        }
        assert_eq!((ancestor("", 0), ancestor("(other)", 0)), ("", "(other)"));
    }
}
