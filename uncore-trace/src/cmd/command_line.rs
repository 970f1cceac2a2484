//! Parses the command line; an error is one line.

use std::ffi::{OsStr, OsString};

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::messages::print_message;
use super::stat::perf;
use crate::text::printable;

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

/// The parsed command line; or the exit code after help, the version or an error.
pub fn parse<P: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<P, u8> {
    let words: Vec<OsString> = words.into_iter().collect();
    parse_words(&words).map_err(|(error, tip)| {
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if !error.use_stderr() || is_help {
            // Only a closed pipe can fail here, and it leaves no place to report to.
            error.print().unwrap_or_default();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
        print_message(&error_line(&error, tip.as_deref()));
        2
    })
}

/// The error, and a tip that replaces those of clap.
type ParseRefusal = (Box<clap::Error>, Option<String>);

fn parse_words<P: Parser>(words: &[OsString]) -> Result<P, ParseRefusal> {
    let error = match P::try_parse_from(words) {
        Ok(cli) => return Ok(cli),
        Err(error) => Box::new(error),
    };
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return Err((error, None));
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return Err((error, None));
    }
    let command = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let Some((value, joined)) = join_as_value::<P>(words, command, unknown) else {
        let tip = perf_tip(command, unknown).map(str::to_owned);
        return Err((error, tip));
    };
    match P::try_parse_from(joined) {
        // The error in the value is more useful than "unexpected argument".
        Err(value_error) => Err((Box::new(value_error), None)),
        Ok(_) => Err((error, Some(format!("a value that begins with - is written {value}")))),
    }
}

/// The words, with the unknown option as the value of the option before it, if that takes one. Also
/// returns the spelling of that option.
fn join_as_value<P: Parser>(
    words: &[OsString],
    command: &str,
    unknown: &str,
) -> Option<(String, Vec<OsString>)> {
    let whole = P::command();
    // A program without subcommands has the options itself.
    let command = whole.find_subcommand(command).unwrap_or(&whole);
    let begins = |word: &OsString| word.to_str().is_some_and(|word| word.starts_with(unknown));
    let index = words.iter().position(begins).filter(|index| *index > 1)?;
    let option = words[index - 1].to_str()?;
    let takes_value = |arg: &clap::Arg| {
        let is_long = arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long));
        let short = arg.get_short().map(|short| format!("-{short}"));
        (is_long || short.as_deref() == Some(option)) && arg.get_action().takes_values()
    };
    command.get_arguments().find(|arg| takes_value(arg))?;
    let value =
        [OsStr::new(option), OsStr::new("="), &words[index]].into_iter().collect::<OsString>();
    let shown = value.to_string_lossy().into_owned();
    let joined = [&words[..index - 1], &[value], &words[index + 1..]].concat();
    Some((shown, joined))
}

fn perf_tip(command: &str, unknown: &str) -> Option<&'static str> {
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

/// The error and its tips on one line, like every other error.
fn error_line(error: &clap::Error, tip: Option<&str>) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| {
        let is_tip = line.starts_with("tip: ");
        // A word after `--` is a file or a command, so this tip would not help.
        let is_wrong = tip.is_some() || line.starts_with("tip: to pass '");
        let is_usage = line.starts_with("Usage:") || line.starts_with("For more information");
        !(line.is_empty() || is_usage || is_tip && is_wrong)
    });
    let tip = tip.map(|tip| format!("tip: {tip}"));
    let line = lines.chain(tip.as_deref()).collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    // Replaces the error texts of Rust's parsers.
    let line = line
        .replace("invalid digit found in string", "expected a whole number")
        .replace("cannot parse integer from empty string", "expected a whole number")
        .replace("number too large to fit in target type", "the number is too large");
    format!("{} (see --help)", printable(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Cli;

    fn refused(typed: &str) -> String {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let (error, tip) = parse_words::<Cli>(&words).unwrap_err();
        error_line(&error, tip.as_deref())
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
            for (command, option) in
                commands.iter().flat_map(|command| options.iter().map(move |it| (command, it)))
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
