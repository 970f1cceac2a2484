//! Verifies that each table that the recording lists exists, with the bytes that were written.

use anyhow::Result;

use super::CheckOutcome;
use crate::schema::fabric;
use crate::tables::file::TableFile;
use crate::tables::manifest::Manifest;
use crate::tables::reader::Recording;
use crate::text::count_noun;

/// Damaged parts that are listed; further ones are counted.
const NAMED: usize = 5;

/// Every row group and footer has its recorded digest, see [`crate::tables::digest`].
pub(super) fn verify_bytes(recording: &Recording) -> CheckOutcome {
    let (mut damaged, mut groups, mut files) = (Vec::new(), 0, 0);
    for def in recording.list_tables() {
        let damage_of_files = recording.table_files(def).and_then(|tables| {
            files += tables.len();
            tables.iter().map(damaged_groups).collect::<Result<Vec<_>>>()
        });
        match damage_of_files {
            Ok(damage_of_files) => {
                for (group_count, wrong) in damage_of_files {
                    groups += group_count;
                    damaged.extend(wrong);
                }
            }
            Err(error) => damaged.push(format!("{error:#}")),
        }
    }
    let left_out = recording.left_out().iter().filter(|skipped| skipped.is_damaged);
    damaged.extend(left_out.map(|skipped| skipped.why.clone()));
    damage_outcome(damaged, || {
        let noun = if recording.is_rollup() { "file" } else { "table" };
        format!("{} of {}", count_noun(groups, "row group"), count_noun(files, noun))
    })
}

/// Number of row groups of a file, and the damaged ones.
fn damaged_groups(table: &TableFile) -> Result<(usize, Vec<String>)> {
    let rows = table.group_rows();
    let mut wrong = Vec::new();
    for group in table.damaged_groups()? {
        let first_row: i64 = rows.iter().take(group).sum();
        let end = first_row + rows.get(group).copied().unwrap_or(0);
        wrong.push(format!(
            "row group {group} (rows {first_row} to {end}) of {} is damaged",
            table.file_path().display()
        ));
    }
    Ok((table.row_groups(), wrong))
}

/// Every file of a roll-up is where its host, cluster and hour say; `None` for another recording.
pub(super) fn verify_places(recording: &Recording) -> Option<CheckOutcome> {
    if !recording.is_rollup() {
        return None;
    }
    let wrong = recording.left_out().iter().filter(|skipped| !skipped.is_damaged);
    let wrong =
        wrong.map(|skipped| format!("{}: {}", skipped.path.display(), skipped.why)).collect();
    let files = recording.table_files(&fabric::TABLE).map_or(0, |files| files.len());
    Some(damage_outcome(wrong, || count_noun(files, "file")))
}

/// Every listed table exists and belongs to this recording.
pub(super) fn verify_tables(recording: &Recording) -> CheckOutcome {
    if !recording.is_dataset() {
        let alone = if recording.is_rollup() { "a roll-up" } else { "a single file" };
        return CheckOutcome::Ok(alone.to_owned());
    }
    match Manifest::read_dataset(recording) {
        Ok(Some(manifest)) => {
            let listed = manifest.list_tables().count() + 1;
            damage_outcome(manifest.find_problems(recording), || format!("{listed} tables"))
        }
        Ok(None) => {
            CheckOutcome::NotVerifiable("fabric.parquet does not list the tables".to_owned())
        }
        Err(error) => CheckOutcome::Failed(format!("{error:#}")),
    }
}

fn damage_outcome(mut wrong: Vec<String>, sound: impl FnOnce() -> String) -> CheckOutcome {
    if wrong.is_empty() {
        return CheckOutcome::Ok(sound());
    }
    let hidden_count = wrong.len().saturating_sub(NAMED);
    wrong.truncate(NAMED);
    let hidden_text =
        if hidden_count > 0 { format!(", and {hidden_count} more") } else { String::new() };
    CheckOutcome::Failed(format!("{}{hidden_text}", wrong.join(", ")))
}
