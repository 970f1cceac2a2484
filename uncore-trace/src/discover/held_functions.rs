//! The PCI functions that somebody holds: those behind the device files that processes have open.
//!
//! On the running machine a file is known by its numbers. In a captured tree `proc/PID/fd/N` is a
//! link with the file's usual path, which is not followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::nodes::{DeviceDrivers, DeviceNode};
use super::open_files;
use super::pci::PciAddress;

/// The functions to count on their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeparateFunctions {
    /// Their addresses.
    pub functions: BTreeSet<PciAddress>,
    /// Whether somebody holds them; else they are all that have a device file.
    pub is_held: bool,
    /// Whether the open files of all processes could be read.
    pub is_whole: bool,
}

impl SeparateFunctions {
    /// Those of the machine below `root`.
    pub fn find_functions(root: &Path) -> Self {
        let drivers = DeviceDrivers::read(root);
        if drivers.is_empty() {
            return Self::default();
        }
        let device_files: Vec<DeviceNode> = drivers.device_files(root).into_values().collect();
        let mut is_whole = true;
        let held = if root == Path::new("/") {
            let mut open = BTreeSet::new();
            is_whole = open_files::for_each_process(root, |_, _, files| open.extend(files));
            functions_behind(
                open.into_iter().filter_map(|number| drivers.device_file(root, number)),
            )
        } else {
            let links = open_links(root);
            let is_open = |node: &&DeviceNode| links.contains(Path::new(&node.path));
            functions_behind(device_files.iter().filter(is_open).cloned())
        };
        let is_held = !held.is_empty();
        let functions = if is_held { held } else { functions_behind(device_files.into_iter()) };
        Self { functions, is_held, is_whole }
    }
}

fn functions_behind(nodes: impl Iterator<Item = DeviceNode>) -> BTreeSet<PciAddress> {
    nodes.flat_map(|node| node.functions).collect()
}

/// The texts of `proc/PID/fd/N` in a captured tree.
fn open_links(root: &Path) -> BTreeSet<PathBuf> {
    let entries = |dir: PathBuf| {
        fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    };
    let files = entries(root.join("proc")).flat_map(|process| entries(process.join("fd")));
    files.filter_map(|file| fs::read_link(file).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_open_file_is_known_by_its_numbers() {
        let file = fs::File::open("/dev/full").unwrap();
        let mut numbers = BTreeSet::new();
        open_files::for_each_process(Path::new("/"), |_, _, files| numbers.extend(files));
        assert!(
            numbers.contains(&crate::discover::nodes::DeviceNumber {
                is_block: false,
                major: 1,
                minor: 7
            }),
            "{numbers:?}"
        );
        drop(file);
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        fs::write(at("proc/devices"), "Character devices:\n195 nvidia\n226 drm\n").unwrap();
        for (minor, address) in [(0, "0002:01:00.0"), (1, "0002:02:00.0")] {
            let place = format!("pci0002:00/0002:00:03.0/{address}/drm/card{minor}");
            symlink(format!("../../devices/{place}"), at(&format!("sys/dev/char/226:{minor}")))
                .unwrap();
            let uevent = format!("DEVNAME=dri/card{minor}\n");
            fs::write(at(&format!("sys/devices/{place}/uevent")), uevent).unwrap();
        }
        let gpu = at("proc/driver/nvidia/gpus/0009:01:00.0/information");
        fs::write(gpu, "Device Minor: \t 0\n").unwrap();
        dir
    }

    fn texts(apart: &SeparateFunctions) -> Vec<String> {
        apart.functions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn held_functions_come_before_those_that_could_be_held() {
        let dir = tree();
        let all = SeparateFunctions::find_functions(dir.path());
        assert_eq!(texts(&all), ["0002:01:00.0", "0002:02:00.0", "0009:01:00.0"]);
        assert!(!all.is_held);
        for (fd, file) in [("7/fd/3", "/dev/dri/card1"), ("8/fd/0", "/dev/null")] {
            let link = dir.path().join("proc").join(fd);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(file, link).unwrap();
        }
        let held = SeparateFunctions::find_functions(dir.path());
        assert_eq!((texts(&held), held.is_held), (vec!["0002:02:00.0".to_owned()], true));
        symlink("/dev/nvidia0", dir.path().join("proc/7/fd/4")).unwrap();
        assert_eq!(
            texts(&SeparateFunctions::find_functions(dir.path())),
            ["0002:02:00.0", "0009:01:00.0"]
        );
    }
}
