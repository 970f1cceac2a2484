//! What the guest of the lab shares with the project's other tools.

pub mod capture;
pub mod fixtures;
pub mod spec;
pub mod tree;
