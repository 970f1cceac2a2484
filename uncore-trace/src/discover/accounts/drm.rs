//! GPUs and accelerators: what each open file of a process used, as the driver writes it to
//! `/proc/PID/fdinfo/FD` (`Documentation/gpu/drm-usage-stats.rst`, Linux 7.2).
//!
//! To read such a file takes the right to trace its process (`proc_fdinfo_permission`,
//! fs/proc/fd.c, Linux 6.1 to 7.2).

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::{
    Account, AccountSource, AccountValues, HeldDevices, PciAddress, ReadAccounts, Unit, dir_names,
};
use crate::bounds;

/// Files that are read at once, some 10 us each.
const MOST_FILES: usize = 4096;

/// Largest number of keys of a client.
const MOST_KEYS: usize = 64;

/// After so many readings all files of a process are read again, not only those known to be of
/// GPUs.
const READINGS: u32 = 10;

/// The descriptors of a process that are read.
#[derive(Debug, Default)]
struct ClientProcess {
    /// Its descriptors of GPUs.
    files: Vec<String>,
    /// Readings until all its files are looked at.
    readings_left: u32,
}

/// A client: an open file that processes may share.
type DrmClient = (PciAddress, u64);

/// Reads clients.
#[derive(Debug, Default)]
pub(super) struct Drm {
    processes: BTreeMap<u32, ClientProcess>,
    /// The process whose account each client is.
    owners: BTreeMap<DrmClient, u32>,
}

/// What a descriptor's file says of the use of a device.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClientUse {
    function: Option<PciAddress>,
    client: Option<u64>,
    values: Vec<(Unit, String, u64)>,
}

impl ReadAccounts for Drm {
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues) {
        self.processes.retain(|pid, _| held.clients.contains_key(pid));
        let mut files_left = MOST_FILES;
        let mut clients: BTreeMap<DrmClient, BTreeMap<u32, ClientUse>> = BTreeMap::new();
        for (pid, functions) in &held.clients {
            for client_use in self.read_uses(root, *pid, &mut files_left, reading) {
                let only_function = functions.first().filter(|_| functions.len() == 1);
                let function = client_use.function.as_ref().or(only_function).copied();
                let Some(function) = function.filter(|address| held.functions.contains(address))
                else {
                    continue;
                };
                // Without a number, files cannot be told from copies.
                let client = (function, client_use.client.unwrap_or(u64::from(*pid)));
                clients.entry(client).or_default().entry(*pid).or_insert(client_use);
            }
        }
        if files_left == 0 {
            reading.note_unread(
                AccountSource::Drm,
                &format!("only {MOST_FILES} files of processes are read"),
            );
        }
        let previous_owners = std::mem::take(&mut self.owners);
        for (client, mut users) in clients {
            let owner = previous_owners.get(&client).filter(|pid| users.contains_key(pid));
            let Some(pid) = owner.or(users.keys().next()).copied() else { continue };
            let Some(client_use) = users.remove(&pid) else { continue };
            self.owners.insert(client, pid);
            for (unit, name, value) in client_use.values {
                let account = Account {
                    function: client.0,
                    source: AccountSource::Drm,
                    name: Arc::from(name),
                    direction: None,
                    unit,
                    pid: Some(pid),
                    client: client_use.client,
                };
                reading.add_account(account, value);
            }
        }
    }
}

