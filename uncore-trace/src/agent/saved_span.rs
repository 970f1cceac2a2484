//! Saves the time span of a trigger from the ring as one recording.
//!
//! The parts of the ring that overlap the span are hard-linked first, so that the ring can remove
//! its own names of them. Then a thread of the lowest priority copies the span out of them
//! ([`crate::cut`]). Parts that cannot be joined, because the disk was full between them, are saved
//! separately. Guarantees: a directory gets its name only when it is complete; the quota of a
//! trigger holds, and its recordings make room for no other trigger's; a trigger's name cannot lead
//! out of the directory.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, Metadata};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow, ensure};
use jiff::Timestamp;

use crate::cut::WantedTime;
use crate::tables::mode::FileMode;
use crate::tables::reader::Recording;
use crate::tables::writer::CreateOptions;
use crate::tables::{hours, series};
use crate::{cut, priority};

/// Suffix of directories that are not complete yet.
const UNFINISHED: &str = ".tmp";

/// Format of the time that names of saved recordings begin with. The agent removes only directories
/// with such names: the parent directory may hold files of others.
const TIME: &str = "%Y%m%dT%H%M%SZ";
const STAMP: &str = "00000000T000000Z-";

/// Separates a number from the name of a trigger, which cannot contain it.
const NUMBERED: char = '~';

/// A time span to save, and where.
#[derive(Debug, Clone)]
pub(super) struct SpanToSave {
    pub ring: PathBuf,
    pub kept: PathBuf,
    /// Id of the boot to which the times belong.
    pub boot_id: String,
    /// Name of the trigger.
    pub name: String,
    /// Begin and end of the span, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// Permissions of the files.
    pub mode: FileMode,
    /// Most bytes of the saved recordings of this trigger.
    pub quota: u64,
    /// Names of all triggers.
    pub names: Vec<String>,
}

/// A time span that is being saved.
#[derive(Debug)]
pub(super) struct SavingSpan {
    pub name: String,
    thread: JoinHandle<Result<PathBuf>>,
}

impl SavingSpan {
    /// Links the parts and starts the thread that copies.
    ///
    /// # Errors
    ///
    /// No part of the ring overlaps the span, or the parts cannot be linked.
    pub(super) fn start_saving(wish: SpanToSave) -> Result<Self> {
        let ring_parts =
            series::parts_within(&wish.ring, &wish.boot_id, wish.begin_ns..=wish.end_ns)?;
        ensure!(!ring_parts.is_empty(), "no finished part of the ring covers that time");
        let name = wish.name.clone();
        let stem = format!("{}-{name}", Timestamp::now().strftime(TIME));
        let linked = wish.ring.join(format!(".{stem}{UNFINISHED}"));
        if let Err(error) = link_parts(&ring_parts, &linked, wish.mode) {
            // Only the first error is reported.
            fs::remove_dir_all(&linked).ok();
            return Err(error);
        }
        let thread = std::thread::Builder::new()
            .name("keep".to_owned())
            .spawn(move || {
                priority::yield_to_others();
                let kept = save_span(&wish, &linked, &stem);
                fs::remove_dir_all(&linked).ok();
                kept
            })
            .context("cannot start the thread that saves the ring")?;
        Ok(Self { name, thread })
    }

    /// Whether the thread has ended, so that [`SavingSpan::join_saving`] does not block.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread. Returns the directory of the saved recording.
    ///
    /// # Errors
    ///
    /// The recording is larger than the quota, or cannot be written.
    pub(super) fn join_saving(self) -> Result<PathBuf> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that saves the ring ended early")))
    }
}

/// Saves the span from the linked parts, then removes older recordings beyond the quota.
fn save_span(wish: &SpanToSave, linked: &Path, stem: &str) -> Result<PathBuf> {
    let SpanToSave { kept, mode, quota, .. } = wish;
    hours::make_directories(kept, *mode)?;
    let hidden = kept.join(format!(".{stem}{UNFINISHED}"));
    let final_path = vacant_path(kept, stem);
    let written = join_parts(wish, linked, &hidden).or_else(|error| {
        log::warn!(
            "trigger {}: saved as separate parts, because they cannot be joined: {error:#}",
            wish.name
        );
        fs::remove_dir_all(&hidden).ok();
        ensure_within_quota(*quota, linked)?;
        link_parts(&list_parts(linked)?, &hidden, *mode)
    });
    let named = written.and_then(|()| {
        ensure_within_quota(*quota, &hidden)?;
        fs::rename(&hidden, &final_path)
            .with_context(|| format!("cannot name {}", final_path.display()))
    });
    if named.is_err() {
        fs::remove_dir_all(&hidden).ok();
    }
    named?;
    trim_kept(kept, *quota, &final_path, &wish.names)?;
    Ok(final_path)
}

