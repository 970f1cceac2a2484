//! Patterns of names in the catalog.

/// Whether an event name matches a pattern, or one of several joined by `|`; case-insensitive.
pub fn matches_event(pattern: &str, event: &str) -> bool {
    let event = event.to_ascii_lowercase();
    pattern.split('|').any(|one| matches(&one.to_ascii_lowercase(), &event))
}

/// The default list, which matches every name.
pub fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

/// `#` matches one or more hex digits, `?` matches one, `*` matches anything, other characters match
/// themselves.
pub fn matches(pattern: &str, text: &str) -> bool {
    // Most patterns differ from a text in the first character.
    let first = pattern.as_bytes().first();
    if first.is_some_and(|it| !is_wild(*it)) && first != text.as_bytes().first() {
        return false;
    }
    let Some(at) = pattern.bytes().position(is_wild) else { return pattern == text };
    let Some(rest) = text.strip_prefix(&pattern[..at]) else { return false };
    let after = &pattern[at + 1..];
    let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (least, most) = match pattern.as_bytes()[at] {
        b'#' => (1, digits),
        b'?' => (1, digits.min(1)),
        _ => (0, rest.len()),
    };
    (least..=most).any(|len| rest.get(len..).is_some_and(|rest| matches(after, rest)))
}

/// Whether a character of a pattern stands for others.
pub(super) fn is_wild(byte: u8) -> bool {
    matches!(byte, b'#' | b'?' | b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_patterns_of_one_event() {
        for (event, is) in [("hnf_mc_reqs", true), ("HNS_MC_REQS_all", true), ("hns_mc", false)] {
            assert_eq!(matches_event("hnf_mc_reqs|hns_mc_reqs_*", event), is, "{event}");
        }
    }

    #[test]
    fn patterns_tell_families_apart() {
        for (pattern, text, is) in [
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_12", true),
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_0_rc_4", false),
            ("nvidia_pcie_pmu_#_rc_#", "nvidia_pcie_pmu_0_rc_4", true),
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_", false),
            ("pcie_bdf_#", "pcie_bdf_980000", true),
            ("armv*", "armv8_pmuv3_0", true),
            ("2cf00*", "2cf0036b", true),
            ("2cf00*", "2cf2036b", false),
            ("uncore_imc_#", "uncore_imc_free_running_0", false),
            ("a#", "aé", false),
            ("AuthenticAMD-25-?", "AuthenticAMD-25-f", true),
            ("AuthenticAMD-25-?", "AuthenticAMD-25-1f", false),
            ("AuthenticAMD-25-2?", "AuthenticAMD-25-2f", true),
            ("AuthenticAMD-25-2?", "AuthenticAMD-25-2", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }
}
