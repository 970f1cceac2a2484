//! Offsets of structure members in the running kernel, from its BTF.
//!
//! Only what is needed to find `struct NAME { .. MEMBER .. }` is parsed. The format is that of
//! Documentation/bpf/btf.rst, Linux 6.18.

use std::{collections::HashMap, path::Path};

use anyhow::{Context as _, Result, bail};

/// The kernel's own type information.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;

/// Byte offsets of `wanted` (structure, member) pairs, in their order.
///
/// # Errors
///
/// The file is not BTF, or a structure or member is not in it.
pub fn offsets(path: &Path, wanted: &[(&str, &str)]) -> Result<Vec<u64>> {
    let data = std::fs::read(path).with_context(|| {
        format!("cannot read the kernel's BTF at {} (a kernel with CONFIG_DEBUG_INFO_BTF=y is needed; `uncore-trace doctor` tells more)", path.display())
    })?;
    parse(&data, wanted).with_context(|| format!("{} cannot be used", path.display()))
}

fn parse(data: &[u8], wanted: &[(&str, &str)]) -> Result<Vec<u64>> {
    let Some((types, strings)) = sections(data) else {
        bail!("it is not BTF");
    };
    let mut found: HashMap<(&str, &str), u64> = HashMap::new();
    let mut at = 0;
    while at + 12 <= types.len() {
        let (name, info, size) = (word(types, at), word(types, at + 4), at + 12);
        let (kind, len) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        at = size + tail(kind, len)?;
        if kind != KIND_STRUCT {
            continue;
        }
        let name = string(strings, name);
        // A bit offset, and above it the width of a bit field where `kind_flag` is set.
        let mask = if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
        for &(structure, member) in wanted.iter().filter(|(structure, _)| *structure == name) {
            let members = types.get(size..at).unwrap_or_default().chunks_exact(12);
            for entry in members {
                if string(strings, word(entry, 0)) == member {
                    let bit = word(entry, 8) & mask;
                    found.entry((structure, member)).or_insert(u64::from(bit / 8));
                }
            }
        }
    }
    wanted
        .iter()
        .map(|&(structure, member)| {
            found
                .get(&(structure, member))
                .copied()
                .with_context(|| format!("struct {structure} has no member {member}"))
        })
        .collect()
}

/// The type and string sections that the header points at.
fn sections(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let magic = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
    if magic != MAGIC || data.len() < 24 {
        return None;
    }
    let body = data.get(word(data, 4) as usize..)?;
    let part = |offset: usize| {
        let start = word(data, offset) as usize;
        body.get(start..start.checked_add(word(data, offset + 4) as usize)?)
    };
    Some((part(8)?, part(16)?))
}

/// Bytes that follow the three words of a type, by kind.
fn tail(kind: u32, len: usize) -> Result<usize> {
    Ok(match kind {
        // void, pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        0 | 2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * len,
        // enumeration, function prototype
        6 | 13 => 8 * len,
        other => bail!("it holds a type of the unknown kind {other}"),
    })
}

fn word(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn string(strings: &[u8], at: u32) -> &str {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    std::str::from_utf8(rest.get(..end).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of `int; struct pair { int first; int second; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0pair\0first\0second\0";
        let types: Vec<u8> = [
            [1u32, 1 << 24, 4].as_slice(),
            &[32],
            &[5, (4 << 24) | 2, 8],
            &[10, 1, 0],
            &[16, 1, 32],
        ]
        .concat()
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
        let mut data = MAGIC.to_ne_bytes().to_vec();
        data.extend([1, 0]);
        for word in [24u32, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            data.extend(word.to_ne_bytes());
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn finds_members() {
        let found = parse(&sample(), &[("pair", "second"), ("pair", "first")]).unwrap();
        assert_eq!(found, [4, 0]);
    }

    #[test]
    fn says_what_is_missing() {
        let error = parse(&sample(), &[("pair", "third")]).unwrap_err();
        assert_eq!(error.to_string(), "struct pair has no member third");
        assert!(parse(b"garbage", &[]).is_err());
    }

    #[test]
    fn survives_every_truncation() {
        let data = sample();
        for len in 0..data.len() {
            let _either = parse(&data[..len], &[("pair", "second")]);
        }
    }
}
