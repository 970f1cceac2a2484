//! `uncore-trace`: parse, run the subcommand, turn its result into an exit code.

use std::process::ExitCode;

use uncore_trace::cli::{command_line, messages};
use uncore_trace::cmd;
use uncore_trace::record::canary;
use uncore_trace::signals;

/// musl's own allocator returns every large block to the kernel at once: with it, a recorder took
/// 1.5 times the CPU time that it takes with glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::survive_file_size_limit();
    if let Some(code) = canary::main(std::env::args_os().next().as_deref()) {
        return code;
    }
    let cli: cmd::Cli =
        match command_line::parse(std::env::args_os(), cmd::perf_options::option_tip) {
            Ok(cli) => cli,
            Err(code) => return ExitCode::from(code),
        };
    // Before the subcommand runs: all stages log.
    messages::install_logger();
    messages::exit_code(cli.command.run())
}
