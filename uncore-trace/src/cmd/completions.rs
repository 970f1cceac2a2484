//! `uncore-trace completions`: scripts for completion in shells.
//!
//! The scripts hold no names of PMUs, metrics or events: they ask the program for them
//! ([`Args::names`]).

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap::builder::PossibleValuesParser;
use clap_complete::{Shell, generate};

use super::Cli;
use super::catalog::CatalogArgs;
use super::heading::PRINT;
use super::list::{Names, names};
use super::output::print;
use crate::catalog::Catalog;
use crate::discover::{self, Machine};

/// Print what a shell needs to complete commands and options
///
/// Save the output where your shell looks for completions, and start a new shell. For zsh that is a
/// directory in `fpath`. bash, zsh and fish also complete the groups, metrics and events of this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  uncore-trace completions bash > /etc/bash_completion.d/uncore-trace
  uncore-trace completions zsh > ~/.zfunc/_uncore-trace
  uncore-trace completions fish > ~/.config/fish/completions/uncore-trace.fish")]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL", required_unless_present = "names")]
    pub shell: Option<Shell>,

    /// For the scripts: print the names that can replace `typed`
    #[arg(long, value_name = "WHAT", hide = true, conflicts_with = "shell", help_heading = PRINT)]
    pub names: Option<Names>,

    /// The beginning of the word to complete
    #[arg(long, value_name = "TEXT", hide = true, default_value = "", allow_hyphen_values = true, help_heading = PRINT)]
    pub typed: String,
}

/// Options that take names of the machine: the long option, its value for `--names`, and a
/// placeholder for the names until the script is made.
const ASKED: [(&str, &str, &str); 3] = [
    ("groups", "groups", "UNCORETRACEGROUPS"),
    ("metrics", "metrics", "UNCORETRACEMETRICS"),
    ("event", "events", "UNCORETRACEEVENTS"),
];

/// Prints the script or the names; always 0.
pub fn run(args: &Args) -> Result<u8> {
    if let Some(of) = args.names {
        let machine = discover::machine(Path::new("/"))?;
        print(&words(&machine, &CatalogArgs::default().load()?, of, &args.typed))?;
        return Ok(0);
    }
    print(&script(args.shell.context("name a shell")?))?;
    Ok(0)
}

/// The script of a shell.
fn script(shell: Shell) -> String {
    let mut command = Cli::command();
    for (long, _, placeholder) in ASKED {
        command = command.mut_subcommands(|subcommand| {
            subcommand.mut_args(|arg| match arg.get_long() {
                Some(its) if its == long => {
                    arg.value_parser(PossibleValuesParser::new([placeholder]))
                }
                _ => arg,
            })
        });
    }
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    generate(shell, &mut command, name, &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    for (_, of, placeholder) in ASKED {
        let ask = |typed: &str| {
            format!("uncore-trace completions --names {of} --typed {typed} 2>/dev/null")
        };
        text = match shell {
            // clap_complete 4.6 spells the commands of a program with a hyphen in two ways.
            Shell::Bash => text
                .replace("uncore__subcmd__trace", "uncore__trace")
                .replace(placeholder, &format!("$({})", ask("\"${cur}\""))),
            Shell::Zsh => text.replace(placeholder, &format!("$({})", ask("\"$PREFIX\""))),
            Shell::Fish => text.replace(
                &format!("{placeholder}\\t''"),
                &format!("({})", ask("(commandline -ct)")),
            ),
            // The scripts of other shells complete no values.
            _ => text.replace(placeholder, ""),
        };
    }
    text
}

/// The names that begin with `typed`, one per line. Groups and metrics are lists separated by
/// commas: the last item of `typed` is completed.
fn words(machine: &Machine, catalog: &Catalog, of: Names, typed: &str) -> String {
    let (before, last) = match typed.rfind(',') {
        Some(comma) if of != Names::Events => typed.split_at(comma + 1),
        _ => ("", typed),
    };
    let is_new = |name: &&String| !before.split(',').any(|it| it == name.as_str());
    let names = names(machine, catalog, of);
    let fitting = names.iter().filter(|name| name.starts_with(last)).filter(is_new);
    fitting.flat_map(|name| [before, name, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let text = script(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(text.contains("interval") && text.contains("witness-budget"), "{shell}");
            assert!(!text.contains("UNCORETRACE"), "{shell}");
            let asks = ["groups", "metrics", "events"].map(|of| format!("--names {of} --typed "));
            let asks = asks.iter().all(|ask| text.contains(ask));
            assert_eq!(asks, matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish), "{shell}");
        }
    }
}
