//! Tests that cannot run here. They pass, and each is listed with its reason when the test binary
//! ends, below the results.
//!
//! Guarantees: with `UNCORE_TRACE_REQUIRE_ROOT=1`, as in CI, nothing is skipped: the test fails.

#![expect(unsafe_code, reason = "no safe binding runs a function at the end of the process")]

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::{env, thread};

use rustix::process::geteuid;

/// The skipped tests, one per line.
static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Skips the calling test; fails if root is required, because root can install everything that
/// tests need.
pub(super) fn skip(reason: &str) {
    let required = env::var_os("UNCORE_TRACE_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "must not be skipped (UNCORE_TRACE_REQUIRE_ROOT=1): {reason}");
    show(reason);
}

/// Whether the test runs as root; if not, it is skipped.
pub(super) fn has_root(untested: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        skip(&format!("not root: cannot test {untested}"));
    }
    root
}

/// Skips the calling test on a machine that cannot be set up for it; never a failure.
pub(super) fn show(reason: &str) {
    let test = thread::current();
    let mut skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if skipped.is_empty() {
        // SAFETY: the function lives as long as the process and does not unwind.
        let failed = unsafe { libc::atexit(list) };
        assert_eq!(failed, 0, "cannot list skipped tests at the end");
    }
    skipped.push(format!("skipped {}: {reason}\n", test.name().unwrap_or("a test")));
}

/// Writes to stderr directly, because libtest captures the print macros.
extern "C" fn list() {
    let mut skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    skipped.sort();
    let text = format!("{}tests skipped: {}\n", skipped.concat(), skipped.len());
    // If stderr is closed, nobody reads the list.
    io::stderr().write_all(text.as_bytes()).ok();
}
