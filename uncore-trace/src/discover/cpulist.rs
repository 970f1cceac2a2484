//! Sets of CPUs, and the parser of CPU lists (`0-3,5`) in `cpumask`, `cpulist`, `online` and
//! similar files.
//!
//! A [`CpuList`] is a bit set that its copies share: thousands of counters see the same CPUs, and
//! intersections take a word for 64 CPUs. Lists of the same CPUs are equal, and print as the kernel
//! prints them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Largest accepted CPU number: eight times the largest `NR_CPUS` of a kernel (8192,
/// `arch/x86/Kconfig`, Linux 7.2), so that a hostile list cannot take gigabytes.
const MAX_CPU: u32 = 65_535;

/// A set of logical CPU numbers, in ascending order.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList {
    /// 64 CPUs in each word, the lowest in its lowest bit. The last word is not 0, so that equal
    /// sets have equal words.
    words: Arc<[u64]>,
}

impl CpuList {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bases = (0..).step_by(u64::BITS as usize);
        bases
            .zip(&*self.words)
            .flat_map(move |(base, word)| set_bits(*word).map(move |bit| base + bit))
    }

    /// Number of CPUs in the list.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the list is empty, like the `cpumask` of a PMU whose CPUs are all offline.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU.
    pub fn first_cpu(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Whether the list contains `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.words.get((cpu / u64::BITS) as usize);
        word.is_some_and(|word| word >> (cpu % u64::BITS) & 1 == 1)
    }

    /// Whether all its CPUs are in the other list.
    pub fn is_subset(&self, superset: &Self) -> bool {
        self.words.len() <= superset.words.len()
            && self
                .words
                .iter()
                .zip(&*superset.words)
                .all(|(word, superset_word)| word & !superset_word == 0)
    }

    /// The CPUs that are in both lists.
    #[must_use]
    pub fn intersection(&self, list: &Self) -> Self {
        if self.is_subset(list) {
            return self.clone();
        }
        Self::of_words(self.words.iter().zip(&*list.words).map(|(a, b)| a & b).collect())
    }

    /// The CPUs that are in any of the two lists.
    #[must_use]
    pub fn union_with(&self, list: &Self) -> Self {
        let (long, short) =
            if self.words.len() < list.words.len() { (list, self) } else { (self, list) };
        if short.is_subset(long) {
            return long.clone();
        }
        let mut words = long.words.to_vec();
        for (word, short_word) in words.iter_mut().zip(&*short.words) {
            *word |= short_word;
        }
        Self::of_words(words)
    }

    /// The CPUs that are not in the other list.
    #[must_use]
    pub fn difference(&self, list: &Self) -> Self {
        let excluded = list.words.iter().copied().chain(std::iter::repeat(0));
        Self::of_words(self.words.iter().zip(excluded).map(|(a, b)| a & !b).collect())
    }

    fn of_words(mut words: Vec<u64>) -> Self {
        let used = words.iter().rposition(|word| *word != 0).map_or(0, |last_used| last_used + 1);
        words.truncate(used);
        Self { words: words.into() }
    }
}

/// The numbers of the bits of a word that are set, in ascending order.
pub(super) fn set_bits(word: u64) -> impl Iterator<Item = u32> {
    let not_zero = |word: u64| (word != 0).then_some(word);
    let without_lowest = move |word: &u64| not_zero(word & (word - 1));
    std::iter::successors(not_zero(word), without_lowest).map(u64::trailing_zeros)
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut words = Vec::new();
        for cpu in cpus {
            let index = (cpu / u64::BITS) as usize;
            if words.len() <= index {
                words.resize(index + 1, 0);
            }
            words[index] |= 1 << (cpu % u64::BITS);
        }
        Self::of_words(words)
    }
}

/// The CPUs that are in any of the lists.
impl<'a> FromIterator<&'a CpuList> for CpuList {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(lists: I) -> Self {
        lists.into_iter().fold(Self::default(), |cpus, list| cpus.union_with(list))
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
        for range_text in text.split(',') {
            let (first_cpu, last_cpu) = parse_range(range_text.trim())?;
            cpus.extend(first_cpu..=last_cpu);
        }
        Ok(cpus.into_iter().collect())
    }
}

/// `7` as (7, 7) and `4-9` as (4, 9).
fn parse_range(range_text: &str) -> Result<(u32, u32)> {
    if range_text.contains(':') {
        bail!("CPU list: strides such as {range_text:?} are not supported, write the CPUs out");
    }
    let (first_text, last_text) = range_text.split_once('-').unwrap_or((range_text, range_text));
    let (first_cpu, last_cpu) = (parse_cpu(first_text)?, parse_cpu(last_text)?);
    if first_cpu > last_cpu {
        bail!("CPU list: the range {range_text:?} is in descending order");
    }
    Ok((first_cpu, last_cpu))
}

fn parse_cpu(text: &str) -> Result<u32> {
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
        let mut cpus = self.iter().peekable();
        while let Some(first_cpu) = cpus.next() {
            let mut last_cpu = first_cpu;
            while let Some(next_cpu) = cpus.next_if_eq(&(last_cpu + 1)) {
                last_cpu = next_cpu;
            }
            write!(f, "{separator}{first_cpu}")?;
            if last_cpu > first_cpu {
                write!(f, "-{last_cpu}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuList({self})")
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
    fn cpu_lists_of_the_kernel_are_parsed() {
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
    fn malformed_cpu_lists_are_refused() {
        for text in ["0-10:2", "3-1", "a", "1,,2", "-1", "0-", "+1", "0-4294967295", "99999999999"]
        {
            assert!(text.parse::<CpuList>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn a_printed_cpu_list_parses_to_itself(cpus in proptest::collection::vec(0_u32..300, 0..80)) {
            let list: CpuList = cpus.iter().copied().collect();
            prop_assert_eq!(&list.to_string().parse::<CpuList>().unwrap(), &list);
            prop_assert!(cpus.iter().all(|&cpu| list.contains(cpu)));
        }

        #[test]
        fn operations_on_cpu_lists_are_those_on_sets(
            a in proptest::collection::btree_set(0_u32..300, 0..80),
            b in proptest::collection::btree_set(0_u32..300, 0..80),
        ) {
            let [x, y] = [&a, &b].map(|cpus| cpus.iter().copied().collect::<CpuList>());
            prop_assert!(x.iter().eq(a.iter().copied()));
            prop_assert_eq!((x.len(), x.is_empty(), x.first_cpu()), (a.len(), a.is_empty(), a.first().copied()));
            prop_assert!((0..400).all(|cpu| x.contains(cpu) == a.contains(&cpu)));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            let sets = [(x.intersection(&y), &a & &b), (x.union_with(&y), &a | &b), (x.difference(&y), &a - &b)];
            for (list, cpus) in sets {
                prop_assert_eq!(list, cpus.into_iter().collect::<CpuList>());
            }
        }

        #[test]
        fn no_text_of_a_cpu_list_panics(text in "[0-9,:/ a-]{0,24}") {
            let _unused = text.parse::<CpuList>();
        }
    }
}
