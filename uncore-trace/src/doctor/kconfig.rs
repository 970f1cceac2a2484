//! The build configuration of the running kernel.
//!
//! Read from where distributions put it: `/proc/config.gz` (`CONFIG_IKCONFIG_PROC`, the only one
//! that certainly belongs to the running kernel), `/boot/config-RELEASE`,
//! `/lib/modules/RELEASE/config`.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;

use super::{ExaminedMachine, kernel};

/// Most bytes that are unpacked: distribution configurations have 200 to 350 KiB.
const LIMIT: u64 = 16 << 20;

/// How one option was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionSetting {
    /// `=y`, or any value that is not a tristate.
    BuiltIn,
    /// `=m`.
    Module,
    /// `is not set`, or not known to this kernel at all.
    Unset,
}

/// A kernel configuration and where it was read.
#[derive(Debug)]
pub(super) struct KernelConfig {
    pub(super) source: String,
    settings: HashMap<String, OptionSetting>,
}

impl KernelConfig {
    /// The running kernel's configuration; `None` if there is no file with it.
    pub(super) fn read(machine: &ExaminedMachine) -> Result<Option<Self>> {
        if let Ok(packed) = machine.read_bytes("proc/config.gz") {
            let mut text = String::new();
            GzDecoder::new(packed.as_slice())
                .take(LIMIT)
                .read_to_string(&mut text)
                .context("cannot unpack /proc/config.gz: is it truncated?")?;
            return Ok(Some(Self::parse("/proc/config.gz", &text)));
        }
        // A release becomes part of a path: one with a slash is not a release.
        let release = kernel::kernel_release(machine).filter(|release| !release.contains('/'));
        let Some(release) = release else { return Ok(None) };
        for path in [format!("boot/config-{release}"), format!("lib/modules/{release}/config")] {
            if let Ok(text) = machine.read_text(&path) {
                return Ok(Some(Self::parse(&format!("/{path}"), &text)));
            }
        }
        Ok(None)
    }

    /// Reads lines `CONFIG_X=value`, and ignores comments, which unset options are.
    fn parse(source: &str, text: &str) -> Self {
        let setting = |line: &str| {
            let (name, value) = line.trim().split_once('=')?;
            let setting = match value {
                "m" => OptionSetting::Module,
                "n" => OptionSetting::Unset,
                _ => OptionSetting::BuiltIn,
            };
            name.starts_with("CONFIG_").then(|| (name.to_owned(), setting))
        };
        Self { source: source.to_owned(), settings: text.lines().filter_map(setting).collect() }
    }

    /// The value of the option, whose name has the prefix `CONFIG_`.
    pub(super) fn option_setting(&self, name: &str) -> OptionSetting {
        self.settings.get(name).copied().unwrap_or(OptionSetting::Unset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::fake_tree;
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::fs;
    use std::io::Write as _;

    const TEXT: &str = "# Linux\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_HZ=250\n";

    fn expect(config: &KernelConfig) {
        assert_eq!(config.option_setting("CONFIG_A"), OptionSetting::BuiltIn);
        assert_eq!(config.option_setting("CONFIG_B"), OptionSetting::Module);
        assert_eq!(config.option_setting("CONFIG_C"), OptionSetting::Unset);
        assert_eq!(config.option_setting("CONFIG_HZ"), OptionSetting::BuiltIn);
        assert_eq!(config.option_setting("CONFIG_NEVER_HEARD_OF"), OptionSetting::Unset);
    }

    #[test]
    fn a_kernel_configuration_is_read_from_every_place() {
        let release = ("proc/sys/kernel/osrelease", "6.12.1\n");
        for path in ["boot/config-6.12.1", "lib/modules/6.12.1/config"] {
            let dir = fake_tree(&[release, (path, TEXT)]);
            let config =
                KernelConfig::read(&ExaminedMachine::at_root(dir.path())).unwrap().unwrap();
            assert_eq!(config.source, format!("/{path}"));
            expect(&config);
        }
        let dir = fake_tree(&[release, ("boot/config-6.12.1", "CONFIG_A=m\n")]);
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(TEXT.as_bytes()).unwrap();
        fs::write(dir.path().join("proc/config.gz"), gz.finish().unwrap()).unwrap();
        expect(&KernelConfig::read(&ExaminedMachine::at_root(dir.path())).unwrap().unwrap());
    }

    #[test]
    fn an_absent_kernel_configuration_is_none_and_a_damaged_one_an_error() {
        assert!(
            KernelConfig::read(&ExaminedMachine::at_root(fake_tree(&[]).path())).unwrap().is_none()
        );
        let dir = fake_tree(&[("proc/config.gz", "not gzip")]);
        let error = KernelConfig::read(&ExaminedMachine::at_root(dir.path())).unwrap_err();
        assert!(format!("{error:#}").contains("/proc/config.gz"));
        let dir = fake_tree(&[("proc/sys/kernel/osrelease", "../../etc"), ("etc/config", TEXT)]);
        assert!(KernelConfig::read(&ExaminedMachine::at_root(dir.path())).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_text_of_a_kernel_configuration_panics(text in ".*") {
            let _config = KernelConfig::parse("here", &text);
        }
    }
}
