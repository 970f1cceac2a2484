//! Virtual functions (SR-IOV): the bytes that their physical function says they received and sent,
//! whoever drives them. The kernel tells by `RTM_GETLINK` with `RTEXT_FILTER_VF` of an interface of
//! the physical function: `rtnl_fill_vfinfo`, net/core/rtnetlink.c, Linux 6.1 to 7.2.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::net::{is_representor, read_text};
use super::{
    AccountSource, AccountValues, HeldDevices, IoDirection, PciAddress, ReadAccounts,
    class_devices, dir_names, function_dir,
};
use crate::discover::pci::linked_function;
use crate::discover::read_array;

/// Messages and attributes: `include/uapi/linux/{netlink,rtnetlink,if_link}.h`, Linux 6.1 to 7.2.
mod uapi {
    pub(super) const NLM_F_REQUEST: u16 = 1;
    pub(super) const NLMSG_ERROR: u16 = 2;
    pub(super) const RTM_NEWLINK: u16 = 16;
    pub(super) const RTM_GETLINK: u16 = 18;
    pub(super) const RTEXT_FILTER_VF: u32 = 1;
    pub(super) const IFLA_VFINFO_LIST: u16 = 22;
    pub(super) const IFLA_EXT_MASK: u16 = 29;
    pub(super) const IFLA_VF_INFO: u16 = 1;
    /// `struct ifla_vf_mac`: the number of the virtual function, and 32 bytes.
    pub(super) const IFLA_VF_MAC: u16 = 1;
    pub(super) const IFLA_VF_STATS: u16 = 8;
    pub(super) const IFLA_VF_STATS_RX_BYTES: u16 = 2;
    pub(super) const IFLA_VF_STATS_TX_BYTES: u16 = 3;
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` are no part of the type.
    pub(super) const NLA_TYPE_MASK: u16 = 0x3fff;
}

/// Size of `struct nlmsghdr` and of `struct ifinfomsg`.
const HEADERS: usize = 32;

/// Largest answer: an interface has some 300 bytes for each of its virtual functions, at most 65 536.
const MOST: usize = 1 << 20;

/// Answers to a question: the answer to an earlier one may wait, if it was not read.
const TRIES: usize = 8;

/// A socket by which the kernel is asked.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens the socket. A confined process cannot.
    ///
    /// # Errors
    ///
    /// There is none for this process.
    pub fn open() -> io::Result<Self> {
        let (family, socket_type) = (AddressFamily::NETLINK, SocketType::RAW);
        // NETLINK_ROUTE is protocol 0.
        let socket = socket_with(family, socket_type, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0, buffer: Vec::new() })
    }
}

/// Answers questions about interfaces.
pub(super) trait QueryInterface: Debug + Send {
    /// The message about the interface with this index, with its virtual functions.
    fn query_interface(&mut self, index: u32) -> io::Result<&[u8]>;
}

impl QueryInterface for Netlink {
    fn query_interface(&mut self, index: u32) -> io::Result<&[u8]> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &link_request(index, self.sequence), SendFlags::empty())?;
        self.buffer.resize(MOST, 0);
        for _ in 0..TRIES {
            // The kernel has answered when `send` returns.
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let (_, len) = recv(&self.socket, &mut self.buffer[..], flags)?;
            if len > MOST {
                return Err(io::Error::other("the kernel's answer is too long"));
            }
            if read_array(&self.buffer, 8).map(u32::from_ne_bytes) == Some(self.sequence) {
                return Ok(self.buffer.get(..len).unwrap_or_default());
            }
        }
        Err(io::Error::other("the kernel does not answer"))
    }
}

/// The question about an interface.
fn link_request(index: u32, sequence: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADERS + 8);
    message.extend((HEADERS as u32 + 8).to_ne_bytes());
    message.extend(uapi::RTM_GETLINK.to_ne_bytes());
    message.extend(uapi::NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    // The port; family, type; then the index, flags and changes.
    message.extend([0; 8]);
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(8_u16.to_ne_bytes());
    message.extend(uapi::IFLA_EXT_MASK.to_ne_bytes());
    message.extend(uapi::RTEXT_FILTER_VF.to_ne_bytes());
    message
}

/// Received and sent bytes of the virtual functions in an answer, by their numbers; none where
/// the driver does not count them, for which the kernel answers with 0.
fn parse_answer(message: &[u8]) -> Result<BTreeMap<u32, (u64, u64)>, String> {
    match read_array(message, 4).map(u16::from_ne_bytes) {
        Some(uapi::RTM_NEWLINK) => {}
        Some(uapi::NLMSG_ERROR) => {
            let errno = read_array(message, 16).map_or(0, i32::from_ne_bytes).wrapping_neg();
            return Err(io::Error::from_raw_os_error(errno).to_string());
        }
        _ => return Err("the kernel's answer is of another kind".to_owned()),
    }
    let attributes = message.get(HEADERS..).unwrap_or_default();
    let list = Attributes(attributes).find_bytes(uapi::IFLA_VFINFO_LIST);
    let vf_infos = Attributes(list.unwrap_or_default());
    let vf_sums =
        vf_infos.filter(|attribute| attribute.0 == uapi::IFLA_VF_INFO).filter_map(|(_, info)| {
            let number = read_array(Attributes(info).find_bytes(uapi::IFLA_VF_MAC)?, 0)?;
            let statistics = Attributes(info).find_bytes(uapi::IFLA_VF_STATS)?;
            let sum = |counter_type| -> Option<u64> {
                let bytes = Attributes(statistics).find_bytes(counter_type)?;
                Some(u64::from_ne_bytes(bytes.try_into().ok()?))
            };
            let (received, sent) =
                (sum(uapi::IFLA_VF_STATS_RX_BYTES)?, sum(uapi::IFLA_VF_STATS_TX_BYTES)?);
            Some((u32::from_ne_bytes(number), (received, sent)))
        });
    let sums_by_vf: BTreeMap<u32, (u64, u64)> = vf_sums.collect();
    let is_counted = sums_by_vf.values().any(|sums| *sums != (0, 0));
    Ok(if is_counted { sums_by_vf } else { BTreeMap::new() })
}

/// Attributes in a part of a message (`struct nlattr`): a length, a type, and bytes, each at a
/// multiple of 4. What does not fit ends it.
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The bytes of the first attribute of this type.
    fn find_bytes(mut self, attribute_type: u16) -> Option<&'a [u8]> {
        self.find(|attribute| attribute.0 == attribute_type).map(|(_, bytes)| bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let word = |offset| read_array(self.0, offset).map(u16::from_ne_bytes);
        let (len, attribute_type) = (usize::from(word(0)?), word(2)? & uapi::NLA_TYPE_MASK);
        let bytes = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((attribute_type, bytes))
    }
}

/// Reads virtual functions.
#[derive(Debug)]
pub(super) struct Vf<L> {
    interfaces: L,
}

impl<L: QueryInterface> Vf<L> {
    pub(super) const fn new(interfaces: L) -> Self {
        Self { interfaces }
    }

    /// The sums of all virtual functions of a physical one.
    fn read_sums(
        &mut self,
        root: &Path,
        physical: PciAddress,
        reading: &mut AccountValues,
    ) -> BTreeMap<u32, (u64, u64)> {
        for (name, dir) in class_devices(root, physical, "net") {
            let index = read_text(&dir, "ifindex").and_then(|text| text.parse().ok());
            let Some(index) = index.filter(|_| !is_representor(&dir)) else { continue };
            let answer = self
                .interfaces
                .query_interface(index)
                .map_err(|error| error.to_string())
                .and_then(parse_answer);
            match answer {
                Ok(sums) if sums.is_empty() => {}
                Ok(sums) => return sums,
                Err(error) => reading.note_unread(AccountSource::Vf, &format!("{name}: {error}")),
            }
        }
        BTreeMap::new()
    }
}

impl<L: QueryInterface> ReadAccounts for Vf<L> {
    fn read(&mut self, root: &Path, held: &HeldDevices, reading: &mut AccountValues) {
        let mut sums_by_physical: BTreeMap<PciAddress, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
        for function in &held.functions {
            let Some((physical, number)) = virtual_number(root, *function) else { continue };
            let sums = sums_by_physical
                .entry(physical)
                .or_insert_with(|| self.read_sums(root, physical, reading));
            let Some((received, sent)) = sums.get(&number).copied() else { continue };
            for (file_name, direction, bytes) in
                [("rx_bytes", IoDirection::Read, received), ("tx_bytes", IoDirection::Write, sent)]
            {
                let name = format!("{physical}/{number}/{file_name}");
                reading.add_bytes(*function, AccountSource::Vf, &name, direction, bytes);
            }
        }
    }
}

/// The physical function of a virtual one, and its number there: that of the link `virtfnN`
/// (`Documentation/ABI/testing/sysfs-bus-pci`, Linux 7.2).
fn virtual_number(root: &Path, function: PciAddress) -> Option<(PciAddress, u32)> {
    let physical = linked_function(&function_dir(root, function)?.join("physfn"))?;
    let dir = function_dir(root, physical)?;
    let number = dir_names(&dir).into_iter().find_map(|name| {
        let number = name.strip_prefix("virtfn")?.parse().ok()?;
        (linked_function(&dir.join(&name)) == Some(function)).then_some(number)
    });
    Some((physical, number?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fake::*;
    use super::*;

    fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
        let mut all = (bytes.len() as u16 + 4).to_ne_bytes().to_vec();
        all.extend(kind.to_ne_bytes());
        all.extend(bytes);
        all.resize(all.len().next_multiple_of(4), 0);
        all
    }

    /// A message with other attributes around those that are read.
    fn message(functions: &[(u32, Option<(u64, u64)>)]) -> Vec<u8> {
        let list: Vec<u8> = functions
            .iter()
            .flat_map(|(number, sums)| {
                let mac = [&number.to_ne_bytes()[..], &[7; 32]].concat();
                let mut info = attribute(uapi::IFLA_VF_MAC, &mac);
                info.extend(attribute(2, &[0xff; 12]));
                if let Some((received, sent)) = sums {
                    let packets = attribute(0, &99_u64.to_ne_bytes());
                    let received = attribute(uapi::IFLA_VF_STATS_RX_BYTES, &received.to_ne_bytes());
                    let sent = attribute(uapi::IFLA_VF_STATS_TX_BYTES, &sent.to_ne_bytes());
                    let padding = attribute(6, &[]);
                    info.extend(attribute(
                        uapi::IFLA_VF_STATS | 0x8000,
                        &[packets, padding, received, sent].concat(),
                    ));
                }
                attribute(uapi::IFLA_VF_INFO, &info)
            })
            .collect();
        let attributes = [
            attribute(3, b"eth0\0"),
            attribute(uapi::IFLA_VFINFO_LIST, &list),
            attribute(30, &[1]),
        ];
        let mut message = vec![0; HEADERS];
        message[4..6].copy_from_slice(&uapi::RTM_NEWLINK.to_ne_bytes());
        message.extend(attributes.concat());
        message
    }

    #[test]
    fn sums_of_virtual_functions_are_read_and_zeros_of_a_driver_that_counts_none_are_not() {
        let some = message(&[(0, Some((0, 0))), (1, Some((u64::MAX, 5))), (2, None)]);
        assert_eq!(parse_answer(&some).unwrap(), [(0, (0, 0)), (1, (u64::MAX, 5))].into());
        assert_eq!(
            parse_answer(&message(&[(0, Some((0, 0))), (1, Some((0, 0)))])).unwrap(),
            [].into()
        );
        assert_eq!(parse_answer(&message(&[])).unwrap(), [].into());
        let mut refused = vec![0; HEADERS];
        refused[4..6].copy_from_slice(&uapi::NLMSG_ERROR.to_ne_bytes());
        refused[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        assert!(parse_answer(&refused).unwrap_err().contains("No such device"));
        assert!(parse_answer(&[]).is_err());
    }

    proptest! {
        #[test]
        fn no_netlink_message_panics(
            flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
            len in any::<usize>(),
        ) {
            let mut message = message(&[(0, Some((1, 2))), (1, Some((3, 4)))]);
            for (at, byte) in flips {
                let at = at % message.len();
                message[at] = byte;
            }
            let _sums = parse_answer(&message[..len % (message.len() + 1)]);
        }
    }

    /// Answers from a table, for indexes of interfaces.
    #[derive(Debug)]
    struct Told(BTreeMap<u32, Vec<u8>>, Vec<u32>);

    impl QueryInterface for Told {
        fn query_interface(&mut self, index: u32) -> io::Result<&[u8]> {
            self.1.push(index);
            self.0.get(&index).map(Vec::as_slice).ok_or_else(|| io::Error::other("it is gone"))
        }
    }

    #[test]
    fn a_virtual_function_has_the_sums_of_its_number() {
        let tree = AccountTree::new();
        let physical = tree.add_function("0002:01:00.0");
        for (number, function) in [(0, "0002:01:00.2"), (11, "0002:01:01.5")] {
            let dir = tree.add_function(function);
            tree.add_link(&format!("{dir}/physfn"), "../0002:01:00.0");
            tree.add_link(&format!("{physical}/virtfn{number}"), &format!("../{function}"));
        }
        for (name, index) in [("eth0", 4), ("eth0_1", 5), ("eth9", 6)] {
            tree.write_file(&format!("{physical}/net/{name}/ifindex"), format!("{index}\n"));
        }
        tree.write_file(&format!("{physical}/net/eth0_1/phys_port_name"), "pf0vf1\n");
        let sums = message(&[(0, Some((1, 2))), (1, Some((8, 8))), (11, Some((3, 4)))]);
        let told = Told([(6, sums)].into(), Vec::new());
        let mut source = Vf::new(told);
        let all = ["0002:01:00.0", "0002:01:00.2", "0002:01:01.5"];
        let accounts_read = tree.read_accounts(&mut source, &held_functions(&all));
        assert_eq!(
            account_lines(&accounts_read),
            [
                "0002:01:00.2 0002:01:00.0/0/rx_bytes read: 1 bytes",
                "0002:01:00.2 0002:01:00.0/0/tx_bytes write: 2 bytes",
                "0002:01:01.5 0002:01:00.0/11/rx_bytes read: 3 bytes",
                "0002:01:01.5 0002:01:00.0/11/tx_bytes write: 4 bytes",
            ]
        );
        assert_eq!(accounts_read.unread[&AccountSource::Vf], "eth0: it is gone");
        // Once for both functions, and not the one that stands for another.
        assert_eq!(source.interfaces.1, [4, 6]);
    }

    /// The kernel of this machine answers about each interface, and about one that is not there.
    #[test]
    fn the_kernel_answers_about_each_interface() {
        let Ok(mut netlink) = Netlink::open() else { return };
        let dir = Path::new("/sys/class/net");
        for name in dir_names(dir) {
            let index = read_text(&dir.join(&name), "ifindex").unwrap().parse().unwrap();
            let answer = netlink.query_interface(index).unwrap();
            let has_name = Attributes(&answer[HEADERS..]).any(|(kind, bytes)| {
                kind == 3 && bytes.strip_suffix(b"\0") == Some(name.as_bytes())
            });
            assert!(has_name, "{name}");
            parse_answer(answer).unwrap();
        }
        let error = parse_answer(netlink.query_interface(0x7fff_fffe).unwrap()).unwrap_err();
        assert!(error.contains("No such device"), "{error}");
    }
}
