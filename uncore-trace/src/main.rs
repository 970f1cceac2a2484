//! `uncore-trace`: parse, run the subcommand, turn its result into an exit code.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use uncore_trace::cmd;
use uncore_trace::text::printable;

/// musl's own allocator gives every large block back at once: a recorder took 1.5 times the CPU time that it
/// takes with glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match cmd::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return mistyped(&error),
    };
    cmd::messages::install();
    match cli.command.run(&cli.root) {
        Ok(code) => ExitCode::from(code),
        Err(error) if cmd::messages::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line whatever the machine put into it.
            cmd::messages::say(&printable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// Help goes to standard output as it is; of an error, what is wrong and the tips go on one line,
/// like every other error's.
fn mistyped(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed pipe is the only error here, and nobody is left to tell.
        error.print().unwrap_or_default();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let said = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let line = said.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    // The words of Rust's parsers.
    let line = line
        .replace("invalid digit found in string", "expected a whole number")
        .replace("cannot parse integer from empty string", "expected a whole number")
        .replace("number too large to fit in target type", "the number is too large");
    cmd::messages::say(&format!("{} (see --help)", printable(&line)));
    ExitCode::from(2)
}
