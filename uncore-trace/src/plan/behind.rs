//! Finds the PCI functions whose traffic a counter counts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Plan;
use super::io::Below;
use crate::catalog::behind::{self, Side};
use crate::catalog::encode::Encoded;
use crate::catalog::words::Words;
use crate::discover::Machine;
use crate::discover::pci::{Address, Function};

/// PCI base class of network controllers (`PCI_BASE_CLASS_NETWORK`, `include/linux/pci_ids.h`).
const NETWORK: u32 = 0x02;

/// Number of functions that name a link.
const FEW: usize = 3;

/// A function whose traffic a counter counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// Its address.
    pub function: Address,
    /// Whether it may move bytes of which nothing else is known while no process holds it: it is a
    /// network controller without an interface here, which may be in another network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

impl Plan {
    /// Whether any of its counters counts traffic of devices that a process may hold.
    pub fn has_devices(&self) -> bool {
        self.counters.iter().any(|counter| !counter.behind.is_empty())
    }
}

/// The functions whose traffic `encoded` counts on `cpu`, in ascending order; none if they are not
/// known.
pub(super) fn of(machine: &Machine, words: Words<'_>, encoded: &Encoded, cpu: u32) -> Vec<Behind> {
    let below = Below::of(machine, words, encoded, cpu);
    let functions = below.map_or_else(|| of_rules(machine, words, cpu), |below| below.functions);
    let behind = |function: &Function| {
        let is_network = function.class >> 16 == NETWORK;
        let unseen = is_network && machine.devices.names_of(function.address).next().is_none();
        Behind { function: function.address, unseen }
    };
    functions.into_iter().map(behind).collect()
}

/// The same without root ports, if they are few enough to name a link.
pub(super) fn few<'a>(machine: &'a Machine, words: Words<'_>, cpu: u32) -> Vec<&'a Function> {
    let functions = of_rules(machine, words, cpu);
    if functions.len() > FEW { Vec::new() } else { functions }
}

/// The functions of the first rule that has any.
fn of_rules<'a>(machine: &'a Machine, words: Words<'_>, cpu: u32) -> Vec<&'a Function> {
    let rules = words.family.map_or(&[][..], |family| &family.behind);
    let peers = &words.pmu.peers;
    let is_here = |rule: &&behind::Behind| {
        rule.peer.as_ref().is_none_or(|peer| peers.get(peer).is_some_and(|number| *number > 0))
    };
    let functions = |rule: &behind::Behind| -> Vec<&'a Function> {
        let all = machine.devices.pci.iter().filter(|function| !function.is_bridge());
        all.filter(|function| {
            rule.vendor.is_none_or(|vendor| function.vendor == vendor)
                && rule.class.is_none_or(|class| function.class >> 16 == class)
                && is_on(machine, function, rule.socket, cpu)
        })
        .collect()
    };
    let found = rules.iter().filter(is_here).map(functions).find(|found| !found.is_empty());
    found.unwrap_or_default()
}

/// Whether a function is attached to this side of the socket of `cpu`. On a machine with one socket,
/// all are attached to it.
fn is_on(machine: &Machine, function: &Function, side: Side, cpu: u32) -> bool {
    let places = &machine.cpus.places;
    let own = places.get(&cpu).and_then(|place| place.package);
    let packages: BTreeSet<_> = places.values().map(|place| place.package).collect();
    let near = |node: u32| places.values().find(|place| place.node == Some(node));
    let at = match function.numa_node {
        _ if packages.len() <= 1 => Some(own),
        node => node.and_then(near).map(|place| place.package),
    };
    at.is_some_and(|at| (at == own) == (side == Side::Own))
}
