//! The documents say what the code does: links and paths exist, commands parse, the catalog's keys
//! are those that are read, each alert has a runbook, the index leads to each page, and pages stay
//! short.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Subcommand as _;
use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::overlay::FamilyFile;
use uncore_trace::cmd::Command;

const README_LINES: usize = 120;

/// Most lines of a page of docs/.
const PAGE_LINES: usize = 400;

/// Directories to which relative paths in backticks may refer, beside the document's own.
const BASES: [&str; 5] =
    ["", "uncore-trace/src", "uncore-trace-recording/src", "uncore-trace-ebpf/src", "xtask/src"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Every document of the repository, by its path below the root.
fn documents() -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_generated = name == "target" || name == ".git";
            if path.is_dir() && !path.is_symlink() && !is_generated && name != "machines" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                texts.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    texts.sort();
    assert!(texts.len() > 10, "{texts:?}");
    texts
}

/// The lines of fenced blocks, with the language of each block, and all other lines.
fn blocks(text: &str) -> (Vec<(&str, String)>, Vec<&str>) {
    let (mut fenced, mut prose) = (Vec::new(), Vec::new());
    let mut open = false;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            open = !open;
            if open {
                fenced.push((language, String::new()));
            }
        } else if let (true, Some((_, block))) = (open, fenced.last_mut()) {
            block.push_str(line);
            block.push('\n');
        } else {
            prose.push(line);
        }
    }
    assert!(!open, "a block is not closed");
    (fenced, prose)
}

