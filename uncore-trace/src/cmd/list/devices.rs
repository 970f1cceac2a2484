//! The PCI devices, and for each the root port above it, the PMU and filter that count it,
//! and its device files with who has them open.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use super::holders::{FileHolder, HeldFiles, read_assignments};
use super::{CellColumn, View, cell_text, draw_rows};
use crate::discover::nodes::{DeviceDrivers, DeviceNode, DeviceNumber};
use crate::discover::pci::{PciAddress, PciFunction};
use crate::plan::pmus::PmuIndex;
use crate::plan::port_pmu::PortPmu;
use crate::table::ColumnFit;
use crate::text::{list_few, printable, wrapped};

/// One PCI function that is no bridge.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Disks, partitions and interfaces on it.
    names: Vec<String>,
    address: PciAddress,
    class: Class,
    /// The function on the root bus above it; `None` if the device itself is on the root bus.
    root_port: Option<PciAddress>,
    numa_node: Option<u32>,
    counted_by: Vec<CountingPmu>,
    /// Files by which processes use it.
    files: Vec<DeviceFile>,
    /// Pods that the kubelet has assigned it to.
    pods: Vec<String>,
}

/// A device file.
#[derive(Debug, Serialize)]
struct DeviceFile {
    path: String,
    kind: &'static str,
    /// Who has it open; `None` where the open files of some processes cannot be read.
    holders: Option<Vec<FileHolder>>,
}

/// Most holders of a device that are shown.
const SHOWN: usize = 3;

/// A PMU, and which of its counts include the device.
#[derive(Debug, Serialize)]
struct CountingPmu {
    pmu: String,
    /// Format terms, a die or `all`.
    part: String,
    /// Whether other devices are counted too.
    shared: bool,
}

impl CountingPmu {
    fn filter_text(&self) -> String {
        format!("{}{}", self.part, if self.shared { " (shared)" } else { "" })
    }
}

/// A class code.
#[derive(Debug, Clone, Copy)]
struct Class(u32);

impl Class {
    /// The base class (PCI Code and ID Assignment 1.16, section 1).
    fn name(self) -> &'static str {
        match self.0 >> 16 {
            0x01 => "storage",
            0x02 => "network",
            0x03 => "display",
            0x04 => "multimedia",
            0x05 => "memory",
            0x07 => "communication",
            0x08 => "system",
            0x0b => "processor",
            0x0c => "serial bus",
            0x10 => "encryption",
            0x12 => "accelerator",
            _ => "other",
        }
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The devices in the order of their addresses.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let machine = pmus.machine();
    let functions = machine.devices.pci.iter().filter(|function| !function.is_bridge());
    let nodes = DeviceDrivers::read(&machine.root).device_files(&machine.root);
    let held = HeldFiles::read(machine, &nodes.keys().copied().collect());
    let files = |function: &PciFunction| -> Vec<DeviceFile> {
        let is_of_function =
            |(_, node): &(&DeviceNumber, &DeviceNode)| node.functions.contains(&function.address);
        let device_nodes = nodes.iter().filter(is_of_function);
        device_nodes
            .map(|(number, node)| DeviceFile {
                path: node.path.clone(),
                kind: node.kind_name,
                holders: held.holders_of(*number),
            })
            .collect()
    };
    let assigned = read_assignments(machine);
    let rows = functions.map(|function| {
        let assignments =
            assigned.iter().filter(|assignment| assignment.functions.contains(&function.address));
        let pods: BTreeSet<String> = assignments.map(|assignment| assignment.pod.clone()).collect();
        Row {
            files: files(function),
            pods: pods.into_iter().collect(),
            ..device_row(pmus, function)
        }
    });
    rows.collect()
}

