//! The limits of a process (getrlimit(2)) that a recording needs: how many files may be open, as
//! every counter, map, program and link is one, and the memory.

use anyhow::{Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::rings;
use crate::plan::Counter;

/// A limit of memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// Its name in `/proc/PID/limits`.
    pub name: &'static str,
    /// The option of `ulimit`.
    pub option: &'static str,
    /// Bytes without which the smallest recording cannot work.
    pub least_bytes: u64,
    resource: Resource,
}

/// The limits of memory. With less, an allocation fails, which ends the program: at 40 MiB of data
/// and 110 of addresses a recording of 8 counters did, at 48 and 130 it did not (2 CPUs, Linux
/// 6.18).
pub const LEAST_MEMORY: [MemoryLimit; 2] = [
    MemoryLimit {
        name: "Max data size",
        option: "-d",
        least_bytes: 64 << 20,
        resource: Resource::Data,
    },
    MemoryLimit {
        name: "Max address space",
        option: "-v",
        least_bytes: 160 << 20,
        resource: Resource::As,
    },
];

/// Files of a recording besides its counters and rings: 55 maps, programs and links, up to 35 of
/// the tables, those of standard streams, event loops, marks and the canary. At most 106 were open
/// with all options, without 8 counters and a ring (Linux 6.18).
const BESIDES: u64 = 120;

/// Files that what is asked for later may take, such as counters that are opened again.
const SPARE: u64 = 136;

/// The number of files that a recording of these counters has open at most, while tasks of this
/// many CPUs are accounted.
pub fn files_needed(counters: &[Counter], cpus: usize) -> u64 {
    let opened = counters.iter().filter(|counter| !counter.is_statistic()).count();
    opened as u64 + u64::from(rings::ring_count(cpus)) + BESIDES
}

/// # Errors
///
/// A limit of memory is too low.
pub(super) fn ensure_memory() -> Result<()> {
    for MemoryLimit { option, least_bytes: least, resource, .. } in LEAST_MEMORY {
        let limit = getrlimit(resource).current.unwrap_or(u64::MAX);
        ensure!(
            limit >= least,
            "this session may have {} KiB of memory, and a recording needs {}: raise the limit \
             (ulimit {option} unlimited)",
            limit >> 10,
            least >> 10
        );
    }
    Ok(())
}

/// Raises the limit of open files to what a recording needs.
///
/// # Errors
///
/// It is too low, and this process may not raise it.
pub(super) fn ensure_files(needed: u64) -> Result<()> {
    let limit = raise_file_limit(needed + SPARE);
    ensure!(
        limit.is_none_or(|limit| limit >= needed),
        "{} files may be open, and this recording needs {needed}: raise the hard limit (ulimit \
         -Hn, prlimit --nofile, LimitNOFILE=), or record fewer events",
        limit.unwrap_or_default()
    );
    Ok(())
}

/// Raises the limit to `wanted`: above the hard limit with `CAP_SYS_RESOURCE`, else up to it.
/// Returns the limit that holds then; `None` if there is none.
pub(super) fn raise_file_limit(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return limit.current;
    }
    let hard = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let higher = limit.maximum.map(|maximum| maximum.max(wanted));
    for raised in [
        Rlimit { current: Some(wanted), maximum: higher },
        Rlimit { current: Some(hard), maximum: limit.maximum },
    ] {
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => return raised.current,
            Err(error) => log::debug!("the limit of open files cannot be {raised:?}: {error}"),
        }
    }
    limit.current
}
