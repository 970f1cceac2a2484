//! The `StreamID`s of PCI functions, from the firmware's table IORT: sysfs has none.
//!
//! The kernel reads the same fields (`drivers/acpi/arm64/iort.c`, `include/acpi/actbl2.h`, Linux
//! 7.2). Only root complexes whose ids go to an `SMMUv3` without another mapping between are used.
//! The table is read as untrusted bytes; only root can read it.

use std::path::Path;

use super::pci::PciAddress;
use super::read::{read_array, read_bytes};

/// The table, below the root.
const TABLE: &str = "sys/firmware/acpi/tables/IORT";

/// Types of nodes: `enum acpi_iort_node_type`.
const ROOT_COMPLEX: u8 = 2;
const SMMU_V3: u8 = 4;
const COUNTERS: u8 = 5;

/// Size of `struct acpi_iort_node` before `node_data`, and of `struct acpi_iort_id_mapping`.
const HEADER: usize = 16;
const MAPPING: usize = 20;

/// `ACPI_IORT_ID_SINGLE_MAPPING`: the input id does not matter.
const SINGLE: u32 = 1;

/// Pages of registers have 4 KiB (`SMMU_PMCG_PA_SHIFT`, `drivers/perf/arm_smmuv3_pmu.c`, Linux
/// 7.2).
const PAGE_SHIFT: u32 = 12;

/// The requester ids of a segment that an SMMU sees.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StreamMapping {
    segment: u32,
    /// Offset of the SMMU's node.
    smmu: u32,
    first_id: u32,
    last_id: u32,
    output: u32,
    is_single: bool,
}

/// What the table says of SMMUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamIds {
    /// The page of a group of counters, and the offset of its SMMU's node.
    counters: Vec<(u64, u32)>,
    mappings: Vec<StreamMapping>,
}

impl StreamIds {
    /// Reads the table below `root`; empty if it cannot be read.
    pub(super) fn read(root: &Path) -> Self {
        Self::parse(&read_bytes(&root.join(TABLE)).unwrap_or_default()).unwrap_or_default()
    }

    /// Whether it says nothing.
    pub const fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// The `StreamID` of a function at the SMMU whose counters are at this page; `None` if the
    /// table does not say, or says more than one thing.
    pub fn stream_id(&self, page: u64, function: PciAddress) -> Option<u32> {
        let (_, smmu) = self.counters.iter().find(|(counter_page, _)| *counter_page == page)?;
        let id = u32::from(function.requester_id());
        let maps_function = |map: &&StreamMapping| {
            let is_in = map.is_single || (map.first_id..=map.last_id).contains(&id);
            map.smmu == *smmu && map.segment == function.domain && is_in
        };
        let mut outputs = self.mappings.iter().filter(maps_function).map(|map| {
            if map.is_single { Some(map.output) } else { map.output.checked_add(id - map.first_id) }
        });
        let first_output = outputs.next()??;
        outputs.all(|output| output == Some(first_output)).then_some(first_output)
    }

    fn parse(table: &[u8]) -> Option<Self> {
        if table.get(..4)? != b"IORT" {
            return None;
        }
        let count = read_word(table, 36)?;
        let mut offset = read_word(table, 40)? as usize;
        let mut streams = Self::default();
        let mut smmus = Vec::new();
        for _ in 0..count {
            let Some(node_type) = table.get(offset) else { break };
            let length = usize::from(u16::from_le_bytes(read_array(table, offset + 1)?));
            let node = table.get(offset..offset.checked_add(length)?)?;
            match *node_type {
                ROOT_COMPLEX => streams.mappings.extend(parse_mappings(node)),
                SMMU_V3 => smmus.push(offset as u32),
                COUNTERS => streams.counters.extend(parse_counters(node)),
                _ => {}
            }
            if length < HEADER {
                break;
            }
            offset += length;
        }
        streams.mappings.retain(|map| smmus.contains(&map.smmu));
        streams.counters.retain(|(_, smmu)| smmus.contains(smmu));
        Some(streams)
    }
}

/// `struct acpi_iort_pmcg`: `page0_base_address` and `node_reference`.
fn parse_counters(node: &[u8]) -> Option<(u64, u32)> {
    let low = u64::from(read_word(node, HEADER)?);
    let high = u64::from(read_word(node, HEADER + 4)?);
    Some(((high << 32 | low) >> PAGE_SHIFT, read_word(node, HEADER + 12)?))
}

