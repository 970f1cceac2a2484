//! The committed object, and the stamp of its sources.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

/// The workspace that holds this package.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// The committed object.
#[must_use]
pub fn object_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("object/uncore-trace.bpf.o")
}

/// The committed stamp.
#[must_use]
pub fn stamp_path() -> PathBuf {
    object_path().with_file_name("uncore-trace.stamp")
}

/// Whether this is a published package and not the repository: there is no workspace around it. Cargo
/// has written its manifest anew, so its sources are not those of the stamp.
///
/// # Errors
///
/// The manifest of the workspace cannot be read.
pub fn is_package() -> Result<bool> {
    let manifest = workspace_root().join("Cargo.toml");
    Ok(!manifest.exists() || !read_text(&manifest)?.contains("[workspace]"))
}

/// All files that decide which object is embedded. In a package these are the object and its stamp.
///
/// # Errors
///
/// The manifest of the workspace cannot be read.
pub fn input_paths() -> Result<Vec<PathBuf>> {
    let mut paths = vec![object_path(), stamp_path()];
    if !is_package()? {
        paths.extend(source_paths());
        paths.extend(setting_paths());
    }
    Ok(paths)
}

/// All sources of the object.
fn source_paths() -> Vec<PathBuf> {
    let root = workspace_root();
    [
        "uncore-trace-ebpf/src",
        "uncore-trace-ebpf/Cargo.toml",
        "uncore-trace-ebpf/host/build.rs",
        "uncore-trace-common/src",
        "uncore-trace-common/Cargo.toml",
    ]
    .map(|path| root.join(path))
    .to_vec()
}

/// Fails unless the committed object and, in the repository, its sources are those of its stamp.
pub fn verify_sources() -> Result<()> {
    let committed = fs::read_to_string(stamp_path())
        .with_context(|| format!("cannot read {}", stamp_path().display()))?;
    let mut lines = committed.lines();
    let stamped_sources = lines.next();
    if !is_package()? && stamped_sources != Some(&format!("sources {}", source_digest()?)) {
        bail!("the committed BPF object is older than its sources: run `cargo xtask bpf`");
    }
    if lines.next() != Some(&format!("object {}", hex_digest(&read_file(&object_path())?))) {
        bail!("the committed BPF object is not the one of its stamp: run `cargo xtask bpf`");
    }
    Ok(())
}

/// The stamp of an object that was compiled from the current sources with these versions of the
/// tools.
pub fn stamp(object: &[u8], versions: &str) -> Result<String> {
    Ok(format!("sources {}\nobject {}\n{versions}\n", source_digest()?, hex_digest(object)))
}

/// Files of which a part decides what the sources compile to: the profile, and the locked versions
/// of dependencies.
fn setting_paths() -> [PathBuf; 2] {
    ["Cargo.toml", "Cargo.lock"].map(|name| workspace_root().join(name))
}

/// SHA-256 of the names and contents of all sources, of the profile, and of the locked versions of
/// dependencies.
fn source_digest() -> Result<String> {
    let root = workspace_root();
    let mut files = Vec::new();
    for path in source_paths() {
        collect_files(&path, &mut files)?;
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file);
        digest.update(name.to_string_lossy().as_bytes());
        digest.update([0]);
        digest.update(read_file(file)?);
    }
    let [manifest_path, lock_path] = setting_paths();
    let (manifest, lock) = (read_text(&manifest_path)?, read_text(&lock_path)?);
    let profiles = manifest.split("\n[").filter(|section| section.starts_with("profile.bpf"));
    let profile_lines = profiles.flat_map(str::lines).filter(|line| !line.starts_with('#'));
    let packages = lock.split("[[package]]");
    let packages = packages.filter(|package| package.starts_with("\nname = \"aya-"));
    for part in profile_lines.chain(packages) {
        digest.update(part);
    }
    Ok(text(&digest.finalize()))
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        collect_files(&entry?.path(), files)?;
    }
    Ok(())
}

/// Reads a file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn hex_digest(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

fn text(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
