//! Names say what things are: three figures of all run-time code, which a reader can grep.

#![expect(clippy::unwrap_used, reason = "sources that cannot be read fail the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Words that name nothing, whatever the thing is.
const GENERIC: &str = "its it of at by to on in_ part parts place places told tell said say found own \
    way thing things both one other others all some more most least each these those here there what \
    who whom which whose that this_ rest right left around again back still now then first last next \
    only also much many few such same own_ its_ made make take takes taken give gives given has have \
    had does did goes came gone kind sort side end_ begin_ up down out in_of for_ with_ without from_ \
    into_ over under before after";

/// Functions whose names the language or its library gives.
const GIVEN: [&str; 12] = [
    "main", "new", "from", "fmt", "drop", "default", "eq", "cmp", "hash", "next", "deref", "clone",
];

/// Words of the language, which name nothing themselves.
const KEYWORDS: &str = "as async await break const continue crate dyn else enum extern false fn for if \
    impl in let loop match mod move mut pub ref return self Self static struct super trait true type \
    union unsafe use where while u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char \
    str String Option Some None Result Ok Err Vec Box";

const SOURCES: [&str; 6] = [
    "uncore-trace/src",
    "uncore-trace-recording/src",
    "uncore-trace-common/src",
    "uncore-trace-ebpf/src",
    "uncore-trace-upload/src",
    "xtask/src",
];

/// Counts of names.
#[derive(Default)]
struct NameCounts {
    identifiers: usize,
    generic: BTreeMap<String, usize>,
    functions: usize,
    one_word_functions: Vec<String>,
    /// How many types have each name.
    types: BTreeMap<String, usize>,
}

impl NameCounts {
    /// Counts the names of run-time code: items that only tests have are left out.
    fn count(&mut self, tokens: TokenStream) {
        let mut previous = String::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let Some(TokenTree::Group(attribute)) = tokens.peek() else { continue };
                    let text = attribute.stream().to_string().replace(' ', "");
                    if text.starts_with("cfg(test)") || text.starts_with("cfg(all(test") {
                        skip_item(&mut tokens);
                    } else if text.starts_with("doc=") {
                        tokens.next();
                    }
                }
                TokenTree::Group(group) => self.count(group.stream()),
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    self.count_identifier(&previous, &name);
                    previous = name;
                    continue;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            previous.clear();
        }
    }

    fn count_identifier(&mut self, previous: &str, name: &str) {
        if is_in(KEYWORDS, name) {
            return;
        }
        self.identifiers += 1;
        if is_in(GENERIC, name) {
            *self.generic.entry(name.to_owned()).or_default() += 1;
        }
        match previous {
            "fn" if !GIVEN.contains(&name) => {
                self.functions += 1;
                if !name.contains('_') {
                    self.one_word_functions.push(name.to_owned());
                }
            }
            "struct" | "enum" | "trait" | "type" | "union" => {
                *self.types.entry(name.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
}

fn is_in(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}

/// Skips an item: to its body or its semicolon.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            _ => {}
        }
    }
}

/// All names of run-time code.
fn count_names(workspace: &Path) -> NameCounts {
    let mut paths: Vec<PathBuf> = Vec::new();
    for dir in SOURCES {
        super::files(&workspace.join(dir), &mut paths).unwrap();
    }
    assert!(paths.len() > 500, "{}", paths.len());
    let mut counts = NameCounts::default();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        counts.count(text.parse().unwrap());
    }
    counts
}

#[test]
fn names_say_what_things_are() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let NameCounts { identifiers, generic, functions, one_word_functions, mut types } =
        count_names(workspace);
    let generic_count: usize = generic.values().sum();
    assert!(
        generic_count * 1000 <= identifiers * 12,
        "{generic_count} of {identifiers} identifiers name nothing: {generic:?}"
    );
    assert!(
        one_word_functions.len() * 100 <= functions * 40,
        "{} of {functions} functions have a name of one word: {one_word_functions:?}",
        one_word_functions.len()
    );
    let type_count: usize = types.values().sum();
    // By convention these are named with their module; associated types have the trait's name.
    for name in ["Args", "Builder", "Error", "Err", "Item", "Value", "Output", "Target"] {
        types.remove(name);
    }
    types.retain(|_, count| *count > 1);
    let shared_count: usize = types.values().sum();
    assert!(
        shared_count * 100 <= type_count * 20,
        "{shared_count} of {type_count} types share their name with another: {types:?}"
    );
}

/// The words that docs/vocabulary.md says too little of to be a name.
fn empty_words(vocabulary: &str) -> Vec<String> {
    let (_, table) = vocabulary.split_once("## Words that say too little").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let words = rows.flat_map(|(words, _)| words.split(", "));
    words.filter(|word| *word != "word").map(str::to_owned).collect()
}

#[test]
fn types_and_modules_have_terms_of_the_vocabulary() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let vocabulary = fs::read_to_string(workspace.join("docs/vocabulary.md")).unwrap();
    let empty_words = empty_words(&vocabulary);
    assert!(empty_words.len() > 15, "{empty_words:?}");
    let is_empty = |name: &str| {
        let name = name.to_lowercase();
        empty_words.iter().any(|word| *word == name || format!("{word}s") == name)
    };
    let types = count_names(workspace).types;
    let mut wrong: Vec<String> = types.into_keys().filter(|name| is_empty(name)).collect();
    let mut paths: Vec<PathBuf> = Vec::new();
    for dir in SOURCES {
        super::files(&workspace.join(dir), &mut paths).unwrap();
    }
    let is_wrong =
        |path: &PathBuf| path.file_stem().is_some_and(|stem| is_empty(&stem.to_string_lossy()));
    wrong.extend(paths.iter().filter(|path| is_wrong(path)).map(|path| path.display().to_string()));
    assert!(wrong.is_empty(), "docs/vocabulary.md says what to call them: {wrong:?}");
}
