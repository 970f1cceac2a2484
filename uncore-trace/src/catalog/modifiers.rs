//! The modifiers of an event (`cycles:u`), each with what it means for a count.
//!
//! perf hands some of them to the kernel, which refuses them for PMUs that cannot tell what ran
//! (`PERF_PMU_CAP_NO_EXCLUDE`, kernel/events/core.c, Linux 7.2); others are about samples
//! (`tools/perf/util/parse-events.l` and `parse-events.c`, Linux 7.2).

use crate::text::printable;

/// What a modifier does here.
enum ModifierEffect {
    /// Nothing, which needs no word.
    None,
    /// Nothing, for this reason.
    Note(&'static str),
    /// It would count something else than what is counted, for this reason.
    Refused(&'static str),
}

const OF_PRECISION: &str = "is about the precision of samples, and a count has none";
const NOT_PINNED: &str =
    "does not pin counters here: counters that do not fit their PMU take turns";

/// Each modifier of perf.
const MODIFIERS: [(char, ModifierEffect); 15] = [
    ('u', ModifierEffect::Refused("counts user space only")),
    ('k', ModifierEffect::Refused("counts the kernel only")),
    ('h', ModifierEffect::Refused("counts the hypervisor only")),
    ('I', ModifierEffect::Refused("leaves out idle CPUs")),
    ('G', ModifierEffect::Refused("counts guests only")),
    ('H', ModifierEffect::Refused("leaves out guests")),
    ('p', ModifierEffect::Note(OF_PRECISION)),
    ('P', ModifierEffect::Note(OF_PRECISION)),
    ('S', ModifierEffect::Note("is about samples, and groups are always read together here")),
    ('D', ModifierEffect::Note(NOT_PINNED)),
    ('e', ModifierEffect::Note("does not keep other events from the PMU here")),
    ('W', ModifierEffect::None),
    ('b', ModifierEffect::Note("has no effect: counters are always shared and read by BPF here")),
    ('R', ModifierEffect::Refused("takes retirement latencies from samples, and a count has none")),
    ('X', ModifierEffect::None),
];

/// Modifiers that together exclude nothing, as perf combines them.
const WHOLES: [&str; 2] = ["ukh", "GH"];

/// Most `p` of an event, as in perf.
const MOST_PRECISE: usize = 3;

fn modifier_effect(letter: char) -> Option<&'static ModifierEffect> {
    MODIFIERS.iter().find(|(modifier, _)| *modifier == letter).map(|(_, effect)| effect)
}

/// Whether all letters of a word after a colon are modifiers.
pub fn are_modifiers(word: &str) -> bool {
    word.chars().all(|letter| modifier_effect(letter).is_some())
}

/// What the modifiers of an event do not do, one line each.
///
/// # Errors
///
/// The reason why one of them is refused.
pub fn notes(word: &str) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for (index, letter) in word.char_indices() {
        let Some(effect) = modifier_effect(letter) else {
            return Err(format!("{:?} in {:?} is not a modifier", letter, printable(word)));
        };
        let repeats = word[..index].matches(letter).count();
        if repeats > 0 && (letter != 'p' || repeats == MOST_PRECISE) {
            return Err(format!("the modifier {letter} is repeated too often in {word:?}"));
        }
        let is_whole = |combination: &&&str| {
            combination.contains(letter) && combination.chars().all(|c| word.contains(c))
        };
        match effect {
            ModifierEffect::Refused(_)
                if WHOLES.iter().any(|combination| is_whole(&combination)) => {}
            ModifierEffect::Refused(why) => {
                return Err(format!(
                    "the modifier {letter} {why}; the counters here count all that happens: leave \
                     it out"
                ));
            }
            ModifierEffect::Note(why) if repeats == 0 => {
                notes.push(format!("the modifier {letter} {why}"));
            }
            ModifierEffect::Note(_) | ModifierEffect::None => {}
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_modifier_is_accepted_noted_or_refused() {
        for word in ["", "W", "X", "ukh", "GH"] {
            assert_eq!(notes(word), Ok(Vec::new()), "{word}");
        }
        for word in ["p", "ppp", "P", "S", "D", "e", "b", "khuD"] {
            assert_eq!(notes(word).map(|notes| notes.len()), Ok(1), "{word}");
        }
        for word in ["u", "k", "h", "uk", "I", "G", "H", "R", "pppp", "DD", "q", "Dq"] {
            assert!(notes(word).is_err(), "{word}");
        }
    }
}
