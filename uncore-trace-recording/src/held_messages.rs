//! Holds messages while the program draws on the whole terminal, because a line on standard error
//! would spoil the screen.

use std::sync::{Mutex, PoisonError};

/// Held lines; `None` while lines are not held.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Most lines that are held; repeated messages must not fill the memory.
const MOST: usize = 100;

fn with_held_lines<T>(act: impl FnOnce(&mut Option<Vec<String>>) -> T) -> T {
    act(&mut HELD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts to hold lines.
pub fn begin_hold() {
    with_held_lines(|held| *held = Some(Vec::new()));
}

/// Holds a line. Returns `false` if lines are not held: the caller must print it.
pub(crate) fn offer_line(line: &str) -> bool {
    with_held_lines(|held| {
        let Some(lines) = held else { return false };
        if lines.len() < MOST {
            lines.push(line.to_owned());
        }
        true
    })
}

/// The lines held so far.
pub fn held_lines() -> Vec<String> {
    with_held_lines(|held| held.clone().unwrap_or_default())
}

/// Stops to hold lines, and returns those that were held.
pub fn end_hold() -> Vec<String> {
    with_held_lines(Option::take).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_only_while_they_are_held() {
        assert!(!offer_line("shown"));
        begin_hold();
        assert!((0..2 * MOST).all(|_| offer_line("held")));
        assert_eq!(held_lines().len(), MOST);
        assert_eq!(end_hold().len(), MOST);
        assert!(!offer_line("shown"));
        assert_eq!(held_lines(), Vec::<String>::new());
    }
}
