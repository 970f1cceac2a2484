//! The files of a roll-up below a directory, finished or not.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::layout::{self, FILE, Partition};
use super::{disk, sealed};

/// Suffix of the name of an unfinished file.
pub(super) const PARTIAL: &str = ".parquet.partial";

/// All paths in the partitions below `root` with this suffix, sorted.
pub(super) fn list_files(root: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for dir in &list_host_dirs(root)? {
        paths
            .extend(list_entries(dir, |name, _| name.ends_with(suffix) && !name.starts_with('.'))?);
    }
    paths.sort();
    Ok(paths)
}

/// Files of a roll-up, and what lies among them.
#[derive(Debug, Default)]
pub(super) struct HourTree {
    /// Each is one path, or of an hour that is written those of what is sealed.
    pub(super) files: Vec<(Partition, Vec<PathBuf>)>,
    /// What has the name of a file or a directory of a roll-up, and is not where those are; with
    /// the partition that it lies in.
    pub(super) misplaced: Vec<(Partition, PathBuf)>,
}

impl HourTree {
    /// The files at `dir`, which may be the directory of all, of a cluster, day, hour or host. Of
    /// partitions that `wanted` refuses nothing is read.
    ///
    /// # Errors
    ///
    /// A directory cannot be read.
    pub(super) fn read_tree(
        dir: &Path,
        wanted: &mut dyn FnMut(&Partition) -> bool,
    ) -> Result<Self> {
        // `.` may be the directory of an hour.
        let partition = Partition::from_path(&disk::with_action("read", dir, dir.canonicalize())?);
        let mut tree = Self::default();
        tree.read_directory(dir, &partition, wanted)?;
        tree.files.sort_by(|a, b| a.1.cmp(&b.1));
        tree.misplaced.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(tree)
    }

    fn read_directory(
        &mut self,
        dir: &Path,
        partition: &Partition,
        wanted: &mut dyn FnMut(&Partition) -> bool,
    ) -> Result<()> {
        let (mut partial, mut inner_dirs) = (Vec::new(), Vec::new());
        let listed = list_entries(dir, |name, is_dir| {
            let is_file = name.ends_with(FILE) || is_dir && name.ends_with(PARTIAL);
            !name.starts_with('.') && (is_file || is_dir && layout::has_key(name))
        })?;
        let first_file = self.files.len();
        for path in listed {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // A part of a bucket may have been copied without the directories above it.
            let is_above_all = partition.key_depth() == 0;
            let inner = partition
                .child_partition(name)
                .or_else(|| is_above_all.then(|| Partition::from_path(Path::new(name))))
                .filter(|inner| inner.key_depth() > 0 && path.is_dir());
            if let Some(inner) = inner {
                inner_dirs.push((path, inner));
            } else if !partition.has_files() {
                self.misplaced.push((partition.clone(), path));
            } else if layout::is_file(name) && path.is_file() {
                self.files.push((partition.clone(), vec![path]));
            } else if name.strip_suffix(".partial").is_some_and(layout::is_file) {
                partial.push(path);
            } else {
                self.misplaced.push((partition.clone(), path));
            }
        }
        for path in partial {
            // A file that is about to lose its partial directory has both names.
            let file = path.with_extension("");
            if !self.files[first_file..].iter().any(|(_, paths)| paths.contains(&file)) {
                self.files.push((partition.clone(), sealed::sealed_files(&path)?));
            }
        }
        for (path, inner) in inner_dirs {
            if wanted(&inner) {
                self.read_directory(&path, &inner, wanted)?;
            }
        }
        Ok(())
    }
}

/// The directories of all hosts' hours.
pub(super) fn list_host_dirs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![(root.to_owned(), Partition::default())];
    for _ in layout::KEYS {
        let mut inner_dirs = Vec::new();
        for (dir, partition) in &dirs {
            let is_partition =
                |name: &str, is_dir: bool| is_dir && partition.child_partition(name).is_some();
            inner_dirs.extend(list_entries(dir, is_partition)?.into_iter().filter_map(|path| {
                let inner = partition.child_partition(path.file_name()?.to_str()?)?;
                Some((path, inner))
            }));
        }
        dirs = inner_dirs;
    }
    Ok(dirs.into_iter().map(|(dir, _)| dir).collect())
}

/// The selected entries of a directory, without symbolic links.
fn list_entries(dir: &Path, wanted: impl Fn(&str, bool) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in disk::list_entries(dir)? {
        let file_type = disk::with_action("look at", &entry.path(), entry.file_type())?;
        let is_wanted = |name: &str| !file_type.is_symlink() && wanted(name, file_type.is_dir());
        if entry.file_name().to_str().is_some_and(is_wanted) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}
