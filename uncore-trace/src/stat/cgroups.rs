//! Parses `--for-each-cgroup`: names or regular expressions, separated by commas.
//!
//! As in perf (`tools/perf/util/cgroup.c`, Linux 7.2), an item with one of `{}[]()|*+?^$` is an
//! expression, matched anywhere in the path without its first slash. Guarantee: every selected
//! cgroup exists, and none is selected twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use regex::Regex;

use crate::text::{count_noun, list_few, printable};

/// Characters that make an item an expression.
const PATTERN: [char; 13] = ['{', '}', '[', ']', '(', ')', '|', '*', '+', '?', '^', '$', '\\'];

/// Number of similar cgroups in an error: hosts have thousands.
const NEAREST: usize = 3;

/// A cgroup with rows of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedCgroup {
    /// As in the tables, from the root of the hierarchy with a leading slash.
    pub path: String,
    /// What is printed for it, as in perf: the name as typed, or the path that an expression
    /// matches without its first slash.
    pub label: String,
}

/// What `--for-each-cgroup` selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The cgroups, in the order in which they were typed.
    pub cgroups: Vec<SelectedCgroup>,
    /// Why an item selects nothing, one line each.
    pub missing: Vec<String>,
}

/// The cgroups below `mount` that `typed` selects. As in perf, an item that selects nothing leaves
/// the others.
///
/// # Errors
///
/// No item selects a cgroup, or an expression is invalid; the message names what exists.
pub fn select_cgroups(mount: &Path, typed: &str) -> Result<Selection> {
    let paths = list_cgroups(mount)?;
    let mut selection = Selection::default();
    for word in typed.split(',').filter(|word| !word.is_empty()) {
        let selected = find_cgroups(mount, &paths, word)?;
        if selected.is_empty() {
            let problem = if word.contains(PATTERN) {
                format!("no cgroup matches '{}'", printable(word))
            } else {
                format!("there is no cgroup {}", printable(&path_of(mount, word)))
            };
            selection.missing.push(format!("{problem}; {}", describe_nearest(mount, &paths, word)));
        }
        for cgroup in selected {
            if !selection.cgroups.iter().any(|known| known.path == cgroup.path) {
                selection.cgroups.push(cgroup);
            }
        }
    }
    if selection.cgroups.is_empty() {
        let none = || {
            let nearest = describe_nearest(mount, &paths, typed);
            format!("--for-each-cgroup names no cgroup; {nearest}")
        };
        bail!("{}", selection.missing.into_iter().next().unwrap_or_else(none));
    }
    Ok(selection)
}

/// The cgroups that an item selects.
fn find_cgroups(mount: &Path, paths: &BTreeSet<String>, word: &str) -> Result<Vec<SelectedCgroup>> {
    if word.contains(PATTERN) {
        let regex = Regex::new(word).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            anyhow!("'{}' is not a regular expression: {reason}", printable(word))
        })?;
        let matched = |path: &String| {
            let inner = path.trim_start_matches('/');
            let label = if inner.is_empty() { path } else { inner };
            let selected = SelectedCgroup { path: path.clone(), label: label.to_owned() };
            regex.is_match(inner).then_some(selected)
        };
        return Ok(paths.iter().filter_map(matched).collect());
    }
    let path = path_of(mount, word);
    let selected = SelectedCgroup { path: path.clone(), label: word.to_owned() };
    Ok(if paths.contains(&path) { vec![selected] } else { Vec::new() })
}

/// The path of a cgroup that was typed by name, or by its directory.
fn path_of(mount: &Path, word: &str) -> String {
    let inside = Path::new(word).strip_prefix(mount).ok();
    format!("/{}", inside.and_then(Path::to_str).unwrap_or(word).trim_matches('/'))
}

