//! `cargo xtask samples`: the recordings in `samples/`, for documents and tests, and for users
//! without root or without uncore counters.
//!
//! `samples/grace` is the lab's recording of the scenario `fabric`, with its raw tables; it is
//! replaced only if all checks of the lab passed. `samples/vm.parquet` is a recording of this
//! machine, as root. It is made in a UTS namespace with a host name of its own, and has rows of its
//! own only for the programs that are started for it, so it names nothing of this machine but
//! devices and interrupts. `samples/README.md` says how, when and with which version both were
//! made.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::run_quietly;
use crate::pictures::host::Tenants;
use crate::pictures::screens::replace_between;
use crate::{lab, setup, target};

/// Machine and scenario of `samples/grace`.
const MACHINE: &str = "grace-mixes";
const SCENARIO: &str = "fabric";

/// Largest samples, bytes: everybody who clones the repository has them.
const LARGEST_GRACE: u64 = 1_000_000;
const LARGEST_VM: u64 = 250_000;

/// Host name, cgroup of the programs, and options of the recording of this machine.
const HOST: &str = "vm";
const CGROUP: &str = "sample";
const VM: &str = "uncore-trace record -q --cgroup /sample --duration 4s -o vm.parquet";

/// Prints the metadata of a recording as JSON.
const METADATA: &str = "
import json, pyarrow.parquet, sys
pairs = pyarrow.parquet.read_metadata(sys.argv[1]).metadata.items()
json.dump({k.decode().removeprefix('uncore_trace.'): v.decode() for k, v in pairs}, sys.stdout)
";

/// Options of `cargo xtask samples`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record only this machine, without the lab
    #[arg(long)]
    no_lab: bool,
}

/// Makes the samples and says in `samples/README.md` what they are.
pub(crate) fn run(args: &Args) -> Result<()> {
    let samples = workspace_root().join("samples");
    let (grace, vm) = (samples.join("grace"), samples.join("vm.parquet"));
    if !args.no_lab {
        copy_recording(
            &lab::run_checked_scenario(MACHINE, SCENARIO)?.join(SCENARIO).join("run"),
            &grace,
        )?;
    }
    let program = target::debug_binary()?;
    record_vm(&program, &vm)?;
    for (sample, largest) in [(&grace, LARGEST_GRACE), (&vm, LARGEST_VM)] {
        for subcommand in ["check", "report"] {
            run_quietly(Command::new(&program).arg(subcommand).arg(sample))?;
        }
        let bytes = total_bytes(sample)?;
        ensure!(bytes <= largest, "{} has {bytes} bytes, more than {largest}", sample.display());
        println!("samples: {}: {bytes} bytes", sample.display());
    }
    let table = facts_table(&[Facts::read_facts(&grace)?, Facts::read_facts(&vm)?]);
    let readme = samples.join("README.md");
    let text =
        fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
    let renewed =
        replace_between(&text, "made", &table).context("samples/README.md has no <!-- made -->")?;
    fs::write(&readme, renewed).with_context(|| format!("cannot write {}", readme.display()))
}

/// Replaces a directory by the files of a recording.
fn copy_recording(run: &Path, target_dir: &Path) -> Result<()> {
    if target_dir.exists() {
        fs::remove_dir_all(target_dir)
            .with_context(|| format!("cannot remove {}", target_dir.display()))?;
    }
    fs::create_dir_all(target_dir)
        .with_context(|| format!("cannot make {}", target_dir.display()))?;
    for file in list_files(run)? {
        publish_file(&file, &target_dir.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Copies a file; everybody may read the copy.
fn publish_file(file: &Path, target_path: &Path) -> Result<()> {
    fs::copy(file, target_path)
        .with_context(|| format!("cannot write {}", target_path.display()))?;
    fs::set_permissions(target_path, fs::Permissions::from_mode(0o644))
        .with_context(|| format!("cannot set the mode of {}", target_path.display()))
}

/// The files of a directory, or the file itself.
fn list_files(sample: &Path) -> Result<Vec<PathBuf>> {
    if sample.is_file() {
        return Ok(vec![sample.to_owned()]);
    }
    let entries =
        fs::read_dir(sample).with_context(|| format!("cannot read {}", sample.display()))?;
    entries
        .map(|entry| Ok(entry.with_context(|| format!("cannot read {}", sample.display()))?.path()))
        .collect()
}

fn total_bytes(sample: &Path) -> Result<u64> {
    list_files(sample)?.iter().try_fold(0, |sum, file| {
        let metadata = fs::metadata(file).with_context(|| format!("no {}", file.display()))?;
        Ok(sum + metadata.len())
    })
}

/// Records this machine while programs run in cgroups.
fn record_vm(program: &Path, target_path: &Path) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let _tenants = Tenants::start(CGROUP)?;
    // The program is found in PATH, so that the recorded command line has no path of this machine.
    let mut path: OsString = program.parent().unwrap_or(Path::new("")).into();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let script = format!("echo {HOST} > /proc/sys/kernel/hostname && exec {VM}");
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", &script]).env("PATH", path).current_dir(dir.path());
    run_quietly(&mut command)?;
    publish_file(&dir.path().join("vm.parquet"), target_path)
}

/// What a recording says of itself.
struct Facts {
    name: String,
    size: String,
    metadata: BTreeMap<String, String>,
}

impl Facts {
    fn read_facts(sample: &Path) -> Result<Self> {
        let sample_files = list_files(sample)?;
        let name = sample.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let fabric =
            if sample.is_dir() { sample.join("fabric.parquet") } else { sample.to_owned() };
        let json =
            run_quietly(Command::new(setup::readers_python()?).args(["-c", METADATA]).arg(fabric))?;
        let metadata = serde_json::from_str(&json).context("the metadata is not JSON")?;
        let kb = total_bytes(sample)?.div_ceil(1000);
        let size = if sample_files.len() == 1 {
            format!("{kb} kB")
        } else {
            format!("{kb} kB in {} files", sample_files.len())
        };
        Ok(Self { name, size, metadata })
    }

    fn get(&self, key: &str) -> &str {
        self.metadata.get(key).map_or("", String::as_str)
    }

    /// Begin, to the minute, UTC.
    fn begin_text(&self) -> String {
        let clocks: Value = serde_json::from_str(self.get("clocks")).unwrap_or_default();
        let begin =
            clocks[0]["wall_ns"].as_i64().and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok());
        begin.map_or_else(String::new, |begin| begin.strftime("%Y-%m-%d %H:%M UTC").to_string())
    }
}

/// The rows of the table of `samples/README.md`, a column for each sample.
fn facts_table(samples: &[Facts]) -> String {
    let row = |name: &str, cell: &dyn Fn(&Facts) -> String| {
        let cells: Vec<String> = samples.iter().map(cell).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    [
        row("", &|facts| format!("`{}`", facts.name)),
        format!("|{}\n", "---|".repeat(samples.len() + 1)),
        row("recorded", &Facts::begin_text),
        row("host name, kernel", &|facts| {
            format!("`{}`, {}", facts.get("host"), facts.get("kernel"))
        }),
        row("version", &|facts| {
            format!("{} (schema {})", facts.get("tool_version"), facts.get("schema_version"))
        }),
        row("command", &|facts| format!("`{}`", facts.get("command_line"))),
        row("size", &|facts| facts.size.clone()),
    ]
    .concat()
}
