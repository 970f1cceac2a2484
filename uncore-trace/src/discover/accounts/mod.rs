//! What devices count themselves: bytes of a PCI function, and what a process used of one.
//!
//! Each source is a file here and a line in [`AccountReader::new`]. It reads below a root, only
//! accounts of functions that somebody holds ([`HeldDevices`]), and gives plain numbers
//! ([`Account`]). A file that is missing or cannot be parsed gives no account, never 0.

mod drm;
mod kfd;
mod net;
mod rdma;
mod vf;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::drm::Drm;
use self::kfd::Kfd;
use self::net::Net;
use self::rdma::Rdma;
pub use self::vf::Netlink;
use self::vf::Vf;
use super::pci::{self, PciAddress};
use super::read;
use crate::bounds;
pub use crate::schema::accounts::{AccountSource, Unit};
pub use crate::schema::io::IoDirection;
use crate::text::printable;

/// Accounts of a reading; more are left out, and said so.
const MOST: usize = 4096;

/// Entries of a directory that are looked at.
const MOST_ENTRIES: usize = 4096;

/// Largest file that is read. Those of sysfs have one number; fdinfo of a GPU has some 4 KiB.
const MOST_BYTES: u64 = 64 << 10;

/// Longest name of an account: an interface has 15 characters, an engine some 20.
const LONGEST_NAME: usize = 80;

/// What is counted, for whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The PCI function.
    pub function: PciAddress,
    /// Who counts.
    pub source: AccountSource,
    /// As the source calls it.
    pub name: Arc<str>,
    /// Direction of the bytes, if it is known.
    pub direction: Option<IoDirection>,
    /// What a value counts.
    pub unit: Unit,
    /// The process; `None`: the whole function.
    pub pid: Option<u32>,
    /// The number of its open file, if the source has one.
    pub client: Option<u64>,
}

/// The functions and clients of which accounts are read: those that somebody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldDevices {
    /// Functions that some process holds.
    pub functions: BTreeSet<PciAddress>,
    /// Processes that hold files which describe their use in `/proc/PID/fdinfo`, with the functions
    /// behind these files.
    pub clients: BTreeMap<u32, BTreeSet<PciAddress>>,
}

impl HeldDevices {
    /// Whether a function has several such processes.
    pub fn is_shared(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.clients.values().flatten().any(|function| !seen.insert(*function))
    }
}

/// A reading of all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountValues {
    /// The values.
    pub values: BTreeMap<Account, u64>,
    /// What could not be read, by source: one of them, printable.
    pub unread: BTreeMap<AccountSource, String>,
}

impl AccountValues {
    fn add_account(&mut self, account: Account, value: u64) {
        let is_name = |c: char| c.is_ascii_graphic();
        let len = account.name.len();
        if !(1..=LONGEST_NAME).contains(&len) || !account.name.chars().all(is_name) {
            let name: String = account.name.chars().take(LONGEST_NAME).collect();
            self.note_unread(
                account.source,
                &format!("{:?} is not a name of an account", printable(&name)),
            );
        } else if self.values.len() >= MOST {
            self.note_unread(account.source, &format!("only {MOST} accounts are read"));
        } else {
            self.values.insert(account, value);
        }
    }

    /// Adds a sum of bytes of a function.
    fn add_bytes(
        &mut self,
        function: PciAddress,
        source: AccountSource,
        name: &str,
        direction: IoDirection,
        value: u64,
    ) {
        let (direction, unit) = (Some(direction), Unit::Bytes);
        let name = Arc::from(name);
        let account = Account { function, source, name, direction, unit, pid: None, client: None };
        self.add_account(account, value);
    }

    /// Notes that something cannot be read; the first note of a source stays.
    fn note_unread(&mut self, source: AccountSource, why: &str) {
        self.unread.entry(source).or_insert_with(|| printable(why).into_owned());
    }

    /// The number in a file; `None` if it does not exist, or with a note.
    fn read_number(&mut self, source: AccountSource, path: &Path) -> Option<u64> {
        match bounds::read_bytes(path, MOST_BYTES) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let number = text.trim().parse().ok();
                if number.is_none() {
                    let text: String = text.chars().take(LONGEST_NAME).collect();
                    let text = text.trim();
                    self.note_unread(
                        source,
                        &format!("{}: {text:?} is not a number", path.display()),
                    );
                }
                number
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                self.note_unread(source, &format!("{}: {error}", path.display()));
                None
            }
        }
    }
}

/// A source of accounts.
trait ReadAccounts: std::fmt::Debug + Send {
    /// Adds the accounts of this source to the reading.
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues);
}

/// Reads all sources.
#[derive(Debug)]
pub struct AccountReader {
    root: PathBuf,
    sources: Vec<Box<dyn ReadAccounts>>,
}

impl AccountReader {
    /// A reader below `root`. `netlink` asks the kernel about interfaces; `fdinfo`: what processes
    /// tell of their files may be read.
    pub fn new(root: &Path, netlink: Option<Netlink>, fdinfo: bool) -> Self {
        let mut sources: Vec<Box<dyn ReadAccounts>> =
            vec![Box::new(Net), Box::new(Rdma), Box::new(Kfd)];
        if let Some(netlink) = netlink {
            sources.push(Box::new(Vf::new(netlink)));
        }
        if fdinfo {
            sources.push(Box::new(Drm::default()));
        }
        Self { root: root.to_owned(), sources }
    }

    /// Reads the accounts of what is held.
    pub fn read(&mut self, held: &HeldDevices) -> AccountValues {
        let mut reading = AccountValues::default();
        for source in &mut self.sources {
            source.read(&self.root, held, &mut reading);
        }
        reading
    }
}

