//! Extracts files from Debian packages of other suites, without installing them.
//!
//! A private apt configuration in the cache uses the machine's own Debian archives as sources, with
//! the same addresses and keys, and adds all suites with kernels that the lab uses. Its lists are
//! updated once a day, and if a package is not found. An index of the relevant packages is cached,
//! so that a run with a warm cache does not start apt.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{cache, print_progress, sources, time_step, version};
use crate::command::run_quietly;

/// Suites with kernels of the wanted series, the newest first.
pub(super) const SUITES: &[&str] =
    &["sid", "trixie-backports", "trixie", "bookworm-backports", "bookworm"];

/// Suites of security updates, which have the newest fixes, if the machine uses that archive.
pub(super) const SECURITY_SUITES: &[&str] = &["trixie-security", "bookworm-security"];

/// Prefixes of package names in the index; `musl-dev` is for `cargo xtask dist`.
const INDEXED: &[&str] = &["linux-", "busybox-static", "musl-dev", "qemu-system-"];

/// Lists older than this are renewed.
const LISTS_AGE: Duration = Duration::from_hours(24);

/// One version of a package for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct DebianPackage {
    /// Its name.
    pub name: String,
    /// The whole Debian version.
    pub version: String,
    /// `arm64`, `amd64` or `all`.
    pub arch: String,
}

/// The packages of the suites; read once per process.
static INDEX: Mutex<Option<Index>> = Mutex::new(None);

#[derive(Debug, Clone)]
struct Index {
    packages: Vec<DebianPackage>,
    /// Whether this process has updated the lists: another update would not help.
    fresh: bool,
}

/// All versions of all packages that `wanted` accepts; updates the lists if there are none.
pub(super) fn find_packages(wanted: impl Fn(&DebianPackage) -> bool) -> Result<Vec<DebianPackage>> {
    let mut guard = INDEX.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        let index = match guard.take() {
            Some(index) => index,
            None => load_index(false)?,
        };
        let matching: Vec<DebianPackage> =
            index.packages.iter().filter(|p| wanted(p)).cloned().collect();
        let is_final = index.fresh || !matching.is_empty();
        *guard = Some(if is_final { index } else { load_index(true)? });
        if is_final {
            return Ok(matching);
        }
    }
}

/// The newest version of a package for an architecture.
pub(super) fn newest_package(name: &str, arch: &str) -> Result<DebianPackage> {
    let versions = find_packages(|package| package.name == name && package.is_for_arch(arch))?;
    versions
        .into_iter()
        .max_by(|a, b| version::compare_versions(&a.version, &b.version))
        .with_context(|| {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            format!("{}; there is: {}", missing_message(name, arch), similar_names(stem, arch))
        })
}

/// A message that names the missing package and the searched suites.
pub(super) fn missing_message(package_name: &str, arch: &str) -> String {
    format!("no package {package_name} for {arch} in {}", SUITES.join(", "))
}

/// Names with the same beginning as a missing one, for the error message.
pub(super) fn similar_names(stem: &str, arch: &str) -> String {
    let matching =
        find_packages(|package| package.name.starts_with(stem) && package.is_for_arch(arch));
    let mut names: Vec<String> = matching.unwrap_or_default().into_iter().map(|p| p.name).collect();
    names.sort();
    names.dedup();
    if names.is_empty() { "nothing like it".to_owned() } else { names.join(", ") }
}

impl DebianPackage {
    /// Whether it can be installed on a machine of this architecture.
    pub(super) fn is_for_arch(&self, arch: &str) -> bool {
        self.arch == arch || self.arch == "all"
    }
}

/// The packages' files in one tree; `finish` may change it before the entry is complete.
pub(super) fn unpacked_tree(
    name: &str,
    packages: &[DebianPackage],
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let key = packages.iter().fold(cache::CacheKey::from_inputs([name]), |key, package| {
        key.with_input(&package.name).with_input(&package.version).with_input(&package.arch)
    });
    cache::cached_entry(name, key, |dir| {
        time_step(&format!("{name}: unpacked"), || {
            unpack_into(packages, dir)?;
            finish(dir)
        })
    })
}

/// Downloads packages and unpacks them into a directory.
pub(super) fn unpack_into(packages: &[DebianPackage], dir: &Path) -> Result<()> {
    let Err(first_error) = unpack_listed(packages, dir) else { return Ok(()) };
    // The archive may have changed since the lists were made: update them and retry.
    let second_try = renew_lists().and_then(|()| unpack_listed(packages, dir));
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    second_try.with_context(|| {
        let suites = SUITES.join(", ");
        format!("cannot get {} from {suites} ({first_error:#}): run again", names.join(" "))
    })
}

fn unpack_listed(packages: &[DebianPackage], dir: &Path) -> Result<()> {
    let debs = tempfile::Builder::new()
        .prefix(".debs-")
        .tempdir_in(dir)
        .with_context(|| format!("cannot create a directory in {}", dir.display()))?;
    let mut download = apt_command("apt-get")?;
    download.args(["download", "--quiet=2"]).current_dir(debs.path());
    for DebianPackage { name, version, arch } in packages {
        // `all` is no architecture to ask for by name.
        let arch = if arch == "all" { String::new() } else { format!(":{arch}") };
        download.arg(format!("{name}{arch}={version}"));
    }
    run_quietly(&mut download)?;
    for deb in cache::list_files(debs.path())? {
        run_quietly(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(dir))?;
    }
    Ok(())
}

