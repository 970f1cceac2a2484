//! The build configuration of the running kernel.
//!
//! Read from where distributions put it: `/proc/config.gz` (`CONFIG_IKCONFIG_PROC`, the only one
//! that certainly belongs to the running kernel), `/boot/config-RELEASE`,
//! `/lib/modules/RELEASE/config`.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;

use super::{Machine, kernel};

/// Most bytes that are unpacked: distribution configurations have 200 to 350 KiB.
const LIMIT: u64 = 16 << 20;

/// How one option was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// `=y`, or any value that is not a tristate.
    BuiltIn,
    /// `=m`.
    Module,
    /// `is not set`, or not known to this kernel at all.
    Unset,
}

/// A kernel configuration and where it was read.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) source: String,
    settings: HashMap<String, Setting>,
}

impl Config {
    /// The running kernel's configuration; `None` if there is no file with it.
    pub(super) fn read(machine: &Machine) -> Result<Option<Self>> {
        if let Ok(packed) = machine.bytes("proc/config.gz") {
            let mut text = String::new();
            GzDecoder::new(packed.as_slice())
                .take(LIMIT)
                .read_to_string(&mut text)
                .context("cannot unpack /proc/config.gz: is it truncated?")?;
            return Ok(Some(Self::parse("/proc/config.gz", &text)));
        }
        // A release becomes part of a path: one with a slash is not a release.
        let release = kernel::release(machine).filter(|release| !release.contains('/'));
        let Some(release) = release else { return Ok(None) };
        for path in [format!("boot/config-{release}"), format!("lib/modules/{release}/config")] {
            if let Ok(text) = machine.text(&path) {
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
                "m" => Setting::Module,
                "n" => Setting::Unset,
                _ => Setting::BuiltIn,
            };
            name.starts_with("CONFIG_").then(|| (name.to_owned(), setting))
        };
        Self { source: source.to_owned(), settings: text.lines().filter_map(setting).collect() }
    }

    /// The value of the option, whose name has the prefix `CONFIG_`.
    pub(super) fn setting(&self, name: &str) -> Setting {
        self.settings.get(name).copied().unwrap_or(Setting::Unset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::fake;
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::fs;
    use std::io::Write as _;

    const TEXT: &str = "# Linux\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_HZ=250\n";

    fn expect(config: &Config) {
        assert_eq!(config.setting("CONFIG_A"), Setting::BuiltIn);
        assert_eq!(config.setting("CONFIG_B"), Setting::Module);
        assert_eq!(config.setting("CONFIG_C"), Setting::Unset);
        assert_eq!(config.setting("CONFIG_HZ"), Setting::BuiltIn);
        assert_eq!(config.setting("CONFIG_NEVER_HEARD_OF"), Setting::Unset);
    }

    #[test]
    fn every_place_is_read() {
        let release = ("proc/sys/kernel/osrelease", "6.12.1\n");
        for path in ["boot/config-6.12.1", "lib/modules/6.12.1/config"] {
            let dir = fake(&[release, (path, TEXT)]);
            let config = Config::read(&Machine::at(dir.path())).unwrap().unwrap();
            assert_eq!(config.source, format!("/{path}"));
            expect(&config);
        }
        let dir = fake(&[release, ("boot/config-6.12.1", "CONFIG_A=m\n")]);
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(TEXT.as_bytes()).unwrap();
        fs::write(dir.path().join("proc/config.gz"), gz.finish().unwrap()).unwrap();
        expect(&Config::read(&Machine::at(dir.path())).unwrap().unwrap());
    }

    #[test]
    fn absent_and_damaged() {
        assert!(Config::read(&Machine::at(fake(&[]).path())).unwrap().is_none());
        let dir = fake(&[("proc/config.gz", "not gzip")]);
        let error = Config::read(&Machine::at(dir.path())).unwrap_err();
        assert!(format!("{error:#}").contains("/proc/config.gz"));
        let dir = fake(&[("proc/sys/kernel/osrelease", "../../etc"), ("etc/config", TEXT)]);
        assert!(Config::read(&Machine::at(dir.path())).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".*") {
            let _config = Config::parse("here", &text);
        }
    }
}
