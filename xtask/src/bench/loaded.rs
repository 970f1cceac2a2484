//! BPF programs that the kernel has loaded: who holds them, and how long they run.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use aya::programs::{ProgramInfo, loaded_programs};

/// The program of a recorder, which has the name of its tracepoint.
const HOOK: &str = "sched_switch";

/// The loaded program with a property.
fn find_loaded(matches: impl Fn(&ProgramInfo) -> bool) -> Result<Option<ProgramInfo>> {
    for program in loaded_programs() {
        let program = program.context("cannot list BPF programs")?;
        if matches(&program) {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

/// The program at `sched_switch` that a recorder holds: others may run beside it.
pub(super) fn hook_of(pid: u32) -> Result<u32> {
    let held = held_by(pid)?;
    let hook = find_loaded(|candidate| {
        held.contains(&candidate.id()) && candidate.name_as_str() == Some(HOOK)
    })?;
    Ok(hook.context("the recorder has no program yet: is --settle long enough?")?.id())
}

/// Whether no other process has a program at `sched_switch` like that of a recorder.
pub(super) fn is_alone(own_id: u32) -> Result<bool> {
    Ok(find_loaded(|program| program.id() != own_id && program.name_as_str() == Some(HOOK))?
        .is_none())
}

/// Ids of the BPF programs of a process (`bpf_prog_show_fdinfo`, kernel/bpf/syscall.c).
fn held_by(pid: u32) -> Result<BTreeSet<u32>> {
    let dir = PathBuf::from(format!("/proc/{pid}/fdinfo"));
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    // A descriptor may be closed in between.
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    Ok(texts.filter_map(|text| program_id(&text)).collect())
}

/// The program of a descriptor; links, which name one too, have no `prog_type`.
fn program_id(fdinfo: &str) -> Option<u32> {
    let field = |name: &str| {
        let (_, value) =
            fdinfo.lines().find_map(|line| line.split_once(':').filter(|pair| pair.0 == name))?;
        Some(value.trim())
    };
    field("prog_type")?;
    field("prog_id")?.parse().ok()
}

/// Total run time in ns, and number of runs of a program.
pub(super) fn run_totals(id: u32) -> Result<(u128, u64)> {
    let program = find_loaded(|candidate| candidate.id() == id)?.context(
        "the BPF program is no \
                                                                          longer loaded",
    )?;
    Ok((program.run_time().as_nanos(), program.run_count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_not_links_are_held() {
        let program = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nprog_jited:\t1\nprog_id:\t5676\n";
        assert_eq!(program_id(program), Some(5676));
        assert_eq!(program_id("link_type:\traw_tracepoint\nlink_id:\t4\nprog_id:\t5676\n"), None);
        assert_eq!(program_id("pos:\t0\n"), None);
    }
}
