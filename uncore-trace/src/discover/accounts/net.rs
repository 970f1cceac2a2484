//! Network interfaces: the bytes that a function received and sent as packets.

use std::path::Path;

use super::{AccountSource, AccountValues, HeldDevices, IoDirection, ReadAccounts, class_devices};
use crate::bounds;

/// The files with sums of bytes (`Documentation/ABI/testing/sysfs-class-net-statistics`, Linux
/// 7.2).
const SUMS: [(&str, IoDirection); 2] =
    [("rx_bytes", IoDirection::Read), ("tx_bytes", IoDirection::Write)];

/// `ARPHRD_INFINIBAND` (`include/uapi/linux/if_arp.h`, Linux 7.2): the ports of the RDMA device
/// count the same bytes.
const INFINIBAND: &str = "32";

/// Reads interfaces.
#[derive(Debug)]
pub(super) struct Net;

impl ReadAccounts for Net {
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues) {
        for function in &held.functions {
            for (name, dir) in class_devices(root, *function, "net") {
                if is_representor(&dir) || read_text(&dir, "type").as_deref() == Some(INFINIBAND) {
                    continue;
                }
                for (file, direction) in SUMS {
                    let path = dir.join("statistics").join(file);
                    if let Some(bytes) = reading.read_number(AccountSource::Net, &path) {
                        let name = format!("{name}/{file}");
                        reading.add_bytes(*function, AccountSource::Net, &name, direction, bytes);
                    }
                }
            }
        }
    }
}

/// Whether an interface stands for another function, such as the representor of a virtual one: its
/// port has a name like `pf0vf3` (`__devlink_port_phys_port_name_get`, net/devlink/port.c, Linux
/// 7.2).
pub(super) fn is_representor(dir: &Path) -> bool {
    read_text(dir, "phys_port_name").is_some_and(|name| name.contains("pf"))
}

/// A file's text; `None` too where the driver does not know, which is an error of reading.
pub(super) fn read_text(dir: &Path, file: &str) -> Option<String> {
    Some(bounds::read_text(&dir.join(file), super::MOST_BYTES).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fake::*;
    use super::*;

    #[test]
    fn held_functions_have_the_bytes_of_their_interfaces() {
        let tree = AccountTree::new();
        let (first_function, second_function) =
            (tree.add_function("0002:01:00.0"), tree.add_function("0002:01:00.1"));
        let not_held = tree.add_function("0002:02:00.0");
        for (dir, rx, tx) in [
            (format!("{first_function}/net/eth0"), "100\n", "18446744073709551615\n"),
            (format!("{second_function}/virtio2/net/eth1"), "7\n", "not a number\u{1b}\n"),
            (format!("{not_held}/net/eth2"), "1\n", "1\n"),
            // Another function below it.
            (format!("{first_function}/0002:03:00.0/net/eth3"), "1\n", "1\n"),
            (format!("{first_function}/net/rep0"), "1\n", "1\n"),
            (format!("{first_function}/net/ib0"), "1\n", "1\n"),
        ] {
            tree.write_file(&format!("{dir}/statistics/rx_bytes"), rx);
            tree.write_file(&format!("{dir}/statistics/tx_bytes"), tx);
        }
        tree.write_file(&format!("{first_function}/net/eth0/phys_port_name"), "p0\n");
        tree.write_file(&format!("{first_function}/net/rep0/phys_port_name"), "c1pf0vf3\n");
        tree.write_file(&format!("{first_function}/net/ib0/type"), "32\n");
        let accounts_read = tree.read_accounts(
            &mut Net,
            &held_functions(&["0002:01:00.0", "0002:01:00.1", "0009:00:00.0"]),
        );
        assert_eq!(
            account_lines(&accounts_read),
            [
                "0002:01:00.0 eth0/rx_bytes read: 100 bytes",
                "0002:01:00.0 eth0/tx_bytes write: 18446744073709551615 bytes",
                "0002:01:00.1 eth1/rx_bytes read: 7 bytes",
            ]
        );
        let unread = &accounts_read.unread[&AccountSource::Net];
        assert!(unread.contains("eth1/statistics/tx_bytes: \"not a number"), "{unread}");
        assert!(!unread.contains('\u{1b}'));
    }

    #[test]
    fn links_do_not_lead_out_of_the_tree() {
        let tree = AccountTree::new();
        tree.add_link("sys/bus/pci/devices/0002:01:00.0", "../../../devices/../../../etc");
        tree.add_link("sys/bus/pci/devices/0002:01:00.1", "/sys/devices");
        let accounts_read =
            tree.read_accounts(&mut Net, &held_functions(&["0002:01:00.0", "0002:01:00.1"]));
        assert_eq!(accounts_read, AccountValues::default());
    }
}
