//! The kernel's own type information.
//!
//! The programs attach to typed tracepoints (`tp_btf`) and read a few kernel structures at offsets
//! taken from it. A file with the types of the same kernel gives the offsets too; the programs then attach
//! to raw tracepoints.

use std::io::ErrorKind;

use super::machine::BTF;
use super::{Finding, Machine, State, kernel};
use crate::open;

const NAME: &str = "BTF";
/// First two bytes of BTF in the machine's byte order (`include/uapi/linux/btf.h`, `BTF_MAGIC`).
const MAGIC: u16 = 0xeb9f;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let finding = match machine.btf() {
        Ok(bytes) if bytes.get(..2).is_some_and(is_magic) => {
            let kib = bytes.len() >> 10;
            Finding::new(NAME, State::Ok, format!("/{BTF}, {kib} KiB"))
        }
        Ok(_) => Finding::new(NAME, State::Fail, format!("/{BTF} is not BTF"))
            .mend("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
        Err(error) if error.kind() == ErrorKind::NotFound && !machine.has("sys/kernel") => {
            Finding::new(NAME, State::Fail, "sysfs is not mounted at /sys")
                .mend(machine.as_root("mount -t sysfs sysfs /sys"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => absent(machine),
        Err(error) => {
            let finding = Finding::new(NAME, State::Fail, format!("cannot read /{BTF}: {error}"));
            match error.kind() {
                ErrorKind::PermissionDenied => {
                    finding.mend(machine.as_root(&format!("chmod a+r /{BTF}")))
                }
                _ => finding,
            }
        }
    };
    vec![finding]
}

/// The finding on a kernel that was built without.
fn absent(machine: &Machine) -> Finding {
    let release = kernel::release(machine).unwrap_or_default();
    if let Some((path, _)) = open::find_elsewhere(machine.root(), &release) {
        let what = format!(
            "this kernel has none of its own: record uses {}, and a thread in place of the BPF timer",
            path.display()
        );
        return Finding::new(NAME, State::Warn, what);
    }
    let what = format!("/{BTF} does not exist: this kernel has no BTF");
    Finding::new(NAME, State::Fail, what)
        .mend("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y")
        .mend(format!("record with --btf FILE, made from this kernel's vmlinux: {}", open::MAKE))
        .mend("count without tasks and cgroups: uncore-trace stat")
}

fn is_magic(bytes: &[u8]) -> bool {
    // Either byte order: a captured tree may come from the other one.
    bytes == MAGIC.to_le_bytes() || bytes == MAGIC.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::machine::{fake, finding};
    use super::*;
    use std::fs;

    #[test]
    fn present() {
        let dir = fake(&[(BTF, "")]);
        fs::write(dir.path().join(BTF), [0x9f, 0xeb, 1, 0]).unwrap();
        assert_eq!(check(&Machine::at(dir.path()))[0].state, State::Ok);
    }

    #[test]
    fn absent_foreign_or_no_sysfs() {
        assert_eq!(finding(check, &[(BTF, "ELF?")]).state, State::Fail);
        assert_eq!(finding(check, &[(BTF, "")]).state, State::Fail);
        let absent = finding(check, &[("sys/kernel/notes", "")]);
        assert_eq!(absent.state, State::Fail);
        assert!(absent.mend[0].contains("CONFIG_DEBUG_INFO_BTF=y"));
        assert_eq!(finding(check, &[]).mend, ["mount -t sysfs sysfs /sys"]);
    }
}
