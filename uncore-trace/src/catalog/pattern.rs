//! Patterns of names in the catalog.

/// Whether an event name matches a pattern, or one of several joined by `|`; case-insensitive.
pub fn matches_event(pattern: &str, event: &str) -> bool {
    pattern.split('|').any(|alternative| {
        is_match(alternative.as_bytes(), event.as_bytes(), u8::eq_ignore_ascii_case)
    })
}

/// Whether an event name matches any of these patterns.
pub fn matches_any_event(patterns: &[String], event: &str) -> bool {
    patterns.iter().any(|pattern| matches_event(pattern, event))
}

/// Whether a text matches any of these patterns, as [`matches()`] says.
pub fn matches_any(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, text))
}

/// The default list, which matches every name.
pub fn match_any_name() -> Vec<String> {
    vec!["*".to_owned()]
}

/// `#` matches one or more hex digits, `?` matches one, `*` matches anything, other characters
/// match themselves.
pub fn matches(pattern: &str, text: &str) -> bool {
    is_match(pattern.as_bytes(), text.as_bytes(), u8::eq)
}

/// The same with bytes that are compared by `eq`.
fn is_match(pattern: &[u8], text: &[u8], eq: fn(&u8, &u8) -> bool) -> bool {
    let literal = pattern.iter().position(|byte| is_wild(*byte)).unwrap_or(pattern.len());
    let is_prefix =
        text.len() >= literal && pattern[..literal].iter().zip(text).all(|(a, b)| eq(a, b));
    if !is_prefix {
        return false;
    }
    let tail = &text[literal..];
    let Some(wild) = pattern.get(literal) else { return tail.is_empty() };
    let pattern_tail = &pattern[literal + 1..];
    let digits = tail.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (min_len, max_len) = match wild {
        b'#' => (1, digits),
        b'?' => (1, digits.min(1)),
        _ => (0, tail.len()),
    };
    (min_len..=max_len).any(|len| is_match(pattern_tail, &tail[len..], eq))
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
