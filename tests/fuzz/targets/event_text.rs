//! Texts after `-e`: an error names a column of the text, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::catalog::spec;

fuzz_target!(|text: &str| {
    if let Err(error) = spec::parse(text) {
        let end = text.chars().count() + 1;
        assert!((1..=end).contains(&error.column), "{text:?}: column {} of {end}", error.column);
    }
});
