//! Waiting. A test waits for an event, such as a line, a file, a row or the state of a process,
//! with [`wait_for`] or [`wait_until`]; it does not guess how long the event takes, so it needs no
//! quiet machine. Where time itself is tested, one of the functions below says why it passes.
//!
//! Guarantees: no other file of the tests sleeps, which `structure` checks.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for an event that must come: without optimization, on a shared machine with 2
/// CPUs, steps that take seconds elsewhere take a minute.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// Pauses between two looks: short at first, because most events come soon, and then longer,
/// because a look takes CPU time from what is waited for.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The first result of `look`; `None` if there is none within `limit`.
pub(crate) fn wait_within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (begin, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let result = look();
        if result.is_some() || begin.elapsed() >= limit {
            return result;
        }
        sleep(pause);
        pause = LONGEST_PAUSE.min(2 * pause);
    }
}

/// Waits for an event that must come; returns the result of the look that saw it.
#[track_caller]
pub(crate) fn wait_for<T>(event: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_or_explain(event, look, String::new)
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(event: &str, mut holds: impl FnMut() -> bool) {
    wait_for(event, || holds().then_some(()));
}

/// As [`wait_for`]; the failure says what there is instead.
#[track_caller]
pub(crate) fn wait_or_explain<T>(
    event: &str,
    look: impl FnMut() -> Option<T>,
    explain: impl FnOnce() -> String,
) -> T {
    expect_result(wait_within(PATIENCE, look), event, explain)
}

#[track_caller]
fn expect_result<T>(result: Option<T>, event: &str, explain: impl FnOnce() -> String) -> T {
    // In a closure, the place of the panic would be here.
    match result {
        Some(result) => result,
        None => panic!("waited {} s in vain for {event}: {}", PATIENCE.as_secs(), explain()),
    }
}

/// The length of what is measured: of a recording, or of a load.
pub(crate) fn run_for(time: Duration) {
    sleep(time);
}

/// How long a state lasts that the test has made: a process is stopped, a CPU is offline, a disk is
/// frozen.
pub(crate) fn hold_for(time: Duration) {
    sleep(time);
}

/// The moment at which a test interferes, which differs from run to run or from round to round:
/// what is tested must hold at every moment.
pub(crate) fn pass_until_moment(time: Duration) {
    sleep(time);
}

/// How long something must not happen.
pub(crate) fn watch_for(time: Duration) {
    sleep(time);
}

/// The pause between two steps of a load, or between two attempts.
pub(crate) fn pace(time: Duration) {
    sleep(time);
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_wait_ends_with_the_event_or_at_its_limit() {
        let mut looks = 0;
        let mut third_look = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(wait_for("the third look", &mut third_look), 3);
        let begin = Instant::now();
        assert_eq!(wait_within(Duration::from_millis(20), || None::<()>), None);
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }

    /// The event and what there was instead are in the message.
    #[test]
    fn a_wait_in_vain_names_the_event() {
        let panic = catch_unwind(|| {
            let explain = || "no such line".to_owned();
            expect_result(None::<()>, "the last line", explain);
        });
        let message = panic.unwrap_err();
        let message = message.downcast_ref::<String>().unwrap();
        assert_eq!(message, "waited 180 s in vain for the last line: no such line");
    }
}
