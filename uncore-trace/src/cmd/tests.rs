//! The help: lines that fit, options under headings, examples that parse.

use clap::{CommandFactory as _, Parser as _};

use super::heading::OTHER;
use super::*;
use crate::terminal::cells;

/// The program and its subcommands.
fn all() -> Vec<clap::Command> {
    let mut cli = Cli::command();
    cli.build();
    let subcommands = cli.get_subcommands().filter(|command| command.get_name() != "help");
    let subcommands: Vec<_> = subcommands.cloned().collect();
    [vec![cli], subcommands].concat()
}

/// The text below the options.
fn notes(command: &clap::Command) -> String {
    let after = command.get_after_long_help().or(command.get_after_help());
    after.map(ToString::to_string).unwrap_or_default()
}

/// clap wraps longer lines anywhere, so an example could not be copied.
#[test]
fn examples_and_notes_of_the_help_fit_80_columns() {
    for command in all() {
        let help_text = command.clone().term_width(80).render_long_help().to_string();
        for line in notes(&command).lines() {
            assert!(cells(line) <= 80, "{}: {line}", command.get_name());
            assert!(help_text.lines().any(|other| other == line), "{line}\n{help_text}");
        }
    }
}

/// Options without a heading come first. Those of many subcommands, such as `--root`, would then be
/// the first that a reader sees.
#[test]
fn every_option_has_a_heading_and_the_global_ones_are_last() {
    for command in all() {
        let name = command.get_name();
        let options = command.get_arguments().filter(|arg| !arg.is_positional());
        let headings: Vec<_> = options
            .map(|arg| {
                let heading = arg.get_help_heading();
                heading.unwrap_or_else(|| panic!("{name}: --{} has no heading", arg.get_id()))
            })
            .collect();
        let last = headings.iter().position(|heading| *heading == OTHER);
        let last = last.unwrap_or_else(|| panic!("{name}: {headings:?}"));
        assert!(headings[last..].iter().all(|heading| *heading == OTHER), "{name}: {headings:?}");
    }
}

/// The words of a command line as a shell has them, up to a comment, a pipe, a redirection or `&&`.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
            continue;
        }
        for word in part.split_whitespace() {
            if ["#", "|", ">", "&&"].contains(&word) {
                return words;
            }
            words.push(word.to_owned());
        }
    }
    words
}

#[test]
fn every_subcommand_has_two_examples_that_parse() {
    for command in all() {
        let notes = notes(&command).replace("\\\n", " ");
        let examples = notes.lines().filter(|line| line.starts_with("  uncore-trace "));
        let examples: Vec<_> = examples.map(words).collect();
        assert!(examples.len() >= 2, "{}: {examples:?}", command.get_name());
        for example in &examples {
            let cli = Cli::try_parse_from(example);
            assert!(cli.is_ok(), "{example:?}: {}", cli.unwrap_err());
        }
        let is_own = |example: &&Vec<String>| example[1] == command.get_name();
        let own_examples = examples.iter().filter(is_own).count();
        assert!(
            own_examples >= 2 || command.get_name() == "uncore-trace",
            "{}",
            command.get_name()
        );
    }
}
