//! Processes, containers and pods that were started again between two spans of one recording: they
//! have another id, and are compared with what they replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::super::grouping::GroupBy;
use super::super::report_sums::{ReportEvent, merge_lines_by_name};
use super::side::name_without_id;

/// Gives lines that are on one side only, and whose name is such a line on the other side too, the
/// same key on both sides. Several of a name are summed.
pub(super) fn pair_restarted(
    grouping: GroupBy,
    before_events: &mut [ReportEvent],
    after_events: &mut [ReportEvent],
) {
    let new_keys =
        map_restarted_keys(grouping, &collect_keys(before_events), &collect_keys(after_events));
    if new_keys.is_empty() {
        return;
    }
    let new_key = |key: &str| new_keys.get(key).cloned().unwrap_or_else(|| key.to_owned());
    merge_lines_by_name(before_events, new_key);
    merge_lines_by_name(after_events, new_key);
}

fn collect_keys(events: &[ReportEvent]) -> BTreeSet<String> {
    events.iter().flat_map(|event| &event.lines).map(|line| line.key.clone()).collect()
}

/// The new key of each line that was started again, by its old key.
fn map_restarted_keys(
    grouping: GroupBy,
    before_keys: &BTreeSet<String>,
    after_keys: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut keys_by_name: BTreeMap<&str, [Vec<&str>; 2]> = BTreeMap::new();
    for (side_index, lone_keys) in
        [before_keys.difference(after_keys), after_keys.difference(before_keys)]
            .into_iter()
            .enumerate()
    {
        for key in
            lone_keys.map(String::as_str).filter(|key| name_without_id(grouping, key) != *key)
        {
            keys_by_name.entry(name_without_id(grouping, key)).or_default()[side_index].push(key);
        }
    }
    let mut new_keys = BTreeMap::new();
    for (base_name, [gone_keys, started_keys]) in keys_by_name {
        let id = |key: &str| {
            let suffix = key.strip_prefix(base_name).unwrap_or_default();
            suffix.trim_matches([' ', '(', ')', '@']).to_owned()
        };
        let label = match (gone_keys.as_slice(), started_keys.as_slice()) {
            ([], _) | (_, []) => continue,
            ([gone_key], [started_key]) => {
                format!("{base_name} ({} -> {})", id(gone_key), id(started_key))
            }
            (gone_keys, started_keys) => format!(
                "{base_name} ({} -> {} {})",
                gone_keys.len(),
                started_keys.len(),
                plural_noun(grouping)
            ),
        };
        for key in gone_keys.into_iter().chain(started_keys) {
            new_keys.insert(key.to_owned(), label.clone());
        }
    }
    new_keys
}

/// The plural noun for the lines of a grouping.
fn plural_noun(grouping: GroupBy) -> &'static str {
    match grouping {
        GroupBy::Container => "containers",
        GroupBy::Pod => "pods",
        _ => "processes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_keys(
        grouping: GroupBy,
        before_keys: &[&str],
        after_keys: &[&str],
    ) -> Vec<(String, String)> {
        let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        map_restarted_keys(grouping, &set(before_keys), &set(after_keys)).into_iter().collect()
    }

    #[test]
    fn a_process_that_was_started_again_has_one_key() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect()
        };
        // One that stayed, one that was started again, one that is gone, one that is new.
        let before = ["db (7)", "train (100)", "old (1)", "irq:nvme0q1"];
        let after = ["db (7)", "train (200)", "new (2)", "irq:nvme0q2"];
        let label = "train (100 -> 200)";
        assert_eq!(
            map_keys(GroupBy::Pid, &before, &after),
            pairs(&[("train (100)", label), ("train (200)", label)])
        );
        let several = map_keys(GroupBy::Pid, &["cc1 (1)", "cc1 (2)"], &["cc1 (3)"]);
        assert!(several.iter().all(|(_, label)| label == "cc1 (2 -> 1 processes)"), "{several:?}");
        assert_eq!(several.len(), 3);
        let label = "web (3f4e -> 5d6c)";
        assert_eq!(
            map_keys(GroupBy::Container, &["web@3f4e"], &["web@5d6c"]),
            pairs(&[("web@3f4e", label), ("web@5d6c", label)])
        );
        // A cgroup has no id in its name.
        assert_eq!(map_keys(GroupBy::Cgroup, &["/a (1)"], &["/a (2)"]), []);
        // One that stayed is not a part of what was started again.
        assert_eq!(map_keys(GroupBy::Pid, &["cc1 (1)"], &["cc1 (1)", "cc1 (2)"]), []);
    }
}