/// The id that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let lowercase = heading.trim().to_lowercase();
    let kept = lowercase
        .chars()
        .filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let (_, prose) = blocks(text);
    let headings = prose.iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn relative_links_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let (_, prose) = blocks(&text);
        let targets = prose.iter().flat_map(|line| line.split("](").skip(1));
        for target in targets.filter_map(|after_bracket| after_bracket.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let folder = root().join(path.parent().unwrap());
            let file = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            let has_id =
                || id.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(id);
            if !file.exists() || !has_id() {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a path exists below a directory; `*` matches any part of a name.
fn exists(folder: &Path, path: &str) -> bool {
    let (name, remaining_path) =
        path.split_once('/').map_or((path, ""), |(name, rest)| (name, rest));
    let Some((before, after)) = name.split_once('*') else {
        let next = folder.join(name);
        return if remaining_path.is_empty() {
            next.exists()
        } else {
            exists(&next, remaining_path)
        };
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.len() >= before.len() + after.len())
        .filter(|name| name.starts_with(before) && name.ends_with(after))
        .any(|name| remaining_path.is_empty() || exists(&folder.join(name), remaining_path))
}

/// Whether the text in backticks is a path in this repository: a path below one of its directories,
/// or a source file.
fn is_path(code: &str) -> bool {
    let plain = |character: char| character.is_alphanumeric() || "-_./*".contains(character);
    let source = [".rs", ".toml", ".py", ".c", ".h", ".sh", ".svg"];
    let folders = [
        "docs/",
        "tests/",
        "xtask/",
        "uncore-trace/",
        "uncore-trace-common/",
        "uncore-trace-ebpf/",
        ".ci/",
        ".github/",
    ];
    code.chars().all(plain)
        && (folders.iter().any(|folder| code.starts_with(folder))
            || code.contains('/')
                && source.iter().any(|end| code.ends_with(end))
                && !code.starts_with(['/', '.']))
}

#[test]
fn paths_that_are_named_exist() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let (_, prose) = blocks(&text);
        let folder = root().join(path.parent().unwrap());
        for code in prose.iter().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let code = code.trim_end_matches('/');
            let bases = BASES.iter().map(|base| root().join(base)).chain([folder.clone()]);
            if is_path(code) && !bases.into_iter().any(|base| exists(&base, code)) {
                wrong.push(format!("{}: {code}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a source declares an item of this name.
fn defines(source: &str, name: &str) -> bool {
    let items = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    items.iter().any(|item| {
        source.match_indices(&format!("{item} {name}")).any(|(at, found)| {
            !source[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    })
}

/// "`FILE.rs`, `NAME`" says that the file has the name.
#[test]
fn names_that_stand_beside_their_file_are_in_it() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        let (_, prose) = blocks(&text);
        for line in prose {
            for (before, after) in line.match_indices(".rs`, `").map(|(at, _)| line.split_at(at)) {
                let file = format!("{}.rs", before.rsplit('`').next().unwrap());
                let name = after.split('`').nth(2).unwrap();
                let mut sources = BASES.iter().map(|base| root().join(base).join(&file));
                let Some(source) = sources.find(|source| source.is_file()) else { continue };
                tried += 1;
                if !name.contains(['/', '.'])
                    && !defines(&fs::read_to_string(source).unwrap(), name)
                {
                    wrong.push(format!("{}: {file} has no {name}", path.display()));
                }
            }
        }
    }
    assert!(tried >= 10, "{tried}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The words of a command line, as a shell splits them: up to a comment, a redirection or an `&&`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars().chain([' ']) {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (' ', None) => match word.take() {
                Some(end) if ["#", "&&", ">", "|"].contains(&end.as_str()) => return words,
                Some(whole) => words.push(whole),
                None => {}
            },
            _ => word.get_or_insert_default().push(character),
        }
    }
    words
}

#[test]
fn commands_that_are_shown_parse() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        let (fenced, prose) = blocks(&text);
        let fenced = fenced.iter().filter(|(language, _)| ["", "sh"].contains(language));
        let fenced = fenced.flat_map(|(_, block)| block.lines());
        let indented = prose.iter().filter_map(|line| line.strip_prefix("    "));
        for line in fenced.chain(indented) {
            let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
            let words = match line.strip_prefix("cargo run --release -- ") {
                Some(rest) => [vec!["uncore-trace".to_owned()], words(rest)].concat(),
                None => words(line),
            };
            if words.first().is_none_or(|first| first != "uncore-trace") {
                continue;
            }
            tried += 1;
            let parser = Command::augment_subcommands(clap::Command::new("uncore-trace"));
            if let Err(error) = parser.try_get_matches_from(&words) {
                wrong.push(format!("{}: {line}\n{error}", path.display()));
            }
        }
    }
    assert!(tried >= 10, "only {tried} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_has_few_lines() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines: move something to docs/");
}

/// The alerts, each with the address of its runbook.
fn alerts_with_runbooks() -> Vec<(String, String)> {
    let rules = fs::read_to_string(root().join("packaging/prometheus/rules.yml")).unwrap();
    let alerts = rules.split("- alert: ").skip(1);
    let alert_with_address = |alert: &str| {
        let name = alert.lines().next().unwrap().to_owned();
        let alert = alert.split("- record: ").next().unwrap();
        let address =
            alert.split_once("runbook_url: \"").and_then(|(_, text)| text.split_once('"'));
        (name, address.map_or_else(String::new, |(address, _)| address.to_owned()))
    };
    alerts.map(alert_with_address).collect()
}

/// The command that is shown gives each alert the address of its runbook.
#[test]
fn the_address_of_the_runbooks_is_set_by_the_shown_command() {
    let page = fs::read_to_string(root().join("docs/runbooks.md")).unwrap();
    let line = page.lines().find_map(|line| line.trim_start().strip_prefix("sed ")).unwrap();
    let (command, _) = line.split_once(" /usr/share/uncore-trace/rules.yml | sudo tee ").unwrap();
    let rules = root().join("packaging/prometheus/rules.yml");
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("sed {command} {}", rules.display()));
    let output = shell.env("ADDRESS", "https://wiki.example/books").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let set = text.matches("runbook_url: \"https://wiki.example/books#").count();
    assert_eq!(set, alerts_with_runbooks().len());
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_is_of_an_alert() {
    let page = fs::read_to_string(root().join("docs/runbooks.md")).unwrap();
    let mut expected_headings = Vec::new();
    for (alert, address) in alerts_with_runbooks() {
        assert_eq!(address, format!("RUNBOOKS#{}", anchor(&alert)));
        expected_headings.push(alert);
    }
    assert!(!expected_headings.is_empty());
    let mut sections = page.split("\n## ");
    let introduction = sections.next().unwrap();
    assert!(introduction.starts_with("# Runbooks\n"), "{introduction}");
    let mut headings = Vec::new();
    for section in sections {
        let heading = section.lines().next().unwrap();
        for question in ["What it means", "What to look at", "When to ignore it"] {
            assert!(section.contains(&format!("\n**{question}.** ")), "{heading}: {question}");
        }
        let has_command = section.lines().any(|line| line.starts_with("    "));
        assert!(has_command, "{heading} has no command");
        headings.push(heading);
    }
    assert_eq!(headings, expected_headings);
}

/// The pages of docs/, without the index.
fn pages() -> Vec<(String, String)> {
    let page = |(path, text): (PathBuf, String)| {
        let name = path.strip_prefix("docs").ok()?.to_str()?.to_owned();
        (name != "README.md").then_some((name, text))
    };
    documents().into_iter().filter_map(page).collect()
}

#[test]
fn pages_are_short() {
    for (name, text) in pages() {
        let lines = text.lines().count();
        assert!(lines <= PAGE_LINES, "docs/{name} has {lines} lines: divide it by its readers");
    }
}

#[test]
fn the_index_leads_to_each_page() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for (name, _) in pages() {
        let link = format!("]({name}");
        let leads_there = index.match_indices(&link).any(|(at, found)| {
            let after = &index[at + found.len()..];
            after.starts_with([')', '#'])
        });
        assert!(leads_there, "docs/README.md does not lead to {name}");
    }
}

fn catalog_document() -> String {
    fs::read_to_string(root().join("docs/catalog.md")).unwrap()
}

/// The families of the program, and those of one more file.
fn overlay(text: &str) -> Result<Catalog, String> {
    let mut catalog = Catalog::load_embedded().unwrap();
    let file = FamilyFile { name: "it".to_owned(), text: text.to_owned() };
    catalog.add_files(vec![file]).map_err(|error| format!("{error:#}"))?;
    Ok(catalog)
}

#[test]
fn the_families_of_the_catalog_document_are_read() {
    let text = catalog_document();
    let (fenced, _) = blocks(&text);
    let files: Vec<_> = fenced.iter().filter(|(language, _)| *language == "toml").collect();
    assert!(!files.is_empty());
    for (_, file) in files {
        let catalog = overlay(file).unwrap();
        let family = &catalog.families[0];
        assert!(family.outside.is_some() && !family.metrics.is_empty(), "{}", family.family);
    }
}

/// The keys that are allowed in place of `unknown`, from the reader's error.
fn keys(before: &str) -> BTreeSet<String> {
    let file = format!(
        "family = 'it'\nabout = 'it'\nnames = ['it']\ngroup = 'mem'\n{before}unknown = 1\n"
    );
    let error = overlay(&file).unwrap_err();
    let (_, expected) = error.split_once(", expected ").unwrap_or_else(|| panic!("{error}"));
    let expected = expected.split(", in `").next().unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names in the first cells of the tables below a heading.
fn first_cells(text: &str, heading: &str) -> BTreeSet<String> {
    let below = text.split_once(&format!("\n### {heading}\n")).unwrap().1;
    let section = below.split("\n#").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

#[test]
fn the_catalog_document_has_every_key() {
    let text = catalog_document();
    let cells_below = |heading: &str| first_cells(&text, heading);
    assert_eq!(cells_below("The family"), keys(""));
    for table in [
        "unit",
        "filter",
        "event",
        "budget",
        "source",
        "mask",
        "note",
        "about_event",
        "overlap",
        "link",
        "constant",
        "metric",
    ] {
        assert_eq!(cells_below(&format!("`{table}`")), keys(&format!("[[{table}]]\n")), "{table}");
    }
    for table in ["one_value", "leader", "ports"] {
        assert_eq!(cells_below(&format!("`{table}`")), keys(&format!("[{table}]\n")), "{table}");
    }
    let needs_and_excludes = &keys("[[needs]]\n") | &keys("[[excludes]]\n");
    assert_eq!(cells_below("`needs` and `excludes`"), needs_and_excludes);
}
