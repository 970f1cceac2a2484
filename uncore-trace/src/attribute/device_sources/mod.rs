//! The sources of what devices moved: a file each.

mod requests;
mod root_ports;

use super::device_source::{DeviceSource, DeviceSourceSetup};

/// The sources of a recording. Root ports come first: what they count is not counted again by
/// request.
pub(super) fn create_device_sources(
    setup: &mut DeviceSourceSetup<'_>,
) -> Vec<Box<dyn DeviceSource>> {
    vec![
        Box::new(root_ports::CountedPorts::new(setup)),
        Box::new(requests::RequestedBytes::new(setup)),
    ]
}
