//! A small directory tree as one text that can be compared line by line: the form of the machines
//! in `tests/fixtures/machines`.
//!
//! The text is TOML. A table is a directory, named by its path below the root; a key is a file in
//! it. The value is the text of the file, `{ hex = "..." }` for bytes that are not text, or
//! `{ link = "TARGET" }` for a symbolic link. A table without keys is an empty directory.
//!
//! Guarantees: unpacking a packed tree makes the same tree, and packing that again makes the same
//! text. Modes, owners and times are not kept, because discovery does not read them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;

/// The first lines of each text.
const HEADER: &str = "\
# The files of a machine by directory, as `cargo xtask capture` writes them.
# `cargo xtask unpack` makes the directory that `uncore-trace --root` reads.
";

/// Bytes in each line of a file that is not text.
const BYTES_PER_LINE: usize = 16;

/// A file or a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The bytes of a file.
    File(Vec<u8>),
    /// The target of a symbolic link, unchanged.
    Link(String),
}

/// Files, symbolic links and empty directories by their path below a root. No path leaves the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries of each directory by name. The path is relative; the root itself is "".
    /// Directories that contain only directories have no entry here.
    dirs: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// The TOML form of an entry.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, { hex = \"...\" } or { link = \"...\" }")]
enum EntryToml {
    Text(String),
    Other(EntryTable),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum EntryTable {
    Hex(String),
    Link(String),
}

impl Tree {
    /// Adds a file or a link. The same entry may be added twice.
    ///
    /// # Errors
    ///
    /// The path does not stay below the root, is not UTF-8, or already has a different entry.
    pub fn add(&mut self, path: &Path, entry: Entry) -> Result<()> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
        else {
            bail!("\"{}\" is not a path below the root in UTF-8", path.display());
        };
        let names = self.dirs.entry(below_root(dir)?).or_default();
        let is_new = names.get(name).is_none_or(|known| *known == entry);
        ensure!(is_new, "{} has two values", path.display());
        names.insert(name.to_owned(), entry);
        Ok(())
    }

    /// All files and links with their paths, sorted by directory and name.
    pub fn all_entries(&self) -> impl Iterator<Item = (PathBuf, &Entry)> {
        self.dirs.iter().flat_map(|(dir, names)| {
            names.iter().map(move |(name, entry)| (Path::new(dir).join(name), entry))
        })
    }

    /// Reads everything below a directory. Links are not followed.
    ///
    /// # Errors
    ///
    /// Something cannot be read, has a name or a target that is not UTF-8, or is not a file, a link
    /// or a directory.
    pub fn pack_dir(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let mut todo = vec![PathBuf::new()];
        while let Some(dir) = todo.pop() {
            let read = || format!("cannot read {}", root.join(&dir).display());
            let mut is_empty = true;
            for dir_entry in fs::read_dir(root.join(&dir)).with_context(read)? {
                let dir_entry = dir_entry.with_context(read)?;
                is_empty = false;
                let path = dir.join(dir_entry.file_name());
                let read = || format!("cannot read {}", root.join(&path).display());
                let file_type = dir_entry.file_type().with_context(read)?;
                if file_type.is_dir() {
                    todo.push(path);
                } else if file_type.is_symlink() {
                    let target = fs::read_link(dir_entry.path()).with_context(read)?;
                    tree.add(&path, link(&target)?)?;
                } else {
                    ensure!(file_type.is_file(), "{} is not a file", root.join(&path).display());
                    let bytes = fs::read(dir_entry.path()).with_context(read)?;
                    tree.add(&path, Entry::File(bytes))?;
                }
            }
            if is_empty {
                tree.dirs.entry(below_root(&dir)?).or_default();
            }
        }
        Ok(tree)
    }

