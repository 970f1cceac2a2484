//! Verifies that each table that the recording lists exists, with the bytes that were written.

use anyhow::Result;

use super::Outcome;
use crate::schema::fabric;
use crate::tables::file::TableFile;
use crate::tables::manifest::Manifest;
use crate::tables::reader::Recording;
use crate::text::count_noun;

/// Damaged parts that are listed; further ones are counted.
const NAMED: usize = 5;

/// Every row group and footer has its recorded digest, see [`crate::tables::digest`].
pub(super) fn bytes(recording: &Recording) -> Outcome {
    let (mut damaged, mut groups, mut files) = (Vec::new(), 0, 0);
    for def in recording.list_tables() {
        let found = recording.table_files(def).and_then(|tables| {
            files += tables.len();
            tables.iter().map(damaged_groups).collect::<Result<Vec<_>>>()
        });
        match found {
            Ok(found) => {
                for (all, wrong) in found {
                    groups += all;
                    damaged.extend(wrong);
                }
            }
            Err(error) => damaged.push(format!("{error:#}")),
        }
    }
    let left_out = recording.left_out().iter().filter(|it| it.is_damaged);
    damaged.extend(left_out.map(|it| it.why.clone()));
    outcome(damaged, || {
        let what = if recording.is_rollup() { "file" } else { "table" };
        format!("{} of {}", count_noun(groups, "row group"), count_noun(files, what))
    })
}

/// Number of row groups of a file, and the damaged ones.
fn damaged_groups(table: &TableFile) -> Result<(usize, Vec<String>)> {
    let rows = table.group_rows();
    let mut wrong = Vec::new();
    for group in table.damaged_groups()? {
        let first: i64 = rows.iter().take(group).sum();
        let end = first + rows.get(group).copied().unwrap_or(0);
        wrong.push(format!(
            "row group {group} (rows {first} to {end}) of {} is damaged",
            table.file_path().display()
        ));
    }
    Ok((table.row_groups(), wrong))
}

/// Every file of a roll-up is where its host, cluster and hour say; `None` for another recording.
pub(super) fn places(recording: &Recording) -> Option<Outcome> {
    if !recording.is_rollup() {
        return None;
    }
    let wrong = recording.left_out().iter().filter(|it| !it.is_damaged);
    let wrong = wrong.map(|it| format!("{}: {}", it.path.display(), it.why)).collect();
    let files = recording.table_files(&fabric::TABLE).map_or(0, |files| files.len());
    Some(outcome(wrong, || count_noun(files, "file")))
}

/// Every listed table exists and belongs to this recording.
pub(super) fn tables(recording: &Recording) -> Outcome {
    if !recording.is_dataset() {
        let alone = if recording.is_rollup() { "a roll-up" } else { "a single file" };
        return Outcome::Ok(alone.to_owned());
    }
    match Manifest::read_dataset(recording) {
        Ok(Some(manifest)) => {
            let listed = manifest.list_tables().count() + 1;
            outcome(manifest.find_problems(recording), || format!("{listed} tables"))
        }
        Ok(None) => Outcome::NotHere("fabric.parquet does not list the tables".to_owned()),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn outcome(mut wrong: Vec<String>, sound: impl FnOnce() -> String) -> Outcome {
    if wrong.is_empty() {
        return Outcome::Ok(sound());
    }
    let more = wrong.len().saturating_sub(NAMED);
    wrong.truncate(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Outcome::Failed(format!("{}{more}", wrong.join(", ")))
}
