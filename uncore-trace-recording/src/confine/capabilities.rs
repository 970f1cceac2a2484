//! Capabilities: capabilities(7).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

use super::ThreadNeeds;

/// Capabilities of a recorder: it opens counters again when their CPU comes back and reads them
/// there, and reads names in files that not everybody may read.
pub const RECORDER: CapabilitySet =
    CapabilitySet::PERFMON.union(CapabilitySet::BPF).union(CapabilitySet::DAC_READ_SEARCH);

/// Sticky bit of a directory: only the owner of a file may remove or replace it, inode(7).
const STICKY: u32 = 0o1000;

/// Names as in capabilities(7), separated by commas; "none" for an empty set.
pub fn names(set: CapabilitySet) -> String {
    let name_list: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    if name_list.is_empty() { "none".to_owned() } else { name_list.join(", ") }
}

/// Keeps `wanted` and the capabilities for writing in the directories of `needs`, and gives up all
/// others. Returns the set that is left.
pub(super) fn keep_capabilities(
    wanted: CapabilitySet,
    needs: &ThreadNeeds,
) -> Result<CapabilitySet, String> {
    let words = |error: rustix::io::Errno| error.to_string();
    let current = capabilities(None).map_err(words)?;
    // A unit may refuse capset(2) to who has nothing to give up.
    if (current.permitted | current.inheritable).is_empty() {
        return Ok(CapabilitySet::empty());
    }
    // No program is executed any more, so nothing is lost if this is refused (`CAP_SETPCAP`).
    for capability in CapabilitySet::all().iter() {
        remove_capability_from_bounding_set(capability).ok();
    }
    let wanted = wanted & current.permitted;
    let set = |effective, permitted| {
        let inheritable = CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets { effective, permitted, inheritable };
        set_capabilities(None, sets).map_err(words)
    };
    // Drops the effective capabilities first and keeps the permitted ones, to find out what cannot
    // be written without them.
    set(wanted, current.permitted)?;
    let kept = (wanted | capabilities_to_write(needs)) & current.permitted;
    set(kept, kept)?;
    Ok(kept)
}

/// The capabilities that root needs to write in directories of other users and to connect to their
/// sockets, found by trying without.
fn capabilities_to_write(needs: &ThreadNeeds) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    let denied = |path: &Path, access| {
        accessat(CWD, path, access, AtFlags::EACCESS) == Err(rustix::io::Errno::ACCESS)
    };
    let directory = Access::WRITE_OK | Access::EXEC_OK;
    let mut directories = needs.writes.iter().chain(&needs.names);
    let is_denied = directories.any(|dir| denied(dir, directory))
        || needs.sockets.iter().any(|socket| denied(socket, Access::WRITE_OK));
    needed.set(CapabilitySet::DAC_OVERRIDE, is_denied);
    needed.set(CapabilitySet::FOWNER, needs.replaces.iter().any(|file| is_anothers(file)));
    needed
}

/// Whether only another user may replace the file, although others may write to its directory.
fn is_anothers(file: &Path) -> bool {
    let own_uid = geteuid().as_raw();
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let (Ok(file_metadata), Ok(dir)) =
        (fs::symlink_metadata(file), fs::metadata(parent.unwrap_or(Path::new("."))))
    else {
        return false;
    };
    dir.mode() & STICKY != 0 && dir.uid() != own_uid && file_metadata.uid() != own_uid
}
