//! The tests that need more than one module.
//!
//! - `machines` lists and plans on captured machines, and has them for others: `plans`, `events`,
//!   `kernels`, `devices`, `meters`, `misses`, `ports` and `traps` by topic, `amd`, `intel` and
//!   `vendor` by who made them, `published`, `golden`, `cores` and `metrics` against numbers worked
//!   out by hand.
//! - `reports` has public reports of users, each with its right value and the source of that value.
//! - `refused` types what is wrong and `recording` what is right into the real binary; `overlay`,
//!   `unreadable`, `report`, `full_disk` and `terminal` are about what it reads and writes. `small`
//!   makes recordings for them without the kernel, `command` runs the binary.
//! - `bombs` has small files that become large, and pipes in the place of files; `swapped` has
//!   something else in the place of each file of a captured machine.
//! - `trust` has names of cgroups that users and runtimes give.
//! - `upload` starts the program that uploads; its own tests are in `uploads`.
//! - `docs` and `structure` compare documents and modules with the code, `packaging` what is
//!   installed beside it; `ci` and `release` run the scripts of CI, `install_script` that of a
//!   release; `publishing` looks at what the published packages hold.
//! - `samples` reads the recordings in `samples/`; `assistants` asks the server of the Python
//!   package about them.
//! - `agent_faults`, `faults`, `slow_disk`, `damage`, `survive` and `hotplug` do what is in
//!   docs/faults.md.
//! - `auto` plans without a request, `ending` reads what `record` says at its end.
//! - `cgroup_namespace` records as in a container that sees a part of the cgroups.
//! - `environments` runs `doctor` beside `record` in namespaces and under limits.
//! - `completions` asks bash what it completes, `running` looks at a recording that goes on.
//! - `truth` checks the accounts of the machines that `cargo xtask bench truth` draws.
//! - The others record for real on the kernel at hand, as root, and skip with a reason where they
//!   cannot.

mod agent;
mod agent_faults;
mod agent_stuck;
mod amd;
mod analysis;
mod assistants;
mod attribute;
mod auto;
mod bombs;
mod canary;
mod cgroup_namespace;
mod ci;
mod command;
mod completions;
mod containers;
mod cores;
mod cost;
mod cut;
mod damage;
mod devices;
mod diff;
mod docs;
mod doctor;
mod ending;
mod environments;
mod events;
mod exact;
mod export;
mod faults;
mod fleet;
mod full_disk;
mod golden;
mod harness;
mod holders;
mod hotplug;
mod html;
mod install_script;
mod intel;
mod io;
mod io_group;
mod kernels;
mod kubelet;
mod lifecycle;
mod limited_rows;
mod machines;
mod marks;
mod meters;
mod metrics;
mod misses;
mod names;
mod needs;
mod output;
mod overlay;
mod packaging;
mod pages;
mod perf_stat;
mod planning;
mod plans;
mod platforms;
mod ports;
mod pprof;
mod privileges;
mod published;
mod publishing;
mod readers;
mod recording;
mod refused;
mod release;
mod report;
mod reports;
mod rollups;
mod rotate;
mod running;
mod samples;
mod shares;
mod signals;
mod skip;
mod slow_disk;
mod small;
mod stat;
mod structure;
mod sums;
mod sums_in_sql;
mod survive;
mod swapped;
mod terminal;
mod ticks;
mod top;
mod traps;
mod trust;
mod truth;
mod uncounted;
mod unreadable;
mod upload;
mod vendor;
mod verifier;
mod wait;
mod witness;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_uncore-trace");
