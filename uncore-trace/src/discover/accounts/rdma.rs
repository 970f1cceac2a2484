//! RDMA devices: the bytes that the ports of a function received and sent.

use std::path::Path;

use super::{
    AccountSource, AccountValues, HeldDevices, IoDirection, ReadAccounts, class_devices, dir_names,
};

/// The files of a port with sums of octets, divided by 4 (`port_xmit_data`, `port_rcv_data` in
/// `Documentation/ABI/stable/sysfs-class-infiniband`, Linux 7.2). On Ethernet, they have what RDMA
/// moved (`received_ib_unicast.octets` and others, drivers/infiniband/hw/mlx5/mad.c).
const SUMS: [(&str, IoDirection); 2] =
    [("port_rcv_data", IoDirection::Read), ("port_xmit_data", IoDirection::Write)];

/// Octets of a count.
const OCTETS: u64 = 4;

/// The files in `hw_counters` of drivers without the above, in bytes (drivers/infiniband/hw, Linux
/// 6.1 to 7.2): `rx_bytes` and `tx_bytes` of efa (`efa_verbs.c`), `bnxt_re` (`hw_counters.c`) and
/// mana (`counters.c`), the next two of erdma (`erdma_verbs.c`), the others of irdma (`verbs.c`).
const OF_DRIVERS: [(&str, IoDirection); 8] = [
    ("rx_bytes", IoDirection::Read),
    ("tx_bytes", IoDirection::Write),
    ("rx_bytes_cnt", IoDirection::Read),
    ("tx_bytes_cnt", IoDirection::Write),
    ("ip4InOctets", IoDirection::Read),
    ("ip6InOctets", IoDirection::Read),
    ("ip4OutOctets", IoDirection::Write),
    ("ip6OutOctets", IoDirection::Write),
];

/// Reads ports.
#[derive(Debug)]
pub(super) struct Rdma;

impl ReadAccounts for Rdma {
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues) {
        for function in &held.functions {
            let source = AccountSource::Rdma;
            for (device, dir) in class_devices(root, *function, "infiniband") {
                let ports = dir.join("ports");
                for port in dir_names(&ports) {
                    let dir = ports.join(&port);
                    let mut sums = |table: &[(&str, IoDirection)], within: &str, octets: u64| {
                        let mut any = false;
                        for (file, direction) in table {
                            let path = dir.join(within).join(file);
                            let Some(count) = reading.read_number(source, &path) else { continue };
                            any = true;
                            let name = format!("{device}/{port}/{file}");
                            match count.checked_mul(octets) {
                                Some(bytes) => {
                                    reading.add_bytes(*function, source, &name, *direction, bytes);
                                }
                                None => {
                                    reading.note_unread(source, &format!("{name} is too large"));
                                }
                            }
                        }
                        any
                    };
                    if !sums(&SUMS, "counters", OCTETS) {
                        sums(&OF_DRIVERS, "hw_counters", 1);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::*;
    use super::*;

    #[test]
    fn port_counts_are_in_units_of_four_bytes_and_driver_counts_in_bytes() {
        let tree = AccountTree::new();
        let (first_function, second_function) =
            (tree.add_function("0002:01:00.0"), tree.add_function("0002:02:00.0"));
        let port = format!("{first_function}/infiniband/mlx5_0/ports");
        tree.write_file(&format!("{port}/1/counters/port_rcv_data"), "25\n");
        tree.write_file(&format!("{port}/1/counters/port_xmit_data"), "0\n");
        tree.write_file(&format!("{port}/1/hw_counters/rx_bytes"), "9\n");
        // More than 64 bits.
        tree.write_file(&format!("{port}/2/counters/port_rcv_data"), format!("{}\n", u64::MAX / 2));
        let efa = format!("{second_function}/infiniband/efa_0/ports/1/hw_counters");
        tree.write_file(&format!("{efa}/rx_bytes"), "11\n");
        tree.write_file(&format!("{efa}/tx_bytes"), "12\n");
        tree.write_file(&format!("{efa}/tx_pkts"), "13\n");
        let accounts_read =
            tree.read_accounts(&mut Rdma, &held_functions(&["0002:01:00.0", "0002:02:00.0"]));
        assert_eq!(
            account_lines(&accounts_read),
            [
                "0002:01:00.0 mlx5_0/1/port_rcv_data read: 100 bytes",
                "0002:01:00.0 mlx5_0/1/port_xmit_data write: 0 bytes",
                "0002:02:00.0 efa_0/1/rx_bytes read: 11 bytes",
                "0002:02:00.0 efa_0/1/tx_bytes write: 12 bytes",
            ]
        );
        assert_eq!(
            accounts_read.unread[&AccountSource::Rdma],
            "mlx5_0/2/port_rcv_data is too large"
        );
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_not_zero() {
        let tree = AccountTree::new();
        let function_dir = tree.add_function("0002:01:00.0");
        let port = format!("{function_dir}/infiniband/mlx5_0/ports/1/counters");
        tree.write_file(&format!("{port}/port_rcv_data"), "N/A\n");
        tree.write_file(&format!("{port}/port_xmit_data"), "-1\n");
        let accounts_read = tree.read_accounts(&mut Rdma, &held_functions(&["0002:01:00.0"]));
        assert!(accounts_read.values.is_empty());
        assert!(accounts_read.unread[&AccountSource::Rdma].contains("not a number"));
    }
}
