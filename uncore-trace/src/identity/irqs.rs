//! Names of interrupts.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::bounds;

/// Names by number.
#[derive(Debug)]
pub struct IrqNames {
    sysfs: PathBuf,
    irqs: HashMap<u32, String>,
    logged: HashSet<u32>,
}

impl IrqNames {
    /// Names from sysfs under `root`.
    pub fn new(root: &Path) -> Self {
        Self { sysfs: root.join("sys/kernel/irq"), irqs: HashMap::new(), logged: HashSet::new() }
    }

    /// The name of an interrupt, if it was not returned before.
    pub fn take_unlogged(&mut self, number: u32) -> Option<&str> {
        self.logged.insert(number).then(|| self.irq_name(number))
    }

    /// `irq:NAME`, with the names of all handlers if the line is shared; `irq:NUMBER` if unknown.
    pub fn irq_name(&mut self, number: u32) -> &str {
        let sysfs = &self.sysfs;
        self.irqs.entry(number).or_insert_with(|| {
            let actions = bounds::system_text(sysfs.join(number.to_string()).join("actions"));
            match actions.as_deref().map(str::trim) {
                Ok(name) if !name.is_empty() => format!("irq:{name}"),
                _ => format!("irq:{number}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_come_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/irq/9");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("actions"), "acpi,ged\n").unwrap();
        let mut names = IrqNames::new(root.path());
        assert_eq!(names.irq_name(9), "irq:acpi,ged");
        assert_eq!(names.irq_name(10), "irq:10");
    }
}
