//! Recorders that are compared beside each load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::programs::loaded_programs;

use super::super::running::{Attached, Nothing, RecorderProcess, Running};
use super::loads::OverheadLoad;
use super::tools;

/// What runs beside the workload: a name for the table and how it is started.
#[derive(Debug)]
pub(super) struct OverheadVariant {
    pub(super) name: &'static str,
    start: Start,
}

/// How a variant is started.
#[derive(Clone, Copy, Debug)]
enum Start {
    Nothing,
    /// An empty program on each hook of the load.
    Floor,
    /// `uncore-trace record -q` with these arguments.
    Record(&'static [&'static str]),
    /// `perf record -q -a` with these arguments.
    Perf(&'static [&'static str]),
    /// bpftrace with this program.
    Bpftrace(&'static str),
}

/// `BPF_PROG_TYPE_TRACEPOINT` in include/uapi/linux/bpf.h.
const TRACEPOINT: u32 = 5;

/// How long bpftrace may take to compile and attach its program.
const ATTACH: Duration = Duration::from_secs(30);

/// The variant that the others are compared with.
pub(super) const BASE: usize = 0;
pub(super) const FLOOR: usize = 1;
const NOTHING: OverheadVariant = OverheadVariant { name: "nothing", start: Start::Nothing };
const EMPTY: OverheadVariant =
    OverheadVariant { name: "empty program (the floor)", start: Start::Floor };

/// Variants for loads of context switches.
const SWITCHES: &[OverheadVariant] = &[
    NOTHING,
    EMPTY,
    // Its counter is not read at switches, like those of a fabric.
    OverheadVariant {
        name: "record -e page-faults",
        start: Start::Record(&["-e", "page-faults", "-o", "run.parquet"]),
    },
    // Its counter is read at every switch, like a witness.
    OverheadVariant {
        name: "record -e page-faults at every switch",
        start: Start::Record(&[
            "-e",
            "page-faults",
            "--sample-on",
            "sched",
            "--min-gap",
            "0",
            "-o",
            "run.parquet",
        ]),
    },
    // Almost without the timer, which only reader CPUs have: the cost of switches alone.
    OverheadVariant {
        name: "record -e page-faults --tick 10ms",
        start: Start::Record(&["-e", "page-faults", "--tick", "10ms", "-o", "run.parquet"]),
    },
    OverheadVariant {
        name: "record -e page-faults --slices",
        start: Start::Record(&["-e", "page-faults", "--slices", "-o", "run/"]),
    },
    // With `context-switches`, which the kernel itself counts at every switch.
    OverheadVariant {
        name: "record -p host",
        start: Start::Record(&["-p", "host", "-o", "run.parquet"]),
    },
    // As on a kernel without BTF: members are read by helpers, and the timer is a thread.
    OverheadVariant {
        name: "record -p host --btf",
        start: Start::Record(&[
            "-p",
            "host",
            "--btf",
            "/sys/kernel/btf/vmlinux",
            "-o",
            "run.parquet",
        ]),
    },
    // The simplest script that counts how often each process of each cgroup ran.
    OverheadVariant {
        name: "bpftrace, switches by pid and cgroup",
        start: Start::Bpftrace("tracepoint:sched:sched_switch { @[pid, cgroup] = count(); }"),
    },
    OverheadVariant {
        name: "perf record -e sched:sched_switch -a",
        start: Start::Perf(&["-e", "sched:sched_switch"]),
    },
];

/// Variants for loads of block requests.
const REQUESTS: &[OverheadVariant] = &[
    NOTHING,
    EMPTY,
    OverheadVariant {
        name: "record -e page-faults",
        start: Start::Record(&["-e", "page-faults", "-o", "run/"]),
    },
    OverheadVariant {
        name: "record -e page-faults --io",
        start: Start::Record(&["-e", "page-faults", "--io", "-o", "run/"]),
    },
    OverheadVariant {
        name: "record -p host,io",
        start: Start::Record(&["-p", "host,io", "-o", "run.parquet"]),
    },
    OverheadVariant {
        name: "bpftrace, bytes by pid and cgroup",
        start: Start::Bpftrace(
            "tracepoint:block:block_io_start { @[pid, cgroup] = sum(args->bytes); }",
        ),
    },
    OverheadVariant {
        name: "perf record -e block:block_io_start,block:block_rq_complete -a",
        start: Start::Perf(&["-e", "block:block_io_start,block:block_rq_complete"]),
    },
];

/// All variants of a load; the first two are always measured.
pub(super) const fn variants_of(load: OverheadLoad) -> &'static [OverheadVariant] {
    match load {
        OverheadLoad::Pipe | OverheadLoad::Messaging => SWITCHES,
        OverheadLoad::Disk => REQUESTS,
    }
}

