//! The devices whose traffic a family counts that has no root ports, such as links to GPUs.

use serde::Deserialize;

/// Where the devices of a rule are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachedSocket {
    /// To the socket of the PMU.
    Own,
    /// To other sockets.
    Other,
}

/// Devices behind the PMUs of a family.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BehindRule {
    /// The socket that they are attached to.
    pub socket: AttachedSocket,
    /// PCI vendor; none: any.
    pub vendor: Option<u32>,
    /// PCI base class; none: any.
    pub class: Option<u32>,
    /// Only for PMUs whose `peer` file has this kind: `gpu`, `cpu`, `cxlmem`.
    pub peer: Option<String>,
}
