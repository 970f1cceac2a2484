//! Debian's kernels: finds the current one of a series, and its files.
//!
//! A kernel is eligible if all packages that the lab needs have the same version: the binary, its
//! modules, and for guests with a device model also its headers and source.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::{fmt, fs};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::packages::{self, DebianPackage};
use super::{print_progress, version};
use crate::command::run_quietly;

/// An architecture of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arch {
    /// Server machines with a device model.
    Arm64,
    /// Machines for tests on hosts.
    Amd64,
}

impl Arch {
    /// Debian's name for it.
    pub(crate) fn debian_name(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::Amd64 => "amd64",
        }
    }

    /// What `uname -m` calls it.
    pub(crate) fn uname_machine(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64",
            Self::Amd64 => "x86_64",
        }
    }
}

/// The first two numbers of a kernel's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Series {
    pub major: u32,
    pub minor: u32,
}

impl Series {
    /// The series for whose drivers the device model was made. If it has left the archive, the
    /// newest one of the same major version is used instead.
    pub(crate) const DEFAULT: Self = Self { major: 7, minor: 2 };

    /// The series that a release name, such as `7.2.13+deb14-arm64`, begins with.
    pub(crate) fn from_release(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        Some(Self { major, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Series {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let series = Self::from_release(text).filter(|series| series.to_string() == text);
        series.with_context(|| format!("{text} is not a kernel series; write a series such as 7.2"))
    }
}

impl TryFrom<String> for Series {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// Which kernels of an architecture are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flavour {
    /// The architecture.
    pub arch: Arch,
    /// Whether it is the flavour with `PREEMPT_RT`.
    pub realtime: bool,
}

impl fmt::Display for Flavour {
    /// The last words of the names of its packages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let realtime = if self.realtime { "rt-" } else { "" };
        write!(f, "{realtime}{}", self.arch.debian_name())
    }
}

impl Flavour {
    /// Whether it has a release. The names of other flavours, such as `cloud` and `16k`, have one
    /// more word, and so do unsigned images.
    fn has_release(self, release: &str) -> bool {
        let upstream = release.strip_suffix(&format!("-{self}"));
        upstream.is_some_and(|upstream| {
            !upstream.split('-').any(|word| word.starts_with(char::is_alphabetic))
        })
    }
}

/// A kernel with its files.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    /// Debian's version of the packages.
    pub version: String,
    /// What `uname -r` says.
    pub release: String,
    /// The file to boot.
    pub image: PathBuf,
    /// The directory with `modules.dep`.
    pub modules: PathBuf,
    headers: Option<DebianPackage>,
    source: Option<DebianPackage>,
}

impl Kernel {
    /// The packages that modules are built from: headers and source.
    pub(super) fn to_build(&self) -> Result<[&DebianPackage; 2]> {
        match (&self.headers, &self.source) {
            (Some(headers), Some(source)) => Ok([headers, source]),
            _ => bail!("kernel {} has no headers and source of its version", self.release),
        }
    }
}

/// The packages of one release.
#[derive(Debug)]
struct Candidate {
    release: String,
    binaries: Vec<DebianPackage>,
    headers: Option<DebianPackage>,
    source: Option<DebianPackage>,
}

impl Candidate {
    fn package_version(&self) -> &str {
        self.binaries.first().map_or("", |package| &package.version)
    }