/// Refuses a directory that is larger than the quota.
fn ensure_within_quota(quota: u64, dir: &Path) -> Result<()> {
    let bytes = series::tree_size(dir);
    ensure!(
        bytes <= quota,
        "the recording has {bytes} bytes, more than kept.quota: choose a larger quota or a \
         shorter time"
    );
    Ok(())
}

/// Joins the span of all linked parts in one recording.
fn join_parts(wish: &SpanToSave, linked: &Path, target: &Path) -> Result<()> {
    let recordings: Result<Vec<Recording>> =
        list_parts(linked)?.iter().map(|part_path| Recording::open(part_path)).collect();
    let create = CreateOptions { mode: wish.mode, ..CreateOptions::default() };
    let wanted = WantedTime { from_ns: Some(wish.begin_ns), to_ns: Some(wish.end_ns) };
    cut::cut_recordings(&recordings?, wanted, target, create).map(drop)
}

fn list_parts(linked: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(linked);
    let entries = entries.with_context(|| format!("cannot read {}", linked.display()))?;
    let mut part_paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    part_paths.sort();
    Ok(part_paths)
}

/// Removes unfinished directories of an agent that was killed while it saved.
pub(super) fn remove_unfinished(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let stem = name
            .to_str()
            .and_then(|entry_name| entry_name.strip_prefix('.')?.strip_suffix(UNFINISHED));
        if stem.is_some_and(is_own)
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            log::warn!(
                "cannot remove {}, which an earlier agent left: {error}",
                entry.path().display()
            );
        }
    }
}

fn link_parts(part_paths: &[PathBuf], dir: &Path, mode: FileMode) -> Result<()> {
    hours::make_directories(dir, mode)?;
    for part_path in part_paths {
        let name = part_path
            .file_name()
            .with_context(|| format!("{} has no name", part_path.display()))?;
        let linked_part = dir.join(name);
        hours::make_directories(&linked_part, mode)?;
        let cannot_read = || format!("cannot read {}", part_path.display());
        for entry in fs::read_dir(part_path).with_context(cannot_read)? {
            let original = entry.with_context(cannot_read)?.path();
            let linked_file = linked_part.join(original.file_name().unwrap_or_default());
            // Hard links do not cross file systems.
            let linked = fs::hard_link(&original, &linked_file)
                .or_else(|_| fs::copy(&original, &linked_file).map(drop));
            linked.with_context(|| format!("cannot keep {}", original.display()))?;
        }
    }
    Ok(())
}

