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

use crate::text::{counted, few, printable};

/// Characters that make an item an expression.
const PATTERN: [char; 13] = ['{', '}', '[', ']', '(', ')', '|', '*', '+', '?', '^', '$', '\\'];

/// Number of similar cgroups in an error: hosts have thousands.
const NEAREST: usize = 3;

/// The cgroups below `mount` that `typed` selects, in the order of `typed`; paths are as in the
/// tables, from the root of the hierarchy with a leading slash.
///
/// # Errors
///
/// A name that no cgroup has, or an expression that is invalid or matches none; the message names
/// what exists.
pub fn select(mount: &Path, typed: &str) -> Result<Vec<String>> {
    let all = walk(mount)?;
    let mut selected: Vec<String> = Vec::new();
    for word in typed.split(',').filter(|word| !word.is_empty()) {
        let found = one(mount, &all, word)?;
        for path in found {
            if !selected.contains(&path) {
                selected.push(path);
            }
        }
    }
    if selected.is_empty() {
        bail!("--for-each-cgroup names no cgroup; {}", some(mount, &all, typed));
    }
    Ok(selected)
}

fn one(mount: &Path, all: &BTreeSet<String>, word: &str) -> Result<Vec<String>> {
    if word.contains(PATTERN) {
        let regex = Regex::new(word).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            anyhow!("'{}' is not a regular expression: {reason}", printable(word))
        })?;
        let matches = |path: &&String| regex.is_match(path.trim_start_matches('/'));
        let found: Vec<_> = all.iter().filter(matches).cloned().collect();
        if found.is_empty() {
            bail!("no cgroup matches '{}'; {}", printable(word), some(mount, all, word));
        }
        return Ok(found);
    }
    let inside = Path::new(word).strip_prefix(mount).ok();
    let inside = inside.and_then(Path::to_str).unwrap_or(word);
    let path = format!("/{}", inside.trim_matches('/'));
    if !all.contains(&path) {
        bail!("there is no cgroup {}; {}", printable(&path), some(mount, all, &path));
    }
    Ok(vec![path])
}

/// The cgroups that are most similar to `typed`, by their path or their last name, and where all
/// cgroups are.
fn some(mount: &Path, all: &BTreeSet<String>, typed: &str) -> String {
    let typed = typed.trim_matches(PATTERN).trim_matches('/').to_lowercase();
    let alike = |path: &str| {
        let path = path.trim_start_matches('/').to_lowercase();
        let own = path.rsplit('/').next().unwrap_or_default();
        // A path that contains the whole text ranks above one that is only similar.
        let is_part = f64::from(!typed.is_empty() && path.contains(&typed));
        let names = [path.as_str(), own].into_iter();
        is_part + names.map(|name| strsim::jaro_winkler(&typed, name)).fold(0.0, f64::max)
    };
    let mut known: Vec<(f64, &String)> = all.iter().map(|path| (alike(path), path)).collect();
    known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let nearest = known.iter().take(NEAREST).map(|(_, path)| path);
    format!(
        "{} are below {}; the nearest are {}",
        counted(all.len(), "cgroup"),
        mount.display(),
        few(nearest, NEAREST)
    )
}

/// Every cgroup of the hierarchy, without those that vanish meanwhile or whose names are not UTF-8.
fn walk(mount: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
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
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Some(name) = entry.file_name().to_str()
            {
                open.push(format!("{path}/{name}"));
            }
        }
        found.insert(if path.is_empty() { "/".to_owned() } else { path });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_expressions() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tenant-a/job1", "tenant-b", "system.slice", "x"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        let select = |typed: &str| select(dir.path(), typed);
        let of = |typed: &str| select(typed).unwrap().join(" ");
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
}
