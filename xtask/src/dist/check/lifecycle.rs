//! The packages in a guest with systemd: installed, used, upgraded, removed and purged.
//!
//! The guest runs `tests/packaging/lifecycle.sh`, which prints what it finds after each step.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::super::packages::NEWER;
use super::guest::{boot_guest, write_file};
use super::root::{Root, RootVariant, root_archive};
use crate::apt::Apt;
use crate::command::last_lines;

const SCRIPT: &str = include_str!("../../../../tests/packaging/lifecycle.sh");

/// Configuration of the agent in the guest, which has no PMU.
const CONFIG: &str = "\
[record]
groups = ['host']
[ring]
part = '2s'
keep = '8'
[rollup]
window = '1s'
[metrics]
listen = '127.0.0.1:9762'
[upload]
url = 'file:///var/lib/uncore-trace/bucket'
[[trigger]]
name = 'asked'
before = '4s'
after = '1s'
";

/// Unit that runs the script.
const CHECK: &str = "\
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
ExecStart=/bin/sh /check.sh
[Install]
WantedBy=multi-user.target
";

/// What the guest finds. `systemctl start` returns when the agent reports that it records;
/// `c000000004` are `CAP_DAC_READ_SEARCH` (bit 2), `CAP_PERFMON` (38) and `CAP_BPF` (39).
const FOUND: &str = "\
deb, installed: uncore-trace disabled inactive
deb, installed: uncore-trace-upload disabled inactive
deb, installed: the agent is ready
deb, installed: user uncore-trace
deb, installed: capabilities 000000c000000004
deb, installed: uncore-trace enabled active
deb, installed: uncore-trace-upload disabled inactive
deb, installed: there is a roll-up
deb, installed: there is a kept recording
deb, an upload: sent
deb, an upload: confined: capabilities: none; files: by Landlock; system calls of all threads: by seccomp
deb, an upload: ended success
deb, upgraded: version NEWER-1
deb, upgraded: uncore-trace enabled active
deb, upgraded: uncore-trace-upload disabled inactive
deb, upgraded: restarted
deb, upgraded: the data are kept
deb, upgraded: the configuration is kept
deb, upgraded: the new configuration is beside it
deb, upgraded while stopped: ended success
deb, upgraded while stopped: uncore-trace enabled inactive
deb, upgraded while stopped: uncore-trace-upload disabled inactive
deb, removed: uncore-trace masked inactive
deb, removed: uncore-trace-upload masked inactive
deb, removed: the data are kept
deb, removed: the configuration is kept
deb, installed again: the agent is ready
deb, installed again: the data are kept
deb, installed again: the configuration is kept
rpm, installed: uncore-trace disabled inactive
rpm, installed: uncore-trace-upload disabled inactive
rpm, installed: the agent is ready
rpm, installed: user uncore-trace
rpm, installed: capabilities 000000c000000004
rpm, installed: uncore-trace enabled active
rpm, installed: uncore-trace-upload disabled inactive
rpm, installed: there is a roll-up
rpm, installed: there is a kept recording
rpm, upgraded: version NEWER
rpm, upgraded: uncore-trace enabled active
rpm, upgraded: uncore-trace-upload disabled inactive
rpm, upgraded: restarted
rpm, upgraded: the data are kept
rpm, upgraded: the configuration is kept
rpm, upgraded: the new configuration is beside it
rpm, removed: uncore-trace unknown inactive
rpm, removed: uncore-trace-upload unknown inactive
rpm, removed: the data are kept
rpm, removed: the configuration is kept
";

/// The packages of a version, and those of a newer one.
#[derive(Debug)]
pub(super) struct Packages<'a> {
    pub old: [&'a Path; 2],
    pub new: [&'a Path; 2],
}

/// Runs the script in a guest, and compares what it finds.
pub(super) fn check_lifecycle(packages: &Packages<'_>, apt: &Apt) -> Result<()> {
    let root = Root::new(&root_archive(&RootVariant::SYSTEMD, apt)?)?;
    let into = |name: &str| root.root_path().join("packages").join(name);
    fs::create_dir(root.root_path().join("packages")).context("cannot make a directory")?;
    let Packages { old: [old_deb, old_rpm], new: [new_deb, new_rpm] } = packages;
    for (from, name) in
        [(old_deb, "old.deb"), (new_deb, "new.deb"), (old_rpm, "old.rpm"), (new_rpm, "new.rpm")]
    {
        fs::copy(from, into(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let units = root.root_path().join("etc/systemd/system");
    for (path, text) in [
        (root.root_path().join("config"), CONFIG),
        (root.root_path().join("check.sh"), SCRIPT),
        (units.join("check.service"), CHECK),
    ] {
        write_file(&path, text)?;
    }
    enable_unit(&units, "check.service")?;
    let words = "rdinit=/lib/systemd/systemd systemd.show_status=0";
    let console = boot_guest(super::local_arch()?, root.root_path(), words, apt)?;
    let found_lines: Vec<&str> =
        console.lines().filter_map(|line| line.trim().strip_prefix("check: ")).collect();
    let wanted = FOUND.replace("NEWER", NEWER);
    let wanted: Vec<&str> = wanted.lines().collect();
    let first_difference =
        wanted.iter().zip(&found_lines).take_while(|(wanted, actual)| wanted == actual).count();
    ensure!(
        found_lines == wanted,
        "the guest should have found {:?}, and found {:?}:\n{}",
        wanted.get(first_difference),
        found_lines.get(first_difference),
        last_lines(&console, 150)
    );
    Ok(())
}

/// Makes the unit start with the guest.
fn enable_unit(units: &Path, unit: &str) -> Result<()> {
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants).with_context(|| format!("cannot create {}", wants.display()))?;
    let link: PathBuf = wants.join(unit);
    symlink(Path::new("/etc/systemd/system").join(unit), &link)
        .with_context(|| format!("cannot create {}", link.display()))
}
