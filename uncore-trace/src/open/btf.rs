//! Offsets of structure members, values of enumerations and names of tracepoints, from the BTF of
//! the running kernel: its own, or a file for a kernel that was built without.
//!
//! The parser covers only what is needed to find these by name. The format is described in
//! Documentation/bpf/btf.rst, Linux 6.18.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::system::uname;

use super::SAMPLE;
use crate::bounds;
use crate::discover::read_array;

/// The kernel's own type information.
pub(super) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Where packages of debug information put the kernel's own ELF file, without the root; those of
/// libbpf (`btf__load_vmlinux_btf`, tools/lib/bpf/btf.c, Linux 7.2). `{}` is the release.
const ELSEWHERE: [&str; 7] = [
    "boot/vmlinux-{}",
    "lib/modules/{}/vmlinux-{}",
    "lib/modules/{}/build/vmlinux",
    "usr/lib/modules/{}/kernel/vmlinux",
    "usr/lib/debug/boot/vmlinux-{}",
    "usr/lib/debug/boot/vmlinux-{}.debug",
    "usr/lib/debug/lib/modules/{}/vmlinux",
];

/// How to make a file for `--btf`.
pub const MAKE: &str = "pahole --btf_encode_detached=FILE VMLINUX";

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNCTION: u32 = 12;

/// Largest depth of nested anonymous structures; the kernel uses three.
const MAX_DEPTH: u32 = 8;

/// Members that are examined for one name. Members of an anonymous structure count each time, so a
/// search ends even if types refer to themselves. `task_struct` has some 300 members (Linux 6.18).
const MAX_MEMBERS: u32 = 1 << 16;

