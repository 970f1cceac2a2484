//! The terms that perf has for every PMU and that are not fields of the event: a name, CPUs, and
//! settings of samples (`tools/perf/util/parse-events.l` and `config_term_common` in
//! `parse-events.c`, Linux 7.2).
//!
//! `perf stat` refuses most settings of samples. They do not change a count, so that they are taken
//! with a note here.

use super::spec::{ColumnError, Term, TermValue};
use crate::discover::CpuList;
use crate::text::printable;

/// What a term takes after `=`.
#[derive(Clone, Copy)]
enum ValueKind {
    Number,
    /// 0 or 1.
    Flag,
    Text,
}

/// What a term does here.
#[derive(Clone, Copy)]
enum AsideEffect {
    Label,
    Cpus,
    Note(&'static str),
}

const OF_SAMPLES: AsideEffect = AsideEffect::Note("is about samples and does not change a count");
const OF_TASKS: AsideEffect = AsideEffect::Note("is about tasks, and counters are of CPUs here");
const OF_TRACES: AsideEffect =
    AsideEffect::Note("is about traces (AUX) and does not change a count");

/// The terms of perf that are no fields, except `config` to `config4`, `rNNN` and
/// `legacy-*-config`, which select an event.
const TERMS: [(&str, ValueKind, AsideEffect); 20] = [
    ("name", ValueKind::Text, AsideEffect::Label),
    ("cpu", ValueKind::Text, AsideEffect::Cpus),
    ("percore", ValueKind::Flag, AsideEffect::Note("changes only what `perf stat -A` prints")),
    ("metric-id", ValueKind::Text, AsideEffect::Note("is a mark of perf's own metrics")),
    ("period", ValueKind::Number, OF_SAMPLES),
    ("freq", ValueKind::Number, OF_SAMPLES),
    ("branch_type", ValueKind::Text, OF_SAMPLES),
    ("time", ValueKind::Flag, OF_SAMPLES),
    ("call-graph", ValueKind::Text, OF_SAMPLES),
    ("stack-size", ValueKind::Number, OF_SAMPLES),
    ("max-stack", ValueKind::Number, OF_SAMPLES),
    ("nr", ValueKind::Number, OF_SAMPLES),
    ("inherit", ValueKind::Number, OF_TASKS),
    ("no-inherit", ValueKind::Number, OF_TASKS),
    ("overwrite", ValueKind::Number, OF_SAMPLES),
    ("no-overwrite", ValueKind::Number, OF_SAMPLES),
    ("ratio-to-prev", ValueKind::Text, OF_SAMPLES),
    ("aux-output", ValueKind::Number, OF_TRACES),
    ("aux-action", ValueKind::Text, OF_TRACES),
    ("aux-sample-size", ValueKind::Number, OF_TRACES),
];

/// What was typed beside the event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asides {
    /// `name=`: the name under which it is counted.
    pub label: Option<String>,
    /// `cpu=`: the only CPUs on which it is read.
    pub cpus: Option<CpuList>,
}

/// Separates the terms of an event from those that are not its fields, and adds notes on terms that
/// have no effect. `is_own` tells the PMU's own terms, which win.
pub fn sift_terms(
    terms: &[Term],
    is_own: impl Fn(&str) -> bool,
    notes: &mut Vec<String>,
) -> Result<(Vec<Term>, Asides), ColumnError> {
    let mut own_terms = Vec::new();
    let mut asides = Asides::default();
    for term in terms {
        let name = term.name.as_str();
        if name.starts_with('@') {
            let message = format!(
                "{} is a setting of a driver for traces, which are not counted here: leave it out",
                printable(name)
            );
            return Err(ColumnError::new(term.column, message));
        }
        let known = TERMS.iter().find(|(term_name, ..)| *term_name == name && !is_own(name));
        let Some((_, value_kind, effect)) = known else {
            own_terms.push(term.clone());
            continue;
        };
        match (effect, &term.value) {
            (AsideEffect::Label, TermValue::Symbol(text)) if !text.is_empty() => {
                asides.label = Some(text.clone());
            }
            (AsideEffect::Cpus, TermValue::Number(cpu)) if parse_cpu(*cpu).is_some() => {
                asides.cpus = parse_cpu(*cpu);
            }
            (AsideEffect::Cpus, TermValue::Symbol(text)) if text.parse::<CpuList>().is_ok() => {
                asides.cpus = text.parse().ok();
            }
            (AsideEffect::Note(why), value) if value_kind.accepts_value(value) => {
                notes.push(format!("the term {name} {why}"));
            }
            _ => {
                let wants = match (effect, value_kind) {
                    (AsideEffect::Cpus, _) => "CPUs: cpu=0 or cpu=0-3",
                    (_, ValueKind::Text) => "a text that is not a number",
                    (_, ValueKind::Flag) => "0 or 1",
                    (_, ValueKind::Number) => "a number",
                };
                return Err(ColumnError::new(term.column, format!("{name} takes {wants}")));
            }
        }
    }
    Ok((own_terms, asides))
}

impl ValueKind {
    /// Whether a term that takes this takes `value`; without a value, a number is 1.
    fn accepts_value(self, value: &TermValue) -> bool {
        match (self, value) {
            (Self::Flag, TermValue::Number(number)) => *number <= 1,
            (Self::Number | Self::Flag, TermValue::Bare)
            | (Self::Number, TermValue::Number(_))
            | (Self::Text, TermValue::Symbol(_)) => true,
            _ => false,
        }
    }
}

/// The set of one CPU; `None` if no machine has one of this number.
fn parse_cpu(number: u64) -> Option<CpuList> {
    number.to_string().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::spec::terms;

    fn sifted(text: &str) -> Result<(usize, Asides, usize), ColumnError> {
        let mut notes = Vec::new();
        let (own, asides) = sift_terms(&terms(text).unwrap(), |name| name == "freq", &mut notes)?;
        Ok((own.len(), asides, notes.len()))
    }

    #[test]
    fn fields_stay_and_ignored_terms_are_noted() {
        let (own, asides, notes) = sifted("event=1,name='A b',period=5,freq=2,cpu=2-3").unwrap();
        assert_eq!((own, notes), (2, 1));
        assert_eq!(asides.label.as_deref(), Some("A b"));
        assert_eq!(asides.cpus, Some(CpuList::from_iter([2, 3])));
        let of_samples = "time,percore=0,call-graph=fp,inherit,ratio-to-prev=2.0,metric-id=a";
        assert_eq!(sifted(of_samples).unwrap(), (0, Asides::default(), 6));
    }

    #[test]
    fn wrong_values_are_refused_at_their_column() {
        for text in [
            "name",
            "name=1",
            "name=''",
            "cpu",
            "cpu=a",
            "time=2",
            "period=a",
            "call-graph",
            "@x=y",
        ] {
            assert_eq!(sifted(&format!("a,{text}")).unwrap_err().column, 3, "{text}");
        }
    }
}
