//! Finds the PCI functions whose traffic a counter counts.

use serde::{Deserialize, Serialize};

use super::Plan;
use super::io::DevicesBelow;
use super::resolve::ResolvedEvent;
use crate::catalog::devices_behind::{self, AttachedSocket};
use crate::catalog::pmu_words::PmuWords;
use crate::discover::Machine;
use crate::discover::pci::{PciAddress, PciFunction};

/// PCI base class of network controllers (`PCI_BASE_CLASS_NETWORK`, `include/linux/pci_ids.h`).
const NETWORK: u32 = 0x02;

/// Number of functions that name a link.
const FEW: usize = 3;

/// A function whose traffic a counter counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFunction {
    /// Its address.
    pub function: PciAddress,
    /// Whether it may move bytes of which nothing else is known while no process holds it: it is a
    /// network controller with a driver and no interface here, which may be in another network
    /// namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// Whether it has a disk or an interface here, whose requests are those of the kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requests: bool,
}

impl Plan {
    /// Whether any of its counters counts traffic of devices that a process may hold.
    pub fn has_devices(&self) -> bool {
        self.counters.iter().any(|counter| !counter.behind.is_empty())
    }
}

/// The functions whose traffic `event` counts on `cpu`, in ascending order; none if they are not
/// known.
///
/// `below` is what is below its root ports.
pub(super) fn counted_functions<'a>(
    machine: &'a Machine,
    event: &ResolvedEvent<'_>,
    cpu: u32,
    below: Option<&DevicesBelow<'a>>,
) -> Vec<CountedFunction> {
    let (words, counted) = (event.words, &event.functions);
    let functions: Vec<&PciFunction> = if counted.is_empty() {
        let below = below.map(|below| below.functions.clone());
        below.unwrap_or_else(|| functions_of_rule(machine, words, cpu))
    } else {
        counted.iter().filter_map(|address| machine.devices.find_function(*address)).collect()
    };
    let behind = |function: &PciFunction| {
        let is_network = function.class >> 16 == NETWORK;
        let requests = machine.devices.names_of(function.address).next().is_some();
        let unseen = is_network && function.has_driver && !requests;
        CountedFunction { function: function.address, unseen, requests }
    };
    functions.into_iter().map(behind).collect()
}

/// The same without root ports, if they are few enough to name a link.
pub(super) fn few_functions<'a>(
    machine: &'a Machine,
    words: PmuWords<'_>,
    cpu: u32,
) -> Vec<&'a PciFunction> {
    let functions = functions_of_rule(machine, words, cpu);
    if functions.len() > FEW { Vec::new() } else { functions }
}

/// The functions of the first rule that has any.
fn functions_of_rule<'a>(
    machine: &'a Machine,
    words: PmuWords<'_>,
    cpu: u32,
) -> Vec<&'a PciFunction> {
    let rules = words.family.map_or(&[][..], |family| &family.behind);
    let is_here = |rule: &&devices_behind::BehindRule| words.pmu.has_peer(rule.peer.as_ref());
    let functions = |rule: &devices_behind::BehindRule| -> Vec<&'a PciFunction> {
        let devices = machine.devices.pci.iter().filter(|function| !function.is_bridge());
        devices
            .filter(|function| {
                rule.vendor.is_none_or(|vendor| function.vendor == vendor)
                    && rule.class.is_none_or(|class| function.class >> 16 == class)
                    && is_attached(machine, function, rule.socket, cpu)
            })
            .collect()
    };
    let first_match =
        rules.iter().filter(is_here).map(functions).find(|matched| !matched.is_empty());
    first_match.unwrap_or_default()
}