impl Drm {
    /// What the files of a process say.
    fn read_uses(
        &mut self,
        root: &Path,
        pid: u32,
        files_left: &mut usize,
        reading: &mut AccountValues,
    ) -> Vec<ClientUse> {
        let dir = root.join("proc").join(pid.to_string()).join("fdinfo");
        let process = self.processes.entry(pid).or_default();
        let is_full_scan = process.readings_left == 0;
        if is_full_scan {
            process.files = dir_names(&dir).into_iter().filter(|name| is_number(name)).collect();
            process.readings_left = READINGS;
        }
        process.readings_left -= 1;
        let mut uses = Vec::new();
        process.files.retain(|file| {
            if *files_left == 0 {
                return !is_full_scan;
            }
            *files_left -= 1;
            match bounds::read_bytes(&dir.join(file), super::MOST_BYTES) {
                Ok(bytes) => match parse_use(&String::from_utf8_lossy(&bytes)) {
                    Some(client_use) => {
                        uses.push(client_use);
                        true
                    }
                    None => false,
                },
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => {
                    reading.note_unread(
                        AccountSource::Drm,
                        &format!("{}/{file}: {error}", dir.display()),
                    );
                    false
                }
            }
        });
        uses
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// What a file says; `None` if it is of no GPU.
fn parse_use(text: &str) -> Option<ClientUse> {
    let mut client_use = ClientUse::default();
    let mut is_drm = false;
    let mut resident: BTreeMap<String, (u8, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let Some(key) = key.trim().strip_prefix("drm-") else { continue };
        is_drm = true;
        let value = value.trim();
        if !seen.insert(key) || seen.len() > MOST_KEYS {
            continue;
        }
        match key {
            "pdev" => client_use.function = value.parse().ok(),
            "client-id" => client_use.client = value.parse().ok(),
            _ => {
                if let Some((unit, sum)) = parse_sum(key, value) {
                    client_use.values.push((unit, format!("drm-{key}"), sum));
                } else if let Some((order, region, bytes)) = parse_memory(key, value) {
                    let best = resident.entry(region.to_owned()).or_insert((order, bytes));
                    *best = (*best).min((order, bytes));
                }
            }
        }
    }
    let held = resident.into_iter();
    client_use.values.extend(held.map(|(region, (_, bytes))| (Unit::Resident, region, bytes)));
    is_drm.then_some(client_use)
}

/// A sum that grows: the time or the cycles in which an engine worked.
fn parse_sum(key: &str, value: &str) -> Option<(Unit, u64)> {
    if key.starts_with("engine-capacity-") {
        return None;
    }
    if key.starts_with("engine-") {
        // A time without its unit is none.
        return Some((Unit::Ns, value.strip_suffix("ns")?.trim_end().parse().ok()?));
    }
    key.starts_with("cycles-").then(|| Some((Unit::Cycles, value.parse().ok()?)))?
}

/// Memory of a region in bytes; the smallest order is the best: what is resident, by its older
/// name, or what was asked for.
fn parse_memory<'a>(key: &'a str, value: &str) -> Option<(u8, &'a str, u64)> {
    if key.starts_with("total-cycles-") {
        return None;
    }
    let mut orders = ["resident-", "memory-", "total-"].into_iter().zip(0..);
    let (region, order) =
        orders.find_map(|(prefix, order)| Some((key.strip_prefix(prefix)?, order)))?;
    let (number_text, unit) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let scale = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    Some((order, region, number_text.parse::<u64>().ok()?.checked_mul(scale)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fake::*;
    use super::*;

    /// As amdgpu of Linux 6.12 writes it, with a line of another driver.
    const AMDGPU: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t28\nino:\t1064\n\
        drm-driver:\tamdgpu\ndrm-client-id:\t34\ndrm-pdev:\t0002:01:00.0\npasid:\t32772\n\
        drm-memory-vram:\t4096 KiB\ndrm-memory-gtt: \t2048 KiB\namd-evicted-vram:\t0 KiB\n\
        drm-shared-vram:\t9 KiB\ndrm-engine-gfx:\t123456789 ns\ndrm-engine-dma:\t17 ns\n";

    /// As the core of DRM writes it, with cycles.
    fn client(id: u64, cycles: u64) -> String {
        format!(
            "drm-driver:\tpanthor\ndrm-client-id:\t{id}\ndrm-pdev:\t0002:01:00.0\n\
             drm-engine-panthor:\t5 ns\ndrm-engine-capacity-panthor:\t4\n\
             drm-cycles-panthor:\t{cycles}\ndrm-total-cycles-panthor:\t999\n\
             drm-total-memory:\t8 MiB\ndrm-resident-memory:\t100\n"
        )
    }

    fn held_by(clients: &[u32]) -> HeldDevices {
        let functions = held_functions(&["0002:01:00.0"]).functions;
        let clients = clients.iter().map(|pid| (*pid, functions.clone())).collect();
        HeldDevices { functions, clients }
    }

    #[test]
    fn drm_clients_have_the_time_and_memory_they_used() {
        let tree = AccountTree::new();
        tree.write_file("proc/7/fdinfo/3", AMDGPU);
        tree.write_file("proc/7/fdinfo/0", "pos:\t0\nflags:\t02\n");
        // A copy, and a process that holds nothing.
        tree.write_file("proc/7/fdinfo/4", AMDGPU);
        tree.write_file("proc/9/fdinfo/3", client(50, 1));
        tree.write_file("proc/8/fdinfo/10", client(35, u64::MAX));
        let accounts = tree.read_accounts(&mut Drm::default(), &held_by(&[7, 8]));
        assert_eq!(
            account_lines(&accounts),
            [
                "0002:01:00.0 drm-cycles-panthor pid 8 client 35: 18446744073709551615 cycles",
                "0002:01:00.0 drm-engine-dma pid 7 client 34: 17 ns",
                "0002:01:00.0 drm-engine-gfx pid 7 client 34: 123456789 ns",
                "0002:01:00.0 drm-engine-panthor pid 8 client 35: 5 ns",
                "0002:01:00.0 gtt pid 7 client 34: 2097152 resident_bytes",
                "0002:01:00.0 memory pid 8 client 35: 100 resident_bytes",
                "0002:01:00.0 vram pid 7 client 34: 4194304 resident_bytes",
            ]
        );
        assert!(accounts.unread.is_empty());
    }

    #[test]
    fn a_client_that_processes_share_is_one_account_and_stays_where_it_is() {
        let tree = AccountTree::new();
        let mut drm = Drm::default();
        let owners = |accounts: &AccountValues| -> Vec<u32> {
            let pids: BTreeSet<u32> =
                accounts.values.keys().filter_map(|account| account.pid).collect();
            pids.into_iter().collect()
        };
        tree.write_file("proc/8/fdinfo/3", client(35, 1));
        assert_eq!(owners(&tree.read_accounts(&mut drm, &held_by(&[8]))), [8]);
        // One that received it, with a smaller number.
        tree.write_file("proc/7/fdinfo/3", client(35, 1));
        assert_eq!(owners(&tree.read_accounts(&mut drm, &held_by(&[7, 8]))), [8]);
        std::fs::remove_file(tree.root_path().join("proc/8/fdinfo/3")).unwrap();
        assert_eq!(owners(&tree.read_accounts(&mut drm, &held_by(&[7, 8]))), [7]);
        assert!(owners(&tree.read_accounts(&mut drm, &held_by(&[]))).is_empty());
    }

    #[test]
    fn other_files_of_a_process_are_checked_now_and_then() {
        let tree = AccountTree::new();
        let mut drm = Drm::default();
        tree.write_file("proc/7/fdinfo/3", "pos:\t0\n");
        assert!(tree.read_accounts(&mut drm, &held_by(&[7])).values.is_empty());
        tree.write_file("proc/7/fdinfo/3", client(35, 1));
        for _ in 1..READINGS {
            assert!(tree.read_accounts(&mut drm, &held_by(&[7])).values.is_empty());
        }
        assert_eq!(tree.read_accounts(&mut drm, &held_by(&[7])).values.len(), 3);
    }

    #[test]
    fn malformed_lines_of_fdinfo_have_no_value() {
        for line in [
            "drm-engine-gfx:\t5",
            "drm-engine-gfx:\t5 us",
            "drm-engine-gfx:\t-5 ns",
            "drm-engine-gfx:\t99999999999999999999 ns",
            "drm-cycles-gfx:\t5 ns",
            "drm-engine-capacity-gfx:\t2 ns",
            "drm-total-cycles-gfx:\t5",
            "drm-maxfreq-gfx:\t5 MHz",
            "drm-resident-vram:\t5 GiB",
            "drm-resident-vram:\t18446744073709551615 KiB",
            "drm-shared-vram:\t5",
            "drm-engine-gfx",
            "drm-pdev:\tnone",
            "drm-client-id:\t-1",
        ] {
            let parsed = parse_use(line).unwrap_or_default();
            assert_eq!(parsed, ClientUse::default(), "{line}");
        }
        assert_eq!(parse_use("pos:\t0\nflags:\t0100000\nmnt_id:\t15\nino:\t1\n"), None);
        // The first line of a key counts.
        let parsed = parse_use("drm-cycles-a: 1\ndrm-cycles-a: 9\n").unwrap();
        assert_eq!(parsed.values, [(Unit::Cycles, "drm-cycles-a".to_owned(), 1)]);
        let many_lines: Vec<String> = (0..1000).map(|n| format!("drm-cycles-{n}: 1\n")).collect();
        assert_eq!(parse_use(&many_lines.concat()).unwrap().values.len(), MOST_KEYS);
    }

    #[test]
    fn a_client_without_its_function_is_of_the_one_that_is_held() {
        let tree = AccountTree::new();
        tree.write_file("proc/7/fdinfo/3", "drm-driver: x\ndrm-cycles-a: 1\n");
        tree.write_file("proc/7/fdinfo/4", "drm-driver: x\ndrm-cycles-a: 2\n");
        tree.write_file(
            "proc/7/fdinfo/5",
            "drm-driver: x\ndrm-pdev: 0009:00:00.0\ndrm-cycles-a: 3\n",
        );
        let accounts = tree.read_accounts(&mut Drm::default(), &held_by(&[7]));
        assert_eq!(account_lines(&accounts), ["0002:01:00.0 drm-cycles-a pid 7: 1 cycles"]);
    }

    proptest! {
        #[test]
        fn no_text_of_fdinfo_panics(text in "(drm-[a-z]{0,9}-?[a-z]{0,3}: ?[0-9]{0,25} ?(ns|KiB|MiB|x)?\n|.){0,9}") {
            let _use = parse_use(&text);
        }
    }
}
