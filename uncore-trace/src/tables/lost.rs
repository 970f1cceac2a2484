//! The message about the segments that remain on disk after an error.

use std::path::Path;

use super::segment::Partial;

/// A message about the rows of unfinished tables that are on disk, and how to recover them.
pub(super) fn kept(partials: &[&Partial], output: &Path) -> String {
    let repair = format!("run `uncore-trace repair {}`", output.display());
    let (mut damaged, mut left) = (Vec::new(), 0);
    for partial in partials {
        let (all, missing) = (partial.segments.len(), partial.missing_count());
        left += all - missing;
        if missing > 0 {
            damaged.push(format!("{missing} of {all} segments of {}", partial.def.name));
        }
    }
    if damaged.is_empty() {
        format!("what was recorded before is kept: make room or mend the cause, then {repair}")
    } else if left == 0 {
        "all that was recorded is lost".to_owned()
    } else {
        format!("{} are lost; to keep the rest, {repair}", damaged.join(" and "))
    }
}
