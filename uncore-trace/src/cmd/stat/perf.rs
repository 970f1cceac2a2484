//! The options of perf-stat(1), and what `stat` does with each. The parser, the tips of its errors
//! and the table in docs/limits.md are made from this list.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::super::heading::OTHER;
use super::super::select::NO_PROCESS;

/// What `stat` does with an option of perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// It has the option; in which respect it differs from perf's, or nothing.
    Has(&'static str),
    /// It accepts the option, which changes nothing, for this reason.
    NoEffect(&'static str),
    /// It refuses the option: why, and what to do instead.
    Refuses(&'static str),
}

use Here::{Has, NoEffect, Refuses};

/// An option of perf: its names, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct PerfOption {
    /// As typed, a short one first.
    pub names: &'static [&'static str],
    /// What `stat` does.
    pub here: Here,
}

const ELSEWHERE: &str =
    "`uncore-trace record -o FILE` makes a recording, `uncore-trace report FILE` shows it";
const CORE: &str =
    "-p core counts the events of the cores, -e and -M name others: see `uncore-trace list`";
const MODES: &str = "a counter counts all that happens on its PMU or CPU: leave it out";
const PMU: &str = "name the PMU in the event: -e PMU/EVENT/";
const GROUPS: &str = "which events of a metric are counted together follows from its formula";

const fn option(names: &'static [&'static str], here: Here) -> PerfOption {
    PerfOption { names, here }
}

/// Every option of `perf stat` of Linux 7.3 (release candidate 7), and `-c` of older versions.
pub const OPTIONS: &[PerfOption] = &[
    option(&["-e", "--event"], Has("")),
    option(
        &["-C", "--cpu"],
        Has(
            "counters that are read on these CPUs; one of an uncore PMU is read on one CPU of its \
             socket or die",
        ),
    ),
    option(&["-n", "--null"], Has("")),
    option(&["-r", "--repeat"], Has("not with `-I`")),
    option(&["--table"], Has("")),
    option(&["-S", "--sync"], Has("")),
    option(&["--pre"], Has("a command that fails ends `stat`")),
    option(&["--post"], Has("a command that fails is a warning")),
    option(&["-I", "--interval-print"], Has("")),
    option(&["--interval-count"], Has("")),
    option(&["--interval-clear"], Has("")),
    option(&["--summary"], Has("")),
    option(&["--no-csv-summary"], Has("")),
    option(&["--timeout"], Has("also with `-I`")),
    option(&["-D", "--delay"], Has("")),
    option(&["--control"], Has("without names of events")),
    option(&["--for-each-cgroup"], Has("uncore counts too, as shares")),
    option(&["--per-socket"], Has("")),
    option(&["--per-die"], Has("")),
    option(&["--per-cluster"], Has("")),
    option(&["--per-cache"], Has("the last level: no level can be given")),
    option(&["--per-core"], Has("")),
    option(&["--per-node"], Has("")),
    option(&["-A", "--no-aggr"], Has("")),
    option(&["--no-merge"], Has("a line for each PMU; `-A` has one for each CPU too")),
    option(&["-M", "--metrics"], Has("the metrics of `list metrics`")),
    option(&["--metric-only"], Has("a line for each metric")),
    option(&["--hide-zero-events"], Has("metrics are printed")),
    option(&["--no-scale"], Has("")),
    option(&["-x", "--field-separator"], Has("")),
    option(&["-j", "--json-output"], Has("")),
    option(&["-o", "--output"], Has("")),
    option(&["--append"], Has("")),
    option(&["--log-fd"], Has("")),
    option(&["-v", "--verbose"], Has("more messages; `-vv` more still")),
    option(&["--quiet"], Has("errors are printed")),
    option(&["-a", "--all-cpus"], NoEffect("all CPUs are counted, unless `-C` names some")),
    option(&["-i", "--no-inherit"], NoEffect("no task has a counter that it could inherit")),
    option(&["-c", "--scale"], NoEffect("it is so without")),
    option(&["-B", "--big-num"], NoEffect("it is so without")),
    option(&["--no-metric-only"], NoEffect("it is so without")),
    option(&["--metric-no-group"], NoEffect(GROUPS)),
    option(&["--metric-no-merge"], NoEffect(GROUPS)),
    option(&["--metric-no-threshold"], NoEffect("metrics have no thresholds")),
    option(&["--bpf-counters"], NoEffect("counters are read without BPF")),
    option(&["--affinity"], NoEffect("`stat` does not move to a CPU to read it")),
    option(&["--no-affinity"], NoEffect("`stat` does not move to a CPU to read it")),
    option(&["record"], Refuses(ELSEWHERE)),
    option(&["report"], Refuses(ELSEWHERE)),
    option(&["-p", "--pid"], Refuses(NO_PROCESS)),
    option(&["-t", "--tid"], Refuses(NO_PROCESS)),
    option(&["--per-thread"], Refuses(NO_PROCESS)),
    option(&["-G", "--cgroup"], Refuses("--for-each-cgroup LIST has a line for each cgroup")),
    option(&["-b", "--bpf-prog"], Refuses("counts are not limited to a BPF program: leave it out")),
    option(&["--bpf-attr-map"], Refuses("counters are not shared through a map: leave it out")),
    option(
        &["--filter"],
        Refuses("there are no tracepoints: terms narrow an event, -e PMU/EVENT,TERM=VALUE/"),
    ),
    option(&["--cputype"], Refuses(PMU)),
    option(&["--pmu-filter"], Refuses(PMU)),
    option(&["--hybrid-merge"], Refuses("each kind of core has a line of its own: leave it out")),
    option(&["--pfm-events"], Refuses("-e takes events in the grammar of perf")),
    option(&["--all-kernel"], Refuses(MODES)),
    option(&["--all-user"], Refuses(MODES)),
    option(&["-d", "--detailed"], Refuses(CORE)),
    option(&["-T", "--transaction"], Refuses(CORE)),
    option(&["--topdown"], Refuses(CORE)),
    option(&["--td-level"], Refuses(CORE)),
    option(&["--record-tpebs"], Refuses(CORE)),
    option(&["--tpebs-mode"], Refuses(CORE)),
    option(&["--smi-cost"], Refuses("-e msr/smi/ counts the interrupts")),
    option(&["--iostat"], Refuses("-p pcie --per port has a line for each root port")),
    option(&["--percore-show-thread"], Refuses("-A has a line for each CPU")),
    option(&["--no-big-num"], Refuses("-x and -j print numbers without separators")),
];