/// A global of the programs with its value.
pub(super) type GlobalValue = (&'static str, u64);

/// A global of the programs, and the path through nested members whose offsets are added to its
/// value.
pub(super) type MemberGlobal = (&'static str, &'static [(&'static str, &'static str)]);

/// The kernel's types, indexed by name on request.
#[derive(Debug)]
pub struct KernelTypes {
    data: Vec<u8>,
    /// Offset of each type in the type section; type 1 is the first.
    type_offsets: Vec<u32>,
}

impl KernelTypes {
    /// The types of the running kernel, and whether they are its own: of `given_file`, else its
    /// own, else of a file with its debug information.
    ///
    /// # Errors
    ///
    /// There is no such file, or it is not BTF.
    pub(super) fn of_kernel(given_file: Option<&Path>) -> Result<(Self, bool)> {
        if let Some(path) = given_file {
            return Ok((Self::of_file(path)?, false));
        }
        if !Path::new(VMLINUX).exists()
            && let Some((path, types)) =
                find_elsewhere(Path::new("/"), &uname().release().to_string_lossy())
        {
            log::info!("this kernel has no BTF: the BTF of {} is used", path.display());
            return Ok((types, false));
        }
        Ok((Self::read(VMLINUX.as_ref())?, true))
    }

    /// Reads a BTF file, or the section `.BTF` of an ELF file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or has no BTF.
    pub fn of_file(path: &Path) -> Result<Self> {
        let shown = path.display();
        let data = bounds::read_bytes(path, bounds::TYPES)
            .with_context(|| format!("cannot read the BTF file {shown}"))?;
        let data = if data.starts_with(b"\x7fELF") {
            let section = elf_section(&data, ".BTF").map(<[u8]>::to_vec);
            section.with_context(|| {
                format!("{shown} has no section .BTF: make a file with `{MAKE}`")
            })?
        } else {
            data
        };
        Self::parse(data).with_context(|| format!("the BTF file {shown} cannot be used"))
    }

    /// Reads the kernel's own BTF.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not BTF.
    pub fn read(path: &Path) -> Result<Self> {
        let data = bounds::read_bytes(path, bounds::TYPES).with_context(|| {
            format!(
                "cannot read the kernel's BTF at {} (a kernel with CONFIG_DEBUG_INFO_BTF=y, or \
                 --btf with a file of this kernel, is needed; `uncore-trace stat` counts without; \
                 see `uncore-trace doctor`; {SAMPLE})",
                path.display()
            )
        })?;
        Self::parse(data).with_context(|| format!("{} cannot be used", path.display()))
    }

    /// Parses the bytes of a BTF file.
    ///
    /// # Errors
    ///
    /// The bytes are not BTF.
    pub fn parse(data: Vec<u8>) -> Result<Self> {
        let Some((types, _)) = btf_sections(&data) else {
            bail!("it is not BTF");
        };
        let mut type_offsets = Vec::new();
        let mut type_offset = 0;
        while type_offset + 12 <= types.len() {
            type_offsets.push(type_offset as u32);
            let (type_kind, len) = kind_and_len(read_word(types, type_offset + 4));
            type_offset += 12 + tail_len(type_kind, len)?;
        }
        Ok(Self { data, type_offsets })
    }

    /// Byte offset of a member in a structure, or in the structure that a typedef names. Members of
    /// nested anonymous structures and unions are included.
    ///
    /// # Errors
    ///
    /// There is no such structure or member.
    pub fn member_offset(&self, structure: &str, member: &str) -> Result<u64> {
        let mut members_left = MAX_MEMBERS;
        let offset = self
            .types_named(structure)
            .find_map(|type_offset| self.find_member(type_offset, member, 0, &mut members_left));
        offset.with_context(|| format!("struct {structure} has no member {member}"))
    }

    /// The values of globals that are offsets of members.
    pub(super) fn member_values(&self, globals: &[MemberGlobal]) -> Result<Vec<GlobalValue>> {
        let value = |&(global, path): &MemberGlobal| {
            let offsets =
                path.iter().map(|(structure, member)| self.member_offset(structure, member));
            Ok((global, offsets.sum::<Result<u64>>()?))
        };
        globals.iter().map(value).collect()
    }

    /// Value of an enumerator.
    ///
    /// # Errors
    ///
    /// There is no such enumeration or enumerator.
    pub fn enumerator_value(&self, enumeration: &str, enumerator: &str) -> Result<u64> {
        let constant = self.types_named(enumeration).find_map(|type_offset| {
            let (types, strings) = btf_sections(&self.data)?;
            let (type_kind, len) = kind_and_len(read_word(types, type_offset + 4));
            let entries = types.get(type_offset + 12..)?.chunks_exact(8).take(len);
            let mut entries = entries.filter(|_| type_kind == KIND_ENUM);
            let entry =
                entries.find(|entry| is_string_at(strings, read_word(entry, 0), enumerator))?;
            Some(u64::from(read_word(entry, 4)))
        });
        constant.with_context(|| format!("enum {enumeration} has no value {enumerator}"))
    }

    /// Whether the kernel has a tracepoint of this name. BTF has a function type for each.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.types_named(&format!("btf_trace_{name}")).next().is_some()
    }

    /// Number of a structure.
    pub(super) fn struct_number(&self, name: &str) -> Option<u32> {
        self.type_number(KIND_STRUCT, name)
    }

    /// Number of a function.
    pub(super) fn function_number(&self, name: &str) -> Option<u32> {
        self.type_number(KIND_FUNCTION, name)
    }

    fn type_number(&self, type_kind: u32, name: &str) -> Option<u32> {
        let (types, _) = btf_sections(&self.data)?;
        let is_kind = |offset: &usize| kind_and_len(read_word(types, offset + 4)).0 == type_kind;
        let offset = self.types_named(name).find(is_kind)? as u32;
        Some(self.type_offsets.binary_search(&offset).ok()? as u32 + 1)
    }

    /// Offsets of the types with this name.
    fn types_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let sections = btf_sections(&self.data);
        self.type_offsets.iter().map(|&offset| offset as usize).filter(move |&type_offset| {
            sections.is_some_and(|(types, strings)| {
                is_string_at(strings, read_word(types, type_offset), name)
            })
        })
    }

    /// Offset of the type with this number; `None` for 0, which is void.
    fn type_at(&self, number: u32) -> Option<usize> {
        Some(*self.type_offsets.get((number as usize).checked_sub(1)?)? as usize)
    }

    /// Byte offset of a member in the structure or union at `type_offset`. `depth` limits the
    /// nesting of anonymous types, `members_left` the members that are examined.
    fn find_member(
        &self,
        type_offset: usize,
        member: &str,
        depth: u32,
        members_left: &mut u32,
    ) -> Option<u64> {
        let (types, strings) = btf_sections(&self.data)?;
        let info = read_word(types, type_offset + 4);
        let (type_kind, len) = kind_and_len(info);
        if type_kind == KIND_TYPEDEF && depth <= MAX_DEPTH {
            return self.find_member(
                self.type_at(read_word(types, type_offset + 8))?,
                member,
                depth + 1,
                members_left,
            );
        }
        if !(type_kind == KIND_STRUCT || type_kind == KIND_UNION) || depth > MAX_DEPTH {
            return None;
        }
        // If `kind_flag` is set, the upper bits hold the width of a bit field.
        let mask = if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
        let members = types.get(type_offset + 12..)?.chunks_exact(12).take(len);
        members.into_iter().find_map(|entry| {
            *members_left = members_left.checked_sub(1)?;
            let (name, member_type) = (read_word(entry, 0), read_word(entry, 4));
            let offset = u64::from((read_word(entry, 8) & mask) / 8);
            if is_string_at(strings, name, member) {
                return Some(offset);
            }
            let inner = is_string_at(strings, name, "").then(|| self.type_at(member_type))??;
            Some(offset + self.find_member(inner, member, depth + 1, members_left)?)
        })
    }
}