/// The directory of the private configuration, its lists and the index.
fn apt_home() -> Result<PathBuf> {
    Ok(cache::cache_root()?.join("apt"))
}

/// A program of apt, with the private configuration.
fn apt_command(program: &str) -> Result<Command> {
    let mut command = Command::new(program);
    command.env("APT_CONFIG", apt_home()?.join("apt.conf")).env("LC_ALL", "C");
    Ok(command)
}

/// The index of today's lists, or of new ones.
fn load_index(fresh: bool) -> Result<Index> {
    let path = apt_home()?.join("index.json");
    let age = fs::metadata(&path).and_then(|data| data.modified()).ok();
    let young = age.is_some_and(|modified| modified.elapsed().is_ok_and(|age| age < LISTS_AGE));
    let renewed = fresh || !young;
    if renewed && let Err(error) = time_step("package lists: updated", renew_lists) {
        // A cached index is enough if the archives cannot be reached.
        let Ok(packages) = read_index(&path) else { return Err(error) };
        print_progress(&format!("{error:#}; using the earlier lists"));
        return Ok(Index { packages, fresh: true });
    }
    Ok(Index { packages: read_index(&path)?, fresh: renewed })
}

fn read_index(path: &Path) -> Result<Vec<DebianPackage>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("cannot read {}: remove it", path.display()))
}

/// Writes the configuration, fetches the lists and makes the index of them.
fn renew_lists() -> Result<()> {
    let home = apt_home()?;
    for dir in ["lists/partial", "archives/partial"] {
        let dir = home.join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    // Atomic, so that an interruption leaves no partial file.
    let write = |name: &str, text: &str| {
        let (path, new) = (home.join(name), home.join(format!("{name}.new")));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    let dir = home.to_str().context("the cache directory's name is not UTF-8")?;
    write("apt.conf", &apt_configuration(dir))?;
    write("lab.sources", &sources::sources_text(SUITES, SECURITY_SUITES)?)?;
    write("status", "")?;
    run_quietly(apt_command("apt-get")?.args(["update", "--quiet=2"]))
        .context("cannot update the lists of the machine's own Debian archives")?;
    let packages = read_lists()?;
    ensure!(!packages.is_empty(), "the archives list no kernel: check {dir}/lab.sources");
    write("index.json", &serde_json::to_string(&packages).context("cannot write the index")?)
}

/// A configuration that uses only the given directory. No sandbox user, because it could not write
/// there.
fn apt_configuration(dir: &str) -> String {
    format!(
        "Dir::State \"{dir}\";\nDir::State::Lists \"{dir}/lists\";\nDir::State::status \
         \"{dir}/status\";\nDir::Cache \"{dir}\";\nDir::Etc::sourcelist \
         \"{dir}/lab.sources\";\nDir::Etc::sourceparts \"/dev/null\";\nDir::Etc::preferences \
         \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\nAPT::Architectures {{ \
         \"amd64\"; \"arm64\"; }};\nAPT::Sandbox::User \"root\";\nAcquire::Languages \
         \"none\";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n"
    )
}

/// The relevant packages in the lists that apt fetched.
fn read_lists() -> Result<Vec<DebianPackage>> {
    let targets = run_quietly(apt_command("apt-get")?.args([
        "indextargets",
        "Created-By: Packages",
        "--format",
        "$(FILENAME)",
    ]))?;
    let mut packages = Vec::new();
    for list in targets.lines() {
        read_list(Path::new(list), &mut packages)?;
    }
    packages.sort_by(|a, b| (&a.name, &a.arch, &a.version).cmp(&(&b.name, &b.arch, &b.version)));
    packages.dedup();
    Ok(packages)
}

/// Reads one list through apt's helper, which knows how apt compressed it.
fn read_list(list: &Path, packages: &mut Vec<DebianPackage>) -> Result<()> {
    let helper = "/usr/lib/apt/apt-helper";
    let mut child = Command::new(helper)
        .arg("cat-file")
        .arg(list)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {helper}"))?;
    let stdout = child.stdout.take().with_context(|| format!("no output of {helper}"))?;
    let mut fields = BTreeMap::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("cannot read {}", list.display()))?;
        if line.is_empty() {
            packages.extend(parse_package(&mut fields));
        } else if let Some((name @ ("Package" | "Version" | "Architecture"), value)) =
            line.split_once(": ")
        {
            fields.insert(name.to_owned(), value.to_owned());
        }
    }
    packages.extend(parse_package(&mut fields));
    let status = child.wait().with_context(|| format!("cannot wait for {helper}"))?;
    if !status.success() {
        bail!("{helper} cannot read {}: {status}", list.display());
    }
    Ok(())
}

/// The package in a paragraph of a list, if it is relevant.
fn parse_package(fields: &mut BTreeMap<String, String>) -> Option<DebianPackage> {
    let name = fields.remove("Package")?;
    let version = fields.remove("Version")?;
    let arch = fields.remove("Architecture")?;
    let indexed = INDEXED.iter().any(|prefix| name.starts_with(prefix));
    indexed.then_some(DebianPackage { name, version, arch })
}
