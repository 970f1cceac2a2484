//! The grammar of perf's event texts, and one name for an event however it was typed.

use std::collections::BTreeSet;
use std::fs;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::encode::EncodedEvent;
use uncore_trace::catalog::pmu_words::{PmuEvent, PmuWords, WHOLE_WORDS};
use uncore_trace::catalog::spec::terms;
use uncore_trace::discover::event::AliasValue;
use uncore_trace::discover::{machine, name};
use uncore_trace::plan::{Counter, plan};
use uncore_trace_lab::fixtures;

use crate::machines::{captured, planned, refused, request, unpacked};

/// Event texts by what becomes of them.
const TABLE: &str = include_str!("grammar.txt");

/// What must be the same for one config: name, filter, unit, scale and group.
fn meaning(counter: &Counter) -> (&str, &str, &str, f64, &str) {
    let Counter { event, filter, unit, scale, subsystem, .. } = counter;
    (event, filter, unit, *scale, subsystem)
}

#[test]
fn every_text_of_perf_is_planned_or_refused_with_its_reason() {
    let catalog = Catalog::load_embedded().unwrap();
    let machine = captured("skylake-sp-2s");
    let (mut outcome, mut count, mut wrong) = ("", 0, Vec::new());
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(of) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            outcome = of;
            continue;
        }
        count += 1;
        let outcome_here = plan(&machine, &catalog, &request(&[], &[line]));
        let is_right = match (&outcome_here, outcome.strip_prefix("refused: ")) {
            (Ok(plan), None) => {
                let about = ["the modifier ", "the term ", " octal"];
                let is_about_term = |note: &String| about.iter().any(|about| note.contains(about));
                plan.notes.iter().any(is_about_term) == (outcome == "note")
            }
            (Err(error), Some(why)) => format!("{error:#}").contains(why),
            _ => false,
        };
        if !is_right {
            let found = outcome_here.map(|plan| plan.notes).map_err(|error| format!("{error:#}"));
            wrong.push(format!("{line}: not {outcome}, but {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 190, "{count}");
}

#[test]
fn terms_of_perf_name_the_event_and_leave_the_rest_as_it_is() {
    let plain = planned("skylake-sp-2s", &[], &["uncore_imc_0/event=4,umask=3/"]);
    for (text, called) in [
        ("uncore_imc_0/event=4,umask=3,name=X/", "X"),
        ("uncore_imc_0/event=4,umask=3,name='UNC M: X'/", "UNC M: X"),
        ("uncore_imc_0/cas_count_read,name=X,period=1000/", "X"),
        ("uncore_imc_0/config=0x304,name=X/", "X"),
    ] {
        let named_plan = planned("skylake-sp-2s", &[], &[text]);
        assert_eq!(named_plan.counters.len(), plain.counters.len(), "{text}");
        for (named, plain) in named_plan.counters.iter().zip(&plain.counters) {
            assert_eq!(named.event, called, "{text}");
            let unnamed = Counter { event: plain.event.clone(), ..named.clone() };
            assert_eq!(unnamed, *plain, "{text}");
        }
    }
    // One label of two PMUs, and two of one event.
    let two_pmus = planned("skylake-sp-2s", &[], &["imc/cas_count_read,name=X/"]);
    assert!(two_pmus.counters.iter().all(|counter| counter.event == "X"));
    let percore = planned("skylake-sp-2s", &[], &["cpu/event=0x3c,percore/"]);
    let plain = planned("skylake-sp-2s", &[], &["cpu/event=0x3c/"]);
    assert_eq!(percore.counters, plain.counters);
    let on_one_cpu = planned("skylake-sp-2s", &[], &["uncore_imc_0/cas_count_read,cpu=2/"]);
    assert_eq!(on_one_cpu.counters.iter().map(|counter| counter.cpu).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_label_is_escaped_and_of_one_event() {
    let text = "uncore_imc_0/event=4,umask=3,name='\u{1b}[31m'/";
    let plan = planned("skylake-sp-2s", &[], &[text]);
    assert!(!plan.render_plan().contains('\u{1b}'));
    let event_texts = ["imc/cas_count_read,name=cas_count_write/", "imc/cas_count_write/"];
    let error = refused("skylake-sp-2s", &[], &event_texts);
    assert!(error.contains("would both be called cas_count_write"), "{error}");
}

#[test]
fn a_pmu_has_the_name_of_its_alias_file_too() {
    let root = unpacked("sapphire-rapids-2s");
    let pmus = root.path().join("sys/bus/event_source/devices");
    let cha = pmus.join("uncore_cha_0");
    fs::write(cha.join("alias"), "uncore_type_0_0\n").unwrap();
    fs::write(pmus.join("uncore_cha_1/alias"), "uncore_type_0_1\n").unwrap();
    let machine = machine(root.path()).unwrap();
    let catalog = Catalog::load_embedded().unwrap();
    let counters =
        |text| plan(&machine, &catalog, &request(&[], &[text])).map(|plan| plan.counters);
    let by_own_name = counters("uncore_cha_0/event=1/").unwrap();
    assert!(by_own_name.iter().all(|counter| counter.pmu == "uncore_cha_0"));
    for text in ["uncore_type_0_0/event=1/", "type_0_0/event=1/"] {
        assert_eq!(counters(text).unwrap(), by_own_name, "{text}");
    }
    let by_alias = counters("uncore_type_0/event=1/").unwrap();
    assert_eq!(by_alias.len(), 2 * by_own_name.len());
    assert_eq!(counters("uncore_type_0_[01]/event=1/").unwrap(), by_alias);
    let error = counters("uncore_type_0_2/event=1/").unwrap_err().to_string();
    assert!(error.contains("there is no PMU uncore_type_0_2"), "{error}");
}

#[test]
fn texts_with_the_same_config_word_are_one_event() {
    for (machine, texts, event, unit, group) in [
        (
            "skylake-sp-2s",
            &[
                "uncore_imc_0/event=4,umask=3/",
                "uncore_imc_0/config=0x304/",
                "uncore_imc_0/config=772/",
                "uncore_imc_0/r304/",
                "uncore_imc_0/cas_count_read/",
                "uncore_imc_0/unc_m_cas_count.rd/",
                "uncore_imc_0/event=cas_count_read,umask=3/",
                "uncore_imc_0/cas_count_read,umask=1/",
                "uncore_imc_0/config=4,umask=3/",
                "19:0x304",
            ][..],
            "cas_count_read",
            "bytes",
            "mem",
        ),
        (
            "skylake-sp-2s",
            &[
                "uncore_imc_0/event=4,umask=3,thresh=1,edge/",
                "uncore_imc_0/edge,event=4,thresh=1,umask=3/",
                "uncore_imc_0/config=0x1040304/",
                "uncore_imc_0/cas_count_read,thresh=1,edge=1/",
            ],
            "cas_count_read",
            "bytes",
            "mem",
        ),
    ] {
        let plan = planned(machine, &[], &texts[..1]);
        let first = meaning(&plan.counters[0]);
        assert_eq!((first.0, first.2, first.4), (event, unit, group));
        for text in texts {
            let same_event = planned(machine, &[], &[text]);
            assert_eq!(same_event.counters, plan.counters, "{text}");
        }
    }
    let typed = |text| planned("zen2", &[], &[text]).counters;
    let by_fields = typed("amd_df/event=0x7,umask=0x38/");
    assert_eq!(typed("amd_df/config=0x3807/"), by_fields);
    assert_eq!((by_fields[0].unit.as_str(), by_fields[0].scale), ("bytes", 64.0));
    // An event with bits in two parts of the word.
    let split = typed("amd_df/event=0x1ff,umask=0x38/");
    assert_eq!(typed("amd_df/config=0x1000038ff/"), split);
    assert_eq!(meaning(&split[0]).0, "event=0x1ff,umask=0x38");
}

/// Every event of every machine: by name, by its fields, by config words, and by the name and
/// filter that a recording shows, alone and with each field of the PMU.
#[test]
fn every_event_is_the_same_however_it_was_typed() {
    let catalog = Catalog::load_embedded().unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for machine in &fixtures::names().unwrap() {
        let captured_machine = captured(machine);
        let mut stems = BTreeSet::new();
        for pmu in &captured_machine.pmus {
            if pmu.statistics.is_some() || !stems.insert(name::stem(&pmu.name)) {
                continue;
            }
            let words = PmuWords::new(&catalog, pmu);
            for (place, event) in words.all_events().chain(words.vendor_events()).enumerate() {
                let plain = typed(event, "");
                let of_machine = |why| format!("{machine}: {why}");
                wrong.extend(differences(words, event, &plain).map(of_machine));
                compared += 1;
                // The filter has the one of two overlapping fields that was typed.
                let is_disjoint = |field: &&String| {
                    let mask = |name: &String| {
                        pmu.formats[name].encode_value(pmu.formats[name].max_value())
                    };
                    let field_mask = mask(field).unwrap();
                    let meet = |meet_field: &&String| {
                        mask(meet_field).unwrap().iter().zip(field_mask).any(|(a, b)| a & b != 0)
                    };
                    pmu.formats.keys().filter(meet).count() == 1
                };
                for field in pmu.formats.keys().filter(|_| place % 16 == 0).filter(is_disjoint) {
                    let narrowed = typed(event, &format!("{field}=0x1"));
                    wrong.extend(differences(words, event, &narrowed).map(of_machine));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 5000, "{compared}");
}

/// The terms of an event by name, with values for what it asks for.
fn typed(event: PmuEvent<'_>, more: &str) -> String {
    let asked_values = event.alias.asked_terms().map(|term| format!(",{term}=0x1"));
    let comma = if more.is_empty() { "" } else { "," };
    format!("{}{}{comma}{more}", event.name, asked_values.collect::<String>())
}

/// Where an event is not the same in another form.
fn differences(words: PmuWords<'_>, event: PmuEvent<'_>, text: &str) -> Option<String> {
    let encode = |text: &str| -> Result<EncodedEvent, String> {
        let terms = terms(text).map_err(|error| error.to_string())?;
        words.encode_terms(&terms, &[]).map_err(|error| error.to_string())
    };
    let by_name = encode(text).ok()?;
    let set = by_name.config.iter().zip(WHOLE_WORDS).filter(|(word, _)| **word != 0);
    let set: Vec<_> = set.map(|(word, name)| format!("{name}={word:#x}")).collect();
    let by_words = if set.is_empty() { "config=0x0".to_owned() } else { set.join(",") };
    let value = |term: &str| u64::from(text.contains(&format!("{term}=0x1")));
    let fields = event.alias.terms.iter().map(|term| match term.value {
        AliasValue::Number(value) => format!("{}={value:#x}", term.name),
        AliasValue::Asked => format!("{}={:#x}", term.name, value(&term.name)),
    });
    let typed_filter = text.strip_prefix(event.name).unwrap_or_default();
    let by_fields = format!("{}{typed_filter}", fields.collect::<Vec<_>>().join(","));
    let shown = [by_name.event.as_str(), by_name.filter.as_str()];
    let shown = shown.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
    // Other terms made another event of it, which has the unit of the name: only the words are the
    // same.
    let is_changed = encode(&typed(event, "")).is_ok_and(|plain| plain.event != by_name.event);
    let mut others = if is_changed { Vec::new() } else { vec![shown] };
    if by_name.attr_type == words.pmu.attr_type {
        others.extend([by_words, by_fields]);
    }
    others.into_iter().find_map(|other_form| {
        let mut encoded = match encode(&other_form) {
            Ok(found) => found,
            Err(error) => {
                return Some(format!("{} {text} as {other_form}: {error}", words.pmu.name));
            }
        };
        encoded.note.clone_from(&by_name.note);
        if is_changed && encoded.config == by_name.config {
            return None;
        }
        // Some drivers have two names for one event.
        let twin = words.find_event(&encoded.event).zip(words.find_event(&by_name.event));
        if twin.is_some_and(|(first, second)| first.alias.terms == second.alias.terms) {
            encoded.event.clone_from(&by_name.event);
        }
        let is_same = encoded == by_name;
        (!is_same).then(|| {
            format!("{} {text} as {other_form}:\n {encoded:?}\n {by_name:?}", words.pmu.name)
        })
    })
}
