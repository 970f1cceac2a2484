//! `uncore-trace completions`: what a shell completes after `uncore-trace`.

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use super::Cli;
use super::output::print;

/// Print what a shell needs to complete commands and options
///
/// Save the output where your shell looks for completions, and start a new shell. For zsh that is a
/// directory in `fpath`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  uncore-trace completions bash > /etc/bash_completion.d/uncore-trace
  uncore-trace completions zsh > ~/.zfunc/_uncore-trace
  uncore-trace completions fish > ~/.config/fish/completions/uncore-trace.fish")]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints them; always 0.
pub fn run(args: &Args) -> Result<u8> {
    let mut text = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    generate(args.shell, &mut command, name, &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            generate(*shell, &mut Cli::command(), "uncore-trace", &mut text);
            let text = String::from_utf8(text).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(text.contains("interval") && text.contains("witness-budget"), "{shell}");
        }
    }
}