/// The directory of a function in `sys/devices`.
fn function_dir(root: &Path, function: PciAddress) -> Option<PathBuf> {
    let link = fs::read_link(root.join(pci::FUNCTIONS).join(function.to_string())).ok()?;
    pci::sysfs_device_dir(root, &link)
}

/// The devices of a class that a function has, by name: they are in its directory, or in that of a
/// device between (virtio, auxiliary devices).
fn class_devices(root: &Path, function: PciAddress, class: &str) -> Vec<(String, PathBuf)> {
    let Some(dir) = function_dir(root, function) else { return Vec::new() };
    let between = dir_names(&dir).into_iter().filter(|name| name.parse::<PciAddress>().is_err());
    let dirs = std::iter::once(dir.clone()).chain(between.map(|name| dir.join(name)));
    let named_dirs = dirs.flat_map(|dir| {
        let class = dir.join(class);
        dir_names(&class).into_iter().map(move |name| (name.clone(), class.join(name)))
    });
    named_dirs.collect()
}

/// The names in a directory, in order; of a large one only some.
fn dir_names(dir: &Path) -> Vec<String> {
    read::dir_names(dir, MOST_ENTRIES)
}

/// Trees of sysfs and procfs, for tests.
#[cfg(test)]
mod fake {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Address of the port above all functions.
    const PORT: &str = "pci0002:00/0002:00:03.0";

    pub(super) struct AccountTree(tempfile::TempDir);

    impl AccountTree {
        pub(super) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(super) fn root_path(&self) -> &Path {
            self.0.path()
        }

        pub(super) fn write_file(&self, path: &str, text: impl AsRef<[u8]>) {
            let path = self.root_path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(super) fn add_link(&self, path: &str, target: &str) {
            let path = self.root_path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        /// Adds a function. Returns its directory below the root.
        pub(super) fn add_function(&self, function: &str) -> String {
            let dir = format!("sys/devices/{PORT}/{function}");
            fs::create_dir_all(self.root_path().join(&dir)).unwrap();
            self.add_link(
                &format!("sys/bus/pci/devices/{function}"),
                &format!("../../../devices/{PORT}/{function}"),
            );
            dir
        }

        pub(super) fn read_accounts(
            &self,
            source: &mut dyn ReadAccounts,
            held: &HeldDevices,
        ) -> AccountValues {
            let mut reading = AccountValues::default();
            source.read(self.root_path(), held, &mut reading);
            reading
        }
    }

    pub(super) fn parse_address(function: &str) -> PciAddress {
        function.parse().unwrap()
    }

    pub(super) fn held_functions(functions: &[&str]) -> HeldDevices {
        HeldDevices {
            functions: functions.iter().map(|address| parse_address(address)).collect(),
            ..HeldDevices::default()
        }
    }

    /// Accounts as text: function, name, direction, unit, process, client, value.
    pub(super) fn account_lines(reading: &AccountValues) -> Vec<String> {
        let line = |(account, value): (&Account, &u64)| {
            let direction = account
                .direction
                .map(|bytes_direction| format!(" {}", bytes_direction.direction_name()));
            let pid = account.pid.map(|pid| format!(" pid {pid}"));
            let client = account.client.map(|client| format!(" client {client}"));
            let details: String = [direction, pid, client].into_iter().flatten().collect();
            let Account { function, name, unit, .. } = account;
            format!("{function} {name}{details}: {value} {}", unit.unit_name())
        };
        reading.values.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::fake::*;
    use super::*;

    #[test]
    fn accounts_are_bounded_and_have_printable_names() {
        let mut values_read = AccountValues::default();
        let (function, source) = (parse_address("0002:01:00.0"), AccountSource::Net);
        for name in ["eth0/rx_bytes", "eth 0", "", "\u{1b}[2J", "\u{202e}", &"x".repeat(81)] {
            values_read.add_bytes(function, source, name, IoDirection::Read, u64::MAX);
        }
        let names: Vec<&str> =
            values_read.values.keys().map(|account_key| &*account_key.name).collect();
        assert_eq!(names, ["eth0/rx_bytes"]);
        assert!(!values_read.unread[&AccountSource::Net].contains('\u{1b}'));
        for number in 0..2 * MOST {
            let name = number.to_string();
            values_read.add_bytes(function, source, &name, IoDirection::Read, 1);
        }
        assert_eq!(values_read.values.len(), MOST);
    }

    #[test]
    fn a_function_is_shared_if_two_processes_hold_it() {
        let two_functions: BTreeSet<PciAddress> =
            [parse_address("01:00.0"), parse_address("02:00.0")].into();
        let mut held =
            HeldDevices { clients: [(7, two_functions)].into(), ..HeldDevices::default() };
        assert!(!held.is_shared());
        held.clients.insert(8, [parse_address("02:00.0")].into());
        assert!(held.is_shared());
    }

    /// Whatever this machine has: nothing panics, and no file is followed out of the tree.
    #[test]
    fn the_accounts_of_this_machine_are_read() {
        let root = Path::new("/");
        let functions = dir_names(&root.join(pci::FUNCTIONS));
        let functions = functions.iter().filter_map(|name| name.parse().ok()).collect();
        let clients = [(std::process::id(), BTreeSet::new())].into();
        let held = HeldDevices { functions, clients };
        let mut reader = AccountReader::new(root, Netlink::open().ok(), true);
        let (first_reading, second_reading) = (reader.read(&held), reader.read(&held));
        for (account, value) in
            first_reading.values.iter().filter(|(account_key, _)| account_key.unit == Unit::Bytes)
        {
            assert!(
                second_reading.values.get(account).is_none_or(|later| later >= value),
                "{account:?}"
            );
        }
        // A file that is of no GPU says nothing.
        assert_eq!(first_reading.unread.get(&AccountSource::Drm), None);
    }
}