    fn compare_versions(&self, candidate: &Self) -> Ordering {
        version::compare_versions(self.package_version(), candidate.package_version())
    }
}

/// The newest kernel of a series, unpacked; `buildable` asks for headers and source too.
pub(super) fn resolve_kernel(series: Series, flavour: Flavour, buildable: bool) -> Result<Kernel> {
    let in_series = |wanted: &dyn Fn(Series) -> bool| {
        let releases = list_candidates(flavour, wanted)?;
        let fit = releases
            .into_iter()
            .filter(|c| !buildable || c.headers.is_some() && c.source.is_some());
        Ok::<_, anyhow::Error>(fit.max_by(Candidate::compare_versions))
    };
    let mut newest = in_series(&|available| available == series)?;
    if newest.is_none() && series == Series::DEFAULT {
        newest = in_series(&|available| available.major == series.major)?;
        if let Some(substitute) = &newest {
            print_progress(&format!(
                "kernel {series} has left the archive: taking {}",
                substitute.release
            ));
        }
    }
    let candidate = newest.with_context(|| no_kernel_message(series, flavour, buildable))?;
    unpack_kernel(candidate)
}

/// What to say when a series has no eligible kernel.
fn no_kernel_message(series: Series, flavour: Flavour, buildable: bool) -> String {
    let mut available: Vec<String> = list_candidates(flavour, &|_| true)
        .unwrap_or_default()
        .into_iter()
        .filter(|c| !buildable || c.headers.is_some() && c.source.is_some())
        .filter_map(|c| Series::from_release(&c.release).map(|series| series.to_string()))
        .collect();
    available.sort_by(|a, b| version::compare_versions(a, b));
    available.dedup();
    let package_kinds =
        if buildable { "image, modules, headers and source" } else { "image and modules" };
    format!(
        "{} with {package_kinds} of one version; available: {}; choose one with --kernel",
        packages::missing_message(
            &format!("linux-image-{series}*-{flavour}"),
            flavour.arch.debian_name()
        ),
        available.join(", ")
    )
}

/// All releases of a flavour whose series `wanted` accepts.
fn list_candidates(flavour: Flavour, wanted: &dyn Fn(Series) -> bool) -> Result<Vec<Candidate>> {
    let packages = packages::find_packages(|package| {
        package.is_for_arch(flavour.arch.debian_name())
            && named_series(&package.name).is_some_and(wanted)
    })?;
    let mut candidates = Vec::new();
    for image in &packages {
        let Some(release) = image.name.strip_prefix("linux-image-") else { continue };
        if !flavour.has_release(release) {
            continue;
        }
        let find_package = |name: String| {
            packages.iter().find(|p| p.name == name && p.version == image.version).cloned()
        };
        let series =
            Series::from_release(release).map(|series| series.to_string()).unwrap_or_default();
        // Since 6.19 the image is an empty package that depends on these.
        let image_packages =
            ["binary", "modules", "base"].map(|p| find_package(format!("linux-{p}-{release}")));
        let binaries = match image_packages {
            [Some(binary), Some(modules), base] => {
                [binary, modules].into_iter().chain(base).collect()
            }
            [None, None, _] => vec![image.clone()],
            _ => continue,
        };
        candidates.push(Candidate {
            release: release.to_owned(),
            binaries,
            headers: find_package(format!("linux-headers-{release}")),
            source: find_package(format!("linux-source-{series}")),
        });
    }
    Ok(candidates)
}

/// The series in the name of a kernel package.
fn named_series(name: &str) -> Option<Series> {
    let (package_kind, release) = name.strip_prefix("linux-")?.split_once('-')?;
    ["image", "binary", "modules", "base", "headers", "source"]
        .contains(&package_kind)
        .then_some(())?;
    Series::from_release(release)
}

fn unpack_kernel(candidate: Candidate) -> Result<Kernel> {
    let version = candidate.package_version().to_owned();
    let Candidate { release, binaries, headers, source } = candidate;
    let name = format!("kernel-{release}");
    let root = packages::unpacked_tree(&name, &binaries, |dir| run_depmod(dir, &release))?;
    let modules = modules_of(&root, &release)?;
    let image = [modules.join("vmlinuz"), root.join(format!("boot/vmlinuz-{release}"))];
    let image = image.into_iter().find(|path| path.is_file());
    let image = image.with_context(|| format!("kernel {release} has no image in {name}"))?;
    Ok(Kernel { version, release, image, modules, headers, source })
}

fn modules_of(root: &Path, release: &str) -> Result<PathBuf> {
    let mut directories = ["usr/lib/modules", "lib/modules"].iter();
    let modules_dir = directories.find_map(|directory| {
        let dir = root.join(directory).join(release);
        dir.is_dir().then_some(dir)
    });
    modules_dir.with_context(|| format!("kernel {release} has no modules in {}", root.display()))
}

/// Makes the index of module dependencies, which the distribution makes at installation.
fn run_depmod(root: &Path, release: &str) -> Result<()> {
    let modules = modules_of(root, release)?;
    ensure!(modules.join("kernel").is_dir(), "{} holds no modules", modules.display());
    if modules.join("modules.dep").is_file() {
        return Ok(());
    }
    // depmod looks below `lib/modules` of the directory it is given.
    let base = modules.ancestors().nth(3).context("modules have no base directory")?;
    for name in ["modules.builtin", "modules.order"] {
        let path = modules.join(name);
        if !path.is_file() {
            fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    // The administrator's directories are not in every user's PATH.
    let depmod = ["/usr/sbin/depmod", "/sbin/depmod"].into_iter().find(|p| Path::new(p).exists());
    run_quietly(Command::new(depmod.unwrap_or("depmod")).arg("-b").arg(base).arg(release))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_has_the_releases_with_its_words() {
        let [plain, realtime] =
            [false, true].map(|realtime| Flavour { arch: Arch::Amd64, realtime });
        for (release, is_plain, is_realtime) in [
            ("7.2.13+deb14-amd64", true, false),
            ("6.1.0-56-amd64", true, false),
            ("6.12.118+deb13-rt-amd64", false, true),
            ("6.12.118+deb13-cloud-amd64", false, false),
            ("6.12.118+deb13-rt-amd64-unsigned", false, false),
            ("6.12.118+deb13-rt-arm64", false, false),
        ] {
            assert_eq!(
                (plain.has_release(release), realtime.has_release(release)),
                (is_plain, is_realtime),
                "{release}"
            );
        }
    }

    #[test]
    fn series_are_read_from_names() {
        assert_eq!("7.2".parse::<Series>().unwrap(), Series::DEFAULT);
        assert!("7".parse::<Series>().is_err());
        assert!("7.2.13".parse::<Series>().is_err());
        let of = |name| named_series(name).map(|series| series.to_string());
        assert_eq!(of("linux-image-6.1.0-50-arm64").as_deref(), Some("6.1"));
        assert_eq!(of("linux-source-6.12").as_deref(), Some("6.12"));
        assert_eq!(of("linux-image-arm64"), None);
        assert_eq!(of("linux-doc-7.2"), None);
    }
}
