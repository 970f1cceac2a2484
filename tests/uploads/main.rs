//! Tests of `uncore-trace-upload`: `sent` sends files to a directory and to an S3 server, `faults`
//! does so while the store, the disk or the network fails, `policy` with the rights of one host,
//! `confined` tries what it must not do; `otlp` pushes metrics.

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../command.rs"]
mod command;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../needs.rs"]
mod needs;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../skip.rs"]
mod skip;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../wait.rs"]
mod wait;

mod collector;
mod confined;
mod faults;
mod fleet;
mod otlp;
mod policy;
mod sent;
mod store;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_uncore-trace-upload");
