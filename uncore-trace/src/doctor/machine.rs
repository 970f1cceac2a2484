//! Reading the machine under a root directory.
//!
//! Every check reads through [`ExaminedMachine`], so that reads are bounded in size, tolerate bytes
//! that are not UTF-8, and come from one tree.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::privileges;
use super::program::Program;
use crate::bounds;
use crate::catalog::Catalog;
use crate::discover;
use crate::discover::mounts::MountTable;
use crate::open::Privileges;

/// The kernel's own type information.
pub(super) const BTF: &str = "sys/kernel/btf/vmlinux";

/// Most bytes of the kernel's own type information: 4 to 8 MiB on
/// distribution kernels, up to about 20 MiB with modules built in.
const LIMIT: u64 = 64 << 20;

/// A machine under a root directory: `/`, or a captured tree.
#[derive(Debug)]
pub struct ExaminedMachine {
    root: PathBuf,
    /// Privileges of this process; `None` if the tree has no `proc/self/status`.
    pub privileges: Option<Privileges>,
    /// The program that would record there.
    pub(super) program: Program,
    /// What planning knows of the machine, once it was asked for; or why it knows nothing.
    known: OnceCell<Result<KnownMachine, String>>,
    /// The kernel's own type information, once it was read.
    btf: OnceCell<io::Result<Vec<u8>>>,
}

/// What planning knows of a machine.
#[derive(Debug)]
pub struct KnownMachine {
    /// The machine.
    pub machine: discover::Machine,
    /// The embedded catalog.
    pub catalog: Catalog,
}

impl ExaminedMachine {
    /// The machine under `root`, with the privileges in its `proc/self`.
    pub fn at_root(root: &Path) -> Self {
        // A captured tree is not the machine that this program runs on.
        let running = if root == Path::new("/") { Program::running_program() } else { None };
        let program = running.unwrap_or_default();
        let (known, btf) = (OnceCell::new(), OnceCell::new());
        let mut machine = Self { root: root.to_owned(), privileges: None, program, known, btf };
        machine.privileges = privileges::read(&machine);
        machine
    }

    /// The root itself.
    pub(super) fn root_dir(&self) -> &Path {
        &self.root
    }

    /// Whether it is the machine that this program runs on.
    pub(super) fn is_running(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The PMUs of the machine and the catalog, or why they cannot be read.
    pub fn known_machine(&self) -> Result<&KnownMachine, &str> {
        let read = || {
            let machine = discover::machine(&self.root)?;
            Ok(KnownMachine { machine, catalog: Catalog::load_embedded()? })
        };
        let describe = |error: anyhow::Error| format!("{error:#}");
        self.known.get_or_init(|| read().map_err(describe)).as_ref().map_err(String::as_str)
    }

    /// The command with `sudo` in front, unless this user is root.
    pub(super) fn as_root(&self, command: &str) -> String {
        match self.privileges {
            Some(privileges) if privileges.euid != 0 => format!("sudo {command}"),
            _ => command.to_owned(),
        }
    }

    /// The bytes of a file; `path` is relative to the root.
    pub(super) fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        bounds::system_bytes(self.root.join(path))
    }

    /// The kernel's own type information.
    pub(super) fn read_btf(&self) -> Result<&[u8], &io::Error> {
        let read = || bounds::read_bytes(&self.root.join(BTF), LIMIT);
        self.btf.get_or_init(read).as_ref().map(Vec::as_slice)
    }

    /// The text of a file without surrounding white space; bytes that are not UTF-8 become U+FFFD.
    pub(super) fn read_text(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read_bytes(path)?).trim().to_owned())
    }

    /// The integer in a file; `None` if it cannot be read or holds something else.
    pub(super) fn read_number(&self, path: &str) -> Option<i64> {
        self.read_text(path).ok()?.parse().ok()
    }

    /// Whether the path exists, as far as this process can see.
    pub(super) fn has_path(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Target of a symbolic link; `None` if the path is no link.
    pub(super) fn read_link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.root.join(path)).ok()?.to_string_lossy().into_owned())
    }

    /// The names in a directory, sorted.
    pub(super) fn read_names(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(self.root.join(path))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    /// The mounts, from `proc/self/mountinfo`; `None` if that cannot be read.
    pub(super) fn read_mounts(&self) -> Option<MountTable> {
        self.read_text("proc/self/mountinfo").ok().map(|info| MountTable::parse(&info))
    }
}

/// A tree of files in a temporary directory, for the tests of the checks.
#[cfg(test)]
pub(super) fn fake_tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// The findings of one check on a made-up tree.
#[cfg(test)]
pub(super) fn examine_tree(
    check: fn(&ExaminedMachine) -> Vec<super::Finding>,
    files: &[(&str, &str)],
) -> Vec<super::Finding> {
    check(&ExaminedMachine::at_root(fake_tree(files).path()))
}

/// The finding of one check on a made-up tree.
#[cfg(test)]
pub(super) fn single_finding(
    check: fn(&ExaminedMachine) -> super::Finding,
    files: &[(&str, &str)],
) -> super::Finding {
    check(&ExaminedMachine::at_root(fake_tree(files).path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_are_read_as_text() {
        let dir = fake_tree(&[]);
        fs::write(dir.path().join("f"), b" a\xffb\n").unwrap();
        assert_eq!(ExaminedMachine::at_root(dir.path()).read_text("f").unwrap(), "a\u{fffd}b");
    }
}
