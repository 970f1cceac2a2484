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
use super::list::{OptionNames, option_names};
use super::output::print;
use crate::catalog::Catalog;
use crate::discover::{self, Machine};

/// Print a script for a shell that completes commands and options
///
/// Save the output where your shell looks for completions, and start a new shell. For zsh that is a
/// directory in `fpath`. bash, zsh and fish also complete the groups, metrics and events of this
/// machine.
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
    pub names: Option<OptionNames>,

    /// The beginning of the word to complete
    #[arg(long, value_name = "TEXT", hide = true, default_value = "", allow_hyphen_values = true,
          help_heading = PRINT)]
    pub typed: String,
}

/// Options that take names of the machine: the long option, its value for `--names`, and a
/// placeholder for the names until the script is made.
const COMPLETED_OPTIONS: [(&str, &str, &str); 3] = [
    ("groups", "groups", "UNCORETRACEGROUPS"),
    ("metrics", "metrics", "UNCORETRACEMETRICS"),
    ("event", "events", "UNCORETRACEEVENTS"),
];

/// Prints the script or the names; always 0.
pub fn run(args: &Args) -> Result<u8> {
    if let Some(name_kind) = args.names {
        print(&matching_names(
            &discover::machine(Path::new("/"))?,
            &CatalogArgs::default().load_catalog()?,
            name_kind,
            &args.typed,
        ))?;
        return Ok(0);
    }
    print(&completion_script(args.shell.context("name a shell")?))?;
    Ok(0)
}

/// The script of a shell.
fn completion_script(shell: Shell) -> String {
    let mut command = Cli::command();
    for (long, _, placeholder) in COMPLETED_OPTIONS {
        command = command.mut_subcommands(|subcommand| {
            subcommand.mut_args(|arg| match arg.get_long() {
                Some(arg_long) if arg_long == long => {
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
    for (_, kind_name, placeholder) in COMPLETED_OPTIONS {
        let ask_names = |typed: &str| {
            format!("uncore-trace completions --names {kind_name} --typed {typed} 2>/dev/null")
        };
        text = match shell {
            // clap_complete 4.6 spells the commands of a program with a hyphen in two ways.
            Shell::Bash => text
                .replace("uncore__subcmd__trace", "uncore__trace")
                .replace(placeholder, &format!("$({})", ask_names("\"${cur}\""))),
            Shell::Zsh => text.replace(placeholder, &format!("$({})", ask_names("\"$PREFIX\""))),
            Shell::Fish => text.replace(
                &format!("{placeholder}\\t''"),
                &format!("({})", ask_names("(commandline -ct)")),
            ),
            // The scripts of other shells complete no values.
            _ => text.replace(placeholder, ""),
        };
    }
    text
}

/// The names that begin with `typed`, one per line. Groups and metrics are lists separated by
/// commas: the last item of `typed` is completed.
fn matching_names(
    machine: &Machine,
    catalog: &Catalog,
    name_kind: OptionNames,
    typed: &str,
) -> String {
    let (typed_items, typed_name) = match typed.rfind(',') {
        Some(comma) if name_kind != OptionNames::Events => typed.split_at(comma + 1),
        _ => ("", typed),
    };
    let is_new = |name: &&String| !typed_items.split(',').any(|item| item == name.as_str());
    let known_names = option_names(machine, catalog, name_kind);
    let fitting = known_names.iter().filter(|name| name.starts_with(typed_name)).filter(is_new);
    fitting.flat_map(|name| [typed_items, name, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn completions_of_every_shell_have_every_command() {
        for shell in Shell::value_variants() {
            let text = completion_script(*shell);
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
