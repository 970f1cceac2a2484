//! Which processes run virtual machines.
//!
//! The kernel counts the time of a process in guests (field 43 of `/proc/PID/stat`),
//! in clock ticks, which no process can forge. A machine that has just started has none yet, so the
//! usual names of virtual CPUs' threads count for the first second in which a process is seen. A
//! process that takes such a name has its traffic divided with less confidence in that second, and
//! that of its neighbours, and nothing else happens.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::bounds;
use crate::drain::TaskIdentity;

/// Time between two looks at a process, ns.
const AGAIN_NS: u64 = 1_000_000_000;

/// Most looks in that time, so that thousands of processes cost little: a look takes about 20 us.
const MOST_LOOKS: u32 = 500;

/// Largest number of processes that are remembered.
const MOST: usize = 1 << 14;

/// The place of a process's time in guests in `/proc/PID/stat` after the name, counted from 0.
const GUEST_TIME: usize = 43 - 3;

/// A process.
#[derive(Clone, Copy, Debug, Default)]
struct SeenProcess {
    /// Whether it had time in guests.
    runs_guest: bool,
    /// The time of the first and of the last look.
    first_look_ns: u64,
    last_look_ns: u64,
    /// Whether a thread had the name of a virtual CPU.
    has_cpu_name: bool,
}

/// The processes that run virtual machines.
#[derive(Debug)]
pub struct Guests {
    proc: PathBuf,
    seen: HashMap<u32, SeenProcess>,
    /// The begin of the present second of looks, and their number.
    looks: (u64, u32),
}

impl Guests {
    /// Nothing is known yet. procfs is read under `root`.
    pub fn new(root: &Path) -> Self {
        Self { proc: root.join("proc"), seen: HashMap::new(), looks: (0, 0) }
    }

    /// Whether the process of a thread runs a virtual machine; `now_ns` is the time of a record.
    pub fn runs_guest(&mut self, task: &TaskIdentity, now_ns: u64) -> bool {
        if task.tid == 0 {
            return false;
        }
        let is_new = !self.seen.contains_key(&task.pid);
        if is_new && self.seen.len() >= MOST {
            self.seen.clear();
        }
        let nothing = SeenProcess { first_look_ns: now_ns, ..SeenProcess::default() };
        let mut seen = *self.seen.entry(task.pid).or_insert(nothing);
        seen.has_cpu_name |= is_virtual_cpu(&task.comm.to_text());
        if (is_new || now_ns >= seen.last_look_ns + AGAIN_NS) && self.may_look(now_ns) {
            // A process that has ended keeps what was known.
            seen.runs_guest = self.read_guest_time(task.pid).unwrap_or(seen.runs_guest);
            seen.last_look_ns = now_ns;
        }
        self.seen.insert(task.pid, seen);
        seen.runs_guest || seen.has_cpu_name && now_ns < seen.first_look_ns + AGAIN_NS
    }

    fn may_look(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.looks.0 + AGAIN_NS {
            self.looks = (now_ns, 0);
        }
        self.looks.1 += 1;
        self.looks.1 <= MOST_LOOKS
    }

    fn read_guest_time(&self, pid: u32) -> Option<bool> {
        let stat = bounds::system_bytes(self.proc.join(pid.to_string()).join("stat")).ok()?;
        // The name is in parentheses and may contain anything, also these.
        let name = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields =
            stat.get(name + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        fields.nth(GUEST_TIME).map(|time| time != b"0")
    }
}

/// Whether a thread has the name of a virtual CPU in QEMU (`CPU 0/KVM`), Firecracker (`fc_vcpu 0`),
/// cloud-hypervisor (`vcpu0`) or crosvm (`crosvm_vcpu0`).
fn is_virtual_cpu(comm: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let of_qemu = comm
        .strip_prefix("CPU ")
        .and_then(|number_and_suffix| number_and_suffix.strip_suffix("/KVM"));
    let of_others =
        || ["fc_vcpu ", "crosvm_vcpu", "vcpu"].iter().find_map(|prefix| comm.strip_prefix(prefix));
    of_qemu.or_else(of_others).is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::drain::Comm;

    fn task(pid: u32, comm: &str) -> TaskIdentity {
        TaskIdentity {
            tid: pid + 1,
            pid,
            comm: Comm::from_bytes(comm.as_bytes()),
            ..TaskIdentity::default()
        }
    }

    #[test]
    fn time_in_guests_tells_whatever_the_name_is() {
        let root = tempfile::tempdir().unwrap();
        let stat = |pid: u32, guest: u64| {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&dir).unwrap();
            let fields = (4..=52).map(|field| if field == 43 { guest } else { field - 3 });
            let fields: Vec<String> = fields.map(|field| field.to_string()).collect();
            fs::write(dir.join("stat"), format!("{pid} (a) 9) R) S {}\n", fields.join(" ")))
                .unwrap();
        };
        let mut guests = Guests::new(root.path());
        stat(7, 0);
        stat(8, 12);
        let second = AGAIN_NS;
        assert!(!guests.runs_guest(&task(7, "qemu"), second));
        assert!(guests.runs_guest(&task(8, "qemu"), second));
        stat(7, 1);
        assert!(
            !guests.runs_guest(&task(7, "qemu"), 2 * second - 1),
            "it is looked at once a second"
        );
        assert!(guests.runs_guest(&task(7, "qemu"), 2 * second));
        fs::remove_dir_all(root.path().join("proc/7")).unwrap();
        assert!(guests.runs_guest(&task(7, "qemu"), 4 * second));
        assert!(!guests.runs_guest(&task(9, "gone"), second));
        assert!(!guests.runs_guest(&TaskIdentity::default(), second));
    }

    #[test]
    fn names_of_virtual_cpus_are_known() {
        for (comm, is) in [
            ("CPU 0/KVM", true),
            ("CPU 127/KVM", true),
            ("fc_vcpu 3", true),
            ("vcpu12", true),
            ("crosvm_vcpu0", true),
            ("CPU /KVM", false),
            ("CPU 0/TCG", false),
            ("vcpu", false),
            ("vcpu-worker", false),
            ("qemu-system-x86", false),
        ] {
            assert_eq!(is_virtual_cpu(comm), is, "{comm}");
        }
        let mut guests = Guests::new(Path::new("/nonexistent"));
        assert!(guests.runs_guest(&task(5, "vcpu0"), 1));
        assert!(
            guests.runs_guest(&task(5, "worker"), 2),
            "its other threads are of the same machine"
        );
        assert!(
            !guests.runs_guest(&task(5, "vcpu0"), 1 + AGAIN_NS),
            "it has had no time in guests"
        );
    }

    #[test]
    fn many_processes_are_not_all_looked_at_at_once() {
        let mut guests = Guests::new(Path::new("/nonexistent"));
        for pid in 1..=2 * MOST_LOOKS {
            guests.runs_guest(&task(pid, "a"), AGAIN_NS);
        }
        assert_eq!(
            guests.seen.values().filter(|seen| seen.last_look_ns > 0).count(),
            MOST_LOOKS as usize
        );
    }
}