/// The mappings of a root complex; `pci_segment_number` of `struct acpi_iort_root_complex`.
fn parse_mappings(node: &[u8]) -> Vec<StreamMapping> {
    let Some(segment) = read_word(node, HEADER + 12) else { return Vec::new() };
    let (count, offset) =
        (read_word(node, 8).unwrap_or_default(), read_word(node, 12).unwrap_or_default());
    let maps = node.get(offset as usize..).unwrap_or_default().chunks_exact(MAPPING);
    let maps = maps.take(count as usize).filter_map(|map| {
        let first_id = read_word(map, 0)?;
        Some(StreamMapping {
            segment,
            smmu: read_word(map, 12)?,
            first_id,
            // The table has the number of ids less one (`iort_id_map`).
            last_id: first_id.checked_add(read_word(map, 4)?)?,
            output: read_word(map, 8)?,
            is_single: read_word(map, 16)? & SINGLE != 0,
        })
    });
    maps.collect()
}

fn read_word(bytes: &[u8], offset: usize) -> Option<u32> {
    read_array(bytes, offset).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(kind: u8, data: &[u8], maps: &[[u32; 5]]) -> Vec<u8> {
        let offset = HEADER + data.len();
        let length = (offset + maps.len() * MAPPING) as u16;
        let mut node = vec![kind];
        node.extend(length.to_le_bytes());
        node.extend([0; 5]);
        node.extend((maps.len() as u32).to_le_bytes());
        node.extend((offset as u32).to_le_bytes());
        node.extend(data);
        maps.iter().flatten().for_each(|word| node.extend(word.to_le_bytes()));
        node
    }

    fn root_complex(segment: u32, maps: &[[u32; 5]]) -> Vec<u8> {
        let mut data = vec![0; 12];
        data.extend(segment.to_le_bytes());
        data.extend([0; 8]);
        node(ROOT_COMPLEX, &data, maps)
    }

    fn group(page: u64, smmu: u32) -> Vec<u8> {
        let mut data = (page << PAGE_SHIFT).to_le_bytes().to_vec();
        data.extend(0_u32.to_le_bytes());
        data.extend(smmu.to_le_bytes());
        data.extend([0; 8]);
        node(COUNTERS, &data, &[])
    }

    /// A table with an SMMU at 48 and one behind it.
    fn table(nodes: &[Vec<u8>]) -> Vec<u8> {
        let mut table = b"IORT".to_vec();
        table.resize(36, 0);
        table.extend((nodes.len() as u32).to_le_bytes());
        table.extend(48_u32.to_le_bytes());
        table.resize(48, 0);
        table.extend(nodes.concat());
        table
    }

    fn example() -> Vec<u8> {
        let smmu = node(SMMU_V3, &[0; 44], &[]);
        let other = 48 + smmu.len() as u32;
        table(&[
            smmu.clone(),
            smmu,
            root_complex(2, &[[0, 0xff, 0x10000, 48, 0], [0x100, 0xfeff, 0x100, other, 0]]),
            root_complex(3, &[[0, 0xffff, 0, 48, 0], [0x200, 0, 0x7, 48, 0]]),
            group(0x1_0002, 48),
            group(0x1_0003, other),
            group(0x1_0004, 999),
        ])
    }

    #[test]
    fn the_table_says_the_stream_of_a_function() {
        let streams = StreamIds::parse(&example()).unwrap();
        let of = |page: u64, address: &str| streams.stream_id(page, address.parse().unwrap());
        assert_eq!(of(0x1_0002, "0002:00:01.1"), Some(0x10009));
        // The last id of a mapping, and the first that is at the other SMMU.
        assert_eq!(of(0x1_0002, "0002:00:1f.7"), Some(0x100ff));
        assert_eq!(of(0x1_0002, "0002:01:00.0"), None);
        assert_eq!(of(0x1_0003, "0002:01:00.0"), Some(0x100));
        // Another segment; no segment; counters of an SMMU that is not there; two answers.
        assert_eq!(of(0x1_0002, "0003:01:00.0"), Some(0x100));
        assert_eq!(of(0x1_0002, "0004:01:00.0"), None);
        assert_eq!(of(0x1_0004, "0002:00:01.1"), None);
        assert_eq!(of(0x1_0002, "0003:02:00.0"), None);
        assert_eq!(StreamIds::parse(b"XSDT"), None);
    }

    proptest! {
        #[test]
        fn no_iort_table_panics(cut in 0..400_usize, at in 0..400_usize, byte in any::<u8>()) {
            let mut table = example();
            if let Some(its) = table.get_mut(at) { *its = byte; }
            table.truncate(cut);
            let streams = StreamIds::parse(&table).unwrap_or_default();
            let _id = streams.stream_id(0x1_0002, "0002:00:01.1".parse().unwrap());
        }
    }
}
