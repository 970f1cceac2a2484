//! Counting the fields of a message in the wire format of Protocol Buffers, before anything is made of them.
//!
//! An empty message takes two bytes, and decoded some hundred. So a limit of bytes alone is no limit of
//! memory.

use anyhow::{Context as _, Result, bail};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The fields of a message that are messages themselves, by their numbers.
#[derive(Debug)]
pub struct Nested(pub &'static [(u32, Nested)]);

/// How many fields a message and those in it have; `None` if they are more than `most`.
///
/// # Errors
///
/// It is no message.
pub fn fields(message: &[u8], nested: &Nested, most: usize) -> Result<Option<usize>> {
    let mut left = Some(most);
    count(message, nested, &mut left)?;
    Ok(left.map(|left| most - left))
}

/// Takes the fields of a message from those that are left; ends when none are.
fn count(mut message: &[u8], nested: &Nested, left: &mut Option<usize>) -> Result<()> {
    while !message.is_empty() {
        *left = left.and_then(|left| left.checked_sub(1));
        if left.is_none() {
            break;
        }
        let (number, kind) = decode_key(&mut message)?;
        if kind != WireType::LengthDelimited {
            skip_field(kind, number, &mut message, DecodeContext::default())?;
            continue;
        }
        let length =
            usize::try_from(decode_varint(&mut message)?).context("a field is too long")?;
        let Some((field, after)) = message.split_at_checked(length) else {
            bail!("a field has no end");
        };
        if let Some((_, nested)) = nested.0.iter().find(|(known, _)| *known == number) {
            count(field, nested, left)?;
        }
        message = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_nested_messages_are_counted_up_to_the_limit() {
        // Field 1 with three empty fields, then a number, then field 2 with what is no message.
        let message = [0x0a, 6, 0x12, 0, 0x12, 0, 0x12, 0, 0x18, 7, 0x12, 2, 0xff, 0xff];
        let nested = Nested(&[(1, Nested(&[]))]);
        assert_eq!(fields(&message, &nested, 6).unwrap(), Some(6));
        assert_eq!(fields(&message, &nested, 5).unwrap(), None);
        assert_eq!(fields(&message, &Nested(&[]), 6).unwrap(), Some(3));
        assert_eq!(fields(&[], &nested, 0).unwrap(), Some(0));
        for damaged in [&[0x0a, 9][..], &[0xff; 12], &[0x0a, 1, 0xff]] {
            fields(damaged, &nested, 6).unwrap_err();
        }
    }
}
