//! The name of a virtual machine from QEMU's command line: `-name` (qemu(1)).
//!
//! A process can write over its command line, so it counts only where root runs QEMU: in a scope of
//! Proxmox VE, whose path has only the number of the machine, and in a unit in which QEMU is the
//! only process.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::trust::RUNTIMES;
use crate::bounds;

/// Most bytes of a file that is read; libvirt's command lines have some 10 KiB.
const MOST: u64 = 1 << 17;

/// Most processes of a cgroup that are looked at.
const PROCESSES: usize = 16;

/// Longest name that is accepted.
const LONGEST: usize = 256;

/// Reads lists of processes and their command lines.
#[derive(Debug)]
pub(super) struct Qemu {
    mount: Option<PathBuf>,
    proc: PathBuf,
}

impl Qemu {
    /// procfs is read under `root`.
    pub(super) fn new(mount: Option<&Path>, root: &Path) -> Self {
        Self { mount: mount.map(Path::to_owned), proc: root.join("proc") }
    }

    /// The name of the machine in a unit whose only process is QEMU. `believed` is the part of the
    /// path that only root can have named.
    pub(super) fn machine_of_unit<'a>(
        &self,
        path: &str,
        believed: impl FnOnce() -> &'a str,
    ) -> Option<String> {
        let unit = path.rsplit('/').next()?;
        let is_unit = [".service", ".scope"].iter().any(|suffix| unit.ends_with(suffix));
        if !is_unit || RUNTIMES.contains(&unit) || believed() != path {
            return None;
        }
        let [process] = self.cgroup_processes(path)?[..] else { return None };
        self.machine_of_process(process)
    }

    /// The name of a machine that is known by its number: of the only QEMU in its scope.
    pub(super) fn machine_of_number(&self, path: &str, number: &str) -> Option<String> {
        let is_scope = || path.ends_with(&format!("/qemu.slice/{number}.scope"));
        if number.bytes().any(|byte| !byte.is_ascii_digit()) || !is_scope() {
            return None;
        }
        let mut names = self
            .cgroup_processes(path)?
            .into_iter()
            .filter_map(|process| self.machine_of_process(process));
        names.next().filter(|_| names.next().is_none())
    }

    /// The processes of a cgroup; `None` if they are too many.
    fn cgroup_processes(&self, path: &str) -> Option<Vec<u32>> {
        let dir = self.mount.as_ref()?.join(path.trim_start_matches('/'));
        let text = read_file(&dir.join("cgroup.procs"))?;
        let text = std::str::from_utf8(&text).ok()?;
        let processes: Vec<u32> = text.lines().map_while(|line| line.parse().ok()).collect();
        (processes.len() <= PROCESSES).then_some(processes)
    }

    /// The machine of a process, if it is QEMU and root's.
    fn machine_of_process(&self, process: u32) -> Option<String> {
        let dir = self.proc.join(process.to_string());
        let status = read_file(&dir.join("status"))?;
        // The owner of the directory is not the one of the process: it is root if that may not be
        // dumped.
        let status = String::from_utf8_lossy(&status).into_owned();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        if users.split_whitespace().any(|user| user != "0") {
            return None;
        }
        guest_name(&read_file(&dir.join("cmdline"))?)
    }
}

fn read_file(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bounds::open_regular(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The name in a command line of QEMU, or of `kvm`, as Debian and Proxmox VE call it.
fn guest_name(line: &[u8]) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0);
    let program = std::str::from_utf8(words.next()?).ok()?.rsplit('/').next()?;
    if !program.starts_with("qemu-") && program != "kvm" {
        return None;
    }
    words.find(|word| matches!(*word, b"-name" | b"--name"))?;
    let value = std::str::from_utf8(words.next()?).ok()?;
    // The first option needs no key (`get_opt_name_value`, util/qemu-option.c, QEMU 10.1).
    let has_key =
        value.find(['=', ',']).is_some_and(|separator| value[separator..].starts_with('='));
    let mut options = split_options(value).into_iter();
    let implied = if has_key { None } else { options.next() };
    let by_key = || options.find_map(|option| option.strip_prefix("guest=").map(str::to_owned));
    let name = implied.or_else(by_key)?;
    (!name.is_empty() && name.len() <= LONGEST).then_some(name)
}

