//! ACPI tables for guests: the devices that drivers find in the namespace, and NUMA nodes.
//!
//! Both are put in front of the initramfs, where they replace or extend the firmware's tables
//! (`CONFIG_ACPI_TABLE_UPGRADE`).

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::run_quietly;

/// RAM of QEMU's `virt` machine begins here (hw/arm/virt.c, `VIRT_MEM`).
const RAM_BASE: u64 = 0x4000_0000;

/// The second bank of flash (hw/arm/virt.c, `VIRT_FLASH`). The firmware reports it as memory, but
/// the machine's SRAT does not cover it, so the kernel refuses the whole SRAT.
const FLASH: Range<u64> = 0x0400_0000..0x0800_0000;

/// OEM id of QEMU's tables (include/hw/acpi/aml-build.h, `ACPI_BUILD_APPNAME6`). A table replaces
/// another one with the same ids and a lower OEM revision.
const OEM_ID: &[u8; 6] = b"BOCHS ";
const OEM_TABLE_ID: &[u8; 8] = b"BXPC    ";
const OEM_REVISION: u32 = 2;

/// One device of the namespace, below `\_SB`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AcpiDevice {
    /// Four characters.
    pub name: String,
    /// `_HID`.
    pub hid: String,
    /// `_UID`.
    pub uid: u64,
    /// `_PXM`: its NUMA node.
    pub node: u32,
    /// `_CCA`.
    pub cca: bool,
    /// Base and length of its ranges of registers, in order.
    pub memory: Vec<(u64, u64)>,
    /// A level-triggered, active-high interrupt that can be shared.
    pub interrupt: Option<u32>,
    /// `_DSD` properties.
    pub properties: Vec<(String, u64)>,
}

/// The text of an SSDT with these devices.
fn ssdt_source(devices: &[AcpiDevice]) -> Result<String> {
    let mut text = String::from(
        "DefinitionBlock(\"\", \"SSDT\", 2, \"UNCORE\", \"UNCLAB\", 1) {\nScope(\\_SB) {\n",
    );
    for device in devices {
        push_device(&mut text, device).context("cannot write the device")?;
    }
    text.push_str("}}\n");
    Ok(text)
}

fn push_device(text: &mut String, device: &AcpiDevice) -> Result<()> {
    let AcpiDevice { name, hid, uid, node, cca, memory, interrupt, properties } = device;
    let fits =
        name.len() == 4 && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    ensure!(fits, "{name} is not an ACPI name: use four characters of A-Z and 0-9");
    writeln!(text, "Device({name}) {{")?;
    writeln!(text, "  Name(_HID, \"{hid}\") Name(_UID, {uid}) Name(_CCA, {})", u8::from(*cca))?;
    writeln!(text, "  Name(_PXM, {node})")?;
    if !properties.is_empty() {
        text.push_str("  Name(_DSD, Package() {\n");
        // The UUID of device properties (ACPI specification 6.5, 6.2.5).
        text.push_str("    ToUUID(\"daffd814-6eba-4d8c-8a91-bc9bbf4aa301\"), Package() {\n");
        for (key, value) in properties {
            writeln!(text, "      Package() {{ \"{key}\", 0x{value:X} }},")?;
        }
        text.push_str("    }\n  })\n");
    }
    if !memory.is_empty() || interrupt.is_some() {
        text.push_str("  Name(_CRS, ResourceTemplate() {\n");
        for (base, length) in memory {
            ensure!(*length > 0, "{name} has an empty range of registers");
            writeln!(
                text,
                "    QWordMemory(ResourceConsumer, PosDecode, MinFixed, MaxFixed, NonCacheable, \
                 ReadWrite, 0, 0x{base:X}, 0x{:X}, 0, 0x{length:X})",
                base + length - 1
            )?;
        }
        if let Some(gsi) = interrupt {
            writeln!(
                text,
                "    Interrupt(ResourceConsumer, Level, ActiveHigh, Shared) {{ {gsi} }}"
            )?;
        }
        text.push_str("  })\n");
    }
    text.push_str("}\n");
    Ok(())
}

