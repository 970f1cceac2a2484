//! "Did you mean": the known name nearest to a wrong one, and a short list of names.
//!
//! Names of events and metrics differ in a word where their meanings do (`upi`, `qpi`; `rd`, `wr`),
//! so for these only a misspelling of the same words is suggested ([`is_misspelling`]).

use std::collections::BTreeSet;

use crate::text::{list_few, printable};

/// Smallest similarity, 0 to 1, for a suggestion; less similar names would not help.
const ALIKE: f64 = 0.55;

/// Number of names in an error before the rest is given as a number: two lines.
const SHOWN: usize = 24;

/// The name most similar to `wrong`, if any is similar enough; case-insensitive.
pub(crate) fn nearest_name<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let alike = |name: &str| {
        strsim::jaro_winkler(&wrong, &name.to_lowercase())
            .min(strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase()) + 0.2)
    };
    let known = known.into_iter().map(|name| (alike(name), name));
    let best = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(alike, _)| *alike >= ALIKE).map(|(_, name)| name)
}

/// ` (did you mean X?)`, or an empty text.
pub fn did_you_mean(wrong: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    suggestion_text(nearest_name(wrong, known.iter().map(AsRef::as_ref)))
}

/// The same for names of events, metrics and PMUs: only one that [`is_misspelling`] accepts.
pub fn did_you_misspell(wrong: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    let candidates = known.iter().map(AsRef::as_ref).filter(|name| is_misspelling(wrong, name));
    suggestion_text(nearest_name(wrong, candidates))
}

fn suggestion_text(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(" (did you mean {}?)", printable(name)))
}

/// Whether `wrong` has the words of `name`, each written correctly or misspelt, up to one more word
/// at its end; separators do not matter.
fn is_misspelling(wrong: &str, name: &str) -> bool {
    let (wrong, name) = (wrong.to_lowercase(), name.to_lowercase());
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let (wrong, name) = (words(&wrong), words(&name));
    let extra_words = name.len().checked_sub(wrong.len());
    wrong.concat() == name.concat()
        || extra_words.is_some_and(|extra| extra <= 1)
            && wrong.iter().zip(&name).all(|(wrong, word)| is_misspelt(wrong, word))
            && !wrong.is_empty()
}

/// Whether a word is another one, misspelt: the same begin and the same digits. Of a word of up to
/// three letters only the order, or how often each is written, may differ.
fn is_misspelt(wrong: &str, word: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let letters = |text: &str| text.chars().collect::<BTreeSet<char>>();
    let distance = strsim::damerau_levenshtein(wrong, word);
    let allowed = match wrong.chars().count().min(word.chars().count()) {
        0..4 if letters(wrong) != letters(word) => 0,
        0..8 => 1,
        _ => 2,
    };
    distance <= allowed
        && digits(wrong) == digits(word)
        && (distance == 0 || wrong.chars().next() == word.chars().next())
}

/// `a, b, c and 7 more`, escaped for a terminal; `none` if there are none.
pub fn list_names(names: impl IntoIterator<Item: AsRef<str>>) -> String {
    list_few(names, SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["rd_bytes_loc", "wr_bytes_loc", "cycles"];
        assert_eq!(nearest_name("rd_bytes_lo", known), Some("rd_bytes_loc"));
        assert_eq!(nearest_name("CYCLE", known), Some("cycles"));
        assert_eq!(nearest_name("zzz", known), None);
        assert_eq!(did_you_mean("zzz", known), "");
    }

    #[test]
    fn an_event_of_another_meaning_is_not_suggested() {
        for (wrong, name) in [
            ("upi_data_transmit_bw", "qpi_data_transmit_bw"),
            ("qpi_data_transmit_bw", "upi_data_transmit_bw"),
            ("io_lost_fwd", "io_msi"),
            ("llc_misses.mem_read", "llc_misses.pcie_read"),
            ("llc_misses.mem_read", "unc_iio_data_req_of_cpu.mem_read"),
            ("unc_mchbm_cas_count.rd", "unc_mchbm_clockticks"),
            ("unc_mchbm_cas_count.rd", "unc_m_cas_count.rd"),
            ("unc_m_cas_count.rd", "unc_m_cas_count.wr"),
            ("unc_m_cas_count_sch0.rd", "unc_m_cas_count_sch1.rd"),
            ("unc_upi_txl_flits.all_data", "unc_upi_rxl_flits.all_data"),
            ("local_processor_read_data_beats_cs0", "local_socket_inf0_inbound_data_beats_ccm0"),
            ("local_processor_read_data_beats_cs0", "local_processor_read_data_beats_cs1"),
            ("umc_act_cmd.all", "umc_cas_cmd.all"),
            ("l2_cache_miss", "l3_cache_miss"),
            ("ddr_read", "ddrt_read"),
            ("nps1_die_to_dram", "die_to_dram"),
            ("credits_allocated", "credits_deallocated"),
            ("", "cycles"),
        ] {
            assert_eq!(did_you_misspell(wrong, [name]), "", "{wrong} {name}");
        }
        for (wrong, name) in [
            ("uncore_frequenzy", "uncore_frequency"),
            ("unc_cha_tor_inserts.ia_miss_drdd", "unc_cha_tor_inserts.ia_miss_drd"),
            ("UNC_M_CAS_CONUT.RD", "unc_m_cas_count.rd"),
            ("unc_m_cas_count", "unc_m_cas_count.rd"),
            ("page_fault", "page-faults"),
            ("rootport", "root_port"),
            ("rd_byte_loc", "rd_bytes_loc"),
            ("cycels", "cycles"),
            ("mem_read_bandwith", "mem_read_bandwidth"),
        ] {
            assert!(did_you_misspell(wrong, [name]).contains(name), "{wrong} {name}");
        }
    }

    #[test]
    fn lists_are_short_and_printable() {
        assert_eq!(list_names([""; 0]), "none");
        assert_eq!(list_names(["a\n", "b"]), "a\\n, b");
        assert!(list_names(vec!["x"; 30]).ends_with("and 6 more"));
        assert_eq!(list_few(["a", "b", "c"], 2), "a, b and 1 more");
    }
}
