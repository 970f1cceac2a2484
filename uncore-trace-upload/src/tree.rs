//! The complete files of the roll-up directory.
//!
//! Guarantees: only regular files of the [layout] are found, opened and removed. Below the
//! directory no symbolic link is followed, so that a user who can write there cannot make the
//! upload send or remove other files.

use std::fs::{self, DirEntry, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use jiff::civil;
use jiff::tz::TimeZone;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use uncore_trace_recording::tables::layout::{self, Partition};
use uncore_trace_recording::tables::upload_journal::Stamp;

const HOUR: Duration = Duration::from_hours(1);

/// How long after the end of an hour the agent may still write into it. Its last windows are some
/// seconds late.
const LATE: Duration = Duration::from_mins(10);

/// A complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompleteFile {
    /// Its path below the directory, which is also the name of its object.
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
}

impl CompleteFile {
    /// Date and hour, for sorting: `date=YYYY-MM-DD/hour=HH`.
    fn date_and_hour(&self) -> &str {
        let below = self.name.split_once('/').map_or("", |(_, path)| path);
        let end = below.match_indices('/').nth(1).map_or(0, |(index, _)| index);
        below.get(..end).unwrap_or_default()
    }

    /// Whether the agent writes no more windows into its hour.
    pub(crate) fn is_of_the_past(&self, current_time: SystemTime) -> bool {
        let end = civil::DateTime::strptime("date=%Y-%m-%d/hour=%H", self.date_and_hour())
            .and_then(|begin| begin.to_zoned(TimeZone::UTC))
            .map(|begin| SystemTime::from(begin.timestamp()) + HOUR + LATE);
        // The agent does not write into an invalid date.
        end.map_or(true, |end| current_time >= end)
    }
}

/// The roll-up directory.
#[derive(Debug)]
pub(crate) struct RollupTree {
    path: PathBuf,
}

impl RollupTree {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// All complete files, the oldest hour first.
    pub(crate) fn scan_files(&self) -> Result<Vec<CompleteFile>> {
        let top = fs::read_dir(&self.path);
        let top = top.with_context(|| format!("cannot read {}", self.path.display()))?;
        let mut directories = directories_in(top, "", &Partition::default());
        for _ in 1..layout::KEYS.len() {
            let below = |(name, partition): &(String, Partition)| {
                directories_in(read_entries(&self.path, name), &format!("{name}/"), partition)
            };
            directories = directories.iter().flat_map(below).collect();
        }
        let mut complete_files = Vec::new();
        for (name, _) in directories {
            collect_files(&self.path, &name, &mut complete_files);
        }
        complete_files.sort_by(|a, b| {
            let key =
                |file: &CompleteFile| (file.date_and_hour().to_owned(), file.stamp.modified_ns);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        Ok(complete_files)
    }

    /// The content of the file.
    ///
    /// # Errors
    ///
    /// It cannot be read, has been replaced, or changes during the read.
    pub(crate) fn read_file(&self, complete_file: &CompleteFile) -> io::Result<Vec<u8>> {
        let (parent, name) = self.open_parent(&complete_file.name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, name, flags, Mode::empty())?);
        let changed_error = || io::Error::other("it has changed since it was found");
        if !file.metadata()?.is_file()
            || Stamp::from_metadata(&file.metadata()?) != complete_file.stamp
        {
            return Err(changed_error());
        }
        let mut bytes = Vec::with_capacity(complete_file.stamp.size as usize);
        // A file that grows meanwhile is not read to its end.
        file.by_ref().take(complete_file.stamp.size.saturating_add(1)).read_to_end(&mut bytes)?;
        // A complete file never changes.
        if Stamp::from_metadata(&file.metadata()?) != complete_file.stamp
            || bytes.len() as u64 != complete_file.stamp.size
        {
            return Err(changed_error());
        }
        Ok(bytes)
    }

    /// Removes the file, unless it has been replaced. Succeeds if it no longer exists.
    pub(crate) fn remove_file(&self, complete_file: &CompleteFile) -> io::Result<()> {
        let removed = self.open_parent(&complete_file.name).and_then(|(parent, name)| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let metadata = File::from(openat(&parent, name, flags, Mode::empty())?).metadata()?;
            if Stamp::from_metadata(&metadata) == complete_file.stamp {
                unlinkat(&parent, name, AtFlags::empty())?;
            }
            Ok(())
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The directory of a file, opened without following links, and the name of the file in it.
    fn open_parent<'a>(&self, name: &'a str) -> io::Result<(File, &'a str)> {
        let mut directory = File::open(&self.path)?;
        let (above, name) = name.rsplit_once('/').unwrap_or(("", name));
        for step in above.split('/') {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            directory = File::from(openat(&directory, step, flags, Mode::empty())?);
        }
        Ok((directory, name))
    }
}

/// The entries of a directory below `root`; none if the agent has removed it.
fn read_entries(root: &Path, below: &str) -> impl Iterator<Item = io::Result<DirEntry>> + use<> {
    let entries = fs::read_dir(root.join(below));
    if let Err(error) = &entries
        && error.kind() != io::ErrorKind::NotFound
    {
        log::warn!("cannot read {}: {error}; its files are not sent", root.join(below).display());
    }
    entries.into_iter().flatten()
}

/// The entries that are directories of the layout, not links to them, and their names below the
/// root.
fn directories_in(
    entries: impl Iterator<Item = io::Result<DirEntry>>,
    above: &str,
    partition: &Partition,
) -> Vec<(String, Partition)> {
    let named_partition = |entry: io::Result<DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let below = partition.child_partition(&name)?;
        let is_directory = entry.file_type().is_ok_and(|file_type| file_type.is_dir());
        is_directory.then(|| (format!("{above}{name}"), below))
    };
    entries.filter_map(named_partition).collect()
}

/// Adds the complete files of a host's hour.
fn collect_files(root: &Path, directory: &str, complete_files: &mut Vec<CompleteFile>) {
    for entry in read_entries(root, directory).flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !layout::is_file(&name) {
            continue;
        }
        // The metadata of the entry itself: links are not followed.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let name = format!("{directory}/{name}");
            complete_files.push(CompleteFile { name, stamp: Stamp::from_metadata(&metadata) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn only_complete_files_of_the_layout_are_found_the_oldest_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let host = "cluster=a/date=2026-01-31/hour=07/host=h";
        put(root, &format!("{host}/12345678_2.parquet"), "22");
        put(root, "cluster=b%20c/date=2026-01-31/hour=06/host=h/12345678_1.parquet", "1");
        put(root, "cluster=a/date=2026-02-01/hour=00/host=h%2F1/12345678_3.parquet", "333");
        for foreign_path in [
            ".12345678_1.parquet",
            "1_1.parquet.tmp",
            "1_1.parquet.partial/00001.parquet",
            "1_1.txt",
            "h_1_1.parquet",
            "1_1\u{1b}.parquet",
            "sub/1_1.parquet",
            "host=h/1_1.parquet",
        ] {
            put(root, &format!("{host}/{foreign_path}"), "x");
        }
        for foreign_path in [
            "cluster=a/date=2026-01-31/hour=24/host=h/1_1.parquet",
            "cluster=a/date=2026-1-31/hour=07/host=h/1_1.parquet",
            "cluster=/date=2026-01-31/hour=07/host=h/1_1.parquet",
            "cluster=a/date=2026-01-31/hour=07/host=%68/1_1.parquet",
            "cluster=a/date=2026-01-31/hour=07/1_1.parquet",
            "cluster=a/date=2026-01-31/host=h/1_1.parquet",
            "other=a/date=2026-01-31/hour=07/host=h/1_1.parquet",
            "1_1.parquet",
        ] {
            put(root, foreign_path, "x");
        }
        put(root, "elsewhere/h.parquet", "x");
        symlink(root.join("elsewhere/h.parquet"), root.join(host).join("1_9.parquet")).unwrap();
        symlink(root.join("elsewhere"), root.join("cluster=a/date=2026-01-31/hour=07/host=i"))
            .unwrap();
        let complete_files = RollupTree::new(root).scan_files().unwrap();
        let names: Vec<&str> =
            complete_files.iter().map(|complete_file| complete_file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "cluster=b%20c/date=2026-01-31/hour=06/host=h/12345678_1.parquet",
                "cluster=a/date=2026-01-31/hour=07/host=h/12345678_2.parquet",
                "cluster=a/date=2026-02-01/hour=00/host=h%2F1/12345678_3.parquet",
            ]
        );
        assert_eq!(complete_files[2].stamp.size, 3);
    }

    #[test]
    fn an_hour_is_of_the_past_ten_minutes_after_its_end() {
        let file_of_hour = |hour: &str| CompleteFile {
            name: format!("cluster=a/{hour}/host=h/1_1.parquet"),
            stamp: Stamp { size: 0, modified_ns: 0 },
        };
        // 2026-01-31T07:00:00Z, in s since 1970.
        let begin = 1_769_842_800;
        for (minutes, is_past) in [(0, false), (69, false), (70, true), (10_000, true)] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(begin + minutes * 60);
            let hour = file_of_hour("date=2026-01-31/hour=07");
            assert_eq!(hour.is_of_the_past(now), is_past, "{minutes}");
            assert!(file_of_hour("date=2026-02-31/hour=07").is_of_the_past(now));
        }
    }

