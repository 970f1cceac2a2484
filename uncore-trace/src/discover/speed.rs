//! The rate of a PCIe link, from sysfs and configuration space.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::read::{Problems, read_bytes};

/// Bytes that each packet has besides its data: framing (4), header (12, of a completion) and CRC
/// (4). This is the minimum (PCI Express Base 6.0, 2.2.9, 3.6.2 and 4.2.2).
const OVERHEAD: f64 = 20.0;

/// Assumed payload of a packet in bytes, if configuration space cannot be read.
const USUAL_PAYLOAD: u32 = 256;

/// The current speed of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkSpeed {
    /// `current_link_speed`: transfers per lane, in 1e9 per second.
    pub gt_per_s: f64,
    /// `current_link_width`: number of lanes.
    pub width: u32,
    /// Largest payload of a packet in bytes (`Max_Payload_Size`); `None` if configuration space
    /// cannot be read, which needs root.
    pub payload: Option<u32>,
}

impl LinkSpeed {
    /// Reads it from the directory of a root port; `None` if the link is down or sysfs does not
    /// say.
    pub(super) fn read(dir: &Path, problems: &mut Problems) -> Option<Self> {
        let speed = problems.read_line(&dir.join("current_link_speed"))?;
        let width = problems.read_line(&dir.join("current_link_width"))?;
        Self::parse(&speed, &width, &read_bytes(&dir.join("config")).unwrap_or_default())
    }

    /// `speed` is like `16.0 GT/s PCIe` or `8 GT/s`, and `Unknown` while the link is down. A link
    /// that is down has 0 lanes, or 63 (drivers/pci/pci-sysfs.c and the field of the link status,
    /// Linux 7.2).
    fn parse(speed: &str, width: &str, config: &[u8]) -> Option<Self> {
        let gt_per_s = speed.split_once(" GT/s")?.0.trim().parse().ok()?;
        let width = width.parse().ok().filter(|width| (1..=32).contains(width))?;
        let sane = (1.0..1000.0).contains(&gt_per_s);
        sane.then_some(Self { gt_per_s, width, payload: parse_payload(config) })
    }

    /// The part of the bits that remains after encoding, and the encoding's name: 8b/10b up to 5
    /// GT/s, 128b/130b up to 32 GT/s, then flits of 256 bytes of which 236 are packets (PCI Express
    /// Base 6.0, 4.2.1, 4.2.2 and 4.2.3).
    fn line_encoding(&self) -> (f64, &'static str) {
        if self.gt_per_s <= 5.0 {
            (8.0 / 10.0, "8b/10b")
        } else if self.gt_per_s <= 32.0 {
            (128.0 / 130.0, "128b/130b")
        } else {
            (236.0 / 256.0, "flits")
        }
    }

    fn data_bytes(&self) -> f64 {
        f64::from(self.payload.unwrap_or(USUAL_PAYLOAD))
    }

    /// Payload bytes per second in one direction, with packets of the largest size.
    pub fn bytes_per_s(&self) -> f64 {
        let raw = self.gt_per_s * 1e9 * f64::from(self.width) / 8.0;
        let data = self.data_bytes();
        raw * self.line_encoding().0 * data / (data + OVERHEAD)
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let assumed = if self.payload.is_none() { " (assumed)" } else { "" };
        write!(
            f,
            "{} GT/s x{}, {}, packets of {} bytes{assumed} with {OVERHEAD} bytes of overhead",
            self.gt_per_s,
            self.width,
            self.line_encoding().1,
            self.data_bytes(),
        )
    }
}

/// `Max_Payload_Size` in the device control register of the PCI Express capability, id 0x10 (PCI
/// Express Base 6.0, 7.5.3.4).
fn parse_payload(config: &[u8]) -> Option<u32> {
    let byte = |offset: usize| config.get(offset).copied();
    let mut offset = usize::from(byte(0x34)? & 0xfc);
    // A cyclic list ends after as many headers as fit into the space.
    for _ in 0..48 {
        if offset < 0x40 {
            return None;
        }
        if byte(offset)? == 0x10 {
            // 6 and 7 are reserved.
            let code = u32::from(byte(offset + 8)? >> 5);
            return (code <= 5).then(|| 128 << code);
        }
        offset = usize::from(byte(offset + 1)? & 0xfc);
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(control: u8) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[0x34] = 0x50;
        (config[0x50], config[0x51]) = (0x01, 0x60);
        (config[0x60], config[0x68]) = (0x10, control);
        config
    }

    #[test]
    fn pcie_links_carry_the_bytes_of_their_generation() {
        let of = |speed, width, config: &[u8]| {
            let parsed = LinkSpeed::parse(speed, width, config);
            parsed.map(|speed| (speed.bytes_per_s() / 1e7).round() / 100.0)
        };
        assert_eq!(of("2.5 GT/s PCIe", "1", &[]), Some(0.23));
        assert_eq!(of("16.0 GT/s PCIe", "4", &config(0x20)), Some(7.31));
        assert_eq!(of("32.0 GT/s PCIe", "16", &config(0x40)), Some(60.65));
        assert_eq!(of("8 GT/s", "8", &[]), Some(7.31));
        for (speed, width) in [("Unknown", "0"), ("8.0 GT/s PCIe", "63"), ("x GT/s", "4"), ("", "")]
        {
            assert_eq!(of(speed, width, &[]), None, "{speed} {width}");
        }
    }

    #[test]
    fn the_packets_are_those_of_configuration_space() {
        assert_eq!(parse_payload(&config(0x20)), Some(256));
        assert_eq!(parse_payload(&config(0xe0)), None);
        // The part that only root can read is missing.
        assert_eq!(parse_payload(&config(0x20)[..64]), None);
        let speed = LinkSpeed::parse("16.0 GT/s PCIe", "4", &config(0x40)).unwrap();
        assert_eq!(
            speed.to_string(),
            "16 GT/s x4, 128b/130b, packets of 512 bytes with 20 bytes of overhead"
        );
    }

    proptest! {
        #[test]
        fn no_configuration_space_panics_the_payload_parser(config in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _payload = parse_payload(&config);
        }
    }
}
