//! What ring and roll-up lack in the end, for the last line of the log and the exit code.

use super::TapConsumer;
use crate::text::count_noun;

impl TapConsumer {
    /// What ring and roll-up lack; `None` if nothing is missing.
    pub(super) fn describe_gaps(&self) -> Option<String> {
        let rows = self.agent_metrics.unwritten;
        let rollup_gap = match (rows, self.is_unfinished) {
            (0, false) => None,
            (0, true) => {
                Some("its last hour is not finished: the next agent finishes it".to_owned())
            }
            _ => Some(format!("{} could not be written", count_noun(rows as usize, "row"))),
        };
        let rollup_text = rollup_gap.map(|gap| format!("the roll-up is incomplete: {gap}"));
        let ring_text = (self.lost_parts > 0).then(|| {
            let parts = count_noun(self.lost_parts, "part");
            format!("the ring is incomplete: files of {parts} could not be written")
        });
        let texts: Vec<String> = ring_text.into_iter().chain(rollup_text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