fn device_row(pmus: &PmuIndex<'_>, function: &PciFunction) -> Row {
    let machine = pmus.machine();
    let counted = pmus.all_pmus().iter().filter_map(|&words| {
        // Those that groups open: an SMMU has a PMU for each of its parts.
        words.family.filter(|family| !family.opens.is_empty())?;
        let ports = PortPmu::new(machine, words)?;
        let port_above = ports.find_position(function)?;
        let companions = ports.counted_with(function, port_above);
        let counted_part = ports.select_subset(function, port_above, &companions);
        let alone = (ports.rule.picks_device(&counted_part.terms) || companions.is_empty())
            && !port_above.any_of_die;
        Some(CountingPmu {
            pmu: words.pmu.name.clone(),
            part: counted_part.describe_subset(),
            shared: !alone,
        })
    });
    Row {
        names: machine.devices.names_of(function.address).map(str::to_owned).collect(),
        address: function.address,
        class: Class(function.class),
        root_port: (function.top != function.address).then_some(function.top),
        numa_node: function.numa_node,
        counted_by: counted.collect(),
        files: Vec::new(),
        pods: Vec::new(),
    }
}

/// The rows as a table, or a line that says that there are none.
pub(super) fn render(rows: &[Row], view: View) -> String {
    if rows.is_empty() {
        return "no device is on PCI\n".to_owned();
    }
    let has_files = rows.iter().any(|row| !row.files.is_empty() || !row.pods.is_empty());
    let joined = |texts: Vec<String>, separator: &str| cell_text(Some(&texts.join(separator)));
    let escaped = |text: &String| printable(text).into_owned();
    let names = |row: &Row| joined(row.names.iter().map(escaped).collect(), ",");
    let root_port = |row: &Row| cell_text(row.root_port.map(|port| port.to_string()).as_deref());
    let numa_node = |row: &Row| cell_text(row.numa_node.map(|node| node.to_string()).as_deref());
    let counted = |row: &Row, column: fn(&CountingPmu) -> String| {
        joined(row.counted_by.iter().map(column).collect(), "; ")
    };
    let pmus = |row: &Row| counted(row, |counted| counted.pmu.clone());
    let filters = |row: &Row| counted(row, CountingPmu::filter_text);
    let files = |row: &Row| joined(row.files.iter().map(|file| escaped(&file.path)).collect(), " ");
    let columns: [CellColumn<'_, Row>; 9] = [
        ("device", ColumnFit::Wrap, &names),
        ("address", ColumnFit::Whole, &|row| row.address.to_string()),
        ("class", ColumnFit::Drop(1), &|row| row.class.name().to_owned()),
        ("root port", ColumnFit::Drop(3), &root_port),
        ("node", ColumnFit::Count(2), &numa_node),
        ("PMU", ColumnFit::Wrap, &pmus),
        ("filter", ColumnFit::Wrap, &filters),
        ("files", ColumnFit::Wrap, &files),
        ("held by", ColumnFit::Wrap, &Row::holders_text),
    ];
    // Without device files, the last two columns are left out.
    let shown = if has_files { &columns[..] } else { &columns[..7] };
    let mut text = draw_rows(rows, shown, view);
    if rows.iter().flat_map(|row| &row.files).any(|file| file.holders.is_none()) {
        let note = "?: the open files of some processes cannot be read: run as root on the machine \
                    itself to see who holds a device";
        text.push_str(&wrapped("", note, view.width));
    }
    text
}

impl Row {
    /// Who holds it, as text: each once.
    fn holders_text(&self) -> String {
        if self.files.iter().any(|file| file.holders.is_none()) {
            return "?".to_owned();
        }
        let open_holders = self.files.iter().flat_map(|file| file.holders.iter().flatten());
        let pods = self.pods.iter().map(|pod| format!("pod {pod} by assignment"));
        let holder_texts: BTreeSet<String> =
            open_holders.map(FileHolder::holder_text).chain(pods).collect();
        if holder_texts.is_empty() { "-".to_owned() } else { list_few(holder_texts, SHOWN) }
    }
}
