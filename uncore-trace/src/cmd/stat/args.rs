//! The options of `uncore-trace stat`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::super::heading::{COUNT, LINE, PRINT, TIME, WRITE};
use super::super::output::{self, ModeArg};
use super::super::select::SelectArgs;
use super::perf::Ignored;
use super::{delay, millis};
use crate::discover::CpuList;
use crate::stat::control::ControlAddress;
use crate::stat::options::Delay;

const EXAMPLES: &str = "\
Examples:
  uncore-trace stat -- ./train.sh
  uncore-trace stat -p mem,c2c -I 1000 --per-socket
  uncore-trace stat -e nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/ -r 5 \\
    -x, -- ./copy
  uncore-trace stat -p pcie --for-each-cgroup '^kubepods' -I 1000

Counts are of the whole machine, or of the CPUs of -C; the command only sets the
time. Without -p, -e, -M and --device: the software events that perf stat counts
(-p host) and the traffic of -p auto, with --for-each-cgroup the traffic only;
-p core has the events of the cores. user_time and system_time are events too:
times of the command. Output goes to standard error unless -o or --log-fd is
given.

Options of perf stat that have no effect here are accepted too: -a, -B, -i and
more. docs/limits.md lists what stat does with each option of perf stat.

With --for-each-cgroup the line of a cgroup includes the cgroups below it, as in
perf. (other), (idle), (irq), (device) and (unattributed) are counts that belong
to no named cgroup. If a named cgroup is below another one, lines overlap, and
the line (all) is the whole; otherwise the lines sum to the whole. Each line has
the method of the share and its lowest confidence. Counters of a CPU (-p host,
-p core) are read at every context switch, which makes every switch slower;
uncore counters are read by the timer only.

CSV: [seconds or 'summary'] [place [counters]] value unit event [cgroup] [+-%]
running_ns running% rate_or_metric its_unit [method confidence]. JSON: one
object a line with perf's keys. A rate is per second of the measurement, and
bytes are in GB/s; a rate of perf is per second of CPU time, with K, M or G.
docs/limits.md lists every difference from perf.

stat treats the command as perf stat does. Ctrl-C goes to the command, and
counting ends when the command ends. A second Ctrl-C prints the counts and
leaves the command running; with -I or --timeout the first Ctrl-C does this.
SIGTERM and SIGHUP do the same (perf prints nothing then). --timeout sends the
command SIGTERM and waits for it; --interval-count and `stop` wait for it. If
the reader of the output ends (`stat -I 100 | head`), counting ends and the
command runs on. If the output cannot be written, counting ends and stat waits
for the command.

Exit code: the command's (with -r that of the last run that failed; 128 + N if
signal N killed it, 0 if --timeout did); 0 if the command was left running or
there is none; 2 if stat failed, and a message shows the command's exit code.
With --for-each-cgroup it is 1 if something was lost.";

/// Count and print, as perf stat does
///
/// Opens the counters of the given groups and events for the whole machine, and prints their counts
/// when the command ends or at Ctrl-C. Instances of a PMU are summed.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = EXAMPLES, infer_long_args = true,
          override_usage = "uncore-trace stat [OPTIONS] [-- CMD...]")]
pub struct Args {
    #[command(flatten)]
    pub(super) select: SelectArgs,

