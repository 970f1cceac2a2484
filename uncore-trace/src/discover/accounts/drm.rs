//! GPUs and accelerators: what each open file of a process used, as the driver writes it to
//! `/proc/PID/fdinfo/FD` (`Documentation/gpu/drm-usage-stats.rst`, Linux 7.2).
//!
//! To read such a file takes the right to trace its process (`proc_fdinfo_permission`, fs/proc/fd.c,
//! Linux 6.1 to 7.2).

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::{Account, Accounts, Address, Found, Held, Source, Unit, names};
use crate::bounds;

/// Files that are read at once, some 10 us each.
const MOST_FILES: usize = 4096;

/// Largest number of keys of a client.
const MOST_KEYS: usize = 64;

/// After so many readings all files of a process are read again, not only those known to be of GPUs.
const READINGS: u32 = 10;

/// What is known of a process.
#[derive(Debug, Default)]
struct Process {
    /// Its descriptors of GPUs.
    files: Vec<String>,
    /// Readings until all its files are looked at.
    rest: u32,
}

/// A client: an open file that processes may share.
type Client = (Address, u64);

/// Reads clients.
#[derive(Debug, Default)]
pub(super) struct Drm {
    processes: BTreeMap<u32, Process>,
    /// The process whose account each client is.
    owners: BTreeMap<Client, u32>,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Use {
    function: Option<Address>,
    client: Option<u64>,
    values: Vec<(Unit, String, u64)>,
}

impl Accounts for Drm {
    fn read(&mut self, root: &Path, held: &Held, found: &mut Found) {
        self.processes.retain(|pid, _| held.clients.contains_key(pid));
        let mut rest = MOST_FILES;
        let mut clients: BTreeMap<Client, BTreeMap<u32, Use>> = BTreeMap::new();
        for (pid, behind) in &held.clients {
            for its in self.files(root, *pid, &mut rest, found) {
                let only = behind.first().filter(|_| behind.len() == 1);
                let function = its.function.as_ref().or(only).copied();
                let Some(function) = function.filter(|its| held.functions.contains(its)) else {
                    continue;
                };
                // Without a number, files cannot be told from copies.
                let client = (function, its.client.unwrap_or(u64::from(*pid)));
                clients.entry(client).or_default().entry(*pid).or_insert(its);
            }
        }
        if rest == 0 {
            found.note(Source::Drm, &format!("only {MOST_FILES} files of processes are read"));
        }
        let before = std::mem::take(&mut self.owners);
        for (client, mut users) in clients {
            let owner = before.get(&client).filter(|pid| users.contains_key(pid));
            let Some(pid) = owner.or(users.keys().next()).copied() else { continue };
            let Some(its) = users.remove(&pid) else { continue };
            self.owners.insert(client, pid);
            for (unit, name, value) in its.values {
                let account = Account {
                    function: client.0,
                    source: Source::Drm,
                    name: Arc::from(name),
                    direction: None,
                    unit,
                    pid: Some(pid),
                    client: its.client,
                };
                found.add(account, value);
            }
        }
    }
}

impl Drm {
    /// What the files of a process say.
    fn files(&mut self, root: &Path, pid: u32, rest: &mut usize, found: &mut Found) -> Vec<Use> {
        let dir = root.join("proc").join(pid.to_string()).join("fdinfo");
        let process = self.processes.entry(pid).or_default();
        let looks = process.rest == 0;
        if looks {
            process.files = names(&dir).into_iter().filter(|name| is_number(name)).collect();
            process.rest = READINGS;
        }
        process.rest -= 1;
        let mut uses = Vec::new();
        process.files.retain(|file| {
            if *rest == 0 {
                return !looks;
            }
            *rest -= 1;
            match bounds::bytes(&dir.join(file), super::MOST_BYTES) {
                Ok(bytes) => match parse(&String::from_utf8_lossy(&bytes)) {
                    Some(its) => {
                        uses.push(its);
                        true
                    }
                    None => false,
                },
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => {
                    found.note(Source::Drm, &format!("{}/{file}: {error}", dir.display()));
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
fn parse(text: &str) -> Option<Use> {
    let mut its = Use::default();
    let mut is_drm = false;
    let mut held: BTreeMap<String, (u8, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let Some(key) = key.trim().strip_prefix("drm-") else { continue };
        is_drm = true;
        let value = value.trim();
        if !seen.insert(key) || seen.len() > MOST_KEYS {
            continue;
        }
        match key {
            "pdev" => its.function = value.parse().ok(),
            "client-id" => its.client = value.parse().ok(),
            _ => {
                if let Some((unit, sum)) = sum(key, value) {
                    its.values.push((unit, format!("drm-{key}"), sum));
                } else if let Some((order, region, bytes)) = memory(key, value) {
                    let best = held.entry(region.to_owned()).or_insert((order, bytes));
                    *best = (*best).min((order, bytes));
                }
            }
        }
    }
    let held = held.into_iter();
    its.values.extend(held.map(|(region, (_, bytes))| (Unit::Resident, region, bytes)));
    is_drm.then_some(its)
}

/// A sum that grows: the time or the cycles in which an engine worked.
fn sum(key: &str, value: &str) -> Option<(Unit, u64)> {
    if key.starts_with("engine-capacity-") {
        return None;
    }
    if key.starts_with("engine-") {
        // A time without its unit is none.
        return Some((Unit::Ns, value.strip_suffix("ns")?.trim_end().parse().ok()?));
    }
    key.starts_with("cycles-").then(|| Some((Unit::Cycles, value.parse().ok()?)))?
}

/// Memory of a region in bytes; the smallest order is the best: what is resident, by its older name, or
/// what was asked for.
fn memory<'a>(key: &'a str, value: &str) -> Option<(u8, &'a str, u64)> {
    if key.starts_with("total-cycles-") {
        return None;
    }
    let mut orders = ["resident-", "memory-", "total-"].into_iter().zip(0..);
    let (region, order) =
        orders.find_map(|(prefix, order)| Some((key.strip_prefix(prefix)?, order)))?;
    let (number, unit) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let scale = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    Some((order, region, number.parse::<u64>().ok()?.checked_mul(scale)?))
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

    fn both(clients: &[u32]) -> Held {
        let functions = held(&["0002:01:00.0"]).functions;
        let clients = clients.iter().map(|pid| (*pid, functions.clone())).collect();
        Held { functions, clients }
    }

    #[test]
    fn what_clients_used() {
        let tree = Tree::new();
        tree.write("proc/7/fdinfo/3", AMDGPU);
        tree.write("proc/7/fdinfo/0", "pos:\t0\nflags:\t02\n");
        // A copy, and a process that holds nothing.
        tree.write("proc/7/fdinfo/4", AMDGPU);
        tree.write("proc/9/fdinfo/3", client(50, 1));
        tree.write("proc/8/fdinfo/10", client(35, u64::MAX));
        let found = tree.read(&mut Drm::default(), &both(&[7, 8]));
        assert_eq!(
            lines(&found),
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
        assert!(found.unread.is_empty());
    }

    #[test]
    fn a_client_that_processes_share_is_one_account_and_stays_where_it_is() {
        let tree = Tree::new();
        let mut drm = Drm::default();
        let owners = |found: &Found| -> Vec<u32> {
            let pids: BTreeSet<u32> = found.values.keys().filter_map(|its| its.pid).collect();
            pids.into_iter().collect()
        };
        tree.write("proc/8/fdinfo/3", client(35, 1));
        assert_eq!(owners(&tree.read(&mut drm, &both(&[8]))), [8]);
        // One that received it, with a smaller number.
        tree.write("proc/7/fdinfo/3", client(35, 1));
        assert_eq!(owners(&tree.read(&mut drm, &both(&[7, 8]))), [8]);
        std::fs::remove_file(tree.root().join("proc/8/fdinfo/3")).unwrap();
        assert_eq!(owners(&tree.read(&mut drm, &both(&[7, 8]))), [7]);
        assert!(owners(&tree.read(&mut drm, &both(&[]))).is_empty());
    }

    #[test]
    fn other_files_of_a_process_are_looked_at_now_and_then() {
        let tree = Tree::new();
        let mut drm = Drm::default();
        tree.write("proc/7/fdinfo/3", "pos:\t0\n");
        assert!(tree.read(&mut drm, &both(&[7])).values.is_empty());
        tree.write("proc/7/fdinfo/3", client(35, 1));
        for _ in 1..READINGS {
            assert!(tree.read(&mut drm, &both(&[7])).values.is_empty());
        }
        assert_eq!(tree.read(&mut drm, &both(&[7])).values.len(), 3);
    }

    #[test]
    fn what_is_no_value_gives_none() {
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
            let its = parse(line).unwrap_or_default();
            assert_eq!(its, Use::default(), "{line}");
        }
        assert_eq!(parse("pos:\t0\nflags:\t0100000\nmnt_id:\t15\nino:\t1\n"), None);
        // The first line of a key counts.
        let its = parse("drm-cycles-a: 1\ndrm-cycles-a: 9\n").unwrap();
        assert_eq!(its.values, [(Unit::Cycles, "drm-cycles-a".to_owned(), 1)]);
        let many: Vec<String> = (0..1000).map(|n| format!("drm-cycles-{n}: 1\n")).collect();
        assert_eq!(parse(&many.concat()).unwrap().values.len(), MOST_KEYS);
    }

    #[test]
    fn a_client_without_its_function_is_of_the_one_that_is_held() {
        let tree = Tree::new();
        tree.write("proc/7/fdinfo/3", "drm-driver: x\ndrm-cycles-a: 1\n");
        tree.write("proc/7/fdinfo/4", "drm-driver: x\ndrm-cycles-a: 2\n");
        tree.write("proc/7/fdinfo/5", "drm-driver: x\ndrm-pdev: 0009:00:00.0\ndrm-cycles-a: 3\n");
        let found = tree.read(&mut Drm::default(), &both(&[7]));
        assert_eq!(lines(&found), ["0002:01:00.0 drm-cycles-a pid 7: 1 cycles"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(drm-[a-z]{0,9}-?[a-z]{0,3}: ?[0-9]{0,25} ?(ns|KiB|MiB|x)?\n|.){0,9}") {
            let _use = parse(&text);
        }
    }
}
