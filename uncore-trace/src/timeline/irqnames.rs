//! Interrupt numbers and softirq vectors to names.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Softirq vectors, `enum` in include/linux/interrupt.h, Linux 6.1 to 7.2.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Names by number.
#[derive(Debug)]
pub struct IrqNames {
    sysfs: PathBuf,
    irqs: HashMap<u32, String>,
}

impl IrqNames {
    /// Names from sysfs under `root`.
    pub fn new(root: &Path) -> Self {
        Self { sysfs: root.join("sys/kernel/irq"), irqs: HashMap::new() }
    }

    /// The name of an interrupt is known: `irq:NAME`.
    pub fn learn(&mut self, number: u32, name: &str) {
        self.irqs.entry(number).or_insert_with(|| name.to_owned());
    }

    /// `irq:NAME`, the names of all handlers where the line is shared, or `irq:NUMBER`.
    pub fn irq(&mut self, number: u32) -> &str {
        let sysfs = &self.sysfs;
        self.irqs.entry(number).or_insert_with(|| {
            let actions = fs::read_to_string(sysfs.join(number.to_string()).join("actions"));
            match actions.as_deref().map(str::trim) {
                Ok(name) if !name.is_empty() => format!("irq:{name}"),
                _ => format!("irq:{number}"),
            }
        })
    }

    /// `softirq:VECTOR`.
    pub fn softirq(vector: u32) -> String {
        SOFTIRQS
            .get(vector as usize)
            .map_or_else(|| format!("softirq:{vector}"), |name| format!("softirq:{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/irq/9");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("actions"), "acpi,ged\n").unwrap();
        let mut names = IrqNames::new(root.path());
        assert_eq!(names.irq(9), "irq:acpi,ged");
        assert_eq!(names.irq(10), "irq:10");
        assert_eq!(IrqNames::softirq(3), "softirq:NET_RX");
        assert_eq!(IrqNames::softirq(77), "softirq:77");
    }
}
