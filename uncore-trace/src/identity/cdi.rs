//! The device files that a name of CDI stands for (Container Device Interface, SPEC.md 1.0):
//! `VENDOR/CLASS=DEVICE` is a device in a file of the kind `VENDOR/CLASS`.
//!
//! They are in JSON or YAML. Files of root alone are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{major, minor};
use serde::Deserialize;

use super::trust::RootUser;
use crate::bounds;
use crate::discover::nodes::DeviceNumber;

/// Where runtimes look for files; the latter has those of drivers that make them at run time.
pub(super) const DIRS: [&str; 2] = ["etc/cdi", "run/cdi"];

/// Largest file, and most files of a directory, that are read.
const LARGEST: u64 = 4 << 20;
const MOST: usize = 1024;

/// The parts of a file that are used.
#[derive(Debug, Deserialize)]
struct CdiSpec {
    kind: String,
    #[serde(default)]
    devices: Vec<CdiSpecDevice>,
}

#[derive(Debug, Deserialize)]
struct CdiSpecDevice {
    name: String,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Debug, Default, Deserialize)]
struct Edits {
    #[serde(default, rename = "deviceNodes")]
    nodes: Vec<CdiNode>,
}

#[derive(Debug, Deserialize)]
struct CdiNode {
    path: String,
    #[serde(rename = "hostPath")]
    host_path: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
}

/// Names with the numbers of their device files.
#[derive(Debug, Default)]
pub(super) struct CdiNames(BTreeMap<String, BTreeSet<DeviceNumber>>);

impl CdiNames {
    /// Reads the files below `root`.
    pub(super) fn read(root: &Path) -> Self {
        let mut names = Self::default();
        let Some(owner) = RootUser::of_dir(root) else { return names };
        for dir in DIRS.map(|dir| root.join(dir)) {
            let is_roots = fs::metadata(&dir).is_ok_and(|metadata| owner.alone_writes(&metadata));
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            let files = entries.map(|entry| entry.path()).take(MOST);
            for file in files.filter(|_| is_roots) {
                for (name, numbers) in read_spec(&file, owner, root).into_iter().flatten() {
                    names.0.entry(name).or_default().extend(numbers);
                }
            }
        }
        names
    }

    /// The device files of a name.
    pub(super) fn device_numbers(&self, name: &str) -> impl Iterator<Item = DeviceNumber> {
        self.0.get(name).into_iter().flatten().copied()
    }
}

/// The devices of a file with their numbers.
fn read_spec(
    path: &Path,
    owner: RootUser,
    root: &Path,
) -> Option<Vec<(String, Vec<DeviceNumber>)>> {
    let extension = path.extension().and_then(|extension| extension.to_str())?;
    let is_json = extension == "json";
    if !is_json && extension != "yaml" || !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let text = owner.read_file(bounds::open_regular(path).ok()?, LARGEST)?;
    let spec: CdiSpec = if is_json {
        serde_json::from_slice(&text).ok()?
    } else {
        yaml_serde::from_slice(&text).ok()?
    };
    let name_and_numbers = |device: CdiSpecDevice| {
        let numbers = device.edits.nodes.iter().filter_map(|node| node.device_number(root));
        (format!("{}={}", spec.kind, device.name), numbers.collect())
    };
    Some(spec.devices.into_iter().map(name_and_numbers).collect())
}

impl CdiNode {
    /// The numbers in the file, or those of the device file on the host.
    fn device_number(&self, root: &Path) -> Option<DeviceNumber> {
        if let (Some(major), Some(minor)) = (self.major, self.minor) {
            let is_block = self.kind.as_deref() == Some("b");
            return Some(DeviceNumber { is_block, major, minor });
        }
        let path = self.host_path.as_ref().unwrap_or(&self.path);
        let metadata = fs::metadata(root.join(path.trim_start_matches('/'))).ok()?;
        let is_block = metadata.file_type().is_block_device();
        let is_device = is_block || metadata.file_type().is_char_device();
        let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
        is_device.then_some(DeviceNumber { is_block, major, minor })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn names_have_the_numbers_of_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        write(
            "etc/cdi/a.json",
            r#"{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","containerEdits":{},"devices":[
            {"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/x","major":195,"minor":0}]}},
            {"name":"1","containerEdits":{"deviceNodes":[{"path":"/dev/y","type":"b","major":259,"minor":3}]}},
            {"name":"2"},
            {"name":"3","containerEdits":{"deviceNodes":[{"path":"/dev/gone"}]}}]}"#,
        );
        write(
            "run/cdi/b.json",
            r#"{"kind":"vendor.com/gpu","devices":[{"name":"0",
            "containerEdits":{"deviceNodes":[{"path":"/dev/z","major":226,"minor":128}]}}]}"#,
        );
        write(
            "run/cdi/c.yaml",
            "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  env:\n  - \
             A=b\ndevices:\n- name: \"0\"\n  containerEdits:\n    deviceNodes:\n    - path: \
             /dev/nvidia0\n      major: 195\n      minor: 0\n",
        );
        let bomb = (1..60).map(|at| format!("b{at}: &b{at} [*b{0}, *b{0}]\n", at - 1));
        write(
            "run/cdi/bomb.yaml",
            &format!("b0: &b0 [x]\n{}kind: *b59\n", bomb.collect::<String>()),
        );
        write("run/cdi/deep.yaml", &"[".repeat(100_000));
        for (name, text) in
            [("bad", "{"), ("list", "[]"), ("number", r#"{"kind":1}"#), ("none", "")]
        {
            write(&format!("etc/cdi/{name}.json"), text);
        }
        let node = r#"{"kind":"evil.com/gpu","devices":[{"name":"0","containerEdits":
            {"deviceNodes":[{"path":"/dev/x","major":195,"minor":0}]}}]}"#;
        let open = write("etc/cdi/open.json", node);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
        let other = write("other.json", &node.replace("evil", "linked"));
        symlink(other, dir.path().join("etc/cdi/linked.json")).unwrap();
        let names = CdiNames::read(dir.path());
        let of = |name: &str| {
            let texts =
                names.device_numbers(name).map(|number| format!("{}{number}", number.is_block));
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("vendor.com/gpu=0"), "false195:0 false226:128");
        assert_eq!(of("vendor.com/gpu=1"), "true259:3");
        assert_eq!(of("nvidia.com/gpu=0"), "false195:0");
        for name in
            ["vendor.com/gpu=2", "vendor.com/gpu=3", "evil.com/gpu=0", "linked.com/gpu=0", ""]
        {
            assert_eq!(of(name), "", "{name}");
        }
    }
}
