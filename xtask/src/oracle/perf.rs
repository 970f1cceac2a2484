//! perf: which one, and what it does on a captured machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::OracleMachine;
use super::counts::{self, Opened};
use crate::command::run_quietly;

/// The suite with the newest release of perf.
const SUITE: &str = "sid";

/// A perf, and the library that it counts on.
pub(super) struct PerfProgram {
    /// The program with its first arguments.
    argv: Vec<PathBuf>,
    library: PathBuf,
    pub(super) version: String,
}

/// What `perf stat` did.
pub(super) struct Stat {
    /// The reason, if it refused.
    pub(super) refused: Option<String>,
    pub(super) rows: Vec<Value>,
    pub(super) opened: Vec<Opened>,
}

impl PerfProgram {
    /// Debian's newest, unpacked in `work_dir`.
    pub(super) fn find_newest(work_dir: &Path, library: &Path) -> Result<Self> {
        let argv = unpack_perf(work_dir)
            .and_then(|root| perf_argv(&root))
            .with_context(|| format!("cannot get perf of Debian {SUITE}"))?;
        let perf = Self { argv, library: library.to_owned(), version: String::new() };
        let output = perf.base_command().arg("--version").output().context("cannot run perf")?;
        ensure!(output.status.success(), "perf --version failed: {}", output.status);
        let version_text = String::from_utf8_lossy(&output.stdout);
        let version = version_text.trim().trim_start_matches("perf version ").to_owned();
        Ok(Self { version, ..perf })
    }

    fn base_command(&self) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env("LC_ALL", "C");
        command
    }

    fn run(&self, machine: &OracleMachine, args: &[&str]) -> Result<Output> {
        // Without a processor perf would take the tables of the machine that it runs on.
        let processor = machine.processor.as_deref().unwrap_or("GenuineIntel-6-1-1");
        let mut command = self.base_command();
        command.args(args).env("SYSFS_PATH", machine.root.join("sys"));
        command.env("PERF_CPUID", processor).env("LD_PRELOAD", &self.library);
        command.env("ORACLE_LOG", log_path(machine));
        command.output().context("cannot run perf")
    }

    /// `perf stat -a` of events or a metric.
    pub(super) fn run_stat(&self, machine: &OracleMachine, selection: &[&str]) -> Result<Stat> {
        let _unused = fs::remove_file(log_path(machine));
        let args =
            [&["stat", "-a", "-j", "--metric-no-group"], selection, &["--", "sleep", "0.01"]]
                .concat();
        let output = self.run(machine, &args)?;
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        let refused = (!output.status.success()).then(|| refusal_reason(&stderr_text));
        Ok(Stat {
            refused,
            rows: parse_rows(&stderr_text),
            opened: counts::read_opened(&log_path(machine))?,
        })
    }

    /// The events and metrics that perf knows there.
    pub(super) fn list_names(&self, machine: &OracleMachine) -> Result<Vec<Value>> {
        let output = self.run(machine, &["list", "-j"])?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cannot parse the list of perf for {}", machine.name))
    }
}

/// The rows of `stat -j` among what a program said.
pub(super) fn parse_rows(output: &str) -> Vec<Value> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The line of perf's answer that has the reason.
fn refusal_reason(output: &str) -> String {
    let mut lines = output.lines().map(|line| line.trim().trim_start_matches("\\___ "));
    let is_reason = |line: &&str| {
        let noise = ["Failed to read max cpus", "event syntax", "'", "WARNING"];
        !line.is_empty() && !noise.iter().any(|begin| line.starts_with(begin))
    };
    lines.find(is_reason).unwrap_or_default().to_owned()
}

/// The log of the library: each thread has its own for a machine.
fn log_path(machine: &OracleMachine) -> PathBuf {
    machine.root.with_extension(format!("{:?}", std::thread::current().id()))
}

/// perf's name of the processor of a tree: vendor, family, model and stepping.
pub(super) fn processor_id(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let field = |name: &str| {
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        text.lines().find_map(value)
    };
    let number = |name: &str| field(name)?.parse::<u32>().ok();
    let (family, model) = (number("cpu family")?, number("model")?);
    let stepping = number("stepping").unwrap_or(1);
    Some(format!("{}-{family}-{model:X}-{stepping:X}", field("vendor_id")?))
}

