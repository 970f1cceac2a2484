//! Tests of the packages: they are installed in a clean root, used, upgraded and removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::super::PROGRAMS;
use super::check_version;
use super::root::Root;
use crate::apt::Apt;
use crate::command::{run_quietly, tool_version};

const CONFIG: &str = "etc/uncore-trace/agent.toml";
const CHANGED: &str = "cluster = \"changed\"\n";

/// The directory of the recordings, and files as the agent leaves them there.
const STATE: &str = "var/lib/uncore-trace";
const DATA: [&str; 2] = ["rollup/cluster=changed/x.parquet", "ring/kept/asked/fabric.parquet"];

/// Files that both packages install, with their permissions.
const COMMON: [(&str, u32); 9] = [
    ("usr/bin/uncore-trace", 0o755),
    ("usr/bin/uncore-trace-upload", 0o755),
    ("usr/share/bash-completion/completions/uncore-trace", 0o644),
    ("usr/share/fish/vendor_completions.d/uncore-trace.fish", 0o644),
    ("usr/share/doc/uncore-trace/README.md", 0o644),
    ("usr/lib/sysusers.d/uncore-trace.conf", 0o644),
    ("usr/share/uncore-trace/grafana.json", 0o644),
    ("usr/share/uncore-trace/rules.yml", 0o644),
    (CONFIG, 0o644),
];

/// Files that only the Debian package installs at these paths.
const OF_DEB: [(&str, u32); 8] = [
    ("usr/share/man/man1/uncore-trace.1.gz", 0o644),
    ("usr/share/man/man1/uncore-trace-record.1.gz", 0o644),
    ("lib/systemd/system/uncore-trace.service", 0o644),
    ("lib/systemd/system/uncore-trace-upload.service", 0o644),
    ("usr/share/zsh/vendor-completions/_uncore-trace", 0o644),
    ("usr/share/doc/uncore-trace/copyright", 0o644),
    ("usr/share/doc/uncore-trace/LICENSE-APACHE", 0o644),
    ("usr/share/doc/uncore-trace/third-party-licences.txt", 0o644),
];
/// Files that only the rpm package installs at these paths.
const OF_RPM: [(&str, u32); 7] = [
    ("usr/share/man/man1/uncore-trace.1", 0o644),
    ("usr/share/man/man1/uncore-trace-record.1", 0o644),
    ("usr/lib/systemd/system/uncore-trace.service", 0o644),
    ("usr/lib/systemd/system/uncore-trace-upload.service", 0o644),
    ("usr/share/zsh/site-functions/_uncore-trace", 0o644),
    ("usr/share/licenses/uncore-trace/LICENSE-APACHE", 0o644),
    ("usr/share/licenses/uncore-trace/third-party-licences.txt", 0o644),
];

/// Files and directories that remain after removal: backups of the user lists, and directories that
/// every rpm distribution has but this root lacks.
const KEPT: [&str; 12] = [
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/subuid-",
    "etc/subgid-",
    "usr/lib/sysusers.d",
    "usr/share/fish",
    "usr/share/fish/vendor_completions.d",
    "usr/share/licenses",
    "usr/share/zsh",
    "usr/share/zsh/site-functions",
];

/// Links to /dev/null that Debian's helper leaves after removal: they mask the units, whose program
/// no longer exists.
const MASKS: [&str; 2] =
    ["etc/systemd/system/uncore-trace-upload.service", "etc/systemd/system/uncore-trace.service"];

/// Installs the Debian package, changes its configuration, upgrades, removes and purges it.
pub(super) fn test_deb([deb, newer]: [&Path; 2], archive: &Path) -> Result<()> {
    let root = Root::new(archive)?;
    let files_before = root.list_files()?;
    let dpkg = |args: &[&str]| -> Result<String> {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.root_path().display())).args(args);
        run_quietly(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    dpkg(&["--install", &deb.display().to_string()])?;
    check_installed(&root, &OF_DEB)?;
    let config =
        run_quietly(
            Command::new("dpkg-query")
                .arg(format!("--root={}", root.root_path().display()))
                .args(["--show", "--showformat=${Conffiles}", "uncore-trace"]),
        )?;
    ensure!(config.contains(&format!("/{CONFIG} ")), "{CONFIG} is not a conffile: {config:?}");
    change_files(&root)?;
    // What apt does with a configuration that was changed here and in the package, asked nobody.
    dpkg(&["--force-confold", "--install", &newer.display().to_string()])?;
    check_kept(&root, CONFIG, "an upgrade")?;
    let (new, backups) = (format!("{CONFIG}.dpkg-dist"), "etc/uncore-trace");
    ensure!(root.read(&new)?.ends_with("# A newer version.\n"), "the new configuration is lost");
    dpkg(&["--remove", "uncore-trace"])?;
    check_kept(&root, CONFIG, "a removal")?;
    check_left(&files_before, &root, &[MASKS[0], MASKS[1], backups, CONFIG, &new])?;
    dpkg(&["--purge", "uncore-trace"])?;
    ensure!(!root.root_path().join(STATE).exists(), "a purge has left recordings");
    check_left(&files_before, &root, &[])
}

