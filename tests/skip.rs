//! Tests that cannot run here, each with a line on the terminal: a test that only passes would hide
//! what was not tested.
//!
//! Guarantees: with `UNCORE_TRACE_REQUIRE_ROOT=1`, as in CI, nothing is skipped: the test fails.

use std::io::{self, Write as _};
use std::{env, thread};

/// Says what is not tested, and why; fails where root was promised, with everything it can set up.
pub fn skip(reason: &str) {
    let required = env::var_os("UNCORE_TRACE_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "must not be skipped (UNCORE_TRACE_REQUIRE_ROOT=1): {reason}");
    show(reason);
}

/// Says it where no setup could make this machine one that the test is for: no failure anywhere.
///
/// Writes to stderr itself: what the print macros write is shown of failed tests only.
pub fn show(reason: &str) {
    let test = thread::current();
    let line = match test.name() {
        Some(name) if name != "main" => format!("skipped {name}: {reason}\n"),
        _ => format!("skipped: {reason}\n"),
    };
    // Where there is no terminal any more nobody reads it.
    io::stderr().write_all(line.as_bytes()).ok();
}
