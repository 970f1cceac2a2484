//! The subcommands, one file each: what was typed, and the few lines that run the stages for it.

pub mod doctor;
