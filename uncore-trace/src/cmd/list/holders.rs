//! Who has which device file open now, from the descriptors of all processes, and which pods the
//! kubelet has assigned devices to. Threads whose descriptors are not those of their process are
//! not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::bounds;
use crate::discover::nodes::DeviceNumber;
use crate::discover::{Machine, open_files};
use crate::identity::assignments::{Assignment, list_assignments};
use crate::identity::cgroups::Cgroups;
use crate::identity::kubelet;

/// A process that has a device file open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct FileHolder {
    pid: u32,
    comm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

impl FileHolder {
    /// Its name, and the tenant as narrowly as it is known.
    pub(super) fn holder_text(&self) -> String {
        let Self { pid, comm, cgroup, container, pod, job } = self;
        let tenants = [("pod", pod), ("job", job), ("container", container), ("cgroup", cgroup)];
        let tenant =
            tenants.iter().find_map(|(tenant_kind, name)| Some((*tenant_kind, name.as_ref()?)));
        match tenant {
            Some((tenant_kind, name)) => format!("{comm} ({pid}) of {tenant_kind} {name}"),
            None => format!("{comm} ({pid})"),
        }
    }
}

/// The holders of some device files.
#[derive(Debug, Default)]
pub(super) struct HeldFiles {
    holders_by_file: BTreeMap<DeviceNumber, Vec<FileHolder>>,
    /// Whether the descriptors of all processes were read.
    is_whole: bool,
}

impl HeldFiles {
    /// Reads the descriptors of all processes, where there is a device file to look for and the
    /// machine is the running one: links of another machine's procfs would lead to files of this
    /// one.
    pub(super) fn read(machine: &Machine, wanted: &BTreeSet<DeviceNumber>) -> Self {
        let mut held = Self::default();
        if wanted.is_empty() || machine.root != Path::new("/") {
            return held;
        }
        let mut cgroups = Cgroups::from_mounts(&machine.cgroups, &machine.root, Vec::new());
        let holders_by_file = &mut held.holders_by_file;
        held.is_whole = open_files::for_each_process(&machine.root, |pid, dir, open| {
            let mut open = open.intersection(wanted).peekable();
            if open.peek().is_none() {
                return;
            }
            let holder = read_holder(pid, dir, &mut cgroups);
            for number in open {
                holders_by_file.entry(*number).or_default().push(holder.clone());
            }
        });
        held.holders_by_file
            .values_mut()
            .for_each(|holders| holders.sort_by_key(|holder| holder.pid));
        held
    }

    /// Who has a file open; `None` if that is not known of all processes.
    pub(super) fn holders_of(&self, number: DeviceNumber) -> Option<Vec<FileHolder>> {
        self.is_whole.then(|| self.holders_by_file.get(&number).cloned().unwrap_or_default())
    }
}

/// What the kubelet of this machine says; nothing where there is none, or the user may not ask it.
pub(super) fn read_assignments(machine: &Machine) -> BTreeSet<Assignment> {
    let listed =
        if machine.root == Path::new("/") { kubelet::ask_once(&machine.root) } else { Ok(None) };
    let assigned = listed.and_then(|listed| {
        listed
            .map_or_else(|| Ok(BTreeSet::new()), |listed| list_assignments(&listed, &machine.root))
    });
    assigned.unwrap_or_else(|error| {
        log::warn!("cannot get the devices of pods from the kubelet: {error:#}");
        BTreeSet::new()
    })
}

