//! Output on a terminal, through a pseudo-terminal of a given width.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

use crate::command::Place;
use crate::small::small_recording;

/// Output of `command` on a terminal with this many columns, and its exit code; a terminal with 0
/// columns does not report its size.
fn on_terminal(command: &mut Command, columns: u16) -> (String, i32) {
    run_on_terminal(columns, |terminal| command.stdout(terminal).stderr(Stdio::null()))
}

/// As [`on_terminal`], of standard error.
pub(crate) fn errors_on_terminal(command: &mut Command, columns: u16) -> (String, i32) {
    run_on_terminal(columns, |terminal| command.stderr(terminal).stdout(Stdio::null()))
}

/// What a command writes on the terminal that it is given, and its exit code.
fn run_on_terminal<'a>(
    columns: u16,
    connect: impl FnOnce(OwnedFd) -> &'a mut Command,
) -> (String, i32) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).unwrap();
    let command = connect(theirs).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The command keeps the terminal's descriptor until it is dropped, so reading would not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut screens = Vec::new();
    // If no process has the terminal open, reading fails with EIO instead of ending.
    File::from(ours).read_to_end(&mut screens).unwrap_err();
    let code = child.wait().unwrap().code().unwrap();
    (String::from_utf8(screens).unwrap().replace("\r\n", "\n"), code)
}

/// The widest line, in cells.
fn widest(text: &str) -> usize {
    text.lines().map(UnicodeWidthStr::width).max().unwrap()
}

#[test]
fn a_report_fits_the_terminal_and_is_whole_in_a_pipe() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    let report = |options: &str, columns: u16, variable: &str| {
        let args = ["report", "x.parquet"].into_iter().chain(options.split_whitespace());
        let mut command = place.tool(args);
        command.env_remove("COLUMNS");
        if !variable.is_empty() {
            command.env("COLUMNS", variable);
        }
        let (text, code) = on_terminal(&mut command, columns);
        assert_eq!(code, 0, "{text}");
        text
    };
    let full_text = place.typed("report x.parquet --by cgroup").ok();
    assert!(widest(&full_text) > 132, "{full_text}");
    for (columns, variable, most) in [(80, "", 80), (132, "", 132), (0, "", 80), (80, "100", 100)] {
        let text = report("--by cgroup", columns, variable);
        assert!(widest(&text) <= most, "{columns} {variable}: {text}");
        for typed in [
            "value",
            "90 % interval",
            "share",
            "confidence",
            "100.0",
            "1.00 (min 1.00)",
            "with --wide",
        ] {
            assert!(text.contains(typed), "{typed}: {text}");
        }
    }
    assert!(widest(&report("--by cgroup", 80, "100")) > 80);
    assert_eq!(report("--by cgroup --wide", 80, ""), full_text);
    // `COLUMNS` also sets the width in a pipe.
    let piped = |options: &str| {
        let args = ["report", "x.parquet"].into_iter().chain(options.split_whitespace());
        let output = place.tool(args).env("COLUMNS", "100").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(piped("--by cgroup"), report("--by cgroup", 100, ""));
    assert_eq!(piped("--by cgroup --wide"), full_text);
    // Output for programs does not depend on the terminal.
    assert_eq!(report("--csv", 80, ""), place.typed("report x.parquet --csv").ok());
    assert!(report("--ascii --by pid", 80, "").is_ascii());
}
