//! The `format/` files of a PMU: the bits of the perf event attribute that a term sets.
//!
//! Guarantee: a value that does not fit its field is an error. It is never truncated, because a
//! truncated filter silently counts something else.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::cpulist::{CpuList, set_bits};

/// Config words that a format can name: `config` (0) to `config4` (4), as in `struct
/// perf_event_attr` in `include/uapi/linux/perf_event.h` of Linux 7.2; older kernels have fewer.
pub const WORDS: usize = 5;

/// Terms that every PMU has: whole config words (`tools/perf/util/parse-events.l`, Linux 7.2).
pub const WHOLE_WORDS: [&str; WORDS] = ["config", "config1", "config2", "config3", "config4"];

/// The field of a term: bits of one config word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatField {
    word: u8,
    /// The bits of the field. The value's lowest bit goes to the lowest set bit, as in perf
    /// (`pmu_format_value` in `tools/perf/util/pmu.c`, Linux 7.2).
    pub mask: u64,
}

impl FormatField {
    /// The whole config word `word`, which must be below [`WORDS`].
    pub fn whole_word(word: usize) -> Self {
        Self { word: word as u8, mask: u64::MAX }
    }

    /// Some bits of the config word `word`, at least one.
    pub fn from_mask(word: usize, mask: u64) -> Self {
        Self { word: word as u8, mask }
    }

    /// The config word of the field: 0 for `config`, N for `configN`.
    pub fn word_index(&self) -> usize {
        usize::from(self.word)
    }

    /// Width of the field in bits, 1 to 64.
    pub fn bit_width(&self) -> u32 {
        self.mask.count_ones()
    }

    /// The largest value of the field.
    pub fn max_value(&self) -> u64 {
        u64::MAX >> (64 - self.bit_width())
    }

    /// The config words with `value` in this field and all other bits 0. If it is too large, the
    /// error gives the maximum.
    pub fn encode_value(&self, value: u64) -> Result<[u64; WORDS]> {
        if value > self.max_value() {
            bail!(
                "{value:#x} is too large for {self}: the maximum is {max:#x}",
                max = self.max_value()
            );
        }
        let mut config = [0; WORDS];
        for (value_bit, bit) in (0..).zip(self.bits()) {
            config[self.word_index()] |= (value >> value_bit & 1) << bit;
        }
        Ok(config)
    }

    /// The value of this field in `config`; the inverse of [`FormatField::encode_value`].
    pub fn decode_value(&self, config: &[u64; WORDS]) -> u64 {
        let word = config[self.word_index()];
        (0..)
            .zip(self.bits())
            .fold(0, |value, (value_bit, bit)| value | (word >> bit & 1) << value_bit)
    }

    /// The numbers of its bits in the config word, in ascending order.
    fn bits(&self) -> impl Iterator<Item = u32> {
        set_bits(self.mask)
    }
}

impl FromStr for FormatField {
    type Err = anyhow::Error;

    /// Parses `config[N]:a-b,c,...`
    /// (`Documentation/ABI/testing/sysfs-bus-event_source-devices-format`).
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let (word, ranges) = text
            .split_once(':')
            .with_context(|| format!("format {text:?} has no ':' after its config word"))?;
        let word = WHOLE_WORDS
            .iter()
            .position(|name| *name == word)
            .with_context(|| format!("format {text:?} names the unknown word {word:?}"))?;
        let mut mask = 0;
        for range_text in ranges.split(',') {
            let (first_text, last_text) =
                range_text.split_once('-').unwrap_or((range_text, range_text));
            let (first_bit, last_bit) = (parse_bit(first_text, text)?, parse_bit(last_text, text)?);
            if first_bit > last_bit {
                bail!("format {text:?} has a range in descending order");
            }
            mask |= (u64::MAX >> (63 - (last_bit - first_bit))) << first_bit;
        }
        Ok(Self::from_mask(word, mask))
    }
}

fn parse_bit(text: &str, format_text: &str) -> Result<u32> {
    match text.trim().parse() {
        Ok(bit) if bit < 64 => Ok(bit),
        _ => bail!("format {format_text:?}: {text:?} is not a bit number from 0 to 63"),
    }
}

impl fmt::Display for FormatField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits: CpuList = self.bits().collect();
        write!(f, "{}:{bits}", WHOLE_WORDS[self.word_index()])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn format(text: &str) -> FormatField {
        text.parse().unwrap()
    }

    #[test]
    fn fields_of_every_word_and_of_several_ranges_are_encoded() {
        let amd = format("config:0-7,32-37\n");
        assert_eq!(amd.encode_value(0x0134).unwrap(), [0x1_0000_0034, 0, 0, 0, 0]);
        assert_eq!(amd.to_string(), "config:0-7,32-37");
        assert_eq!(format("config4:63").encode_value(1).unwrap(), [0, 0, 0, 0, 1 << 63]);
        assert_eq!(format("config1:0-63").encode_value(u64::MAX).unwrap()[1], u64::MAX);
    }

    #[test]
    fn a_value_too_large_for_a_field_is_refused_with_the_maximum() {
        let error = format("config1:0-9").encode_value(0x400).unwrap_err();
        assert_eq!(error.to_string(), "0x400 is too large for config1:0-9: the maximum is 0x3ff");
    }

    #[test]
    fn malformed_format_files_are_refused() {
        for text in ["", "config", "config5:0", "config:64", "config:7-0", "config:a", "config:"] {
            assert!(text.parse::<FormatField>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn any_value_of_a_field_decodes_to_itself(word in 0_u8..5, mask in 1_u64.., raw: u64) {
            let field = FormatField { word, mask };
            let value = raw & field.max_value();
            let config = field.encode_value(value).unwrap();
            prop_assert_eq!(field.decode_value(&config), value);
            prop_assert_eq!(config[usize::from(word)] & !mask, 0);
            prop_assert_eq!(field.to_string().parse::<FormatField>().unwrap(), field);
        }

        #[test]
        fn only_values_that_fit_are_taken(mask in 1_u64.., value: u64) {
            let field = FormatField { word: 0, mask };
            prop_assert_eq!(field.encode_value(value).is_ok(), value <= field.max_value());
        }
    }
}
