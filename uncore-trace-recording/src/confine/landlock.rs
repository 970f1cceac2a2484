//! Files: Landlock, landlock(7).

use std::path::Path;

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope, make_bitflags,
};

use super::ThreadNeeds;

/// The highest Landlock ABI that is used (Linux 6.12); older kernels restrict what they know.
const GOVERNED: ABI = ABI::V6;

/// Reading a tree.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

/// Creating, writing and removing regular files and directories; no other kinds of files, and no
/// execution.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
});

/// Renaming a file into the directory from a writable one, and removing the file that it replaces.
/// Reading the directory is needed for its fsync.
const NAME: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadDir | MakeReg | RemoveFile | RemoveDir | Refer});

/// Whether this kernel has Landlock, and it is enabled.
pub fn is_supported() -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Restricts the calling thread, and those that it starts, to these files and TCP ports; sets
/// `no_new_privs`.
pub(super) fn restrict_files(needs: &ThreadNeeds) -> Result<(), String> {
    match apply_rules(needs).map_err(|error| error.to_string())? {
        RulesetStatus::NotEnforced => Err("this kernel has no Landlock".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn apply_rules(needs: &ThreadNeeds) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(GOVERNED))?
        .handle_access(AccessNet::from_all(GOVERNED))?
        .scope(Scope::AbstractUnixSocket)?
        .create()?;
    let reads = needs.reads.iter().map(|path| (nearest_existing(path), READ));
    let writes = needs.writes.iter().map(|path| (PathFd::new(path).ok(), WRITE));
    let names = needs.names.iter().map(|path| (PathFd::new(path).ok(), NAME));
    for (tree, access) in reads.chain(writes).chain(names) {
        // A directory that does not exist needs no rule.
        let Some(tree) = tree else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(tree, access))?;
    }
    for port in &needs.connects {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// The directory, or the nearest existing and accessible one above it, but never `/`.
fn nearest_existing(path: &Path) -> Option<PathFd> {
    let absolute = std::path::absolute(path).ok()?;
    let mut ancestors = absolute.ancestors().filter(|path| path.parent().is_some());
    ancestors.find_map(|path| PathFd::new(path).ok())
}
