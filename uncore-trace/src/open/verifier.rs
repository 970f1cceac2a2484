//! Has the kernel's verifier check each program, without attaching any or keeping it loaded.
//!
//! The verifier's log says how many states it visited, but aya returns the log of a failed load
//! only. So each load is made to fail after the verifier: the next step of `bpf_prog_load`
//! (kernel/bpf/syscall.c, Linux 6.1 to 7.2) allocates a descriptor, and here no descriptor is
//! available.

use anyhow::{Context as _, Result, bail, ensure};
use aya::programs::{Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, VerifierLogLevel};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::btf::{Types, VMLINUX};
use super::counters::CounterArray;
use super::options::{Options, Timer};
use super::{holders, io, programs, refused};

/// Instructions after which the verifier gives up: `BPF_COMPLEXITY_LIMIT_INSNS`,
/// include/linux/bpf.h, Linux 6.1 to 7.2.
pub const MOST_INSTRUCTIONS: u32 = 1_000_000;

/// Number of CPUs that the maps are sized for.
const CPUS: u32 = 2;

/// All options of the programs: code that is switched off is not verified.
const ALL: Options = Options {
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
pub struct Effort {
    /// Instructions processed. An instruction on several paths counts once for each.
    pub instructions: u32,
    /// States that were kept for comparison, over all instructions.
    pub states: u32,
    /// Largest number of such states at one time.
    pub peak_states: u32,
}

/// A program of the object, and the verifier's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its name.
    pub program: String,
    /// The figures, or the reason for a refusal in one line.
    pub effort: Result<Effort, String>,
}

/// Verifies each program that a recording can load on this kernel, with all options on, in the
/// order of their names.
///
/// No other thread of this process can open a file meanwhile.
///
/// # Errors
///
/// The maps cannot be created, or the kernel does not report its figures.
pub fn verify() -> Result<Vec<Verified>> {
    let counters = array()?;
    let kernel = Btf::from_sys_fs().context("cannot read the kernel's BTF")?;
    let types = Types::read(VMLINUX.as_ref())?;
    let io = io::Kernel::of(&types);
    let files = holders::Kernel::of(&types).ok();
    let stats = VerifierLogLevel::STATS;
    let some = (Some(&io), files.as_ref());
    let mut ebpf = programs::load(&ALL, CPUS, true, &counters, &types, some, stats)?;
    let unused = |name: &str| {
        io::PROGRAMS.contains(&name) && !io.programs().contains(&name)
            || holders::PROGRAMS.contains(&name) && files.is_none()
    };
    let mut names: Vec<String> =
        ebpf.programs().map(|(name, _)| name.to_owned()).filter(|name| !unused(name)).collect();
    names.sort();
    let _none = NoDescriptors::new().context("cannot lower the limit of open files")?;
    let all = names.into_iter().map(|name| one(&mut ebpf, &kernel, name));
    all.filter_map(Result::transpose).collect()
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
    let (types, _) = Types::of_kernel(None)?;
    let log = VerifierLogLevel::default();
    let mut ebpf = programs::load(&ALL, CPUS, false, &counters, &types, (None, None), log)?;
    let program: &mut RawTracePoint = programs::find(&mut ebpf, "run_on_cpu")?;
    match program.load() {
        Err(ProgramError::LoadError { io_error, .. }) => Ok(Err(io_error)),
        loaded => programs::loaded("run_on_cpu", loaded).map(Ok),
    }
}

fn array() -> Result<CounterArray> {
    CounterArray::create(1).map_err(|error| {
        let act = refused("cannot make the perf event array", &error);
        anyhow::Error::new(error).context(act)
    })
}

/// `None` for a program that a recording does without, because the machine forbids its type.
fn one(ebpf: &mut Ebpf, kernel: &Btf, name: String) -> Result<Option<Verified>> {
    let program = ebpf.program_mut(&name).with_context(|| format!("there is no program {name}"))?;
    let loaded = match program {
        // All programs of this type in the object are for this tracepoint.
        Program::BtfTracePoint(program) => program.load("sched_switch", kernel),
        Program::RawTracePoint(program) => program.load(),
        // Those of these types have the names of what they are attached to.
        Program::FEntry(program) => program.load(&name, kernel),
        Program::Iter(program) => program.load(&name, kernel),
        other => bail!("the BPF program {name} is of the type {:?}", other.prog_type()),
    };
    let log = match &loaded {
        Err(ProgramError::LoadError { io_error, verifier_log })
            if io_error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) =>
        {
            verifier_log.to_string()
        }
        // The verifier has not seen it.
        Err(ProgramError::LoadError { io_error, verifier_log })
            if holders::ENTRIES.contains(&&*name)
                && io_error.raw_os_error() == Some(Errno::PERM.raw_os_error())
                && verifier_log.to_string().trim().is_empty() =>
        {
            return Ok(None);
        }
        Err(ProgramError::LoadError { io_error, .. }) => {
            return Ok(Some(Verified { program: name, effort: Err(io_error.to_string()) }));
        }
        _ => String::new(),
    };
    ensure!(loaded.is_err(), "the BPF program {name} was loaded without a descriptor");
    let effort = effort(&log)
        .with_context(|| format!("the kernel does not say what verifying {name} took: {log:?}"))?;
    Ok(Some(Verified { program: name, effort: Ok(effort) }))
}

/// Parses the line of `print_verification_stats` (kernel/bpf/verifier.c, Linux 6.1 to 7.2).
fn effort(log: &str) -> Option<Effort> {
    let line = log.lines().rev().find(|line| line.starts_with("processed "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name| {
        let at = words.iter().position(|&word| word == name)?;
        words.get(at + 1)?.parse().ok()
    };
    Some(Effort {
        instructions: after("processed")?,
        states: after("total_states")?,
        peak_states: after("peak_states")?,
    })
}

/// While this exists, this process cannot open new descriptors; open ones stay.
struct NoDescriptors(Rlimit);

impl NoDescriptors {
    fn new() -> Result<Self, Errno> {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum })?;
        Ok(Self(before))
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
        let log = "verification time 321 usec\nstack depth 24+0\nprocessed 187 insns (limit 1000000) \
                   max_states_per_insn 1 total_states 17 peak_states 12 mark_read 6\n";
        let wanted = Effort { instructions: 187, states: 17, peak_states: 12 };
        assert_eq!(effort(log), Some(wanted));
        assert_eq!(effort("processed 187 insns (limit 1000000)"), None);
        assert_eq!(effort(""), None);
    }
}
