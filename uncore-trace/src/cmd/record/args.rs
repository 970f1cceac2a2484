//! The options of `uncore-trace record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::super::heading::{COST, DIVIDE, OWNER, PRINT, TIME, WRITE};
use super::super::output::{self, ModeArg};
use super::super::root::RootArg;
use super::super::select::SelectArgs;
use super::super::trust::TrustArgs;
use super::super::witness::{WitnessArgs, percent};
use super::{millis, seconds};
use crate::attribute::MIN_SHARE;
use crate::choice::MethodChoice;
use crate::open::Timer;
use crate::record::Sampling;
use crate::tables::series::Keep;
use crate::tables::series::Rotate;

const EXAMPLES: &str = "\
Examples: all traffic that this machine can count, or what its kernel counts,
into a new file; and two kinds of traffic of a machine that has them
  uncore-trace record -- ./train.sh
  uncore-trace record -p pcie,c2c -o run.parquet -- ./train.sh

More of them:
  uncore-trace record -p host -o run.parquet --duration 10s
  uncore-trace record -e nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/ \\
    -o run/ --slices
  uncore-trace record -p mem --dry-run
  uncore-trace record -p all -o run/ --duration 1m --cgroup /kubepods

The command is only traced. It gets no signal, except with --kill. It runs on
when the recording ends or fails (a full disk, a closed pipe): uncore-trace
finishes the files and waits for the command. Ctrl-C ends the recording; the
terminal sends it to the command too. A second Ctrl-C ends the wait. SIGTERM
and SIGHUP (the terminal was closed) end the recording without a wait. A SIGHUP
that is ignored at the start (nohup) stays ignored.

Exit code: 0 the recording is complete, 1 it is incomplete, 2 record failed. If
the recording is complete and the command has ended, the exit code is the
command's: 128 + N if signal N killed it, 0 if --kill did. With 1 and 2 a
message shows the command's exit code.";

/// Record who uses the fabric
///
/// Opens the counters of the given groups and events, reads each on its reader CPU once per tick,
/// records who runs on every CPU, and writes the counts divided among processes and cgroups.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = EXAMPLES,
          override_usage = "uncore-trace record [OPTIONS] [-o FILE] [-- CMD...]")]
pub struct Args {
    #[command(flatten)]
    pub(super) select: SelectArgs,

