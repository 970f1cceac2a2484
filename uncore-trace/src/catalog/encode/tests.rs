use super::*;
use crate::catalog::family::Family;
use crate::catalog::spec::terms;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;

/// A PMU with sysfs events of each kind, two of which do not fit the fields.
fn pmu() -> Pmu {
    let formats = [
        ("event", "config:0-7"),
        ("umask", "config:8-15"),
        ("rev", "config:16"),
        ("port", "config1:0-3"),
        ("size", "config1:4-7"),
        ("lane", "config2:0-3"),
    ];
    let events = [
        ("reads", "event=0x1"),
        ("writes", "event=0x2,umask=0x3"),
        ("lanes", "event=0x4,lane=?"),
        ("wrong", "event=0x5,no_field=0x1"),
        ("large", "event=0x6,umask=0x100"),
        ("gauge", "event=0x9"),
        ("word", "config=0x22,config1=0x4"),
    ];
    let mut pmu = Pmu {
        name: "p_0".to_owned(),
        attr_type: 7,
        formats: formats.map(|(name, text)| (name.to_owned(), text.parse().unwrap())).into(),
        events: events
            .map(|(name, text)| (name.to_owned(), EventAlias::parse(text).unwrap()))
            .into(),
        ..Pmu::default()
    };
    let writes = pmu.events.get_mut("writes").unwrap();
    (writes.scale, writes.unit) = (Some(64.0), Some("B".to_owned()));
    pmu.events.get_mut("gauge").unwrap().snapshot = true;
    pmu
}

/// The family of the PMU, with these filters.
fn family(filters: &str) -> Family {
    let text = format!(
        "family = 'f'\nabout = 'a'\nnames = ['p_#']\ngroup = 'mem'\n{filters}\n\
         [[event]]\nnames = ['cycles']\nattr_type = 0\nencoding = 'event=0x8'\n"
    );
    toml::from_str(&text).unwrap()
}

const FILTERS: &str = "\
    [[filter]]\nterms = 'port=0xf'\nunless = ['lane']\n\
    [[filter]]\nterms = 'size=0x1'\nevents = ['writes']\n\
    [[filter]]\nterms = 'port=0x1'\n\
    [[filter]]\nterms = 'no_field=0x1'\n\
    [[filter]]\nterms = 'rev=0x1'\n";

/// The encoding of `text` after a leader with these terms.
fn encode(text: &str, leader: &str, filters: &str) -> Result<EncodedEvent, ColumnError> {
    let (pmu, family) = (pmu(), family(filters));
    let words = PmuWords { pmu: &pmu, family: Some(&family), base: None };
    let parsed = |text: &str| if text.is_empty() { Vec::new() } else { terms(text).unwrap() };
    words.encode_terms(&parsed(text), &parsed(leader))
}

