//! Parses the command line; an error is one line.

use std::ffi::{OsStr, OsString};

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::messages::print_message;
use crate::text::printable;

/// The tip for an unknown option of a command, in place of that of clap: (command, option).
pub type OptionTip = fn(&str, &str) -> Option<&'static str>;

/// The parsed command line; or the exit code after help, the version or an error.
pub fn parse<P: Parser>(
    words: impl IntoIterator<Item = OsString>,
    option_tip: OptionTip,
) -> Result<P, u8> {
    let words: Vec<OsString> = words.into_iter().collect();
    parse_words::<P>(&words, option_tip).map_err(|refusal| {
        let error = &refusal.error;
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if !error.use_stderr() || is_help {
            // Only a closed pipe can fail here, and it leaves no place to report to.
            error.print().unwrap_or_default();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
        print_message(&refusal.line());
        2
    })
}

/// Why a command line is refused.
#[derive(Debug)]
pub struct ParseRefusal {
    error: Box<clap::Error>,
    /// Replaces the tips of clap.
    tip: Option<String>,
}

impl ParseRefusal {
    const fn without_tip(error: Box<clap::Error>) -> Self {
        Self { error, tip: None }
    }

    /// The error as one line.
    pub fn line(&self) -> String {
        error_line(&self.error, self.tip.as_deref())
    }
}

/// Parses the words, of which the first is the name of the program.
///
/// # Errors
///
/// They are refused, or ask for help or the version.
pub fn parse_words<P: Parser>(
    words: &[OsString],
    option_tip: OptionTip,
) -> Result<P, ParseRefusal> {
    let error = match P::try_parse_from(words) {
        Ok(cli) => return Ok(cli),
        Err(error) => Box::new(error),
    };
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return Err(ParseRefusal::without_tip(error));
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return Err(ParseRefusal::without_tip(error));
    }
    let command = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let Some((value, joined)) = join_as_value::<P>(words, command, unknown) else {
        let tip = option_tip(command, unknown).map(str::to_owned);
        return Err(ParseRefusal { error, tip });
    };
    // An error in the value is more useful than "unexpected argument".
    if let Err(value_error) = P::try_parse_from(joined) {
        return Err(ParseRefusal::without_tip(Box::new(value_error)));
    }
    let tip = Some(format!("a value that begins with - is written {value}"));
    Err(ParseRefusal { error, tip })
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
