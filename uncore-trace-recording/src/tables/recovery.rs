//! The message about the segments that remain on disk after an error.

use std::path::Path;

use super::segment::Partial;

/// A message about the rows of unfinished tables that are on disk, and how to recover them.
pub(super) fn recovery_message(partials: &[&Partial], output: &Path) -> String {
    let repair = format!("run `uncore-trace repair {}`", output.display());
    let (mut damaged, mut intact) = (Vec::new(), 0);
    for partial in partials {
        let (total, missing) = (partial.segments.len(), partial.missing_count());
        intact += total - missing;
        if missing > 0 {
            damaged.push(format!("{missing} of {total} segments of {}", partial.def.name));
        }
    }
    if damaged.is_empty() {
        format!("earlier data is kept: free disk space or fix the cause, then {repair}")
    } else if intact == 0 {
        "the whole recording is lost".to_owned()
    } else {
        format!("{} are lost; to keep the other data, {repair}", damaged.join(" and "))
    }
}
