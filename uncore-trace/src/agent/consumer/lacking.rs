//! What ring and roll-up lack in the end, for the last line of the log and the exit code.

use super::Consumer;
use crate::text::counted;

impl Consumer {
    /// What is lacking; `None` if nothing is.
    pub(super) fn lacking(&self) -> Option<String> {
        let rows = self.own.unwritten;
        let rollup = match (rows, self.is_unfinished) {
            (0, false) => None,
            (0, true) => Some("its last hour is not finished: the next agent does that".to_owned()),
            _ => Some(format!("{} could not be written", counted(rows as usize, "row"))),
        };
        let rollup = rollup.map(|lacking| format!("the roll-up is incomplete: {lacking}"));
        let ring = (self.lost_parts > 0).then(|| {
            let parts = counted(self.lost_parts, "part");
            format!("the ring is incomplete: files of {parts} could not be written")
        });
        let lines: Vec<String> = ring.into_iter().chain(rollup).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}
