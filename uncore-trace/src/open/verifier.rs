//! Has the kernel's verifier check each program, without attaching any or keeping it loaded.
//!
//! The verifier's log says how many states it visited, but aya returns the log of a failed load
//! only. So each load is made to fail after the verifier: the next step of `bpf_prog_load`
//! (kernel/bpf/syscall.c, Linux 6.1 to 7.2) allocates a descriptor, and here no descriptor is
//! available.

use anyhow::{Context as _, Result, bail};
use aya::programs::{Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, VerifierLogLevel};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::btf::{KernelTypes, VMLINUX};
use super::counters::CounterArray;
use super::open_counter::SwitchReadings;
use super::options::{SessionOptions, Timer};
use super::programs::OptionalPrograms;
use super::{holders, io, make_counter_array, programs};

/// Instructions after which the verifier gives up: `BPF_COMPLEXITY_LIMIT_INSNS`,
/// include/linux/bpf.h, Linux 6.1 to 7.2.
pub const MOST_INSTRUCTIONS: u32 = 1_000_000;

/// Number of CPUs that the maps are sized for.
const CPUS: u32 = 2;

/// All options of the programs: code that is switched off is not verified.
const ALL_OPTIONS: SessionOptions = SessionOptions {
    tick_ns: 1_000_000,
    slices: true,
    sample_on_sched: true,
    sample_on_irq: true,
    min_gap_ns: 1000,
    io: true,
    holders: true,
    timer: Timer::Auto,
    // A page of any kernel.
    buffer_bytes: 1 << 16,
};

/// The verifier's figures for one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifierEffort {
    /// Instructions processed. An instruction on several paths counts once for each.
    pub instructions: u32,
    /// States that were kept for comparison, over all instructions.
    pub states: u32,
    /// Largest number of such states at one time.
    pub peak_states: u32,
}

/// A program of the object, and the verifier's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedProgram {
    /// Its name.
    pub program: String,
    /// The figures, or the reason for a refusal in one line.
    pub effort: Result<VerifierEffort, String>,
}

/// Verifies each program that a recording can load on this kernel, with all options on, in the
/// order of their names.
///
/// No other thread of this process can open a file meanwhile.
///
/// # Errors
///
/// The maps cannot be created, or the kernel does not report its figures.
pub fn verify_programs() -> Result<Vec<VerifiedProgram>> {
    let counters = make_counter_array(1)?;
    let kernel = Btf::from_sys_fs().context("cannot read the kernel's BTF")?;
    let types = KernelTypes::read(VMLINUX.as_ref())?;
    let io = io::IoSettings::from_types(&types);
    let files = holders::HolderSettings::from_types(&types).ok();
    let stats = VerifierLogLevel::STATS;
    let optional = OptionalPrograms { io: Some(&io), files: files.as_ref() };
    let mut ebpf = programs::load_object(
        &ALL_OPTIONS,
        CPUS,
        SwitchReadings::Watched,
        &counters,
        &types,
        optional,
        stats,
    )?;
    let unused = |name: &str| {
        io::PROGRAMS.contains(&name) && !io.programs.contains(&name)
            || holders::PROGRAMS.contains(&name) && files.is_none()
    };
    let mut names: Vec<String> =
        ebpf.programs().map(|(name, _)| name.to_owned()).filter(|name| !unused(name)).collect();
    names.sort();
    let _none = NoDescriptors::new().context("cannot lower the limit of open files")?;
    let results = names.into_iter().map(|name| verify_program(&mut ebpf, &kernel, name));
    results.filter_map(Result::transpose).collect()
}