/// The cgroups that are most similar to `typed`, by their path or their last name, and where all
/// cgroups are.
fn describe_nearest(mount: &Path, paths: &BTreeSet<String>, typed: &str) -> String {
    let typed = typed.trim_matches(PATTERN).trim_matches('/').to_lowercase();
    let similarity = |path: &str| {
        let path = path.trim_start_matches('/').to_lowercase();
        let last_name = path.rsplit('/').next().unwrap_or_default();
        // A path that contains the whole text ranks above one that is only similar.
        let is_part = f64::from(!typed.is_empty() && path.contains(&typed));
        let names = [path.as_str(), last_name].into_iter();
        is_part + names.map(|name| strsim::jaro_winkler(&typed, name)).fold(0.0, f64::max)
    };
    let mut known: Vec<(f64, &String)> =
        paths.iter().map(|path| (similarity(path), path)).collect();
    known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let nearest: Vec<&String> = known.iter().take(NEAREST).map(|(_, path)| *path).collect();
    let verb = |count: usize| if count == 1 { "is" } else { "are" };
    format!(
        "{} {} below {}; the nearest {} {}",
        count_noun(paths.len(), "cgroup"),
        verb(paths.len()),
        mount.display(),
        verb(nearest.len()),
        list_few(nearest, NEAREST)
    )
}

/// Every cgroup of the hierarchy, without those that vanish meanwhile or whose names are not UTF-8.
fn list_cgroups(mount: &Path) -> Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        let entries = match fs::read_dir(mount.join(path.trim_start_matches('/'))) {
            Ok(entries) => entries,
            Err(error) if path.is_empty() => {
                return Err(error)
                    .with_context(|| format!("cannot list the cgroups in {}", mount.display()));
            }
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|file_type| file_type.is_dir())
                && let Some(name) = entry.file_name().to_str()
            {
                open.push(format!("{path}/{name}"));
            }
        }
        paths.insert(if path.is_empty() { "/".to_owned() } else { path });
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_selected_by_name_or_expression() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tenant-a/job1", "tenant-b", "system.slice", "x"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        let select = |typed: &str| select_cgroups(dir.path(), typed);
        let of = |typed: &str| {
            let selection = select(typed).unwrap();
            assert_eq!(selection.missing, Vec::<String>::new(), "{typed}");
            let paths: Vec<_> = selection.cgroups.into_iter().map(|cgroup| cgroup.path).collect();
            paths.join(" ")
        };
        assert_eq!(of("tenant-b,/tenant-a/"), "/tenant-b /tenant-a");
        assert_eq!(of("/"), "/");
        assert_eq!(of(&format!("{}/x", dir.path().display())), "/x");
        assert_eq!(of("x,^tenant-.*,tenant-b"), "/x /tenant-a /tenant-a/job1 /tenant-b");
        assert_eq!(of("^tenant-[ab]$"), "/tenant-a /tenant-b");
        let refused = |typed: &str| format!("{:#}", select(typed).unwrap_err());
        let wrong = refused("tenant-c");
        assert!(wrong.contains("no cgroup /tenant-c; 6 cgroups are below"), "{wrong}");
        assert!(wrong.ends_with("the nearest are /tenant-a, /tenant-b, /tenant-a/job1"), "{wrong}");
        let own = refused("job");
        assert!(own.contains("the nearest are /tenant-a/job1, "), "{own}");
        assert!(refused("^y").contains("no cgroup matches '^y'"));
        let regex = refused("(x");
        assert!(regex.contains("not a regular expression: unclosed group"), "{regex}");
        assert!(!regex.contains('\n'), "{regex}");
        assert!(refused(",").contains("names no cgroup"));
        assert!(refused("../x").contains("no cgroup"));
    }

    #[test]
    fn a_cgroup_is_called_as_it_was_typed_and_one_that_is_missing_leaves_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let missing = |typed: &str| select_cgroups(dir.path(), typed).unwrap_err().to_string();
        let alone = missing("a");
        assert!(alone.contains("no cgroup /a; 1 cgroup is below "), "{alone}");
        assert!(alone.ends_with("; the nearest is /"), "{alone}");
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let typed = format!("a,nosuch,/a/b/,{}/a,^x,/", dir.path().display());
        let Selection { cgroups, missing } = select_cgroups(dir.path(), &typed).unwrap();
        let shown = |cgroups: &[SelectedCgroup]| {
            let pairs = cgroups.iter().map(|cgroup| format!("{} {}", cgroup.path, cgroup.label));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(shown(&cgroups), ["/a a", "/a/b /a/b/", "/ /"]);
        assert!(missing[0].starts_with("there is no cgroup /nosuch; 3 cgroups are"), "{missing:?}");
        assert!(missing[1].starts_with("no cgroup matches '^x'; "), "{missing:?}");
        let matched = select_cgroups(dir.path(), "^a|^$").unwrap().cgroups;
        assert_eq!(shown(&matched), ["/ /", "/a a", "/a/b a/b"]);
    }
}
