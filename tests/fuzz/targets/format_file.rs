//! Files of `format/`: every value that fits is read back unchanged, and sets no bits outside of
//! its field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::discover::format::FormatField;

fuzz_target!(|input: (&str, u64)| {
    let (text, value) = input;
    let Ok(format) = text.parse::<FormatField>() else { return };
    let Ok(config) = format.encode_value(value) else {
        assert!(value > format.max_value(), "{text:?}: {value:#x} does not fit");
        return;
    };
    assert_eq!(format.decode_value(&config), value, "{text:?}");
    for (word, bits) in config.iter().enumerate() {
        let own = if word == format.word_index() { format.mask } else { 0 };
        assert_eq!(bits & !own, 0, "{text:?}: {bits:#x} in word {word}");
    }
});
