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
use crate::schema::row_limit::RowLimit;
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
/// Opens the counters of the given groups and events, and reads each counter on its reader CPU once
/// per tick. Records which tasks run on every CPU, divides the counts among processes and cgroups,
/// and writes the shares.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = EXAMPLES,
          override_usage = "uncore-trace record [OPTIONS] [-o FILE] [-- CMD...]")]
pub struct Args {
    #[command(flatten)]
    pub(super) select: SelectArgs,

    /// FILE.parquet, a directory (for the raw tables too), or - for an Arrow IPC stream on standard
    /// output. A device or a FIFO can only get the stream: -o - > /dev/null [default: a new file
    /// uncore-trace-TIME.parquet]
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true,
          value_parser = output::path(), help_heading = WRITE)]
    pub(super) output: Option<PathBuf>,

    /// Replace FILE if it exists and is a regular file
    #[arg(long, help_heading = WRITE)]
    pub(super) force: bool,

    #[command(flatten)]
    pub(super) permissions: ModeArg,

    /// Continue in a new part after this time (1h) or this size (256MiB), without a gap. Each part
    /// is a separate recording: DIR/00000001/ and so on, or FILE-00000001.parquet and so on
    #[arg(long, value_name = "TIME|SIZE", help_heading = WRITE)]
    pub(super) rotate: Option<Rotate>,

    /// Keep this number of finished parts (24), or the newest parts up to this total size (20GiB),
    /// including the part that is being written. Older parts are removed, also parts of earlier
    /// recordings
    #[arg(long, value_name = "N|SIZE", requires = "rotate", help_heading = WRITE)]
    pub(super) keep: Option<Keep>,

    /// Record each stretch in which a thread ran on a CPU, in the table `slices` (the output must
    /// be a directory)
    #[arg(long, help_heading = WRITE)]
    pub(super) slices: bool,

    /// Record the bytes that disks and network interfaces move, by owner, in the table `io`, even
    /// if no counter needs them (the output must be a directory)
    #[arg(long, help_heading = WRITE)]
    pub(super) io: bool,

    /// Name of this host's cluster, for the column `cluster` of the tables
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

    /// Send SIGTERM to the command if the recording ends first, at --duration or by a signal
    #[arg(long, requires = "command", help_heading = TIME)]
    pub(super) kill: bool,

    /// Make separate rows only for this cgroup and the cgroups below it; all other tasks share one
    /// row; may be given several times
    #[arg(long = "cgroup", value_name = "PATH", help_heading = OWNER)]
    pub(super) cgroups: Vec<String>,

    #[command(flatten)]
    pub(super) trust: TrustArgs,

    /// Count cgroups deeper than N below the root towards their ancestor of depth N; with 0,
    /// towards the root
    #[arg(long, value_name = "N", help_heading = OWNER)]
    pub(super) cgroup_depth: Option<usize>,

    /// Length of a window, the time that a row covers: a whole number of ticks, at most 1m; a bare
    /// number is milliseconds [default: 10ms, or longer where --rows leaves too few rows for each
    /// counter]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = millis, help_heading = DIVIDE)]
    pub(super) interval: Option<Duration>,

    /// How to divide the counts of counters that are not read at every context switch
    #[arg(long, value_name = "METHOD", default_value = "auto", help_heading = DIVIDE)]
    pub(super) method: MethodChoice,

    /// Run a canary, a process in its own cgroup that moves known numbers of bytes at random times,
    /// and report which part of these bytes the shares give to it. It reads memory, reads a file in
    /// the output's directory directly, and sends loopback packets, if counters of the recording
    /// count them. It moves bytes for at most 1 % of the time, and then at most 0.5 % of a link's
    /// bandwidth
    #[arg(long, conflicts_with = "cgroup_depth", help_heading = DIVIDE)]
    pub(super) canary: bool,

    /// Measure the memory traffic of the largest tenants: make monitoring groups of resctrl for
    /// them, and remove the groups at the end. There are at most N groups, and at most one for each
    /// RMID of the CPU. If there are fewer groups than tenants, a quarter of the groups rotate
    /// among the tenants. Threads in monitoring groups of other programs stay there
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "16", value_parser = clap::value_parser!(u8).range(1..),
          help_heading = DIVIDE)]
    pub(super) monitor: Option<u8>,

    /// How long a method that learns waits for later counts before it divides a window, at most 10s
    /// and at most half of --flush. With 0 the method uses only the counts up to that window. A
    /// bare number is seconds [default: 1s, or half of --flush if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = DIVIDE)]
    pub(super) lag: Option<Duration>,

    /// Merge processes whose share is below this percentage of the window's total. Small processes
    /// of a cgroup share one row. If the cgroup is also below this percentage, its processes are in
    /// `other_tasks`. 0 merges nothing
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * MIN_SHARE, value_parser = percent,
          help_heading = DIVIDE)]
    pub(super) min_share: f64,

    /// Rows of the table `fabric` in a second at most, or `all`. In a window with more, the owners
    /// with the largest shares have rows. The others are a row of their cgroup or in `other_tasks`,
    /// and the table `sums` has each of them by second [default: 20000 if the output is a
    /// directory; all]
    #[arg(long, value_name = "N", help_heading = DIVIDE)]
    pub(super) rows: Option<RowLimit>,

    /// Time between readings, 100us to 1s; a bare number is milliseconds [default: 1ms, or the
    /// interval if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = millis, help_heading = COST)]
    pub(super) tick: Option<Duration>,

    /// At these tracepoints of a CPU, also read the counters of which it is the reader CPU; with
    /// sched, also counters of other reader CPUs, where the kernel allows it
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = COST)]
    pub(super) sample_on: Vec<Sampling>,

    /// Shortest time between readings of --sample-on; a bare number is milliseconds. With 0 and
    /// --sample-on sched, the shares of counters of a CPU are exact
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = millis,
          help_heading = COST)]
    pub(super) min_gap: Duration,

    #[command(flatten)]
    pub(super) witness: WitnessArgs,

    /// Time between flushes: a killed recording keeps everything up to the last flush; a bare
    /// number is seconds [default: 2s, or the interval if that is longer]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = COST)]
    pub(super) flush: Option<Duration>,

    /// What reads the counters at each tick
    #[arg(long, value_name = "TIMER", default_value = "auto", help_heading = COST)]
    pub(super) timer: Timer,

    /// File with the type information (BTF) of the running kernel, if the kernel was built without:
    /// a BTF file, or vmlinux with a section .BTF [default: the kernel's own BTF, or a file in
    /// /boot, /lib/modules or /usr/lib/debug]
    #[arg(long, value_name = "FILE", help_heading = COST)]
    pub(super) btf: Option<PathBuf>,

    /// Size of all ring buffers between kernel and recorder together, in MiB, a power of two
    /// [default: depends on the number of CPUs]
    #[arg(long, value_name = "MIB", help_heading = COST)]
    pub(super) buffer: Option<u32>,

    /// Print what would be counted, and exit
    #[arg(long, help_heading = PRINT)]
    pub(super) dry_run: bool,

    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run", help_heading = PRINT)]
    pub(super) json: bool,

    /// Print the summary at the end also if standard error is not a terminal
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
