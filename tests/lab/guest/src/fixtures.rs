//! The machines of `tests/fixtures/machines`, one file each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::tree::Tree;

/// The directory of the files `NAME.toml`.
#[must_use]
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/machines")
}

/// The names of all machines, sorted.
///
/// # Errors
///
/// The directory cannot be read, or there is no machine in it.
pub fn names() -> Result<Vec<String>> {
    let machines_dir = dir();
    let unreadable = || format!("cannot read {}", machines_dir.display());
    let mut found_names = Vec::new();
    for entry in fs::read_dir(&machines_dir).with_context(unreadable)? {
        let file = entry.with_context(unreadable)?.file_name();
        found_names
            .extend(file.to_str().and_then(|file| file.strip_suffix(".toml")).map(str::to_owned));
    }
    found_names.sort();
    ensure!(!found_names.is_empty(), "no machine in {}", machines_dir.display());
    Ok(found_names)
}

/// The machine of this name.
///
/// # Errors
///
/// The machine does not exist, or its file cannot be read.
pub fn machine(name: &str) -> Result<Tree> {
    read_tree(&dir().join(format!("{name}.toml")))
}

/// The machine in this file.
///
/// # Errors
///
/// The file cannot be read, or its form is invalid.
pub fn read_tree(path: &Path) -> Result<Tree> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Tree::parse(&text).with_context(|| format!("cannot use {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was edited by hand has the form that the tool writes, so that a later capture
    /// shows only real differences.
    #[test]
    fn each_machine_is_the_text_that_is_written_of_its_files() {
        for name in names().unwrap() {
            let scratch_dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            machine(&name).unwrap().unpack_to(&scratch_dir).unwrap();
            let packed = Tree::pack_dir(&scratch_dir).unwrap();
            fs::remove_dir_all(&scratch_dir).unwrap();
            assert_eq!(packed, machine(&name).unwrap(), "{name}");
            let file = dir().join(format!("{name}.toml"));
            let text = fs::read_to_string(&file).unwrap();
            let mend = "run `cargo xtask unpack` and `cargo xtask pack`";
            assert!(packed.to_text() == text, "{} has another form: {mend}", file.display());
        }
    }
}
