//! Files of `events/`: a parsed event is written so that it parses to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::discover::event::EventAlias;

fuzz_target!(|text: &str| {
    if let Ok(event) = EventAlias::parse(text) {
        let again = EventAlias::parse(&event.terms_text());
        assert_eq!(again.ok().map(|event| event.terms), Some(event.terms), "{text:?}");
    }
});
