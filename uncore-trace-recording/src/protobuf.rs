//! Counting the fields of a message in the wire format of Protocol Buffers, before anything is made
//! of them.
//!
//! An empty message takes two bytes, and decoded some hundred. So a limit of bytes alone is no
//! limit of memory.

use anyhow::{Context as _, Result, bail};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The fields of a message that are messages themselves, by their numbers.
#[derive(Debug)]
pub struct NestedFields(pub &'static [(u32, NestedFields)]);

/// How many fields a message and those in it have; `None` if they are more than `limit`.
///
/// # Errors
///
/// It is no message.
pub fn count_fields(message: &[u8], nested: &NestedFields, limit: usize) -> Result<Option<usize>> {
    let mut budget = Some(limit);
    take_fields(message, nested, &mut budget)?;
    Ok(budget.map(|remaining| limit - remaining))
}

/// Takes the fields of a message from the budget; ends when that is used up.
fn take_fields(
    mut message: &[u8],
    nested: &NestedFields,
    budget: &mut Option<usize>,
) -> Result<()> {
    while !message.is_empty() {
        *budget = budget.and_then(|remaining| remaining.checked_sub(1));
        if budget.is_none() {
            break;
        }
        let (number, wire_type) = decode_key(&mut message)?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut message, DecodeContext::default())?;
            continue;
        }
        let length =
            usize::try_from(decode_varint(&mut message)?).context("a field is too long")?;
        let Some((field, following)) = message.split_at_checked(length) else {
            bail!("a field is truncated");
        };
        if let Some((_, nested)) = nested.0.iter().find(|(known, _)| *known == number) {
            take_fields(field, nested, budget)?;
        }
        message = following;
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
        let nested = NestedFields(&[(1, NestedFields(&[]))]);
        assert_eq!(count_fields(&message, &nested, 6).unwrap(), Some(6));
        assert_eq!(count_fields(&message, &nested, 5).unwrap(), None);
        assert_eq!(count_fields(&message, &NestedFields(&[]), 6).unwrap(), Some(3));
        assert_eq!(count_fields(&[], &nested, 0).unwrap(), Some(0));
        for damaged in [&[0x0a, 9][..], &[0xff; 12], &[0x0a, 1, 0xff]] {
            count_fields(damaged, &nested, 6).unwrap_err();
        }
    }
}