/// Installs the rpm package, changes its configuration, upgrades and removes it.
pub(super) fn test_rpm([rpm, newer]: [&Path; 2], archive: &Path, apt: &Apt) -> Result<()> {
    if tool_version("rpm").is_err() {
        apt.install_packages(&["rpm"])?;
    }
    let root = Root::new(archive)?;
    let files_before = root.list_files()?;
    let run = |args: &[&str]| -> Result<String> {
        run_quietly(Command::new("rpm").arg("--root").arg(root.root_path()).args(args))
    };
    let file = rpm.display().to_string();
    // --nodeps: the root's rpm database is empty, so even the dependency on a shell is unmet.
    run(&["--install", "--nodeps", &file])?;
    check_installed(&root, &OF_RPM)?;
    // Debian's rpm also prints a warning, which does not start with a slash.
    let query_output = run(&["--query", "--configfiles", "uncore-trace"])?;
    let config: Vec<&str> = query_output.lines().filter(|line| line.starts_with('/')).collect();
    ensure!(
        config == [format!("/{CONFIG}")],
        "{CONFIG} is not a configuration file: {query_output}"
    );
    change_files(&root)?;
    run(&["--upgrade", "--nodeps", &newer.display().to_string()])?;
    check_kept(&root, CONFIG, "an upgrade")?;
    let new = format!("{CONFIG}.rpmnew");
    ensure!(root.read(&new)?.ends_with("# A newer version.\n"), "the new configuration is lost");
    run(&["--erase", "--nodeps", "uncore-trace"])?;
    let saved = format!("{CONFIG}.rpmsave");
    check_kept(&root, &saved, "a removal")?;
    check_left(&files_before, &root, &["etc/uncore-trace", &new, &saved])
}

/// Checks that all files are installed, the programs run, and the user of the units exists.
fn check_installed(root: &Root, package_files: &[(&str, u32)]) -> Result<()> {
    let files = root.list_files()?;
    for (path, mode) in COMMON.iter().chain(package_files) {
        // Debian's /lib is a link to /usr/lib.
        let path = path
            .strip_prefix("lib/")
            .map_or_else(|| (*path).to_owned(), |suffix| format!("usr/lib/{suffix}"));
        let found_mode = files.get(&path).with_context(|| format!("{path} is not installed"))?;
        ensure!(
            found_mode & 0o7777 == *mode,
            "{path} has the permissions {:o}",
            found_mode & 0o7777
        );
    }
    for program in PROGRAMS {
        check_version(program, &root.run(&[&format!("/usr/bin/{program}"), "--version"])?)?;
    }
    let user = root.run(&["/usr/bin/getent", "passwd", "uncore-trace"])?;
    ensure!(user.contains(":/var/lib/uncore-trace:"), "the user is {user:?}");
    ensure!(user.trim().ends_with("/nologin"), "the user has a shell: {user:?}");
    Ok(())
}

/// Changes the configuration and creates recordings.
fn change_files(root: &Root) -> Result<()> {
    root.write(CONFIG, CHANGED)?;
    for name in DATA {
        let path = Path::new(STATE).join(name);
        let dir = root.root_path().join(path.parent().unwrap_or(Path::new(STATE)));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        root.write(&path.display().to_string(), name)?;
    }
    Ok(())
}

/// Checks that what was changed and recorded is as it was.
fn check_kept(root: &Root, config: &str, act: &str) -> Result<()> {
    ensure!(root.read(config)? == CHANGED, "{act} has replaced the configuration");
    for name in DATA {
        let text = root.read(&format!("{STATE}/{name}")).with_context(|| act.to_owned())?;
        ensure!(text == name, "{act} has changed {name}");
    }
    Ok(())
}

/// Checks that the root differs from `files_before` only by `wanted`, [`KEPT`] and recordings.
fn check_left(files_before: &BTreeMap<String, u32>, root: &Root, wanted: &[&str]) -> Result<()> {
    let files_after = root.list_files()?;
    let new_files: Vec<&str> = files_after
        .keys()
        .map(String::as_str)
        .filter(|path| !files_before.contains_key(*path) && !KEPT.contains(path))
        .filter(|path| !path.starts_with(STATE))
        .collect();
    ensure!(new_files == wanted, "{wanted:?} should be left, but {new_files:?} is");
    let removed_files: Vec<&String> =
        files_before.keys().filter(|path| !files_after.contains_key(*path)).collect();
    ensure!(removed_files.is_empty(), "{removed_files:?} existed before and was removed");
    Ok(())
}
