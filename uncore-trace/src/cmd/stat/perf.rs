//! The options of perf-stat(1), and what `stat` does with each. The parser, the tips of its errors
//! and the table in docs/limits.md are made from this list.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::super::heading::OTHER;
use super::super::select::NO_PROCESS;

/// What `stat` does with an option of perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfSupport {
    /// It has the option; in which respect it differs from perf's, or nothing.
    Has(&'static str),
    /// It accepts the option, which changes nothing, for this reason.
    NoEffect(&'static str),
    /// It refuses the option: why, and what to do instead.
    Refuses(&'static str),
}

use PerfSupport::{Has, NoEffect, Refuses};

/// An option of perf: its names, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct PerfOption {
    /// As typed, a short one first.
    pub names: &'static [&'static str],
    /// What `stat` does.
    pub support: PerfSupport,
}

const ELSEWHERE: &str =
    "`uncore-trace record -o FILE` makes a recording, `uncore-trace report FILE` shows it";
const CORE: &str =
    "-p core counts the events of the cores, -e and -M name others: see `uncore-trace list`";
const MODES: &str = "a counter counts all that happens on its PMU or CPU: leave it out";
const PMU: &str = "name the PMU in the event: -e PMU/EVENT/";
const GROUPS: &str = "which events of a metric are counted together follows from its formula";

const fn perf_option(names: &'static [&'static str], support: PerfSupport) -> PerfOption {
    PerfOption { names, support }
}

/// Every option of `perf stat` of Linux 7.3 (release candidate 7), and `-c` of older versions.
pub const OPTIONS: &[PerfOption] = &[
    perf_option(&["-e", "--event"], Has("")),
    perf_option(
        &["-C", "--cpu"],
        Has("counters that are read on these CPUs; an uncore counter is read on one CPU of its \
             socket or die"),
    ),
    perf_option(&["-n", "--null"], Has("")),
    perf_option(&["-r", "--repeat"], Has("not with `-I`")),
    perf_option(&["--table"], Has("")),
    perf_option(&["-S", "--sync"], Has("")),
    perf_option(&["--pre"], Has("a command that fails ends `stat`")),
    perf_option(&["--post"], Has("a command that fails causes a warning")),
    perf_option(&["-I", "--interval-print"], Has("")),
    perf_option(&["--interval-count"], Has("")),
    perf_option(&["--interval-clear"], Has("")),
    perf_option(&["--summary"], Has("")),
    perf_option(&["--no-csv-summary"], Has("")),
    perf_option(&["--timeout"], Has("also with `-I`")),
    perf_option(&["-D", "--delay"], Has("")),
    perf_option(&["--control"], Has("without names of events")),
    perf_option(&["--for-each-cgroup"], Has("also uncore counts, as shares")),
    perf_option(&["--per-socket"], Has("")),
    perf_option(&["--per-die"], Has("")),
    perf_option(&["--per-cluster"], Has("")),
    perf_option(&["--per-cache"], Has("the last level only")),
    perf_option(&["--per-core"], Has("")),
    perf_option(&["--per-node"], Has("")),
    perf_option(&["-A", "--no-aggr"], Has("")),
    perf_option(&["--no-merge"], Has("a line for each PMU; `-A` has one for each CPU too")),
    perf_option(&["-M", "--metrics"], Has("the metrics of `list metrics`")),
    perf_option(&["--metric-only"], Has("a line for each metric")),
    perf_option(&["--hide-zero-events"], Has("metrics are printed")),
    perf_option(&["--no-scale"], Has("")),
    perf_option(&["-x", "--field-separator"], Has("")),
    perf_option(&["-j", "--json-output"], Has("")),
    perf_option(&["-o", "--output"], Has("")),
    perf_option(&["--append"], Has("")),
    perf_option(&["--log-fd"], Has("")),
    perf_option(&["-v", "--verbose"], Has("more messages; `-vv` prints even more")),
    perf_option(&["--quiet"], Has("errors are printed")),
    perf_option(&["-a", "--all-cpus"], NoEffect("all CPUs are counted, unless `-C` names some")),
    perf_option(&["-i", "--no-inherit"], NoEffect("no task has a counter that it could inherit")),
    perf_option(&["-c", "--scale"], NoEffect("this is the default")),
    perf_option(&["-B", "--big-num"], NoEffect("this is the default")),
    perf_option(&["--no-metric-only"], NoEffect("this is the default")),
    perf_option(&["--metric-no-group"], NoEffect(GROUPS)),
    perf_option(&["--metric-no-merge"], NoEffect(GROUPS)),
    perf_option(&["--metric-no-threshold"], NoEffect("metrics have no thresholds")),
    perf_option(&["--bpf-counters"], NoEffect("counters are read without BPF")),
    perf_option(&["--affinity"], NoEffect("`stat` does not move to a CPU to read it")),
    perf_option(&["--no-affinity"], NoEffect("`stat` does not move to a CPU to read it")),
    perf_option(&["record"], Refuses(ELSEWHERE)),
    perf_option(&["report"], Refuses(ELSEWHERE)),
    perf_option(&["-p", "--pid"], Refuses(NO_PROCESS)),
    perf_option(&["-t", "--tid"], Refuses(NO_PROCESS)),
    perf_option(&["--per-thread"], Refuses(NO_PROCESS)),
    perf_option(&["-G", "--cgroup"], Refuses("--for-each-cgroup LIST has a line for each cgroup")),
    perf_option(
        &["-b", "--bpf-prog"],
        Refuses("counts are not limited to a BPF program: leave it out"),
    ),
    perf_option(
        &["--bpf-attr-map"],
        Refuses("counters are not shared through a map: leave it out"),
    ),
    perf_option(
        &["--filter"],
        Refuses("there are no tracepoints: terms narrow an event, -e PMU/EVENT,TERM=VALUE/"),
    ),
    perf_option(&["--cputype"], Refuses(PMU)),
    perf_option(&["--pmu-filter"], Refuses(PMU)),
    perf_option(
        &["--hybrid-merge"],
        Refuses("each kind of core has a line of its own: leave it out"),
    ),
    perf_option(&["--pfm-events"], Refuses("-e takes events in the grammar of perf")),
    perf_option(&["--all-kernel"], Refuses(MODES)),
    perf_option(&["--all-user"], Refuses(MODES)),
    perf_option(&["-d", "--detailed"], Refuses(CORE)),
    perf_option(&["-T", "--transaction"], Refuses(CORE)),
    perf_option(&["--topdown"], Refuses(CORE)),
    perf_option(&["--td-level"], Refuses(CORE)),
    perf_option(&["--record-tpebs"], Refuses(CORE)),
    perf_option(&["--tpebs-mode"], Refuses(CORE)),
    perf_option(&["--smi-cost"], Refuses("-e msr/smi/ counts the interrupts")),
    perf_option(&["--iostat"], Refuses("-p pcie --per port has a line for each root port")),
    perf_option(&["--percore-show-thread"], Refuses("-A has a line for each CPU")),
    perf_option(&["--no-big-num"], Refuses("-x and -j print numbers without separators")),
];

