//! The kernel's own type information.
//!
//! The programs attach to typed tracepoints (`tp_btf`) and read a few kernel structures at offsets
//! taken from it. A file with the types of the same kernel gives the offsets too; the programs then
//! attach to raw tracepoints.

use std::io::ErrorKind;

use super::machine::BTF;
use super::{ExaminedMachine, Finding, kernel};
use crate::open;

const NAME: &str = "BTF";
/// First two bytes of BTF in the machine's byte order (`include/uapi/linux/btf.h`, `BTF_MAGIC`).
const MAGIC: u16 = 0xeb9f;

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    match machine.read_btf() {
        Ok(bytes) if bytes.get(..2).is_some_and(is_magic) => {
            let kib = bytes.len() >> 10;
            Finding::ok(NAME, format!("/{BTF}, {kib} KiB"))
        }
        Ok(_) => Finding::failure(NAME, format!("/{BTF} is not BTF"))
            .with_fix("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
        Err(error) if error.kind() == ErrorKind::NotFound && !machine.has_path("sys/kernel") => {
            Finding::failure(NAME, "sysfs is not mounted at /sys")
                .with_fix(machine.as_root("mount -t sysfs sysfs /sys"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => missing_btf(machine),
        Err(error) => {
            let finding = Finding::failure(NAME, format!("cannot read /{BTF}: {error}"));
            match error.kind() {
                ErrorKind::PermissionDenied => {
                    finding.with_fix(machine.as_root(&format!("chmod a+r /{BTF}")))
                }
                _ => finding,
            }
        }
    }
}

/// The finding on a kernel that was built without.
fn missing_btf(machine: &ExaminedMachine) -> Finding {
    let release = kernel::kernel_release(machine).unwrap_or_default();
    if let Some((path, _)) = open::find_elsewhere(machine.root_dir(), &release) {
        let message = format!(
            "this kernel has no BTF of its own: record uses {}, and a thread instead of the BPF \
             timer",
            path.display()
        );
        return Finding::warning(NAME, message);
    }
    Finding::failure(NAME, format!("/{BTF} does not exist: this kernel has no BTF"))
        .with_fix("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y")
        .with_fix(format!(
            "record with --btf FILE, made from this kernel's vmlinux: {}",
            open::MAKE
        ))
        .with_fix("count without tasks and cgroups: uncore-trace stat")
}

fn is_magic(bytes: &[u8]) -> bool {
    // Either byte order: a captured tree may come from the other one.
    bytes == MAGIC.to_le_bytes() || bytes == MAGIC.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::{fake_tree, single_finding};
    use super::*;
    use std::fs;

    #[test]
    fn a_valid_btf_file_is_ok() {
        let dir = fake_tree(&[(BTF, "")]);
        fs::write(dir.path().join(BTF), [0x9f, 0xeb, 1, 0]).unwrap();
        assert_eq!(check(&ExaminedMachine::at_root(dir.path())).state, FindingState::Ok);
    }

    #[test]
    fn an_absent_or_foreign_btf_file_fails_with_the_remedy() {
        assert_eq!(single_finding(check, &[(BTF, "ELF?")]).state, FindingState::Fail);
        assert_eq!(single_finding(check, &[(BTF, "")]).state, FindingState::Fail);
        let absent = single_finding(check, &[("sys/kernel/notes", "")]);
        assert_eq!(absent.state, FindingState::Fail);
        assert!(absent.mend[0].contains("CONFIG_DEBUG_INFO_BTF=y"));
        assert_eq!(single_finding(check, &[]).mend, ["mount -t sysfs sysfs /sys"]);
    }
}