/// A file below `root` with the types of the kernel of this release, for a kernel that was built
/// without; and these types.
pub fn find_elsewhere(root: &Path, release: &str) -> Option<(PathBuf, KernelTypes)> {
    if release.is_empty() || release.contains('/') {
        return None;
    }
    let mut paths = ELSEWHERE.iter().map(|path| root.join(path.replace("{}", release)));
    paths.find_map(|path| {
        let types = path.is_file().then(|| KernelTypes::of_file(&path).ok())??;
        Some((path, types))
    })
}

/// The section of this name in an ELF file of 64 bits, in the machine's byte order (elf(5)).
fn elf_section<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let half = |offset| read_array(elf, offset).map(u16::from_ne_bytes);
    let long = |offset| usize::try_from(u64::from_ne_bytes(read_array(elf, offset)?)).ok();
    // e_shoff, e_shentsize, e_shnum and e_shstrndx of Elf64_Ehdr.
    let (table, size, count) = (long(0x28)?, usize::from(half(0x3a)?), usize::from(half(0x3c)?));
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    // sh_offset and sh_size of Elf64_Shdr.
    let content = |header: usize| {
        let begin = long(header.checked_add(0x18)?)?;
        elf.get(begin..begin.checked_add(long(header.checked_add(0x20)?)?)?)
    };
    let names = content(header(usize::from(half(0x3e)?))?)?;
    (0..count)
        .filter_map(header)
        .find(|section_header| is_string_at(names, read_word(elf, *section_header), name))
        .and_then(content)
}

/// Kind of a type, and its number of members.
const fn kind_and_len(info: u32) -> (u32, usize) {
    ((info >> 24) & 0x1f, (info & 0xffff) as usize)
}

/// The type section and the string section.
fn btf_sections(data: &[u8]) -> Option<(&[u8], &[u8])> {
    if u16::from_ne_bytes(read_array(data, 0)?) != MAGIC || data.len() < 24 {
        return None;
    }
    let body = data.get(read_word(data, 4) as usize..)?;
    let subsection = |offset: usize| {
        let start = read_word(data, offset) as usize;
        body.get(start..start.checked_add(read_word(data, offset + 4) as usize)?)
    };
    Some((subsection(8)?, subsection(16)?))
}

/// Number of bytes after the first three words of a type, by kind.
fn tail_len(type_kind: u32, len: usize) -> Result<usize> {
    Ok(match type_kind {
        // void, pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        0 | 2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * len,
        // enumeration, function prototype
        KIND_ENUM | 13 => 8 * len,
        unknown_kind => bail!("it holds a type of the unknown kind {unknown_kind}"),
    })
}

/// The number of 32 bits at this offset; 0 behind the end.
pub(super) fn read_word(data: &[u8], offset: usize) -> u32 {
    read_array(data, offset).map_or(0, u32::from_ne_bytes)
}