/// Why `name` is refused, if it is an option or a subcommand of `perf stat` that `stat` refuses, or
/// the beginning of no other option.
pub fn refusal_reason(name: &str) -> Option<&'static str> {
    let has_name = |option: &&PerfOption| option.names.contains(&name);
    let begins =
        |option: &&PerfOption| option.names.iter().any(|option_name| option_name.starts_with(name));
    let mut begun =
        OPTIONS.iter().filter(|_| name.len() > 2 && name.starts_with("--")).filter(begins);
    let unambiguous = begun.next().filter(|_| begun.next().is_none());
    match OPTIONS.iter().find(has_name).or(unambiguous)?.support {
        Refuses(why) => Some(why),
        Has(_) | NoEffect(_) => None,
    }
}

/// Parses the options without an effect.
#[derive(Debug)]
pub(super) struct Ignored {
    /// Those that were given, with the reason.
    pub given_options: Vec<(&'static str, &'static str)>,
}

/// The options without an effect: the long name, the short one, and the reason.
fn ignored_options() -> impl Iterator<Item = (&'static str, Option<char>, &'static str)> {
    OPTIONS.iter().filter_map(|option| {
        let NoEffect(why) = option.support else { return None };
        let long = option.names.iter().find_map(|name| name.strip_prefix("--"))?;
        let letter = |name: &&str| name.chars().nth(1).filter(|letter| *letter != '-');
        Some((long, option.names.iter().find_map(letter), why))
    })
}

impl clap::Args for Ignored {
    fn augment_args(command: Command) -> Command {
        ignored_options().fold(command, |command, (long, short, _)| {
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
        let found_options = ignored_options().filter(|(long, ..)| matches.get_count(long) > 0);
        Ok(Self { given_options: found_options.map(|(long, _, why)| (long, why)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
