//! The version in the release of a kernel, and what its version line says of it.

use std::fmt;

use serde::Deserialize;

/// Major and minor number of a kernel release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// Reads `6.18.44-anything`, `7.2-rc1`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// Whether the version line of a kernel (`uname -v`) is that of one with `PREEMPT_RT`
/// (init/Makefile, Linux 7.2).
pub fn is_realtime(version: &str) -> bool {
    version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

impl TryFrom<String> for KernelVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not the version of a kernel"))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_malformed_kernel_version_is_refused() {
        assert!(KernelVersion::try_from("banana".to_owned()).is_err());
        assert_eq!(KernelVersion::try_from("6.8".to_owned()), Ok(KernelVersion(6, 8)));
        assert!(KernelVersion(6, 8) < KernelVersion(6, 12));
    }

    proptest! {
        #[test]
        fn a_version_is_read_back(major in 0u32..100, minor in 0u32..100, rest in "([.+-].*)?") {
            prop_assert_eq!(
                KernelVersion::parse(&format!("{major}.{minor}{rest}")),
                Some(KernelVersion(major, minor))
            );
        }
    }
}