    /// FILE.parquet, a directory (for the raw tables too), or - for an Arrow IPC stream on standard
    /// output; a device or a FIFO takes the stream only: -o - > /dev/null [default:
    /// uncore-trace-TIME.parquet, which replaces nothing]
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true,
          value_parser = output::path(), help_heading = WRITE)]
    pub(super) output: Option<PathBuf>,

    /// Replace FILE if it exists and is a regular file
    #[arg(long, help_heading = WRITE)]
    pub(super) force: bool,

    #[command(flatten)]
    pub(super) permissions: ModeArg,

    /// Continue in a new part after this time (1h) or this size (256MiB), without a gap: each part
    /// is a separate recording. The parts of DIR/ are DIR/00000001/ and so on, those of
    /// FILE.parquet are FILE-00000001.parquet and so on
    #[arg(long, value_name = "TIME|SIZE", help_heading = WRITE)]
    pub(super) rotate: Option<Rotate>,

    /// Keep this many finished parts (24), or the newest parts up to this total size (20GiB),
    /// counting the one that is being written; older parts are removed, also those of earlier
    /// recordings
    #[arg(long, value_name = "N|SIZE", requires = "rotate", help_heading = WRITE)]
    pub(super) keep: Option<Keep>,

    /// Record every time slice in the table `slices` (the output must be a directory)
    #[arg(long, help_heading = WRITE)]
    pub(super) slices: bool,

    /// Record the bytes that disks and network interfaces move, by owner, in the table `io`, even
    /// if no counter needs them (the output must be a directory)
    #[arg(long, help_heading = WRITE)]
    pub(super) io: bool,

    /// Cluster this host is in, for the column `cluster` of the tables
    #[arg(long, value_name = "NAME", env = "UNCORE_TRACE_CLUSTER", help_heading = WRITE)]
    pub(super) cluster: Option<String>,

    /// Leave the command line, which may hold secrets, out of the metadata
    #[arg(long, help_heading = WRITE)]
    pub(super) no_cmdline: bool,

    /// End the recording after this time; the command runs on; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = TIME)]
    pub(super) duration: Option<Duration>,

    /// Start counting this long after the command starts; a bare number is milliseconds
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0ms", value_parser = millis,
          help_heading = TIME)]
    pub(super) delay: Duration,

    /// Send the command SIGTERM if the recording ends before it: at --duration or by a signal
    #[arg(long, requires = "command", help_heading = TIME)]
    pub(super) kill: bool,

    /// Make separate rows only for this cgroup and those below it; all other tasks share one row;
    /// may be given several times
    #[arg(long = "cgroup", value_name = "PATH", help_heading = OWNER)]
    pub(super) cgroups: Vec<String>,

    #[command(flatten)]
    pub(super) trust: TrustArgs,

    /// Count cgroups deeper than N below the root towards their ancestor of depth N; 0: the root
    /// only
    #[arg(long, value_name = "N", help_heading = OWNER)]
    pub(super) cgroup_depth: Option<usize>,

    /// Length of a window, the time that a row covers: a whole number of ticks, at most 1m; a bare
    /// number is milliseconds
    #[arg(short = 'I', long, value_name = "TIME", default_value = "10ms", value_parser = millis,
          help_heading = DIVIDE)]
    pub(super) interval: Duration,

    /// How to divide counts that are not read at every context switch
    #[arg(long, value_name = "METHOD", default_value = "auto", help_heading = DIVIDE)]
    pub(super) method: MethodChoice,

    /// Run a canary, a process in a cgroup of its own that moves known numbers of bytes at random
    /// times, and say how many of them it was credited: reads of memory, direct reads of a file in
    /// the output's directory, and loopback packets, if they are counted. It moves bytes for at
    /// most 1 % of the time, and then at most 0.5 % of what a link can carry
    #[arg(long, conflicts_with = "cgroup_depth", help_heading = DIVIDE)]
    pub(super) canary: bool,

    /// Make monitoring groups of resctrl for the largest tenants, at most N and as many as the CPU
    /// has RMIDs for, and remove them at the end: their bytes of memory are measured. Where there
    /// are fewer groups than tenants, a quarter of the groups go from tenant to tenant. Threads
    /// that are in monitoring groups of others stay there
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "16", value_parser = clap::value_parser!(u8).range(1..),
          help_heading = DIVIDE)]
    pub(super) monitor: Option<u8>,

    /// How long a method that learns waits for later counts before it divides a window; with 0 it
    /// uses only the counts up to that window; at most 10s and at most half of --flush; a bare
    /// number is seconds [default: 1s, or half of --flush if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = DIVIDE)]
    pub(super) lag: Option<Duration>,

    /// Unite processes whose share of a window is below this, in percent of its total: those of a
    /// cgroup in one row, those of cgroups that are below it themselves in `other_tasks`; 0 unites
    /// none
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * MIN_SHARE, value_parser = percent,
          help_heading = DIVIDE)]
    pub(super) min_share: f64,

    /// Time between readings, 100us to 1s; a bare number is milliseconds [default: 1ms, or the
    /// interval if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = millis, help_heading = COST)]
    pub(super) tick: Option<Duration>,

    /// Read the counters at these tracepoints too, on their reader CPUs; with sched also on each
    /// other CPU on which the kernel allows it
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = COST)]
    pub(super) sample_on: Vec<Sampling>,

    /// Shortest time between readings of --sample-on; a bare number is milliseconds; 0 with
    /// --sample-on sched makes counters of a CPU exact
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = millis,
          help_heading = COST)]
    pub(super) min_gap: Duration,

    #[command(flatten)]
    pub(super) witness: WitnessArgs,

    /// Time between flushes: a killed recording keeps everything up to the last one; a bare number
    /// is seconds [default: 2s, or the interval if that is longer]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = COST)]
    pub(super) flush: Option<Duration>,

    /// How the counters are read
    #[arg(long, value_name = "TIMER", default_value = "auto", help_heading = COST)]
    pub(super) timer: Timer,

    /// Type information (BTF) of this very kernel, for one that was built without: a BTF file, or
    /// vmlinux with a section .BTF [default: the kernel's own, or one in /boot, /lib/modules,
    /// /usr/lib/debug]
    #[arg(long, value_name = "FILE", help_heading = COST)]
    pub(super) btf: Option<PathBuf>,

    /// Size of all ring buffers between kernel and recorder, in MiB, a power of two [default:
    /// depends on the number of CPUs]
    #[arg(long, value_name = "MIB", help_heading = COST)]
    pub(super) buffer: Option<u32>,

    /// Print what would be counted, and exit
    #[arg(long, help_heading = PRINT)]
    pub(super) dry_run: bool,

    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run", help_heading = PRINT)]
    pub(super) json: bool,

    /// At the end, say who had most of what also if standard error is not a terminal
    #[arg(long, conflicts_with = "quiet", help_heading = PRINT)]
    pub(super) summary: bool,

    /// Print errors only
    #[arg(short, long, help_heading = PRINT)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) root: RootArg,

    /// Command to run; the recording ends when it ends; `--` before it is optional
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}