    /// Use only counters that are read on these CPUs, e.g. 0-3,8; an uncore counter is read on one
    /// CPU of its socket or die
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", conflicts_with = "for_each_cgroup",
          help_heading = COUNT)]
    pub(super) cpus: Option<CpuList>,

    /// Count nothing: print the time only
    #[arg(
        short = 'n',
        long,
        conflicts_with_all = [ "groups", "events", "metrics", "devices", "per", "cpus", "for_each_cgroup", "metric_only", ],
        help_heading = COUNT
    )]
    pub(super) null: bool,

    /// Print the counts of each interval of this length; a bare number is milliseconds
    #[arg(short = 'I', long = "interval-print", value_name = "TIME", value_parser = millis,
          help_heading = TIME)]
    pub(super) interval: Option<Duration>,

    /// End after N intervals, and wait for the command
    #[arg(long, value_name = "N", requires = "interval",
          value_parser = clap::value_parser!(u32).range(1..), help_heading = TIME)]
    pub(super) interval_count: Option<u32>,

    /// After the intervals, also print the counts of the whole time
    #[arg(long, requires = "interval", help_heading = TIME)]
    pub(super) summary: bool,

    /// End after this time and send the command SIGTERM; a bare number is milliseconds
    #[arg(long, value_name = "TIME", value_parser = millis, help_heading = TIME)]
    pub(super) timeout: Option<Duration>,

    /// Start counting this long after the command starts, or with -1 when --control enables the
    /// counters; a bare number is milliseconds
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", hide_default_value = true,
          allow_hyphen_values = true, value_parser = delay, help_heading = TIME)]
    pub(super) delay: Delay,

    /// Run the command N times, and print the mean and its standard error; with 0, repeat until
    /// Ctrl-C and print each run
    #[arg(short = 'r', long, value_name = "N", conflicts_with = "interval", help_heading = TIME)]
    pub(super) repeat: Option<u32>,

    /// Before each run, write cached data to disks: sync(2)
    #[arg(short = 'S', long, conflicts_with = "for_each_cgroup", help_heading = TIME)]
    pub(super) sync: bool,

    /// Before each run, run COMMAND in a shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "for_each_cgroup", help_heading = TIME)]
    pub(super) pre: Option<String>,

    /// After each run, run COMMAND in a shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "for_each_cgroup", help_heading = TIME)]
    pub(super) post: Option<String>,

    /// Take `enable`, `disable`, `ping` and `stop` from a FIFO or an inherited descriptor and
    /// answer `ack`; any other command gets a warning and no answer
    #[arg(long, value_name = "fifo:CTL[,ACK]|fd:CTL[,ACK]", help_heading = TIME)]
    pub(super) control: Option<ControlAddress>,

    /// A line for each of these cgroups: names or regular expressions, separated by commas
    #[arg(long, value_name = "LIST",
          conflicts_with_all = ["control", "repeat", "no_scale", "summary"], help_heading = LINE)]
    pub(super) for_each_cgroup: Option<String>,

    /// A line for each socket
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_socket: bool,

    /// A line for each die
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_die: bool,

    /// A line for each cluster of cores
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_cluster: bool,

    /// A line for each last-level cache
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_cache: bool,

    /// A line for each core
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_core: bool,

    /// A line for each NUMA node
    #[arg(long, group = "aggregation", help_heading = LINE)]
    pub(super) per_node: bool,

    /// A line for each PMU instance and CPU
    #[arg(short = 'A', long, group = "aggregation", help_heading = LINE)]
    pub(super) no_aggr: bool,

    /// A line for each PMU instance
    #[arg(long, help_heading = LINE)]
    pub(super) no_merge: bool,

    /// Do not scale up the counts of multiplexed counters
    #[arg(long, help_heading = PRINT)]
    pub(super) no_scale: bool,

    /// Print the metrics of -M, not the events they are computed from
    #[arg(long, help_heading = PRINT)]
    pub(super) metric_only: bool,

    /// Do not print events whose count is 0
    #[arg(long, help_heading = PRINT)]
    pub(super) hide_zero_events: bool,

    /// With -r: print the time of each run
    #[arg(long, requires = "repeat", help_heading = PRINT)]
    pub(super) table: bool,

    /// Clear the terminal before each interval
    #[arg(long, requires = "interval", help_heading = PRINT)]
    pub(super) interval_clear: bool,

    /// Leave out the word `summary` in the first field of -x
    #[arg(long, help_heading = PRINT)]
    pub(super) no_csv_summary: bool,

    /// Print errors only
    #[arg(long, conflicts_with = "verbose", help_heading = PRINT)]
    pub(super) quiet: bool,

    /// Print more messages; -vv still more
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = PRINT)]
    pub(super) verbose: u8,

    /// Print fields separated by SEP, in the order of perf
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", conflicts_with = "json",
          help_heading = PRINT)]
    pub(super) separator: Option<String>,

    /// Print a JSON object for each line, with perf's keys
    #[arg(short = 'j', long = "json-output", visible_alias = "json", help_heading = PRINT)]
    pub(super) json: bool,

    /// Write to FILE instead of standard error; - is standard output
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true,
          value_parser = output::path(), help_heading = WRITE)]
    pub(super) output: Option<PathBuf>,

    /// Add to FILE instead of replacing it
    #[arg(long, help_heading = WRITE)]
    pub(super) append: bool,

    /// Write to this inherited descriptor instead of standard error
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(u16).range(1..),
          conflicts_with = "output", help_heading = WRITE)]
    pub(super) log_fd: Option<u16>,

    #[command(flatten)]
    pub(super) permissions: ModeArg,

    #[command(flatten)]
    pub(super) ignored: Ignored,

    /// Command to run; counting ends when it ends; `--` before it is optional
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}
