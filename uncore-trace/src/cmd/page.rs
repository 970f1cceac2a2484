//! `--html`: writes a page for a browser.

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use super::output::print;
use crate::schema::fabric;
use crate::tables::file::TableFile;
use crate::tables::mode::FileMode;
use crate::tables::output::{CommandOutput, Content};
use crate::tables::reader::Recording;
use crate::text::printable_path;
use crate::units;

/// Writes the page that `write` makes of `recordings`, and prints its size. It is readable by those
/// who can read all of the recordings.
pub(super) fn save_page(
    recordings: &[&Recording],
    file: &Path,
    overwrite: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let mut files = Vec::new();
    for recording in recordings {
        files.extend(recording.table_files(&fabric::TABLE)?);
    }
    let mode =
        files.iter().map(TableFile::file_mode).reduce(FileMode::common_mode).unwrap_or_default();
    let paths: Vec<&Path> = recordings.iter().map(|recording| recording.recording_path()).collect();
    let mut output = CommandOutput::create(file, Content::Text, &paths, overwrite, mode)?;
    write(&mut output).map_err(|error| output.explain_error(error))?;
    output.finish_writing()?;
    output.publish()?;
    if output.is_stdout() {
        return Ok(());
    }
    let size = units::human(output.written_bytes() as f64, "bytes");
    print(&format!("{}: {size}\n", printable_path(file)))
}