/// The variants to measure: all, or the first two and the selected ones; none if the load has none
/// of the selected.
pub(super) fn choose_variants(
    load: OverheadLoad,
    name_parts: &[String],
) -> Vec<&'static OverheadVariant> {
    let is_selected = |variant: &OverheadVariant| {
        name_parts.iter().any(|text| variant.name.contains(text.as_str()))
    };
    let variants = variants_of(load);
    if !name_parts.is_empty() && !variants.iter().any(is_selected) {
        return Vec::new();
    }
    let wanted = |(index, variant): &(usize, &'static OverheadVariant)| {
        *index <= FLOOR || name_parts.is_empty() || is_selected(variant)
    };
    variants.iter().enumerate().filter(wanted).map(|(_, variant)| variant).collect()
}

/// Checks that each text names a variant.
pub(super) fn require_known(name_parts: &[String], loads: &[OverheadLoad]) -> Result<()> {
    let names = || loads.iter().flat_map(|load| variants_of(*load)).map(|variant| variant.name);
    for text in name_parts {
        ensure!(
            names().any(|name| name.contains(text.as_str())),
            "--only {text}: no such variant; there are: {}",
            names().collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

impl OverheadVariant {
    /// Whether it is `uncore-trace`.
    pub(super) const fn is_record(&self) -> bool {
        matches!(self.start, Start::Record(_))
    }

    /// Whether it is a program of another project.
    pub(super) const fn is_peer(&self) -> bool {
        matches!(self.start, Start::Perf(_) | Start::Bpftrace(_))
    }

    /// Installs what it runs, if that is missing.
    pub(super) fn install_program(&self) -> Result<()> {
        match self.start {
            Start::Nothing | Start::Floor | Start::Record(_) => Ok(()),
            Start::Perf(_) => tools::install_tool("perf", "linux-perf"),
            Start::Bpftrace(_) => tools::install_tool("bpftrace", "bpftrace"),
        }
    }

    /// Starts it beside a load.
    pub(super) fn start_beside(
        &self,
        bench: &OverheadBench,
        load: OverheadLoad,
    ) -> Result<Box<dyn Running>> {
        match self.start {
            Start::Nothing => Ok(Box::new(Nothing)),
            Start::Floor => {
                Ok(Box::new(Attached::new(&bench.object, "floor", load.triggered_hooks())?))
            }
            Start::Record(args) => {
                let mut command = Command::new(&bench.bin);
                command.args(["record", "-q"]).args(args);
                bench.start_recorder(command)
            }
            Start::Perf(args) => {
                let mut command = Command::new("perf");
                command.args(["record", "-q", "-a", "-o", "perf.data"]).args(args);
                bench.start_recorder(command)
            }
            Start::Bpftrace(program) => {
                let mut command = Command::new("bpftrace");
                command.args(["-e", program]);
                let programs_before = tracepoint_programs()?;
                let running = bench.start_recorder(command)?;
                // Compiling takes bpftrace a second or more. Before it is attached it costs
                // nothing, and it may lose the signal that stops it.
                let since = Instant::now();
                while tracepoint_programs()?.is_subset(&programs_before) {
                    ensure!(
                        since.elapsed() < ATTACH,
                        "bpftrace attached nothing within {ATTACH:?}"
                    );
                    sleep(Duration::from_millis(50));
                }
                sleep(bench.settle);
                Ok(running)
            }
        }
    }
}

/// Ids of programs on tracepoints; neither the floor nor `uncore-trace` has such programs.
fn tracepoint_programs() -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for program in loaded_programs() {
        let program = program.context("cannot list BPF programs")?;
        if program.program_type() as u32 == TRACEPOINT {
            ids.insert(program.id());
        }
    }
    Ok(ids)
}

/// What a run of a variant needs.
#[derive(Debug)]
pub(super) struct OverheadBench {
    /// The uncore-trace that is measured.
    pub(super) bin: PathBuf,
    /// The object of the empty program.
    pub(super) object: PathBuf,
    /// Where recorders write; a new one for each run.
    pub(super) scratch: tempfile::TempDir,
    pub(super) settle: Duration,
}

impl OverheadBench {
    fn start_recorder(&self, mut command: Command) -> Result<Box<dyn Running>> {
        command.current_dir(self.scratch.path());
        let log = self.scratch.path().join("stderr");
        Ok(Box::new(RecorderProcess::start(command, &log, self.settle)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_the_floor_are_always_measured() {
        let names = |load, only: &str| {
            let chosen = choose_variants(load, &[only.to_owned()]);
            chosen.iter().map(|variant| variant.name).collect::<Vec<_>>()
        };
        for load in OverheadLoad::ALL {
            assert_eq!(choose_variants(load, &[]).len(), variants_of(load).len());
        }
        assert_eq!(names(OverheadLoad::Pipe, "slices")[2..], ["record -e page-faults --slices"]);
        assert_eq!(names(OverheadLoad::Disk, "slices"), Vec::<&str>::new());
        require_known(&["slices".to_owned()], &OverheadLoad::ALL).unwrap();
        let unknown = require_known(&["strace".to_owned()], &OverheadLoad::ALL).unwrap_err();
        assert!(format!("{unknown:#}").contains("there are: nothing"));
    }
}