/// Compiles an SSDT with these devices, in a directory of the caller.
pub(super) fn compile_ssdt(devices: &[AcpiDevice], dir: &Path) -> Result<Vec<u8>> {
    let source = dir.join("ssdt.dsl");
    let source_text = ssdt_source(devices)?;
    fs::write(&source, source_text)
        .with_context(|| format!("cannot write {}", source.display()))?;
    // `-we` makes warnings errors; `-va` drops remarks.
    run_quietly(Command::new("iasl").args(["-we", "-vr", "-p"]).arg(dir.join("ssdt")).arg(&source))
        .context("the ACPI table of the devices does not compile")?;
    let table = dir.join("ssdt.aml");
    fs::read(&table).with_context(|| format!("cannot read {}", table.display()))
}

/// An SRAT that matches `-numa`: CPUs and memory in equal parts, and the flash bank.
pub(super) fn build_srat(cpus: u32, nodes: u32, memory_of_node: u64) -> Vec<u8> {
    let mut body = Vec::new();
    // Reserved, with the value that the specification asks for (ACPI specification 6.5, 5.2.16).
    body.extend(1u32.to_le_bytes());
    body.extend([0; 8]);
    for cpu in 0..cpus {
        push_cpu(&mut body, cpu, node_of(cpu, cpus, nodes));
    }
    push_memory(&mut body, 0, &FLASH);
    for node in 0..nodes {
        let base = RAM_BASE + u64::from(node) * memory_of_node;
        push_memory(&mut body, node, &(base..base + memory_of_node));
    }
    let mut table = Vec::new();
    table.extend(b"SRAT");
    table.extend((36 + body.len() as u32).to_le_bytes());
    table.extend([3, 0]); // Revision, and the checksum that is set below.
    table.extend(OEM_ID);
    table.extend(OEM_TABLE_ID);
    table.extend(OEM_REVISION.to_le_bytes());
    table.extend(b"BXPC");
    table.extend(1u32.to_le_bytes());
    table.extend(body);
    table[9] = table.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}

/// The node of a CPU: consecutive CPUs have the same node.
pub(super) fn node_of(cpu: u32, cpus: u32, nodes: u32) -> u32 {
    cpu * nodes / cpus
}

/// GICC affinity structure: the processor's ACPI UID is its number.
fn push_cpu(body: &mut Vec<u8>, cpu: u32, node: u32) {
    body.extend([3, 18]);
    for field in [node, cpu, 1, 0] {
        body.extend(field.to_le_bytes());
    }
}

/// Memory affinity structure, enabled.
fn push_memory(body: &mut Vec<u8>, node: u32, range: &Range<u64>) {
    body.extend([1, 40]);
    body.extend(node.to_le_bytes());
    body.extend([0; 2]);
    body.extend(range.start.to_le_bytes());
    body.extend((range.end - range.start).to_le_bytes());
    body.extend([0; 4]);
    body.extend(1u32.to_le_bytes());
    body.extend([0; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srat_is_well_formed() {
        let table = build_srat(4, 2, 1 << 30);
        assert_eq!(table.len(), 36 + 12 + 4 * 18 + 3 * 40);
        assert_eq!(table[4..8], (table.len() as u32).to_le_bytes());
        assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!([0, 1, 2, 3].map(|cpu| node_of(cpu, 4, 2)), [0, 0, 1, 1]);
    }

    #[test]
    fn devices_are_described() {
        let device = AcpiDevice {
            name: "DRW0".to_owned(),
            hid: "BABA5000".to_owned(),
            memory: vec![(0x1000, 0x1000)],
            interrupt: Some(232),
            properties: vec![("instance_id".to_owned(), 4)],
            ..AcpiDevice::default()
        };
        let text = ssdt_source(&[device]).unwrap();
        assert!(text.contains("0, 0x1000, 0x1FFF, 0, 0x1000)"), "{text}");
        assert!(text.contains("Shared) { 232 }"), "{text}");
        assert!(text.contains("Package() { \"instance_id\", 0x4 }"), "{text}");
        assert!(ssdt_source(&[AcpiDevice::default()]).is_err());
    }
}
