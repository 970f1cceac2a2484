//! Tips for users of perf: what an option of perf is called here.

use super::stat::perf;

/// Options of perf that have another name here, and the tip for each. Those of `stat` are in
/// [`perf`].
const PERF_OPTIONS: [(&[&str], &[&str], &str); 15] = [
    (&["record", "top"], &["-a", "--all-cpus"], "all CPUs are always counted: leave it out"),
    (
        &["record", "top"],
        &["-C", "--cpu"],
        "there is no such option: counts are of the whole machine",
    ),
    (
        &["record", "top"],
        &["-F", "--freq", "-c", "--count"],
        "--tick sets the time between readings: --tick 1ms for 1000 a second",
    ),
    (
        &["record", "top", "report"],
        &["-g", "--call-graph", "--children", "--no-children"],
        "there is no such option: call stacks are not recorded",
    ),
    (
        &["record"],
        &["--pid", "-t", "--tid", "-u", "--uid"],
        "all processes are recorded: `report --by pid` has a line for each",
    ),
    (
        &["top", "report"],
        &["--pid", "-t", "--tid", "-u", "--uid"],
        "--by pid has a line for each process",
    ),
    (&["top", "report"], &["--comms"], "--by comm has a line for all processes of a name"),
    (&["record"], &["-G"], "--cgroup PATH limits the rows to a cgroup"),
    (&["top"], &["-G", "--cgroup", "--cgroups"], "--by cgroup has a line for each cgroup"),
    (&["report"], &["-G", "--cgroups"], "--cgroup PATH selects a cgroup"),
    (&["report"], &["-i", "--input"], "name the recording without an option: report FILE"),
    (&["report"], &["-s", "--sort"], "--by says what a line is"),
    (&["report"], &["--stdio"], "text is what is printed: leave it out"),
    (&["report"], &["--time"], "--from and --to name a span of time"),
    (
        &["record", "top", "report"],
        &["-v", "--verbose"],
        "set UNCORE_TRACE_LOG=info for more messages",
    ),
];

/// The tip for an option of perf that is unknown to a command.
pub fn option_tip(command: &str, unknown: &str) -> Option<&'static str> {
    let option = unknown.split_once('=').map_or(unknown, |(option, _)| option);
    if command == "stat" {
        return perf::refusal_reason(option);
    }
    let mut tips = PERF_OPTIONS.into_iter();
    let is_meant = |(commands, options, _): &(&[&str], &[&str], _)| {
        commands.contains(&command) && options.contains(&option)
    };
    tips.find(is_meant).map(|(.., tip)| tip)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::command_line::parse_words;
    use crate::cmd::Cli;

    fn refused(typed: &str) -> String {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        parse_words::<Cli>(&words, option_tip).unwrap_err().line()
    }

    /// The tip was `use '-- -1'`, which makes it a file name.
    #[test]
    fn a_value_that_begins_with_a_dash_is_refused_as_a_value() {
        let line = refused("uncore-trace report run.parquet --from -1s");
        assert!(line.starts_with("invalid value '-1s' for '--from <TIME>': write it as"), "{line}");
        let line = refused("uncore-trace top -d -5");
        assert!(line.starts_with("invalid value '-5' for '--interval <TIME>'"), "{line}");
        let line = refused("uncore-trace record -e -x");
        assert!(
            line.contains("'-x' found; tip: a value that begins with - is written -e=-x ("),
            "{line}"
        );
    }

    #[test]
    fn options_of_perf_have_a_tip_or_none() {
        for (commands, options, tip) in PERF_OPTIONS {
            for (command, option) in commands
                .iter()
                .flat_map(|command| options.iter().map(move |option| (command, option)))
            {
                let line = refused(&format!("uncore-trace {command} {option}"));
                let expected =
                    format!("unexpected argument '{option}' found; tip: {tip} (see --help)");
                assert_eq!(line, expected, "{command}");
            }
        }
        let line = refused("uncore-trace record --call-graph=dwarf");
        assert!(line.contains("call stacks are not recorded"), "{line}");
        let line = refused("uncore-trace record -Z");
        assert_eq!(line, "unexpected argument '-Z' found (see --help)");
        let line = refused("uncore-trace check -x.parquet");
        assert!(!line.contains("tip"), "{line}");
        // A typing error still gets a suggestion.
        let line = refused("uncore-trace record --intervall 5");
        assert!(line.contains("'--interval'"), "{line}");
    }

    /// Commands that read no machine have no --root, and a --root that does not exist is an error.
    #[test]
    fn the_option_root_exists_where_a_command_reads_the_machine() {
        let missing = "/nonexistent";
        for command in ["list", "doctor", "record", "agent"] {
            let line = refused(&format!("uncore-trace {command} --root {missing}"));
            assert_eq!(
                line,
                "invalid value '/nonexistent' for '--root <DIR>': there is no such directory (see \
                 --help)"
            );
        }
        for command in ["report x", "check x", "upload --check", "stat", "top", "calibrate"] {
            let line = refused(&format!("uncore-trace {command} --root {missing}"));
            assert!(line.starts_with("unexpected argument '--root' found"), "{command}: {line}");
        }
    }
}
