//! PMU names: their instance suffix, their order, and how a user's text selects them.
//!
//! The rules are those of perf, so that a text selects the same PMUs here (`tools/perf/util/pmus.c`
//! and `pmu.c`, Linux 7.2).

use std::cmp::Ordering;

use globset::GlobBuilder;

/// Splits a name into the part before its instance suffix, and the suffix as a number.
///
/// A suffix is `_<decimal>`, or `_<hex>` with at least three digits. So the `df` of `amd_df` is
/// part of the name, but the address in `ali_drw_21000` is not.
pub fn split_suffix(name: &str) -> (&str, Option<u64>) {
    let Some((stem, suffix)) = name.rsplit_once('_') else { return (name, None) };
    let decimal = suffix.bytes().all(|b| b.is_ascii_digit());
    if stem.is_empty() || suffix.is_empty() || !(decimal || suffix.len() > 2) {
        return (name, None);
    }
    if !suffix.bytes().all(|b| b.is_ascii_hexdigit()) {
        return (name, None);
    }
    match u64::from_str_radix(suffix, 16) {
        Ok(number) => (stem, Some(number)),
        Err(_) => (name, None),
    }
}

/// The common name of a PMU's instances: `uncore_imc` for `uncore_imc_11`.
pub fn stem(name: &str) -> &str {
    split_suffix(name).0
}

/// Orders by stem, then by suffix as a *hex* number: `_2` before `_10` before `_a0`.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let (stem_a, number_a) = split_suffix(a);
    let (stem_b, number_b) = split_suffix(b);
    stem_a.cmp(stem_b).then(number_a.cmp(&number_b)).then_with(|| a.cmp(b))
}

/// Whether `word` selects the PMU `name`.
///
/// `word` is the full name, a shell pattern, or the name without its instance suffix (see
/// [`selects_instance`]). A leading `uncore_` is ignored on both sides.
pub fn selects_pmu(word: &str, name: &str) -> bool {
    let bare_name = name.strip_prefix("uncore_");
    let bare_word = word.strip_prefix("uncore_").unwrap_or(word);
    let selects_name = |word: &str, name: &str| {
        if word.contains(['*', '?', '[']) {
            matches_shell_pattern(word, name)
        } else {
            selects_instance(word, name)
        }
    };
    selects_name(word, name)
        || bare_name.is_some_and(|bare_name| selects_name(bare_word, bare_name))
}

/// Whether `word` is the full `name`, apart from a leading `uncore_`.
pub fn is_whole(word: &str, name: &str) -> bool {
    word == name || name.strip_prefix("uncore_") == Some(word)
}

/// Whether `name` is `word`, optionally followed by an instance suffix: digits with at most one
/// `_`; hex letters are allowed only in more than 2 digits. So a name with two numbers, such as
/// `uncore_type_12_2`, is selected with the first: without it, PMUs of other kinds would be too.
fn selects_instance(word: &str, name: &str) -> bool {
    let Some(suffix_text) = name.strip_prefix(word) else { return false };
    if suffix_text.is_empty() {
        return true;
    }
    if word.is_empty() || suffix_text.bytes().filter(|&b| b == b'_').count() > 1 {
        return false;
    }
    let suffix = suffix_text.strip_prefix('_').unwrap_or(suffix_text);
    if !suffix.bytes().all(|b| b.is_ascii_hexdigit() || b == b'_') {
        return false;
    }
    let has_letters = suffix.bytes().any(|b| b.is_ascii_alphabetic());
    !has_letters || suffix.len() > 2
}

/// Matches a shell pattern; an invalid pattern matches nothing.
fn matches_shell_pattern(pattern: &str, name: &str) -> bool {
    GlobBuilder::new(pattern).build().is_ok_and(|glob| glob.compile_matcher().is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_pmu_names_are_split_as_in_perf() {
        assert_eq!(split_suffix("uncore_imc_10"), ("uncore_imc", Some(0x10)));
        assert_eq!(split_suffix("ali_drw_c0050"), ("ali_drw", Some(0xc0050)));
        assert_eq!(split_suffix("nvidia_pcie_pmu_0_rc_4"), ("nvidia_pcie_pmu_0_rc", Some(4)));
        for whole in ["amd_df", "software", "uncore_pcu", "armv8_pmuv3", "_12", "a_"] {
            assert_eq!(split_suffix(whole), (whole, None));
        }
    }

    #[test]
    fn instances_sort_by_number() {
        let mut names =
            ["uncore_imc_10", "uncore_imc_9", "ali_drw_a10", "ali_drw_210", "uncore_imc"];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(
            names,
            ["ali_drw_210", "ali_drw_a10", "uncore_imc", "uncore_imc_9", "uncore_imc_10"]
        );
    }

    #[test]
    fn words_match_the_pmu_names_that_they_match_in_perf() {
        for (word, name) in [
            ("nvidia_pcie_pmu", "nvidia_pcie_pmu_0"),
            ("ali_drw", "ali_drw_21000"),
            ("dwc_rootport", "dwc_rootport_13018"),
            ("dwc_rootport", "dwc_rootport_0"),
            ("imc", "uncore_imc_3"),
            ("imc_3", "uncore_imc_3"),
            ("uncore_imc", "uncore_imc"),
            ("imc*", "uncore_imc_free_running_0"),
            ("nvidia_pcie_pmu_*_rc_?", "nvidia_pcie_pmu_0_rc_4"),
            ("type_12", "uncore_type_12_2"),
            ("hisi_sccl1_ddrc", "hisi_sccl1_ddrc0_1"),
            ("cpu", "cpu"),
        ] {
            assert!(selects_pmu(word, name), "{word} does not mean {name}");
        }
        for (word, name) in [
            ("nvidia_pcie_pmu", "nvidia_pcie_pmu_0_rc_4"),
            ("imc", "uncore_imc_free_running_0"),
            ("amd", "amd_df"),
            ("type", "uncore_type_12_2"),
            ("uncore_type", "uncore_type_0_0"),
            ("nvidia_nvlink_c2c", "nvidia_nvlink_c2c0_pmu_0"),
            ("cpu", "cpu_core"),
            ("", "cpu"),
            ("[", "cpu"),
        ] {
            assert!(!selects_pmu(word, name), "{word} means {name}");
        }
    }
}
