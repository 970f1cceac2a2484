//! `uncore-trace`: parse, run the subcommand, turn its result into an exit code.

use std::process::ExitCode;

use uncore_trace::cmd;
use uncore_trace::text::printable;

/// musl's own allocator gives every large block back at once: a recorder took 1.5 times the CPU time that it
/// takes with glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match cmd::typed::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    cmd::messages::install();
    match cli.command.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) if cmd::messages::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line whatever the machine put into it.
            cmd::messages::say(&printable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}
