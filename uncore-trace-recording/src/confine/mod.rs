//! Least privilege: a thread gives up what it does not need after its start.
//!
//! A recorder started by root needs privileges to open counters and attach programs, and hardly any
//! to read them. It then reads names that tenants chose. So [`restrict_process`] gives up, before
//! the first name is read: all capabilities except [`ThreadNeeds::capabilities`], every way to
//! regain them (`no_new_privs`), files outside of the trees in [`ThreadNeeds`] (Landlock), and the
//! system calls of [`seccomp`] in all threads. Capabilities and Landlock apply to one thread and
//! those that it starts later, so a thread that was started before calls [`restrict_thread`] first.
//!
//! A mechanism that the kernel lacks is skipped and logged at level `debug`; it never stops a
//! recording. Nothing here can be undone. A program that is executed later would be confined too,
//! so the command is started before.

mod capabilities;
mod landlock;
mod processes;
mod seccomp;

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

pub use self::capabilities::{RECORDER, names};
pub use self::landlock::is_supported as has_landlock;
pub use self::processes::are_hidden as hides_processes;

/// What a thread still needs after its start.
#[derive(Clone, Debug)]
pub struct ThreadNeeds {
    /// Capabilities that are kept if the thread has them.
    pub capabilities: CapabilitySet,
    /// Trees that are read. If one does not exist, the nearest directory above it.
    pub reads: Vec<PathBuf>,
    /// Directories in and below which files are created, written, replaced and removed.
    pub writes: Vec<PathBuf>,
    /// Directories into which files from `writes` are renamed, and in which older files are
    /// replaced. No file in them is read or written.
    pub names: Vec<PathBuf>,
    /// Files in `writes` and `names` that may be replaced.
    pub replaces: Vec<PathBuf>,
    /// Pid of the command, which may be sent a signal.
    pub command: Option<u32>,
    /// Whether it reads counters. Without, bpf(2) and `perf_event_open` are refused.
    pub counts: bool,
    /// TCP ports that it connects to. With one, it may also look up names of hosts; without, it
    /// makes no socket.
    pub connects: Vec<u16>,
    /// Unix sockets of others that it connects to.
    pub sockets: Vec<PathBuf>,
    /// Whether it reads what takes the right to trace other processes. Landlock forbids that
    /// (`hook_ptrace_access_check`, security/landlock, Linux 6.1 to 7.2), so it is not used.
    pub traces: bool,
}

impl Default for ThreadNeeds {
    /// Only what is already open.
    fn default() -> Self {
        Self {
            capabilities: CapabilitySet::empty(),
            reads: Vec::new(),
            writes: Vec::new(),
            names: Vec::new(),
            replaces: Vec::new(),
            command: None,
            counts: false,
            connects: Vec::new(),
            sockets: Vec::new(),
            traces: false,
        }
    }
}

impl ThreadNeeds {
    /// Needs for creating, replacing and removing `path`, which may not exist yet.
    #[must_use]
    pub fn to_write(path: &Path) -> Self {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        Self { writes: vec![parent.to_owned()], replaces: vec![path.to_owned()], ..Self::default() }
    }

    /// Needs for removing `path`.
    #[must_use]
    pub fn to_remove(path: &Path) -> Self {
        let Self { writes, .. } = Self::to_write(path);
        Self { names: writes, ..Self::default() }
    }

    /// The union of both.
    #[must_use]
    pub fn merged_with(self, additional: Self) -> Self {
        Self {
            capabilities: self.capabilities | additional.capabilities,
            reads: [self.reads, additional.reads].concat(),
            writes: [self.writes, additional.writes].concat(),
            names: [self.names, additional.names].concat(),
            replaces: [self.replaces, additional.replaces].concat(),
            command: self.command.or(additional.command),
            counts: self.counts || additional.counts,
            connects: [self.connects, additional.connects].concat(),
            sockets: [self.sockets, additional.sockets].concat(),
            traces: self.traces || additional.traces,
        }
    }
}

/// The result of each step; an error says briefly why it was not done.
#[derive(Debug)]
struct Confined {
    capabilities: Result<CapabilitySet, String>,
    files: Result<(), String>,
    /// `None` if it was not requested.
    calls: Option<Result<(), String>>,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.capabilities {
            Ok(kept) => write!(f, "capabilities: {}", names(*kept))?,
            Err(error) => write!(f, "capabilities as before: {error}")?,
        }
        match &self.files {
            Ok(()) => f.write_str("; files: by Landlock")?,
            Err(error) => write!(f, "; files as before: {error}")?,
        }
        match &self.calls {
            Some(Ok(())) => f.write_str("; system calls of all threads: by seccomp"),
            Some(Err(error)) => write!(f, "; system calls as before: {error}"),
            None => Ok(()),
        }
    }
}

/// Confines the calling thread, and those that it starts from here on, to `needs`.
pub fn restrict_thread(needs: &ThreadNeeds) {
    let confined = restrict_caller(needs);
    let thread = std::thread::current();
    log::debug!("confined the thread {}: {confined}", thread.name().unwrap_or("without a name"));
}

/// As [`restrict_thread`], and installs the filter of system calls in all threads of the process.
pub fn restrict_process(needs: &ThreadNeeds) {
    let mut confined = restrict_caller(needs);
    confined.calls = Some(seccomp::filter_all_threads(needs));
    log::debug!("confined: {confined}");
}

fn restrict_caller(needs: &ThreadNeeds) -> Confined {
    let is_blind = sees_processes(needs) && processes::are_hidden();
    let files = if is_blind {
        // With hidepid, `/proc` shows only processes that the reader may trace, and a process in a
        // Landlock domain may trace none outside of it, not even as root.
        Err("/proc is mounted with hidepid, and Landlock would hide all processes".to_owned())
    } else if needs.traces {
        Err("Landlock would hide files that tell what processes used of devices".to_owned())
    } else {
        landlock::restrict_files(needs)
    };
    let mut keep = needs.capabilities;
    keep.set(CapabilitySet::SYS_PTRACE, is_blind || needs.traces);
    keep.set(CapabilitySet::KILL, needs.command.is_some());
    Confined { capabilities: capabilities::keep_capabilities(keep, needs), files, calls: None }
}

/// Whether it reads files of other processes.
fn sees_processes(needs: &ThreadNeeds) -> bool {
    needs.reads.iter().any(|tree| Path::new("/proc").starts_with(tree))
}

#[cfg(test)]
mod tests;
