//! The subcommands, one file each: what was typed, and what is printed.

pub mod check;
pub mod repair;
pub mod report;