#[test]
fn terms_become_config_words_with_a_name_and_the_filters_of_the_family() {
    for (text, words, event, filter) in [
        // By name; case-insensitive.
        ("reads", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("READS", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("writes", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        // By the fields that select an event.
        ("event=0x1", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("event=0x2,umask=0x3", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        ("event=reads", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("event=0x2,umask=writes", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        ("event=0x1,umask=0x3", [0x1_0301, 0xf, 0], "event=0x1,umask=0x3", "rev=0x1,port=0xf"),
        ("umask=0x3", [0x1_0300, 0xf, 0], "umask=0x3", "rev=0x1,port=0xf"),
        ("event=0x3", [0x1_0003, 0xf, 0], "event=0x3", "rev=0x1,port=0xf"),
        // The bits of an event of another type mean something else.
        ("event=0x8", [0x1_0008, 0xf, 0], "event=0x8", "rev=0x1,port=0xf"),
        // By config words, also raw.
        ("config=0x1", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("config=0x10001,config1=0xf", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("r302", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        ("r0x302", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        ("config=0x1,config1=0x12", [0x1_0001, 0x12, 0], "reads", "rev=0x1,port=0x2,size=0x1"),
        ("config=0x40001", [0x5_0001, 0xf, 0], "config=0x40000,event=0x1", "rev=0x1,port=0xf"),
        ("config=0x0", [0x1_0000, 0xf, 0], "event=0x0", "rev=0x1,port=0xf"),
        ("", [0x1_0000, 0xf, 0], "event=0x0", "rev=0x1,port=0xf"),
        ("EVENT=writes", [0x1_0302, 0x1f, 0], "writes", "rev=0x1,port=0xf,size=0x1"),
        ("event=writes,port=0x2", [0x1_0302, 0x12, 0], "writes", "rev=0x1,port=0x2,size=0x1"),
        ("lane=0x5,event=lanes", [0x1_0004, 0x1, 0x5], "lanes", "rev=0x1,port=0x1,lane=0x5"),
        // Terms that set the same bits are combined.
        ("event=0x1,event=0x3", [0x1_0003, 0xf, 0], "event=0x3", "rev=0x1,port=0xf"),
        (
            "config=0xffff,umask=0x1",
            [0x1_ffff, 0xf, 0],
            "event=0xff,umask=0xff",
            "rev=0x1,port=0xf",
        ),
        ("reads,event=0x2", [0x1_0003, 0xf, 0], "event=0x3", "rev=0x1,port=0xf"),
        ("reads,config=0x0", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("writes,config=0x1", [0x1_0303, 0xf, 0], "event=0x3,umask=0x3", "rev=0x1,port=0xf"),
        // The last of several whole words counts, also of those of an event.
        ("config=0x1,word", [0x1_0022, 0x4, 0], "word", "rev=0x1"),
        ("word,config=0x1", [0x1_0001, 0x4, 0], "reads", "rev=0x1,port=0x4"),
        ("config=0x2,config=0x1", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("reads,event=0x3", [0x1_0003, 0xf, 0], "event=0x3", "rev=0x1,port=0xf"),
        ("reads,umask=0x3", [0x1_0301, 0xf, 0], "event=0x1,umask=0x3", "rev=0x1,port=0xf"),
        ("reads,event=0x1", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        // Fields that narrow the event.
        ("reads,port=0x2", [0x1_0001, 0x2, 0], "reads", "rev=0x1,port=0x2"),
        ("reads,port=0x2,port=0x3", [0x1_0001, 0x3, 0], "reads", "rev=0x1,port=0x3"),
        ("reads,rev", [0x1_0001, 0xf, 0], "reads", "rev=0x1,port=0xf"),
        ("reads,config1=0x0", [0x1_0001, 0, 0], "reads", "rev=0x1,port=0x0"),
        ("port=0x2", [0x1_0000, 0x2, 0], "event=0x0", "rev=0x1,port=0x2"),
        ("reads,port=0x1,port=0x4", [0x1_0001, 0x5, 0], "reads", "rev=0x1,port=0x5"),
        // Bits of no field.
        ("reads,config1=0x100", [0x1_0001, 0x100, 0], "reads", "config1=0x100,rev=0x1"),
        // A field that must be given, and prevents the first filter.
        ("lanes,lane=0x5", [0x1_0004, 0x1, 0x5], "lanes", "rev=0x1,port=0x1,lane=0x5"),
        ("event=0x4,lane=0x5", [0x1_0004, 0x1, 0x5], "lanes", "rev=0x1,port=0x1,lane=0x5"),
        ("event=0x4", [0x1_0004, 0x1, 0], "lanes", "rev=0x1,port=0x1,lane=0x0"),
    ] {
        let encoded = encode(text, "", FILTERS).unwrap();
        assert_eq!((&encoded.config[..3], encoded.attr_type), (&words[..], 7), "{text}");
        assert_eq!((encoded.event.as_str(), encoded.filter.as_str()), (event, filter), "{text}");
    }
}

#[test]
fn an_event_has_its_type_unit_and_scale() {
    let encoded = encode("cycles", "", FILTERS).unwrap();
    assert_eq!((encoded.attr_type, encoded.config[0]), (0, 0x1_0008));
    assert_eq!((encoded.unit.as_str(), encoded.scale, encoded.snapshot), ("count", 1.0, false));
    let encoded = encode("writes", "", FILTERS).unwrap();
    assert_eq!((encoded.unit.as_str(), encoded.scale, encoded.snapshot), ("bytes", 64.0, false));
    assert!(encode("gauge", "", FILTERS).unwrap().snapshot);
}

#[test]
fn a_named_event_keeps_its_unit_whatever_other_terms_add() {
    for (text, event, note) in [
        ("writes", "writes", None),
        ("writes,umask=0x3", "writes", None),
        ("writes,port=0x2", "writes", None),
        ("writes,config1=0x100", "writes", None),
        (
            "writes,umask=0x4",
            "event=0x2,umask=0x7",
            Some("umask=0x4: terms that set the same bits"),
        ),
        ("event=writes,event=0x1", "event=0x3,umask=0x3", Some("event=0x1: terms")),
        ("writes,config=0x0", "writes", Some("config=0x0: terms")),
    ] {
        let encoded = encode(text, "", FILTERS).unwrap();
        assert_eq!((encoded.unit.as_str(), encoded.scale), ("bytes", 64.0), "{text}");
        assert_eq!(encoded.event, event, "{text}");
        assert_eq!(encoded.note.is_some(), note.is_some(), "{text}: {:?}", encoded.note);
        assert!(encoded.note.unwrap_or_default().starts_with(note.unwrap_or_default()), "{text}");
    }
    // The name of an event of another unit would be wrong.
    let encoded = encode("gauge,config=0x0,event=0x2,umask=0x3", "", FILTERS).unwrap();
    assert_eq!((encoded.unit.as_str(), encoded.event.as_str()), ("count", "event=0xb,umask=0x3"));
    let encoded = encode("reads,event=0x2", "", FILTERS).unwrap();
    assert_eq!((encoded.unit.as_str(), encoded.event.as_str()), ("count", "event=0x3"));
    assert_eq!(encode("config=0x4,umask=0x3", "", FILTERS).unwrap().note, None);
}

#[test]
fn a_filter_that_the_leader_hands_down_is_not_set() {
    let encoded = encode("reads", "reads,lane=0x1", FILTERS).unwrap();
    assert_eq!((encoded.config[1], encoded.filter.as_str()), (0x1, "rev=0x1,port=0x1"));
}

#[test]
fn a_filter_of_several_fields_is_set_as_a_whole() {
    let filters = "[[filter]]\nterms = 'port=0x3,size=0x1'\n";
    let filter = |text| encode(text, "", filters).unwrap().filter;
    assert_eq!(filter("reads"), "port=0x3,size=0x1");
    assert_eq!(filter("reads,size=0x2"), "size=0x2");
    // The event sets one of them itself.
    let filters = "[[filter]]\nterms = 'umask=0x7,size=0x1'\n";
    assert_eq!(encode("writes", "", filters).unwrap().filter, "");
    assert_eq!(encode("reads", "", filters).unwrap().filter, "umask=0x7,size=0x1");
}

#[test]
fn a_term_that_cannot_be_encoded_is_an_error_at_its_column() {
    let terms =
        "(terms: event, lane, port, rev, size, umask, config, config1, config2, config3, config4)";
    let events = "(events: gauge, lanes, large, reads, word, writes, wrong, cycles)";
    for (text, error) in [
        ("reads,writes", "column 7: a second event after reads: one at a time".to_owned()),
        ("reads,port", "column 7: port needs a value, up to 0xf (config1:0-3)".to_owned()),
        (
            "reads,port=0x10",
            "column 7: p_0: port: 0x10 is too large for config1:0-3: the maximum is 0xf".to_owned(),
        ),
        ("lanes", "column 1: lanes also needs lane=N, with N up to 0xf".to_owned()),
        ("wrong", "column 1: p_0: its event wrong uses the unknown field no_field".to_owned()),
        (
            "large",
            "column 1: p_0: its event large: 0x100 is too large for config:8-15: the maximum is 0xff"
                .to_owned(),
        ),
        ("reads,event=writes", "column 7: a second event after reads: one at a time".to_owned()),
        (
            "event=write",
            "column 1: \"write\" is neither a number nor an event of p_0 with a value for event (did \
             you mean writes?)"
                .to_owned(),
        ),
        (
            "umask=reads",
            "column 1: \"reads\" is neither a number nor an event of p_0 with a value for umask (did \
             you mean reads?)"
                .to_owned(),
        ),
        (
            "lane=lanes",
            "column 1: \"lanes\" is neither a number nor an event of p_0 with a value for lane (did \
             you mean lanes?)"
                .to_owned(),
        ),
        ("no_such", format!("column 1: p_0 has no event or term no_such {events} {terms}")),
        ("reads,no_such=0x1", format!("column 7: p_0 has no term no_such {terms}")),
        ("no_such=reads", format!("column 1: p_0 has no term no_such {terms}")),
    ] {
        assert_eq!(encode(text, "", FILTERS).unwrap_err().to_string(), error, "{text}");
    }
    let filters = "[[filter]]\nterms = 'port=0x10'\n";
    let error = encode("reads", "", filters).unwrap_err().to_string();
    let too_large = "0x10 is too large for config1:0-3: the maximum is 0xf";
    assert_eq!(error, format!("column 1: p_0: the default port of f: {too_large}"));
    let filters = "[[needs]]\nterm = 'port'\nwith = 'size'\n";
    let error = encode("reads,port=0x1", "", filters).unwrap_err();
    assert!(error.message.contains("port has no effect without size=1"), "{error}");
}

#[test]
fn a_pmu_of_no_family_has_no_filters() {
    let pmu = pmu();
    let words = PmuWords { pmu: &pmu, family: None, base: None };
    let encoded = words.encode_terms(&terms("reads").unwrap(), &[]).unwrap();
    assert_eq!((encoded.config, encoded.filter.as_str()), ([1, 0, 0, 0, 0], ""));
}
