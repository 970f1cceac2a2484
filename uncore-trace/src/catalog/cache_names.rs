//! The generic names of cache events, with all spellings of perf
//! (`tools/perf/pmu-events/make_legacy_cache.py`, Linux 7.2).

/// `perf_hw_cache_id` by its spellings.
const CACHES: [&[&str]; 7] = [
    &["L1-dcache", "l1-d", "l1d", "L1-data"],
    &["L1-icache", "l1-i", "l1i", "L1-instruction"],
    &["LLC", "L2"],
    &["dTLB", "d-tlb", "Data-TLB"],
    &["iTLB", "i-tlb", "Instruction-TLB"],
    &["branch", "branches", "bpu", "btb", "bpc"],
    &["node"],
];

/// `perf_hw_cache_op_id` by its spellings.
const OPS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];

/// `perf_hw_cache_op_result_id` by its spellings.
const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// The config of a name as `CACHE[-OP][-RESULT]`; without them, reads and accesses.
pub(super) fn cache_event_config(name: &str) -> Option<u64> {
    let (cache, op_and_result) =
        matching_prefixes(&CACHES, name).find(|(_, suffix)| after_cache(suffix).is_some())?;
    let (op, result) = after_cache(op_and_result)?;
    Some((cache | op << 8 | result << 16) as u64)
}

/// Whether a name is that of a generic cache event.
pub fn is_cache_event(name: &str) -> bool {
    cache_event_config(name).is_some()
}

/// The operation and result after the name of a cache.
fn after_cache(suffix: &str) -> Option<(usize, usize)> {
    let Some(op_text) = suffix.strip_prefix('-') else {
        return suffix.is_empty().then_some((0, 0));
    };
    let result = |text: &str| {
        let mut whole = matching_prefixes(&RESULTS, text).filter(|(_, tail)| tail.is_empty());
        whole.next().map(|(result, _)| result)
    };
    let with_op = matching_prefixes(&OPS, op_text).find_map(|(op, op_tail)| {
        match op_tail.strip_prefix('-') {
            None => op_tail.is_empty().then_some((op, 0)),
            Some(result_text) => Some((op, result(result_text)?)),
        }
    });
    with_op.or_else(|| Some((0, result(op_text)?)))
}

/// Each spelling with which `text` begins, as its index, with the rest of the text.
fn matching_prefixes<'t>(
    spellings: &'static [&'static [&'static str]],
    text: &'t str,
) -> impl Iterator<Item = (usize, &'t str)> {
    let indexed_spellings = spellings.iter().enumerate();
    let indexed_names =
        indexed_spellings.flat_map(|(index, names)| names.iter().map(move |name| (index, name)));
    indexed_names.filter_map(move |(index, name)| {
        let (head, tail) = text.split_at_checked(name.len())?;
        head.eq_ignore_ascii_case(name).then_some((index, tail))
    })
}

#[cfg(test)]
mod tests {
    use super::cache_event_config;

    #[test]
    fn every_spelling_has_the_config_of_its_event() {
        for (name, expected) in [
            ("L1-dcache-load-miss", 0x10000),
            ("L1-dcache-misses", 0x10000),
            ("l1d", 0x0),
            ("L1-instruction-read-refs", 0x1),
            ("LLC-stores", 0x102),
            ("L2-speculative-read-misses", 0x10202),
            ("d-tlb-write-access", 0x103),
            ("bpu-loads", 0x5),
            ("node-prefetches", 0x206),
        ] {
            assert_eq!(cache_event_config(name), Some(expected), "{name}");
        }
        for name in ["", "L1", "LLC-", "LLC-loads-", "llc_misses.mem_read", "node-x", "cycles"] {
            assert_eq!(cache_event_config(name), None, "{name}");
        }
    }
}