/// Adds the files of the topology that perf reads and that a captured tree does not have.
pub(super) fn add_topology(root: &Path) -> Result<()> {
    let dir = root.join("sys/devices/system/cpu");
    let read = |file: PathBuf| fs::read_to_string(file).ok();
    let Some(possible) = read(dir.join("possible")) else { return Ok(()) };
    let write = |file: PathBuf, text: &str| {
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write(dir.join("present"), &possible)?;
    let mut cpus = Vec::new();
    for cpu in 0..4096 {
        let topology = dir.join(format!("cpu{cpu}/topology"));
        let Some(package) = read(topology.join("physical_package_id")) else { continue };
        let die = read(topology.join("die_id")).unwrap_or_default();
        cpus.push((cpu.to_string(), topology, package, die));
    }
    for (cpu, topology, package, die) in &cpus {
        let of_package =
            || cpus.iter().filter(|(_, _, sibling_package, _)| sibling_package == package);
        let package: Vec<&str> = of_package().map(|(cpu, ..)| cpu.as_str()).collect();
        let of_die = of_package().filter(|(.., sibling_die)| sibling_die == die);
        let die: Vec<&str> = of_die.map(|(cpu, ..)| cpu.as_str()).collect();
        write(topology.join("package_cpus_list"), &package.join(","))?;
        write(topology.join("die_cpus_list"), &die.join(","))?;
        write(topology.join("core_cpus_list"), cpu)?;
    }
    Ok(())
}

/// How the perf of a directory of unpacked packages is run with their libraries.
fn perf_argv(root: &Path) -> Result<Vec<PathBuf>> {
    let find = |dir: PathBuf, is_match: fn(&str) -> bool| -> Result<PathBuf> {
        let entries = fs::read_dir(&dir).with_context(|| format!("no {}", dir.display()))?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let matching = paths
            .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_match));
        matching.with_context(|| format!("{} has no libraries for perf", dir.display()))
    };
    let libraries = find(root.join("usr/lib"), |name| name.ends_with("-linux-gnu"))?;
    let loader = find(libraries.clone(), |name| name.starts_with("ld-linux"))?;
    let perf = root.join("usr/bin/perf");
    let [argv0, name, library_path] = ["--argv0", "perf", "--library-path"].map(PathBuf::from);
    Ok(vec![loader, argv0, name, library_path, libraries, perf])
}

/// The directory with the packages of perf and what it needs. apt's lists and archives are its own,
/// so that nothing is installed or replaced.
fn unpack_perf(work_dir: &Path) -> Result<PathBuf> {
    let apt = work_dir.join("apt");
    for dir in ["lists/partial", "cache/archives/partial"] {
        let dir = apt.join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let line = format!("deb [signed-by={keys}] http://deb.debian.org/debian {SUITE} main\n");
    fs::write(apt.join("sources.list"), line).context("cannot write the sources")?;
    fs::write(apt.join("status"), "").context("cannot write the status")?;
    let tool = |name: &str| {
        let mut command = Command::new(name);
        command.env("LC_ALL", "C");
        let set = |key: &str, file: &str| format!("{key}={}", apt.join(file).display());
        for option in [
            set("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            set("Dir::State::lists", "lists"),
            set("Dir::State::status", "status"),
            set("Dir::Cache", "cache"),
            "Acquire::Languages=none".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
            "APT::Update::Error-Mode=any".to_owned(),
            "Debug::NoLocking=1".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    };
    run_quietly(tool("apt-get").arg("update"))?;
    let shown = run_quietly(tool("apt-cache").args(["policy", "linux-perf"]))?;
    let version = shown.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
    let root = work_dir.join(format!("perf-{}", version.context("there is no linux-perf")?));
    if root.join("usr/bin/perf").exists() {
        return Ok(root);
    }
    let args = ["--yes", "--download-only", "--no-install-recommends", "install", "linux-perf"];
    run_quietly(tool("apt-get").args(args))?;
    let archives = apt.join("cache/archives");
    let partial = work_dir.join("unpacking");
    let _unused = fs::remove_dir_all(&partial);
    for entry in fs::read_dir(&archives).context("cannot list the packages")? {
        let path = entry.context("cannot list the packages")?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run_quietly(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&partial))?;
        }
    }
    fs::rename(&partial, &root).with_context(|| format!("cannot make {}", root.display()))?;
    let _unused = fs::remove_dir_all(&archives);
    Ok(root)
}