/// Loads one program, without attaching it or keeping it loaded. Returns the kernel's answer.
///
/// # Errors
///
/// The maps cannot be created, or there is no type information.
pub fn try_program() -> Result<std::io::Result<()>> {
    let counters = match CounterArray::create(1) {
        Ok(counters) => counters,
        Err(error) => return Ok(Err(error)),
    };
    let (types, _) = KernelTypes::of_kernel(None)?;
    let log = VerifierLogLevel::default();
    let mut ebpf = programs::load_object(
        &ALL_OPTIONS,
        CPUS,
        SwitchReadings::Nothing,
        &counters,
        &types,
        OptionalPrograms::default(),
        log,
    )?;
    let program: &mut RawTracePoint = programs::find_program(&mut ebpf, "run_on_cpu")?;
    match program.load() {
        Err(ProgramError::LoadError { io_error, .. }) => Ok(Err(io_error)),
        loaded => programs::check_load("run_on_cpu", loaded).map(Ok),
    }
}

/// `None` for a program that a recording does without, because the machine forbids its type.
fn verify_program(ebpf: &mut Ebpf, kernel: &Btf, name: String) -> Result<Option<VerifiedProgram>> {
    let program = ebpf.program_mut(&name).with_context(|| format!("there is no program {name}"))?;
    let loaded = match program {
        // All programs of this type in the object are for this tracepoint.
        Program::BtfTracePoint(program) => program.load("sched_switch", kernel),
        Program::RawTracePoint(program) => program.load(),
        // Those of these types have the names of what they are attached to.
        Program::FEntry(program) => program.load(&name, kernel),
        Program::Iter(program) => program.load(&name, kernel),
        unexpected => bail!("the BPF program {name} is of the type {:?}", unexpected.prog_type()),
    };
    let (io_error, log) = match loaded {
        Err(ProgramError::LoadError { io_error, verifier_log }) => {
            (io_error, verifier_log.to_string())
        }
        Err(error) => {
            let unknown = || format!("the kernel does not say what verifying {name} took");
            return Err(error).with_context(unknown);
        }
        Ok(()) => bail!("the BPF program {name} was loaded without a descriptor"),
    };
    match Errno::from_io_error(&io_error) {
        Some(Errno::MFILE) => {}
        // The verifier has not seen it.
        Some(Errno::PERM) if holders::ENTRIES.contains(&&*name) && log.trim().is_empty() => {
            return Ok(None);
        }
        _ => return Ok(Some(VerifiedProgram { program: name, effort: Err(io_error.to_string()) })),
    }
    let effort = parse_effort(&log)
        .with_context(|| format!("the kernel does not say what verifying {name} took: {log:?}"))?;
    Ok(Some(VerifiedProgram { program: name, effort: Ok(effort) }))
}

/// Parses the line of `print_verification_stats` (kernel/bpf/verifier.c, Linux 6.1 to 7.2).
fn parse_effort(log: &str) -> Option<VerifierEffort> {
    let line = log.lines().rev().find(|line| line.starts_with("processed "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let number_after = |name| {
        let index = words.iter().position(|&word| word == name)?;
        words.get(index + 1)?.parse().ok()
    };
    Some(VerifierEffort {
        instructions: number_after("processed")?,
        states: number_after("total_states")?,
        peak_states: number_after("peak_states")?,
    })
}

/// While this exists, this process cannot open new descriptors; open ones stay.
struct NoDescriptors(Rlimit);

impl NoDescriptors {
    fn new() -> Result<Self, Errno> {
        let previous_limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: previous_limit.maximum })?;
        Ok(Self(previous_limit))
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        if let Err(error) = setrlimit(Resource::Nofile, self.0) {
            log::warn!("cannot raise the limit of open files again: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_statistics_is_read() {
        let log = "verification time 321 usec\nstack depth 24+0\nprocessed 187 insns (limit \
                   1000000) max_states_per_insn 1 total_states 17 peak_states 12 mark_read 6\n";
        let wanted = VerifierEffort { instructions: 187, states: 17, peak_states: 12 };
        assert_eq!(parse_effort(log), Some(wanted));
        assert_eq!(parse_effort("processed 187 insns (limit 1000000)"), None);
        assert_eq!(parse_effort(""), None);
    }
}