/// Why `name` is refused, if it is an option or a subcommand of `perf stat` that `stat` refuses, or the
/// beginning of no other option.
pub fn refused(name: &str) -> Option<&'static str> {
    let is = |option: &&PerfOption| option.names.contains(&name);
    let begins = |option: &&PerfOption| option.names.iter().any(|its| its.starts_with(name));
    let mut begun =
        OPTIONS.iter().filter(|_| name.len() > 2 && name.starts_with("--")).filter(begins);
    let only = begun.next().filter(|_| begun.next().is_none());
    match OPTIONS.iter().find(is).or(only)?.here {
        Refuses(why) => Some(why),
        Has(_) | NoEffect(_) => None,
    }
}

/// Parses the options without an effect.
#[derive(Debug)]
pub(super) struct Ignored {
    /// Those that were given, with the reason.
    pub given: Vec<(&'static str, &'static str)>,
}

/// The options without an effect: the long name, the short one, and the reason.
fn ignored() -> impl Iterator<Item = (&'static str, Option<char>, &'static str)> {
    OPTIONS.iter().filter_map(|option| {
        let NoEffect(why) = option.here else { return None };
        let long = option.names.iter().find_map(|name| name.strip_prefix("--"))?;
        let letter = |name: &&str| name.chars().nth(1).filter(|letter| *letter != '-');
        Some((long, option.names.iter().find_map(letter), why))
    })
}

impl clap::Args for Ignored {
    fn augment_args(command: Command) -> Command {
        ignored().fold(command, |command, (long, short, _)| {
            let arg = Arg::new(long).long(long).short(short).action(ArgAction::Count);
            command.arg(arg.hide(true).help_heading(OTHER))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = ignored().filter(|(long, ..)| matches.get_count(long) > 0);
        Ok(Self { given: given.map(|(long, _, why)| (long, why)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