/// Whether a function is attached to this side of the socket of `cpu`. On a machine with one
/// socket, all are attached to it.
fn is_attached(
    machine: &Machine,
    function: &PciFunction,
    attached_to: AttachedSocket,
    cpu: u32,
) -> bool {
    let cpus = &machine.cpus;
    let package = cpus.cpu_location(cpu).package;
    let near = |node: u32| cpus.first_of_node(node).map(|cpu| cpus.cpu_location(cpu));
    let attached_package = match function.numa_node {
        _ if cpus.has_one_package() => Some(package),
        node => node.and_then(near).map(|location| location.package),
    };
    attached_package
        .is_some_and(|attached| (attached == package) == (attached_to == AttachedSocket::Own))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;
    use crate::catalog::Catalog;
    use crate::discover::captured_machine;
    use crate::plan::{PlanRequest, plan};

    const PEER: (&str, &str) = ("t410-2s", "nvidia_nvlink_c2c_pmu_0/in_rd_req/");

    /// What is behind the only counter of `event`, on a machine with a GPU or another device on
    /// each socket.
    fn behind(machine: &str, event: &str, class: u32) -> (Vec<CountedFunction>, Option<String>) {
        let mut machine = captured_machine(machine);
        let root: PciAddress = "0007:00:00.0".parse().unwrap();
        machine.devices.pci.clear();
        for (node, name) in [(0, "0009:01:00.0"), (1, "0019:01:00.0")] {
            machine.devices.pci.push(PciFunction {
                address: name.parse().unwrap(),
                top: root,
                class: class << 16,
                vendor: 0x10de,
                numa_node: Some(node),
                tegra: None,
                physical: None,
                has_driver: true,
                speed: None,
            });
        }
        let request = PlanRequest {
            events: vec![event.to_owned()],
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        let plan = plan(&machine, &Catalog::load_embedded().unwrap(), &request).unwrap();
        let [counter] = plan.counters.as_slice() else { panic!("{plan:?}") };
        assert!(plan.has_devices() != counter.behind.is_empty());
        (counter.behind.clone(), plan.links.first().map(|link| link.name.clone()))
    }

    fn expected_functions(functions: &[(&str, bool)]) -> Vec<CountedFunction> {
        let counted_function = |&(function, unseen): &(&str, bool)| CountedFunction {
            function: PciAddress::from_str(function).unwrap(),
            unseen,
            requests: false,
        };
        functions.iter().map(counted_function).collect()
    }

    #[test]
    fn links_to_gpus_have_those_of_their_socket_behind_them() {
        for (socket, gpu) in [(0, "0009:01:00.0"), (1, "0019:01:00.0")] {
            for pmu in ["nvidia_nvlink_c2c0_pmu", "nvidia_nvlink_c2c1_pmu"] {
                let event = format!("{pmu}_{socket}/rd_bytes_loc/");
                let (functions, link) = behind("grace-2s", &event, 0x03);
                assert_eq!(functions, expected_functions(&[(gpu, false)]), "{event}");
                assert!(link.unwrap().ends_with(&format!(" GPU {gpu}")));
            }
        }
        assert_eq!(behind(PEER.0, PEER.1, 0x03).0, expected_functions(&[("0009:01:00.0", false)]));
        // The other end is a CPU, which counts GPUs of the other socket and its CPUs.
        assert_eq!(behind("t410-2s", "nvidia_nvlink_c2c_pmu_1/in_rd_req/", 0x03).0, []);
    }

    #[test]
    fn without_a_gpu_the_other_socket_is_behind_the_link() {
        // Network controllers without an interface here.
        let event = "nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/";
        assert_eq!(
            behind("grace-2s", event, NETWORK).0,
            expected_functions(&[("0019:01:00.0", true)])
        );
        let event = "nvidia_cnvlink_pmu_1/rd_bytes_loc/";
        assert_eq!(
            behind("grace-2s", event, 0x03).0,
            expected_functions(&[("0009:01:00.0", false)])
        );
        assert_eq!(behind("grace-2s", "nvidia_nvlink_c2c1_pmu_0/rd_bytes_loc/", NETWORK).0, []);
        // Traffic of CPUs.
        assert_eq!(behind("grace-2s", "nvidia_scf_pmu_0/cmem_rd_data/", 0x03).0, []);
    }
}
