//! The parser of CPU lists (`0-3,5`) in `cpumask`, `cpulist`, `online` and similar files.
//!
//! A [`CpuList`] is sorted and without repeats, so lists of the same CPUs are equal, and it prints
//! as the kernel does.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Largest accepted CPU number: eight times the largest `NR_CPUS` of a kernel (8192,
/// `arch/x86/Kconfig`, Linux 7.2), so that a hostile list cannot take gigabytes.
const MAX_CPU: u32 = 65_535;

/// A set of logical CPU numbers, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Number of CPUs in the list.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty, like the `cpumask` of a PMU whose CPUs are all offline.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the list contains `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs that are in both lists.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuList {
    type Err = anyhow::Error;

    /// Parses the list format of `Documentation/core-api/printk-formats.rst` (`%*pbl`): decimal
    /// numbers and ranges between commas; the list may be empty. The form `a-b:used/of`, which the
    /// kernel reads but never writes, is refused.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = range(part.trim())?;
            cpus.extend(first..=last);
        }
        Ok(cpus.into_iter().collect())
    }
}

/// `7` as (7, 7) and `4-9` as (4, 9).
fn range(part: &str) -> Result<(u32, u32)> {
    if part.contains(':') {
        bail!("CPU list: strides such as {part:?} are not supported, write the CPUs out");
    }
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        bail!("CPU list: the range {part:?} is in descending order");
    }
    Ok((first, last))
}

fn number(text: &str) -> Result<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        bail!("CPU list: {text:?} is not a CPU number");
    }
    match text.parse() {
        Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
        _ => bail!("CPU list: CPU {text} is beyond {MAX_CPU}"),
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [one] => write!(f, "{separator}{one}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [] => {}
            }
            separator = ",";
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuList {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        for (text, cpus) in [
            ("", vec![]),
            ("\n", vec![]),
            ("0\n", vec![0]),
            ("0-3,5\n", vec![0, 1, 2, 3, 5]),
            ("0,2", vec![0, 2]),
            ("8, 4-5", vec![4, 5, 8]),
        ] {
            assert_eq!(
                text.parse::<CpuList>().unwrap().iter().collect::<Vec<_>>(),
                cpus,
                "{text:?}"
            );
        }
    }

    #[test]
    fn refuses_what_is_no_list() {
        for text in ["0-10:2", "3-1", "a", "1,,2", "-1", "0-", "+1", "0-4294967295", "99999999999"]
        {
            assert!(text.parse::<CpuList>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_agree(cpus in proptest::collection::vec(0_u32..300, 0..80)) {
            let list: CpuList = cpus.iter().copied().collect();
            prop_assert_eq!(&list.to_string().parse::<CpuList>().unwrap(), &list);
            prop_assert!(cpus.iter().all(|&cpu| list.contains(cpu)));
        }

        #[test]
        fn no_text_panics(text in "[0-9,:/ a-]{0,24}") {
            let _unused = text.parse::<CpuList>();
        }
    }
}
