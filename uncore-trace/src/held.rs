//! Messages while the program draws on the whole terminal: a line on standard error would spoil the
//! picture, so lines are held until somebody shows them.

use std::sync::{Mutex, PoisonError};

/// Lines that wait; `None` while lines are not held.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Lines that are held at most: what repeats without an end is not worth memory.
const MOST: usize = 100;

fn with<T>(act: impl FnOnce(&mut Option<Vec<String>>) -> T) -> T {
    act(&mut HELD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Holds lines from here on.
pub fn begin() {
    with(|held| *held = Some(Vec::new()));
}

/// Holds a line; `false` where lines are not held, and it is to be shown.
pub fn offer(line: &str) -> bool {
    with(|held| {
        let Some(lines) = held else { return false };
        if lines.len() < MOST {
            lines.push(line.to_owned());
        }
        true
    })
}

/// The lines that were held so far.
pub fn lines() -> Vec<String> {
    with(|held| held.clone().unwrap_or_default())
}

/// Holds no more lines; returns those that were held.
pub fn end() -> Vec<String> {
    with(Option::take).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_only_while_they_are_held() {
        assert!(!offer("shown"));
        begin();
        assert!((0..2 * MOST).all(|_| offer("held")));
        assert_eq!(lines().len(), MOST);
        assert_eq!(end().len(), MOST);
        assert!(!offer("shown"));
        assert_eq!(lines(), Vec::<String>::new());
    }
}