    /// After the scan, the file or its directory is replaced by a link.
    #[test]
    fn no_link_is_followed_to_read_or_remove() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let name = "cluster=a/date=2026-01-31/hour=07/host=h/1_1.parquet";
        put(&root, name, "own");
        put(dir.path(), "other/1_1.parquet", "own");
        let tree = RollupTree::new(&root);
        let complete_file = tree.scan_files().unwrap().remove(0);
        assert_eq!(tree.read_file(&complete_file).unwrap(), b"own");
        fs::remove_file(root.join(name)).unwrap();
        symlink(dir.path().join("other/1_1.parquet"), root.join(name)).unwrap();
        tree.read_file(&complete_file).unwrap_err();
        tree.remove_file(&complete_file).unwrap();
        assert!(root.join(name).is_symlink());
        let host = root.join(name).parent().unwrap().to_owned();
        fs::remove_dir_all(&host).unwrap();
        symlink(dir.path().join("other"), &host).unwrap();
        tree.read_file(&complete_file).unwrap_err();
        tree.remove_file(&complete_file).unwrap_err();
        assert!(dir.path().join("other/1_1.parquet").exists());
    }

    #[test]
    fn a_file_that_is_another_one_by_now_is_neither_read_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name = "cluster=a/date=2026-01-31/hour=07/host=h/1_1.parquet";
        put(dir.path(), name, "first");
        let tree = RollupTree::new(dir.path());
        let complete_file = tree.scan_files().unwrap().remove(0);
        put(dir.path(), name, "the second");
        tree.read_file(&complete_file).unwrap_err();
        tree.remove_file(&complete_file).unwrap();
        assert!(dir.path().join(name).exists());
        let complete_file = tree.scan_files().unwrap().remove(0);
        tree.remove_file(&complete_file).unwrap();
        assert!(!dir.path().join(name).exists());
        tree.remove_file(&complete_file).unwrap();
    }
}
