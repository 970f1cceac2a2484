//! The order of Debian's package versions, as deb-version(7) defines it.

use std::cmp::Ordering;

/// Compares two versions: epoch, upstream version, Debian revision.
pub(super) fn compare_versions(a: &str, b: &str) -> Ordering {
    let (a, b) = (split_version(a), split_version(b));
    a.0.cmp(&b.0).then_with(|| compare_part(a.1, b.1)).then_with(|| compare_part(a.2, b.2))
}

fn split_version(version: &str) -> (u32, &str, &str) {
    let (epoch, without_epoch) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = without_epoch.rsplit_once('-').unwrap_or((without_epoch, "0"));
    (epoch.parse().unwrap_or(0), upstream, revision)
}

/// Compares runs of non-digits by `byte_rank` and runs of digits by value, in turns.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, text_b) = (take_run(&mut a, false), take_run(&mut b, false));
        let length = text_a.len().max(text_b.len());
        for i in 0..length {
            let order =
                byte_rank(text_a.as_bytes().get(i)).cmp(&byte_rank(text_b.as_bytes().get(i)));
            if order.is_ne() {
                return order;
            }
        }
        let (number_a, number_b) = (take_run(&mut a, true), take_run(&mut b, true));
        let order = run_value(number_a).cmp(&run_value(number_b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Cuts the leading run of digits, or of other characters, off a text.
fn take_run<'a>(text: &mut &'a str, digits: bool) -> &'a str {
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    let (run, remaining) = text.split_at(end);
    *text = remaining;
    run
}

fn run_value(digits: &str) -> u64 {
    if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) }
}

/// A tilde sorts before the end of the text, letters before everything else.
fn byte_rank(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(symbol) => i32::from(*symbol) + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "6.1.176-1",
            "6.12.95-1~bpo12+1",
            "6.12.107-1",
            "7.2.9-1~bpo13+1",
            "7.2.13-1~bpo13+1",
            "7.2.13-1",
            "7.2.13-1+b1",
            "7.3~rc1-1~exp1",
            "7.3-1",
            "1:1.0-1",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare_versions(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare_versions(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare_versions("1.0-1", "0:1.0-1"), Ordering::Equal);
    }
}
