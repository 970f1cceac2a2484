//! The catalog that a command uses: the embedded one, overlaid by that of the user, overlaid by
//! that of `--catalog`.
//!
//! Guarantee: a directory given with `--catalog` is used as a whole, or the command fails. The
//! user's directory is skipped only if it does not exist.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};

use super::heading::COUNT;
use crate::bounds;
use crate::catalog::Catalog;
use crate::catalog::overlay::FamilyFile;

// Not a doc comment: clap would make it the description of the command that has these options.
#[derive(Debug, Default, clap::Args)]
#[expect(missing_docs, reason = "clap takes a command's description from the doc")]
pub struct CatalogArgs {
    /// Read PMU families from DIR/*.toml too (format: docs/catalog.md); a family with a known name
    /// replaces that one
    #[arg(long, value_name = "DIR", help_heading = COUNT)]
    pub catalog: Option<PathBuf>,
}

impl CatalogArgs {
    /// Reads the catalog.
    ///
    /// # Errors
    ///
    /// A file cannot be used; the message names it and its fault, on one line.
    pub fn load_catalog(&self) -> Result<Catalog> {
        let user = user_directory(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
        load_families(user.as_deref(), self.catalog.as_deref())
    }
}

/// The user's directory of families (XDG Base Directory Specification 0.8: a relative path is
/// invalid and must be ignored).
fn user_directory(config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute(config).or_else(|| Some(absolute(home)?.join(".config")))?;
    Some(config.join("uncore-trace/catalog"))
}

fn load_families(user: Option<&Path>, named: Option<&Path>) -> Result<Catalog> {
    let mut catalog = Catalog::load_embedded()?;
    // A directory without permission to see it, such as the home of another user, counts as
    // missing.
    if let Some(user) = user.filter(|user| user.exists()) {
        catalog.add_files(read_family_files(user)?)?;
    }
    if let Some(named) = named {
        let files = read_family_files(named)?;
        ensure!(!files.is_empty(), "the catalog {} holds no .toml file", named.display());
        catalog.add_files(files)?;
    }
    for name in &catalog.outside {
        log::info!("a family of the catalog is from {name}");
    }
    Ok(catalog)
}

/// The files that `DIR/*.toml` matches in a shell, sorted by name.
fn read_family_files(dir: &Path) -> Result<Vec<FamilyFile>> {
    let cannot = || format!("cannot read the catalog {}", dir.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        // Editors use such names for locks and backups of open files.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let read_family = |path: PathBuf| {
        let name = path.display().to_string();
        let text = bounds::read_text(&path, bounds::TEXT)
            .with_context(|| format!("cannot read {name}"))?;
        Ok(FamilyFile { name, text })
    };
    paths.into_iter().map(read_family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, family) in files {
            let text =
                format!("family = '{family}'\nabout = '{name}'\nnames = ['x']\ngroup = 'mem'");
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn the_users_directory_is_below_an_absolute_path() {
        let at = |config: &str, home: &str| {
            user_directory(Some(config.into()), Some(home.into()))
                .map(|path| path.to_str().unwrap().to_owned())
        };
        assert_eq!(at("/c", "/h").unwrap(), "/c/uncore-trace/catalog");
        assert_eq!(at("", "/h").unwrap(), "/h/.config/uncore-trace/catalog");
        assert_eq!(at("c", "/h").unwrap(), "/h/.config/uncore-trace/catalog");
        assert_eq!(at("", ""), None);
        assert_eq!(user_directory(None, None), None);
    }

    #[test]
    fn files_come_in_the_order_of_names_and_the_named_directory_wins() {
        let user = directory(&[("1.toml", "first"), ("0.toml", "second")]);
        let named = directory(&[("n.toml", "first"), (".n.toml", "hidden"), ("n.txt", "other")]);
        let catalog = load_families(Some(user.path()), Some(named.path())).unwrap();
        let abouts = catalog.families.iter().take(2).map(|family| family.about.as_str());
        assert_eq!(abouts.collect::<Vec<_>>(), ["0.toml", "n.toml"]);
        let outside: Vec<_> =
            catalog.outside.iter().map(|name| name.rsplit('/').next().unwrap()).collect();
        assert_eq!(outside, ["0.toml", "1.toml", "n.toml"]);
    }

    #[test]
    fn only_the_users_directory_may_be_missing_or_empty() {
        let empty = directory(&[]);
        let missing = empty.path().join("missing");
        assert!(load_families(Some(&missing), None).unwrap().outside.is_empty());
        assert!(load_families(Some(empty.path()), None).unwrap().outside.is_empty());
        let refused = |named| format!("{:#}", load_families(None, Some(named)).unwrap_err());
        assert!(refused(&missing).starts_with("cannot read the catalog "), "{}", refused(&missing));
        assert!(refused(empty.path()).ends_with(" holds no .toml file"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let dir = directory(&[]);
        fs::write(dir.path().join("a.toml"), b"about = '\xff'").unwrap();
        let error = format!("{:#}", load_families(Some(dir.path()), None).unwrap_err());
        assert!(error.contains("/a.toml: ") && error.contains("UTF-8"), "{error}");
    }
}
