//! What the metrics say of disks, and of files that wait for the object store.

use std::path::Path;
use std::time::UNIX_EPOCH;

use super::metrics::{AgentDisk, Unsent};
use crate::config::Config;
use crate::tables::hour_upkeep;

/// The file systems of the ring and the roll-up that can be read.
pub(super) fn read_disks(config: &Config) -> Vec<AgentDisk> {
    let ring = config.ring.as_ref().map(|ring| ("ring", &ring.directory));
    ring.into_iter()
        .chain(config.rollup.as_ref().map(|rollup| ("rollup", &rollup.directory)))
        .filter_map(|(content, directory)| read_disk(content, directory))
        .collect()
}

/// The size of a file system and its free space, if it can be read.
pub(super) fn read_disk(content: &'static str, directory: &Path) -> Option<AgentDisk> {
    let file_system = rustix::fs::statvfs(directory).ok()?;
    let block_bytes = |blocks: u64| blocks.saturating_mul(file_system.f_frsize);
    Some(AgentDisk {
        content,
        free_bytes: block_bytes(file_system.f_bavail),
        size_bytes: block_bytes(file_system.f_blocks),
    })
}

/// The files of the roll-up that wait for the object store, if there is one.
pub(super) fn read_unsent(config: &Config) -> Option<Unsent> {
    config.upload.as_ref()?;
    let files = hour_upkeep::unsent(&config.rollup.as_ref()?.directory).ok()?;
    let modified =
        files.iter().filter_map(|file| file.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    Some(Unsent {
        files: files.len() as u64,
        bytes: files.iter().map(std::fs::Metadata::len).sum(),
        oldest_s: modified.min().map(|time| time.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tables::upload_journal;

    #[test]
    fn files_wait_until_the_journal_has_them() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().display();
        let text = format!("[rollup]\ndirectory = '{root}'\n[upload]\nurl = 's3://b/p'\n");
        let config = Config::parse(&text).unwrap();
        assert_eq!(read_unsent(&config), Some(Unsent::default()));
        let hour = "cluster=c/date=2026-01-01/hour=00/host=h";
        fs::create_dir_all(place.path().join(hour)).unwrap();
        for (name, bytes) in [("a", 10), ("b", 20)] {
            fs::write(place.path().join(format!("{hour}/{name}.parquet")), vec![0; bytes]).unwrap();
        }
        let both = read_unsent(&config).unwrap();
        assert_eq!((both.files, both.bytes), (2, 30));
        assert!(both.oldest_s.is_some_and(|time| time > 1.7e9));
        let name = format!("{hour}/a.parquet");
        let stamp =
            upload_journal::Stamp::from_metadata(&fs::metadata(place.path().join(&name)).unwrap());
        let journal = format!("1\n{}", upload_journal::line(&name, stamp));
        fs::write(place.path().join(upload_journal::JOURNAL), journal).unwrap();
        let one = read_unsent(&config).unwrap();
        assert_eq!((one.files, one.bytes), (1, 20));
        assert_eq!(read_unsent(&Config::parse("[rollup]\n").unwrap()), None);
        let disks = read_disks(&config);
        assert!(disks.len() == 1 && disks[0].free_bytes <= disks[0].size_bytes, "{disks:?}");
    }
}
