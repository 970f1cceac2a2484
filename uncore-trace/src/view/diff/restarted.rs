//! Processes, containers and pods that were started again between two spans of one recording: they
//! have another id, and are compared with what they replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::super::usage::{By, Event, unite};
use super::side::name;

/// Gives lines that are on one side only, and whose name is such a line on the other side too, the same
/// key on both sides. Several of a name are summed.
pub(super) fn pair(by: By, before: &mut [Event], after: &mut [Event]) {
    let renamed = renamed(by, &keys(before), &keys(after));
    if renamed.is_empty() {
        return;
    }
    let new = |key: &str| renamed.get(key).cloned().unwrap_or_else(|| key.to_owned());
    unite(before, new);
    unite(after, new);
}

fn keys(events: &[Event]) -> BTreeSet<String> {
    events.iter().flat_map(|event| &event.lines).map(|line| line.key.clone()).collect()
}

/// The new keys.
fn renamed(
    by: By,
    before: &BTreeSet<String>,
    after: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut of_name: BTreeMap<&str, [Vec<&str>; 2]> = BTreeMap::new();
    for (side, only) in [before.difference(after), after.difference(before)].into_iter().enumerate()
    {
        for key in only.map(String::as_str).filter(|key| name(by, key) != *key) {
            of_name.entry(name(by, key)).or_default()[side].push(key);
        }
    }
    let mut renamed = BTreeMap::new();
    for (name, [gone, new]) in of_name {
        let id = |key: &str| {
            let rest = key.strip_prefix(name).unwrap_or_default();
            rest.trim_matches([' ', '(', ')', '@']).to_owned()
        };
        let label = match (gone.as_slice(), new.as_slice()) {
            ([], _) | (_, []) => continue,
            ([one], [other]) => format!("{name} ({} -> {})", id(one), id(other)),
            (gone, new) => format!("{name} ({} -> {} {})", gone.len(), new.len(), things(by)),
        };
        for key in gone.into_iter().chain(new) {
            renamed.insert(key.to_owned(), label.clone());
        }
    }
    renamed
}

/// What several lines are.
fn things(by: By) -> &'static str {
    match by {
        By::Container => "containers",
        By::Pod => "pods",
        _ => "processes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(by: By, before: &[&str], after: &[&str]) -> Vec<(String, String)> {
        let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        renamed(by, &set(before), &set(after)).into_iter().collect()
    }

    #[test]
    fn what_was_started_again_has_one_key() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect()
        };
        // One that stayed, one that was started again, one that is gone, one that is new.
        let before = ["db (7)", "train (100)", "old (1)", "irq:nvme0q1"];
        let after = ["db (7)", "train (200)", "new (2)", "irq:nvme0q2"];
        let label = "train (100 -> 200)";
        assert_eq!(
            of(By::Pid, &before, &after),
            pairs(&[("train (100)", label), ("train (200)", label)])
        );
        let several = of(By::Pid, &["cc1 (1)", "cc1 (2)"], &["cc1 (3)"]);
        assert!(several.iter().all(|(_, label)| label == "cc1 (2 -> 1 processes)"), "{several:?}");
        assert_eq!(several.len(), 3);
        let label = "web (3f4e -> 5d6c)";
        assert_eq!(
            of(By::Container, &["web@3f4e"], &["web@5d6c"]),
            pairs(&[("web@3f4e", label), ("web@5d6c", label)])
        );
        // A cgroup has no id in its name.
        assert_eq!(of(By::Cgroup, &["/a (1)"], &["/a (2)"]), []);
        // One that stayed is not a part of what was started again.
        assert_eq!(of(By::Pid, &["cc1 (1)"], &["cc1 (1)", "cc1 (2)"]), []);
    }
}
