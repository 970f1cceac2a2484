//! The CPUs that are online, as the kernel lists them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::str;

use anyhow::{Context as _, Result};

use crate::bounds;
use crate::discover::CpuList;

/// The kernel's list of online CPUs, kept open. A recorder reads it ten to twenty times a second;
/// opening and reading it takes five times as long as reading it (117 and 23 us on an idle virtual
/// machine).
#[derive(Debug)]
pub struct OnlineCpus {
    path: PathBuf,
    file: File,
    text: Vec<u8>,
    cpus: Vec<u32>,
}

impl OnlineCpus {
    /// Opens the list of the machine whose sysfs is under `root`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join("sys/devices/system/cpu/online");
        let file = bounds::open_regular(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { path, file, text: Vec::new(), cpus: Vec::new() })
    }

    /// The CPUs that are online now.
    ///
    /// # Errors
    ///
    /// The list cannot be read, or is not a list of CPUs.
    pub fn read_cpus(&mut self) -> Result<&[u32]> {
        // A file of sysfs is generated anew when it is read from its begin, and has at most one
        // page of the kernel (`kernfs_fop_read_iter`, fs/kernfs/file.c, and `seq_read_iter`,
        // fs/seq_file.c, Linux 6.18). That may be more than one read here returns.
        let (mut text, mut page) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.file.read_at(&mut page, text.len() as u64);
            let read = read.with_context(|| format!("cannot read {}", self.path.display()))?;
            text.extend_from_slice(page.get(..read).unwrap_or_default());
            if read < page.len() {
                break;
            }
        }
        if text != self.text {
            let list = str::from_utf8(&text).map_err(anyhow::Error::new);
            let list: Result<CpuList> = list.and_then(|list| list.trim().parse());
            let list =
                list.with_context(|| format!("cannot understand {}", self.path.display()))?;
            self.cpus = list.iter().collect();
            self.text = text;
        }
        Ok(&self.cpus)
    }
}

/// The CPUs that are online, of the machine whose sysfs is under `root`.
///
/// # Errors
///
/// Those of [`OnlineCpus::open`] and [`OnlineCpus::read_cpus`].
pub fn online_cpus(root: &Path) -> Result<Vec<u32>> {
    OnlineCpus::open(root)?.read_cpus().map(<[u32]>::to_vec)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_reading_of_the_online_cpus_is_current() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("online"), "0-2\n").unwrap();
        let mut online = OnlineCpus::open(root.path()).unwrap();
        assert_eq!(online.read_cpus().unwrap(), [0, 1, 2]);
        assert_eq!(online.read_cpus().unwrap(), [0, 1, 2]);
        fs::write(dir.join("online"), "0,2\n").unwrap();
        assert_eq!(online.read_cpus().unwrap(), [0, 2]);
        let even: Vec<u32> = (0..4096).step_by(2).collect();
        let list: Vec<String> = even.iter().map(u32::to_string).collect();
        fs::write(dir.join("online"), format!("{}\n", list.join(","))).unwrap();
        assert_eq!(online.read_cpus().unwrap(), even);
        fs::write(dir.join("online"), "0-\n").unwrap();
        let error = format!("{:#}", online.read_cpus().unwrap_err());
        assert!(error.contains("cannot understand") && error.contains("cpu/online"), "{error}");
    }

    #[test]
    fn a_machine_without_the_list_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let error = format!("{:#}", online_cpus(root.path()).unwrap_err());
        assert!(error.contains("cannot open") && error.contains("cpu/online"), "{error}");
    }
}
