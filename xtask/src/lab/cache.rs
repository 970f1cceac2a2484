//! Cache of prepared files of the lab: one directory per content key.
//!
//! An entry is made in a temporary directory beside it and renamed when it is complete, so a killed
//! run leaves no incomplete entry, and two runs at once only do the work twice. Entries that were
//! not used for a month are removed.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

/// Space for the largest step: the source of a kernel with its packages.
const SPACE: u64 = 4 << 30;

/// Age at which leftovers of killed runs are removed.
const LEFTOVER: Duration = Duration::from_hours(24);
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// Prefix of unfinished entries.
const MAKING: &str = ".making-";

/// The inputs of an entry: their names, versions and bytes.
#[derive(Debug, Default)]
pub(super) struct CacheKey(Sha256);

impl CacheKey {
    /// A key of these texts.
    pub(super) fn from_inputs<T: AsRef<[u8]>>(inputs: impl IntoIterator<Item = T>) -> Self {
        inputs.into_iter().fold(Self::default(), Self::with_input)
    }

    /// The key with one more input; its length is included, so that `ab, c` differs from `a, bc`.
    #[must_use]
    pub(super) fn with_input(mut self, input: impl AsRef<[u8]>) -> Self {
        let bytes = input.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The key with the names and bytes of files below a directory.
    pub(super) fn with_files(mut self, dir: &Path, files: &[PathBuf]) -> Result<Self> {
        for path in files {
            let bytes =
                fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(dir).unwrap_or(path);
            self = self.with_input(name.as_os_str().as_encoded_bytes()).with_input(bytes);
        }
        Ok(self)
    }

    /// The first digits of the digest, enough to distinguish entries.
    fn short_digest(self) -> String {
        self.0
            .finalize()
            .iter()
            .take(8)
            .fold(String::new(), |text, byte| text + &format_byte(*byte))
    }
}

fn format_byte(byte: u8) -> String {
    format!("{byte:02x}")
}

/// All files below a directory, sorted.
pub(super) fn list_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(dir) = directories.pop() {
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
            let file_type =
                entry.file_type().with_context(|| format!("cannot list {}", dir.display()))?;
            if file_type.is_dir() {
                directories.push(entry.path());
            } else if file_type.is_file() {
                paths.push(entry.path());
            }
        }
    }
    paths.sort();
    Ok(paths)
}

/// The lab's directory in the user's cache.
pub(super) fn cache_root() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute());
    let cache = cache.map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cache")));
    let root = cache.context("no cache directory: set XDG_CACHE_HOME or HOME")?;
    let root = root.join("uncore-trace-lab");
    fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
    Ok(root)
}

/// The entry with this name and key; if there is none, `make` fills an empty directory with it.
pub(super) fn cached_entry(
    name: &str,
    key: CacheKey,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let root = cache_root()?;
    let path = root.join(format!("{name}-{}", key.short_digest()));
    if path.is_dir() {
        mark_used(&path);
        return Ok(path);
    }
    ensure_space(&root)?;
    let unfinished = tempfile::Builder::new()
        .prefix(MAKING)
        .tempdir_in(&root)
        .with_context(|| format!("cannot create a directory in {}", root.display()))?;
    make(unfinished.path())?;
    let complete = unfinished.keep();
    if let Err(error) = fs::rename(&complete, &path) {
        // Another run was faster: its entry has the same content.
        drop(fs::remove_dir_all(&complete));
        ensure!(path.is_dir(), "cannot create {}: {error}", path.display());
    }
    Ok(path)
}

/// Fails if there is too little space for a large step.
pub(super) fn ensure_space(dir: &Path) -> Result<()> {
    let space = rustix::fs::statvfs(dir)
        .with_context(|| format!("cannot ask for the free space of {}", dir.display()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    ensure!(
        free >= SPACE,
        "{} has {} MiB free and the lab needs {}: make space, or set XDG_CACHE_HOME to a larger \
         file system",
        dir.display(),
        free >> 20,
        SPACE >> 20
    );
    Ok(())
}

/// Notes that an entry was used. A read-only cache can still be read.
fn mark_used(path: &Path) {
    drop(File::open(path).and_then(|dir| dir.set_modified(SystemTime::now())));
}

/// Removes leftovers of killed runs, and entries that were not used for a month.
pub(super) fn remove_unused() -> Result<()> {
    let root = cache_root()?;
    let entries = fs::read_dir(&root).with_context(|| format!("cannot list {}", root.display()))?;
    for entry in entries.flatten() {
        let limit =
            if entry.file_name().to_string_lossy().starts_with(MAKING) { LEFTOVER } else { UNUSED };
        let age = entry.metadata().and_then(|data| data.modified());
        if age.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > limit)) {
            let path = entry.path();
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove the unused {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_inputs_apart() {
        let one = CacheKey::from_inputs(["ab", "c"]).short_digest();
        assert_ne!(one, CacheKey::from_inputs(["a", "bc"]).short_digest());
        assert_eq!(one, CacheKey::from_inputs(["ab", "c"]).short_digest());
    }
}