    /// Reads the text of a tree.
    ///
    /// # Errors
    ///
    /// The text is invalid, or a path does not stay below the root. The error names the line or the
    /// path.
    pub fn parse(text: &str) -> Result<Self> {
        let written: BTreeMap<String, BTreeMap<String, EntryToml>> =
            toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim()))?;
        let mut tree = Self::default();
        for (dir, names) in written {
            tree.dirs.entry(below_root(Path::new(&dir))?).or_default();
            for (name, entry) in names {
                let path = Path::new(&dir).join(&name);
                let is_name = path.file_name().is_some_and(|last_name| *last_name == *name);
                ensure!(is_name, "{name:?} is not the name of a file");
                let entry = match entry {
                    EntryToml::Text(text) => Entry::File(text.into_bytes()),
                    EntryToml::Other(EntryTable::Link(target)) => Entry::Link(target),
                    EntryToml::Other(EntryTable::Hex(text)) => {
                        Entry::File(parse_hex(&text).with_context(|| path.display().to_string())?)
                    }
                };
                tree.add(&path, entry)?;
            }
        }
        Ok(tree)
    }

    /// The text of the tree: one line for each entry, or a block if the file has several lines.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = HEADER.to_owned();
        for (dir, names) in &self.dirs {
            text.extend([format!("\n[{}]\n", toml_string(dir))]);
            let line = |(name, entry): (&String, &Entry)| {
                format!("{} = {}\n", toml_key(name), toml_value(entry))
            };
            text.extend(names.iter().map(line));
        }
        text
    }

    /// Makes the directory `output_dir`, which must not exist, and writes the whole tree to it.
    ///
    /// # Errors
    ///
    /// `output_dir` exists, or something cannot be written; it is removed then.
    pub fn unpack_to(&self, output_dir: &Path) -> Result<()> {
        fs::create_dir(output_dir)
            .with_context(|| format!("cannot make {}", output_dir.display()))?;
        self.fill_dir(output_dir).inspect_err(|_| {
            // Report the first error, not one of the removal.
            let _removed = fs::remove_dir_all(output_dir);
        })
    }

    /// Writes the whole tree into an empty directory.
    ///
    /// # Errors
    ///
    /// Something cannot be written.
    pub fn fill_dir(&self, output_dir: &Path) -> Result<()> {
        for dir in self.dirs.keys() {
            let dir = output_dir.join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        // Links come last, so that nothing is written through one.
        for links in [false, true] {
            for (path, entry) in self.all_entries() {
                let path = output_dir.join(path);
                match entry {
                    Entry::File(bytes) if !links => fs::write(&path, bytes),
                    Entry::Link(target) if links => symlink(target, &path),
                    _ => Ok(()),
                }
                .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// A link with this target.
///
/// # Errors
///
/// The target is not UTF-8.
pub fn link(target: &Path) -> Result<Entry> {
    let text = target.to_str();
    let text =
        text.with_context(|| format!("the link target \"{}\" is not UTF-8", target.display()))?;
    Ok(Entry::Link(text.to_owned()))
}

/// The path of a directory in its normal form.
fn below_root(dir: &Path) -> Result<String> {
    let stays = dir.components().all(|component| matches!(component, Component::Normal(_)));
    let normal: PathBuf = dir.components().collect();
    let text = normal.to_str().filter(|_| stays);
    let error = || format!("\"{}\" is not a path below the root in UTF-8", dir.display());
    Ok(text.with_context(error)?.to_owned())
}

/// A basic string of TOML, which has all escapes of JSON.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A key, in quotes if TOML needs them.
fn toml_key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.bytes().all(bare) { name.to_owned() } else { toml_string(name) }
}

fn toml_value(entry: &Entry) -> String {
    match entry {
        Entry::Link(target) => format!("{{ link = {} }}", toml_string(target)),
        Entry::File(bytes) => match visible_text(bytes) {
            Some(text) if text.trim_end_matches('\n').contains('\n') => toml_lines(text),
            Some(text) => toml_string(text),
            None => format!("{{ hex = \"\"\"\n{}\"\"\" }}", hex_lines(bytes)),
        },
    }
}

/// The text of a file, if all of its bytes are visible in an editor.
fn visible_text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().all(is_shown).then_some(text)
}

/// A multi-line string of TOML: one line for each line of the text.
fn toml_lines(text: &str) -> String {
    let lines = text.split('\n').map(toml_string);
    let lines: Vec<_> = lines.map(|line| line[1..line.len() - 1].to_owned()).collect();
    format!("\"\"\"\n{}\"\"\"", lines.join("\n"))
}

fn hex_lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(BYTES_PER_LINE) {
        let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &(line.join(" ") + "\n");
    }
    text
}

/// The bytes of a text from [`hex_lines`].
fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let byte = |digits: &str| {
        let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        ensure!(is_byte, "{digits:?} is not a byte in two hexadecimal digits");
        Ok(u8::from_str_radix(digits, 16)?)
    };
    text.split_whitespace().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory of this test.
    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tree-{name}-{}", std::process::id()))
    }

    /// One entry of each form, with what must be escaped.
    fn tree() -> Tree {
        let mut tree = Tree::default();
        let config: Vec<u8> = (0..=40).collect();
        for (path, bytes) in [
            ("sys/pmu/type", &b"9\n"[..]),
            ("sys/pmu/events/a.scale", b"0.5"),
            ("sys/pmu/events/none", b""),
            ("sys/pmu/caps/\"odd\" \\name", b"\"\"\" \\ \\040 \xc3\xa4\t\n"),
            ("sys/pci0000:00/config", &config),
            ("proc/cpuinfo", b"vendor_id\t: \"X\"\n\nmodel: 1\n"),
            ("proc/mounts", b"a\nb"),
            ("proc/blank", b"\n\n"),
            ("top", b"\r\n"),
            ("delete", b"\x7f"),
        ] {
            tree.add(Path::new(path), Entry::File(bytes.to_owned())).unwrap();
        }
        let link = Entry::Link("../../sys/pci0000:00".to_owned());
        tree.add(Path::new("sys/bus/0000:00"), link).unwrap();
        tree.dirs.insert("sys/class/empty".to_owned(), BTreeMap::new());
        tree
    }

    #[test]
    fn a_file_is_a_line_and_its_lines_are_lines() {
        let text = tree().to_text();
        for part in [
            "\n[\"sys/pmu/events\"]\n\"a.scale\" = \"0.5\"\nnone = \"\"\n",
            "\ntype = \"9\\n\"\n",
            "\ncpuinfo = \"\"\"\nvendor_id\\t: \\\"X\\\"\n\nmodel: 1\n\"\"\"\n",
            "\nconfig = { hex = \"\"\"\n00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n10 ",
            "\n20 21 22 23 24 25 26 27 28\n\"\"\" }\n",
            "\n\"0000:00\" = { link = \"../../sys/pci0000:00\" }\n",
            "\n[\"sys/class/empty\"]\n\n",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert_eq!(Tree::parse(&text).unwrap(), tree(), "{text}");
    }

    #[test]
    fn a_tree_that_is_packed_again_is_the_same() {
        let dir = scratch("same");
        tree().unpack_to(&dir).unwrap();
        let again = Tree::pack_dir(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(again, tree());
    }

    #[test]
    fn files_are_written_byte_for_byte() {
        let dir = scratch("bytes");
        tree().unpack_to(&dir).unwrap();
        for (path, entry) in tree().all_entries() {
            let path = dir.join(path);
            match entry {
                Entry::File(bytes) => assert_eq!(&fs::read(&path).unwrap(), bytes),
                Entry::Link(to) => assert_eq!(fs::read_link(&path).unwrap(), Path::new(to)),
            }
        }
        assert_eq!(fs::read_dir(dir.join("sys/class/empty")).unwrap().count(), 0);
        let error = format!("{:#}", tree().unpack_to(&dir).unwrap_err());
        assert!(error.starts_with("cannot make ") && error.contains("exists"), "{error}");
        assert!(dir.join("top").exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// The text may come from a stranger: unpacking must not write outside the directory.
    #[test]
    fn nothing_is_written_outside() {
        for (text, error) in [
            ("[\"/etc\"]\npasswd = \"x\"", "is not a path below the root"),
            ("[\"../etc\"]\npasswd = \"x\"", "is not a path below the root"),
            ("[\"sys/../..\"]\nx = \"x\"", "is not a path below the root"),
            ("[\"..\"]\n", "is not a path below the root"),
            ("[sys]\n\"../x\" = \"x\"", "is not the name of a file"),
            ("[sys]\n\"..\" = \"x\"", "is not the name of a file"),
            ("[sys]\n\"\" = \"x\"", "is not the name of a file"),
            ("[sys]\n\"/etc/passwd\" = \"x\"", "is not the name of a file"),
        ] {
            let found = Tree::parse(text).unwrap_err().to_string();
            assert!(found.contains(error), "{text}: {found}");
        }
        let dir = scratch("link");
        let text = "[\"\"]\na = { link = \"/nonexistent\" }\n[a]\nb = \"x\"";
        let error = format!("{:#}", Tree::parse(text).unwrap().unpack_to(&dir).unwrap_err());
        assert!(error.contains("cannot write"), "{error}");
        assert!(!dir.exists());
    }

    #[test]
    fn errors_name_the_line_or_the_path() {
        for (text, named) in [
            ("[a]\nb = 1", "expected a string"),
            ("[a]\nb = { link = \"x\", hex = \"00\" }", "expected a string"),
            ("[a]\nb = { hex = \"0\" }", "a/b: \"0\" is not a byte"),
            ("[a]\nb = { hex = \"+1\" }", "a/b: \"+1\" is not a byte"),
            ("[a]\nb = \"x\"\nb = \"y\"", "line 3"),
            ("[a]\nb = \"x\"\n[\"a/\"]\nb = \"y\"", "a/b"),
        ] {
            let error = format!("{:#}", Tree::parse(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
