use super::*;

#[test]
fn trigger_levels_are_parsed_with_their_units() {
    for (text, level) in [
        ("80%", TriggerLevel::OfPeak(0.8)),
        ("5GB/s", TriggerLevel::Rate(5e9)),
        ("2.5 MB/s", TriggerLevel::Rate(2.5e6)),
        ("100/s", TriggerLevel::Rate(100.0)),
        ("1B/s", TriggerLevel::Rate(1.0)),
    ] {
        assert_eq!(parse_level(text).unwrap(), level, "{text}");
    }
    for wrong in ["80", "x%", "-1/s", "0%", "5GiB/s", "nan/s", "inf/s", ""] {
        assert!(parse_level(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn conditions_that_cannot_hold_are_refused_with_the_remedy() {
    let plan = Plan {
        tick_ns: 1,
        window_ns: 1,
        counters: Vec::new(),
        metrics: Vec::new(),
        links: vec![Link {
            name: "memory 0".to_owned(),
            kind: "memory".to_owned(),
            subsystem: "mem".to_owned(),
            socket: None,
            devices: None,
            counters: vec![crate::schema::link::LinkCounter {
                counter: 0,
                direction: Direction::In,
            }],
            peaks: Vec::new(),
            latencies: Vec::new(),
        }],
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    for (text, says) in [
        ("memory 0", "SUBJECT > LEVEL"),
        ("memory 0 > 80", "write the level as"),
        ("memory 0 in > 80%", "the peak of memory 0 in is not known"),
        ("memory 0 out > 1GB/s", "no counter counts this traffic"),
        ("memry 0 > 1GB/s", "did you mean memory 0?"),
        ("mem in > 1GB/s for soon", "with a unit"),
        ("mem in > 1GB/s for 5min", "at most 1min"),
    ] {
        let error = format!("{:#}", Condition::new(text, &plan).unwrap_err());
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
    assert!(Condition::new("mem in > 1GB/s for 5ms", &plan).is_ok());
}