/// Options with commas between them; two commas stand for one (`get_opt_value`,
/// util/qemu-option.c).
fn split_options(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ',' && characters.next_if_eq(&',').is_none() {
            values.push(String::new());
        } else if let Some(value) = values.last_mut() {
            value.push(character);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_guest_is_named_by_each_form_of_the_option() {
        for (line, name) in [
            ("qemu-system-x86_64|-name|guest=web,debug-threads=on", Some("web")),
            ("/usr/bin/qemu-system-aarch64|-m|1G|-name|web", Some("web")),
            ("/usr/bin/kvm|-id|100|-name|web-01,debug-threads=on|-daemonize", Some("web-01")),
            ("/usr/libexec/qemu-kvm|--name|debug-threads=on,guest=web", Some("web")),
            ("qemu-system-x86_64|-name|a,,b=1,process=x", Some("a,b=1")),
            ("qemu-system-x86_64|-name|guest=a,,b=1,process=x", Some("a,b=1")),
            ("qemu-system-x86_64|-name|process=x", None),
            ("qemu-system-x86_64|-name|", None),
            ("qemu-system-x86_64|-name", None),
            ("qemu-system-x86_64|-m|1G", None),
            ("bash|-c|qemu-system-x86_64 -name web", None),
            ("kvmtool|-name|web", None),
            ("", None),
        ] {
            assert_eq!(guest_name(line.replace('|', "\0").as_bytes()).as_deref(), name, "{line}");
        }
        let long = format!("qemu-kvm\0-name\0{}\0", "x".repeat(LONGEST + 1));
        assert_eq!(guest_name(long.as_bytes()), None);
        assert_eq!(guest_name(b"qemu-kvm\0-name\0\xff\0"), None);
    }

    struct Case(tempfile::TempDir);

    impl Case {
        fn new(cgroups: &[(&str, &[u32])]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (path, processes) in cgroups {
                let dir = dir.path().join("cgroup").join(path);
                fs::create_dir_all(&dir).unwrap();
                let lines: Vec<String> =
                    processes.iter().map(|process| format!("{process}\n")).collect();
                fs::write(dir.join("cgroup.procs"), lines.concat()).unwrap();
            }
            Self(dir)
        }

        fn process(&self, process: u32, user: u32, line: &str) {
            let dir = self.0.path().join(format!("proc/{process}"));
            fs::create_dir_all(&dir).unwrap();
            let status = format!("Name:\tqemu\nUid:\t{user}\t{user}\t{user}\t{user}\n");
            fs::write(dir.join("status"), status).unwrap();
            fs::write(dir.join("cmdline"), line.replace(' ', "\0")).unwrap();
        }

        fn qemu(&self) -> Qemu {
            Qemu::new(Some(&self.0.path().join("cgroup")), self.0.path())
        }
    }

    #[test]
    fn only_roots_qemu_names_its_unit() {
        let case = Case::new(&[
            ("system.slice/vm.service", &[10]),
            ("system.slice/more.service", &[10, 11]),
            ("system.slice/user.service", &[12]),
            ("system.slice/libvirtd.service", &[10]),
            ("system.slice/gone.service", &[99]),
            ("system.slice/plain", &[10]),
        ]);
        case.process(10, 0, "qemu-system-x86_64 -name guest=web");
        case.process(11, 0, "sleep 60");
        case.process(12, 1000, "qemu-system-x86_64 -name guest=bank");
        let qemu = case.qemu();
        let name = |path: &str, believed: &str| {
            let believed = believed.to_owned();
            qemu.machine_of_unit(path, || &believed)
        };
        let of =
            |unit: &str| name(&format!("/system.slice/{unit}"), &format!("/system.slice/{unit}"));
        assert_eq!(of("vm.service").as_deref(), Some("web"));
        for unit in
            ["more.service", "user.service", "libvirtd.service", "gone.service", "plain", "x.scope"]
        {
            assert_eq!(of(unit), None, "{unit}");
        }
        assert_eq!(name("/system.slice/vm.service", "/system.slice"), None);
    }

    #[test]
    fn a_number_of_proxmox_gets_the_name_of_its_only_qemu() {
        let case = Case::new(&[
            ("qemu.slice/100.scope", &[20, 21]),
            ("qemu.slice/101.scope", &[20, 22]),
            ("qemu.slice/102.scope", &[21]),
        ]);
        case.process(20, 0, "/usr/bin/kvm -id 100 -name web,debug-threads=on");
        case.process(21, 0, "swtpm socket");
        case.process(22, 0, "/usr/bin/kvm -name other");
        let name_of_number = |number: &str| {
            case.qemu().machine_of_number(&format!("/qemu.slice/{number}.scope"), number)
        };
        assert_eq!(name_of_number("100").as_deref(), Some("web"));
        assert_eq!(
            (name_of_number("101"), name_of_number("102"), name_of_number("103")),
            (None, None, None)
        );
        assert_eq!(case.qemu().machine_of_number("/lxc/100", "100"), None);
    }
}
