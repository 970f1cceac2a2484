//! The parts of the lab's guest that the project's other tools use.

pub mod capture;
pub mod fixtures;
pub mod large;
pub mod spec;
pub mod tree;