fn read_holder(pid: u32, dir: &Path, cgroups: &mut Cgroups) -> FileHolder {
    let read_text = |name| {
        let bytes = bounds::system_bytes(dir.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let comm = read_text("comm").trim_end_matches('\n').to_owned();
    let groups = read_text("cgroup");
    let membership = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let path = membership.and_then(|path| cgroups.path_of(Path::new(path)));
    let id = path.as_deref().and_then(|path| cgroups.id_of_path(path));
    let path = path.map(|path| path.to_string_lossy().into_owned());
    let names = id.zip(path.as_ref()).and_then(|(id, path)| {
        cgroups.learn_path(id, path.clone());
        cgroups.cgroup_names(id, 0)
    });
    let name = |name: Option<&str>| name.map(str::to_owned);
    FileHolder {
        pid,
        comm,
        cgroup: path,
        container: name(names.and_then(|names| names.container.as_deref())),
        pod: name(names.and_then(|names| names.pod.as_deref())),
        job: name(names.and_then(|names| names.job.as_deref())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::process::Command;

    use super::*;
    use crate::discover;
    use crate::text::printable;

    /// `/dev/full`, which stands for a device.
    const FULL: DeviceNumber = DeviceNumber { is_block: false, major: 1, minor: 7 };

    #[test]
    fn a_process_with_a_file_of_the_device_holds_it_whatever_its_name_is() {
        let machine = discover::machine(Path::new("/")).unwrap();
        let device_numbers: BTreeSet<_> = [FULL].into();
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("a\u{1b}[2J\nb");
        fs::copy(fs::canonicalize("/bin/sleep").unwrap(), &program).unwrap();
        // Another name for it, as a container may have.
        let node = dir.path().join("innocent");
        let mknod_status = Command::new("mknod").arg(&node).args(["c", "1", "7"]).status().unwrap();
        let file = File::open(if mknod_status.success() { &node } else { Path::new("/dev/full") })
            .unwrap();
        let mut child = Command::new(&program).arg("60").stdin(file).spawn().unwrap();
        let held = HeldFiles::read(&machine, &device_numbers);
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        let holders = &held.holders_by_file[&FULL];
        let holder = holders.iter().find(|holder| holder.pid == pid).unwrap();
        assert_eq!(holder.comm, "a\u{1b}[2J\nb");
        let text = holder.holder_text();
        assert!(text.contains(&format!("({pid})")), "{text}");
        assert!(printable(&text).starts_with("a\\u{1b}[2J\\nb ("), "{text}");
        let after = HeldFiles::read(&machine, &device_numbers);
        let all = after.holders_by_file.get(&FULL).into_iter().flatten();
        assert!(all.filter(|holder| holder.pid == pid).count() == 0);
    }

    #[test]
    fn a_tree_of_another_machine_leads_to_no_file_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let fds = dir.path().join("proc/1/fd");
        fs::create_dir_all(&fds).unwrap();
        std::os::unix::fs::symlink("/dev/full", fds.join("0")).unwrap();
        let mut machine = discover::machine(Path::new("/")).unwrap();
        dir.path().clone_into(&mut machine.root);
        let held = HeldFiles::read(&machine, &[FULL].into());
        assert_eq!((held.holders_of(FULL), held.holders_by_file.len()), (None, 0));
    }

    #[test]
    fn a_holder_is_named_as_narrowly_as_it_is_known() {
        let text = |container: Option<&str>, pod: Option<&str>, job: Option<&str>| {
            let some = |name: Option<&str>| name.map(str::to_owned);
            let (cgroup, comm) = (Some("/a".to_owned()), "x".to_owned());
            let (container, pod, job) = (some(container), some(pod), some(job));
            FileHolder { pid: 7, comm, cgroup, container, pod, job }.holder_text()
        };
        assert_eq!(text(None, None, None), "x (7) of cgroup /a");
        assert_eq!(text(Some("web"), None, None), "x (7) of container web");
        assert_eq!(text(Some("web"), None, Some("7.0")), "x (7) of job 7.0");
        assert_eq!(text(Some("web"), Some("a/b"), None), "x (7) of pod a/b");
        assert_eq!(
            FileHolder { pid: 7, comm: "x".to_owned(), ..FileHolder::default() }.holder_text(),
            "x (7)"
        );
    }
}