/// Removes the oldest recordings of the trigger of `newest`, but never that, until they have at
/// most `quota` bytes; likewise those of all triggers that are no longer there, which share one
/// quota.
fn trim_kept(kept: &Path, quota: u64, newest: &Path, names: &[String]) -> Result<()> {
    let entries = fs::read_dir(kept).with_context(|| format!("cannot read {}", kept.display()))?;
    let current = newest.file_name().and_then(trigger_of);
    let own_recording = |entry: DirEntry| {
        let metadata = entry.metadata().ok().filter(Metadata::is_dir)?;
        let name = entry.file_name();
        let trigger = trigger_of(&name)?;
        let is_gone = !names.iter().any(|name| name == trigger);
        (is_gone || current == Some(trigger))
            .then(|| (is_gone, metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path()))
    };
    let mut dirs: Vec<(bool, SystemTime, PathBuf)> =
        entries.flatten().filter_map(own_recording).collect();
    dirs.sort();
    for dirs in dirs.chunk_by(|(is_gone, ..), (is_next_gone, ..)| is_gone == is_next_gone) {
        let mut bytes: u64 = dirs.iter().map(|(.., dir)| series::tree_size(dir)).sum();
        for (.., dir) in dirs.iter().filter(|(.., dir)| dir.as_path() != newest) {
            if bytes <= quota {
                break;
            }
            bytes = bytes.saturating_sub(series::tree_size(dir));
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Whether the name is one that an agent gives to saved recordings.
fn is_own(name: &str) -> bool {
    let stamp = name.get(..STAMP.len()).unwrap_or_default();
    let shape = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    shape.eq(STAMP.chars())
}

/// The trigger in the name of a saved recording.
fn trigger_of(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let trigger_and_number = is_own(name).then(|| name.get(STAMP.len()..)).flatten()?;
    Some(trigger_and_number.split_once(NUMBERED).map_or(trigger_and_number, |(trigger, _)| trigger))
}

/// The name, with a number appended if it is taken.
fn vacant_path(dir: &Path, name: &str) -> PathBuf {
    let numbered = (1..).map(|number| dir.join(format!("{name}{NUMBERED}{number}")));
    let mut names = std::iter::once(dir.join(name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| dir.join(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    fn names(dir: &Path) -> BTreeSet<String> {
        let name = |entry: DirEntry| entry.file_name().into_string().unwrap();
        fs::read_dir(dir).unwrap().map(|entry| name(entry.unwrap())).collect()
    }

    /// A directory of 1000 bytes that was made this many hours ago.
    fn dir(place: &Path, name: &str, hours: u64) -> PathBuf {
        let path = place.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("x"), [0; 1000]).unwrap();
        let time = SystemTime::now() - Duration::from_hours(hours);
        File::open(&path).unwrap().set_modified(time).unwrap();
        path
    }

    #[test]
    fn only_the_oldest_kept_directory_makes_room() {
        let place = tempfile::tempdir().unwrap();
        // By its name it is the oldest, as after the clock was set back.
        let made_dir = dir(place.path(), "20200101T000000Z-a", 0);
        dir(place.path(), "20250101T000000Z-a", 3);
        dir(place.path(), "20240101T000000Z-a", 2);
        let others = ["00000001", "cluster=c", "20250101", "20250101T000000Z", "lost+found"];
        for name in others {
            dir(place.path(), name, 9);
        }
        fs::write(place.path().join("20230101T000000Z-file"), [0; 1000]).unwrap();
        let triggers = ["a".to_owned()];
        trim_kept(place.path(), 2500, &made_dir, &triggers).unwrap();
        let left = |kept: &[&str]| {
            let all = kept.iter().chain(&others).chain(&["20230101T000000Z-file"]);
            all.map(|name| (*name).to_owned()).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(place.path()), left(&["20200101T000000Z-a", "20240101T000000Z-a"]));
        trim_kept(place.path(), 10, &made_dir, &triggers).unwrap();
        assert_eq!(names(place.path()), left(&["20200101T000000Z-a"]));
    }

    #[test]
    fn a_trigger_that_fires_often_removes_nothing_of_another() {
        let place = tempfile::tempdir().unwrap();
        let stamp = |day: u32| format!("202501{day:02}T000000Z");
        let incident = format!("{}-incident", stamp(1));
        dir(place.path(), &incident, 99);
        dir(place.path(), &format!("{}-faults.1", stamp(2)), 98);
        let gone = [3, 4].map(|day| format!("{}-gone{day}", stamp(day)));
        gone.iter().zip([97, 96]).for_each(|(name, hours)| drop(dir(place.path(), name, hours)));
        let triggers = ["incident", "faults", "faults.1"].map(str::to_owned);
        let mut made = PathBuf::new();
        for day in 5..15 {
            let name = format!("{}-faults", stamp(day));
            made = dir(place.path(), &name, u64::from(30 - day));
            trim_kept(place.path(), 1500, &made, &triggers).unwrap();
        }
        let again = vacant_path(place.path(), made.file_name().unwrap().to_str().unwrap());
        assert_eq!(again.file_name().and_then(trigger_of), Some("faults"));
        // What is of no trigger any more shares one quota.
        let left = [incident, format!("{}-faults.1", stamp(2)), gone[1].clone()];
        let last = format!("{}-faults", stamp(14));
        assert_eq!(names(place.path()), left.into_iter().chain([last]).collect());
    }

    #[test]
    fn only_unfinished_directories_of_an_agent_are_removed() {
        let place = tempfile::tempdir().unwrap();
        for name in [".20250101T000000Z-a.tmp", ".other.tmp", ".20250101T000000Z-a", "b.tmp"] {
            dir(place.path(), name, 0);
        }
        remove_unfinished(place.path());
        let left = [".20250101T000000Z-a", ".other.tmp", "b.tmp"].map(str::to_owned);
        assert_eq!(names(place.path()), left.into());
    }
}
