//! Files of `format/`: every value that fits is read back unchanged, and sets no bits outside of
//! its field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::discover::format::Format;

fuzz_target!(|input: (&str, u64)| {
    let (text, value) = input;
    let Ok(format) = text.parse::<Format>() else { return };
    let Ok(config) = format.encode(value) else {
        assert!(value > format.max(), "{text:?}: {value:#x} does not fit");
        return;
    };
    assert_eq!(format.decode(&config), value, "{text:?}");
    for (word, bits) in config.iter().enumerate() {
        let own = if word == format.word() { format.mask() } else { 0 };
        assert_eq!(bits & !own, 0, "{text:?}: {bits:#x} in word {word}");
    }
});
