//! The tests that need more than one module: `machines` plans on captured machines, `cli` types
//! what is wrong and `recording` what is right into the real binary, `readme` compares README.md
//! with the code.

mod cli;
mod command;
mod machines;
mod readme;
mod recording;