/// Whether the string at this offset is `text`.
fn is_string_at(strings: &[u8], offset: u32, text: &str) -> bool {
    let string_tail =
        strings.get(offset as usize..).and_then(|bytes| bytes.strip_prefix(text.as_bytes()));
    string_tail.and_then(<[u8]>::first) == Some(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of `int; struct pair { int first; union { int second; int third; }; }; enum op { .. }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0pair\0first\0second\0third\0op\0read\0write\0btf_trace_x\0pair_t\0";
        let types: Vec<u8> = [
            [1u32, 1 << 24, 4].as_slice(),
            &[32],
            &[5, (4 << 24) | 2, 8],
            &[10, 1, 0],
            &[0, 3, 32],
            &[0, (5 << 24) | 2, 4],
            &[16, 1, 0],
            &[23, 1, 0],
            &[29, (6 << 24) | 2, 4],
            &[32, 0],
            &[37, 7],
            &[43, 8 << 24, 1],
            &[55, 8 << 24, 2],
        ]
        .concat()
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
        file(&types, strings)
    }

    fn file(types: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut data = MAGIC.to_ne_bytes().to_vec();
        data.extend([1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            data.extend(word.to_ne_bytes());
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn members_are_found_also_in_anonymous_structures() {
        let types = KernelTypes::parse(sample()).unwrap();
        for (member, offset) in [("first", 0), ("second", 4), ("third", 4)] {
            assert_eq!(types.member_offset("pair", member).unwrap(), offset, "{member}");
        }
        assert_eq!(types.member_offset("pair_t", "second").unwrap(), 4);
        assert_eq!(types.enumerator_value("op", "write").unwrap(), 7);
        assert_eq!((types.struct_number("pair"), types.struct_number("op")), (Some(2), None));
        assert!(types.has_tracepoint("x") && !types.has_tracepoint("y"));
    }

    /// An ELF file with a section for names and one with the sample.
    fn elf(name: &str) -> Vec<u8> {
        let names = [b"\0".as_slice(), name.as_bytes(), b"\0"].concat();
        let btf = sample();
        let mut file = b"\x7fELF".to_vec();
        file.resize(0x40, 0);
        let (names_at, btf_at) = (0x40, 0x40 + names.len());
        let table = btf_at + btf.len();
        file[0x28..0x30].copy_from_slice(&(table as u64).to_ne_bytes());
        for (at, value) in [(0x3a, 0x40_u16), (0x3c, 2), (0x3e, 0)] {
            file[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        file.extend(names.iter().chain(&btf));
        for (name, at, len) in [(0_u32, names_at, names.len()), (1, btf_at, btf.len())] {
            let mut header = [0; 0x40];
            header[..4].copy_from_slice(&name.to_ne_bytes());
            header[0x18..0x20].copy_from_slice(&(at as u64).to_ne_bytes());
            header[0x20..0x28].copy_from_slice(&(len as u64).to_ne_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn types_are_found_in_files_of_debug_information() {
        let dir = tempfile::tempdir().unwrap();
        let boot = dir.path().join("usr/lib/debug/boot");
        std::fs::create_dir_all(&boot).unwrap();
        let file = boot.join("vmlinux-5.15.0-l4t");
        for (content, is) in [(elf(".BTF"), true), (elf(".BTX"), false), (sample(), true)] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(find_elsewhere(dir.path(), "5.15.0-l4t").is_some(), is);
        }
        assert!(find_elsewhere(dir.path(), "5.15.0").is_none());
        assert!(find_elsewhere(dir.path(), "../boot/vmlinux-5.15.0-l4t").is_none());
        let whole = elf(".BTF");
        for len in 0..whole.len() {
            std::fs::write(&file, &whole[..len]).unwrap();
            let _either = KernelTypes::of_file(&file);
        }
    }

    #[test]
    fn a_missing_member_is_named() {
        let types = KernelTypes::parse(sample()).unwrap();
        let error = types.member_offset("pair", "fourth").unwrap_err();
        assert_eq!(error.to_string(), "struct pair has no member fourth");
        assert!(
            types.member_offset("op", "write").is_err()
                && types.enumerator_value("pair", "first").is_err()
        );
        assert!(types.member_offset("pai", "first").is_err());
        assert!(KernelTypes::parse(b"garbage".to_vec()).is_err());
    }

    /// Without a limit, each level of a structure that contains itself takes 64 times longer.
    #[test]
    fn a_search_in_a_structure_within_itself_ends() {
        const MEMBERS: u32 = 64;
        let strings = b"\0pair\0";
        let mut words = vec![1, (KIND_STRUCT << 24) | MEMBERS, 8];
        words.extend((0..MEMBERS).flat_map(|_| [0, 1, 0]));
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let data = file(&types, strings);
        let begin = std::time::Instant::now();
        assert!(KernelTypes::parse(data).unwrap().member_offset("pair", "first").is_err());
        assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    }

    #[test]
    fn truncated_types_do_not_panic() {
        let data = sample();
        for len in 0..data.len() {
            if let Ok(types) = KernelTypes::parse(data[..len].to_vec()) {
                let _either = types.member_offset("pair", "second");
            }
        }
    }
}
