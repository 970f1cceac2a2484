//! AMD's driver for compute: for each process, how long engines copied for it, and its memory on
//! each GPU. Every user may read these files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::net::read_text;
use super::{
    Account, AccountSource, AccountValues, HeldDevices, PciAddress, ReadAccounts, Unit, dir_names,
};

/// `/sys/class/kfd/kfd`. The directory `proc` has one for each process, named by its number
/// (`kfd_create_process`, `drivers/gpu/drm/amd/amdkfd/kfd_process.c`, Linux 6.1 and 6.12).
const KFD: &str = "sys/devices/virtual/kfd/kfd";

/// Nanoseconds of a count of `sdma_GPU` (`SDMA_ACTIVITY_DIVISOR`, `kfd_priv.h`, Linux 6.12:
/// microseconds).
const NS: u64 = 1000;

/// Reads processes.
#[derive(Debug)]
pub(super) struct Kfd;

impl ReadAccounts for Kfd {
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues) {
        let dir = root.join(KFD);
        let gpus = gpus_by_id(&dir);
        for process in dir_names(&dir.join("proc")) {
            let Ok(pid) = process.parse::<u32>() else { continue };
            let dir = dir.join("proc").join(process);
            for (id, function) in
                gpus.iter().filter(|(_, gpu_function)| held.functions.contains(gpu_function))
            {
                for (counter_name, unit, scale) in
                    [("sdma", Unit::Ns, NS), ("vram", Unit::Resident, 1)]
                {
                    let path = dir.join(format!("{counter_name}_{id}"));
                    let Some(count) = reading.read_number(AccountSource::Kfd, &path) else {
                        continue;
                    };
                    let Some(value) = count.checked_mul(scale) else {
                        reading.note_unread(
                            AccountSource::Kfd,
                            &format!("{} is too large", path.display()),
                        );
                        continue;
                    };
                    let account = Account {
                        function: *function,
                        source: AccountSource::Kfd,
                        name: Arc::from(counter_name),
                        direction: None,
                        unit,
                        pid: Some(pid),
                        client: None,
                    };
                    reading.add_account(account, value);
                }
            }
        }
    }
}

/// The function of each GPU, by its id in the names of files.
fn gpus_by_id(dir: &Path) -> BTreeMap<u32, PciAddress> {
    let nodes = dir.join("topology/nodes");
    let gpu = |node: String| {
        let dir = nodes.join(node);
        // 0: a CPU.
        let id = read_text(&dir, "gpu_id")?.parse().ok().filter(|id| *id != 0)?;
        let text = read_text(&dir, "properties")?;
        let property = |name: &str| -> Option<u32> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        // `pci_dev_id`: bus << 8 | device << 3 | function (kfd_topology.c, Linux 6.12).
        let location = property("location_id").filter(|location| *location <= 0xffff)?;
        let (bus, device) = ((location >> 8) as u8, (location >> 3 & 0x1f) as u8);
        let function = (location & 7) as u8;
        Some((id, PciAddress { domain: property("domain")?, bus, device, function }))
    };
    dir_names(&nodes).into_iter().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fake::*;
    use super::*;

    #[test]
    fn kfd_processes_have_what_they_used_of_each_gpu() {
        let tree = AccountTree::new();
        let node = |number: u32, id: u32, properties: &str| {
            let dir = format!("{KFD}/topology/nodes/{number}");
            tree.write_file(&format!("{dir}/gpu_id"), format!("{id}\n"));
            tree.write_file(&format!("{dir}/properties"), properties);
        };
        node(0, 0, "cpu_cores_count 64\nlocation_id 256\ndomain 2\n");
        node(1, 51661, "simd_count 440\nlocation_id 267\ndomain 2\n");
        node(2, 7, "location_id 512\ndomain 2\n");
        node(3, 8, "location_id 99999999\ndomain 2\n");
        for (file, value) in [
            ("4242/sdma_51661", "1500\n"),
            ("4242/vram_51661", "8589934592\n"),
            ("4242/sdma_7", "1\n"),
            ("4242/pasid", "32770\n"),
            ("4243/sdma_51661", "18446744073709551615\n"),
            ("4243/vram_51661", "-\n"),
            ("self/sdma_51661", "1\n"),
        ] {
            tree.write_file(&format!("{KFD}/proc/{file}"), value);
        }
        let accounts_read = tree.read_accounts(&mut Kfd, &held_functions(&["0002:01:01.3"]));
        assert_eq!(
            account_lines(&accounts_read),
            [
                "0002:01:01.3 sdma pid 4242: 1500000 ns",
                "0002:01:01.3 vram pid 4242: 8589934592 resident_bytes",
            ]
        );
        assert!(accounts_read.unread[&AccountSource::Kfd].contains("sdma_51661 is too large"));
    }
}
