//! The modules of the libraries import in one direction: each `lib.rs` declares its modules in
//! groups, and each module imports only those of the groups before its own.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Modules that a view may import: it reads only tables.
const OF_VIEWS: [&str; 8] =
    ["schema", "tables", "terminal", "text", "table", "units", "clock", "view"];

/// The sources of the libraries, of which each imports only those before it.
fn library_sources() -> [PathBuf; 2] {
    ["../uncore-trace-recording/src", "src"]
        .map(|source| Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
}

/// The path of a file or folder, below the sources of the library that has it.
fn source_path(name: &str) -> PathBuf {
    let mut paths = library_sources().map(|source| source.join(name)).into_iter();
    paths.find(|path| path.exists()).unwrap_or_else(|| panic!("there is no {name}"))
}

/// The group of each module, in the order of their declarations.
fn groups() -> io::Result<BTreeMap<String, usize>> {
    let mut groups = BTreeMap::new();
    let mut group = 0;
    for source in library_sources() {
        group += 1;
        for line in fs::read_to_string(source.join("lib.rs"))?.lines() {
            let declared = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "));
            match declared.and_then(|name| name.strip_suffix(';')) {
                Some(name) => drop(groups.insert(name.to_owned(), group)),
                None if line.is_empty() => group += 1,
                None => {}
            }
        }
    }
    Ok(groups)
}

/// All source files below a directory, without those that are tests.
fn files(dir: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests" || stem == "sample");
        if path.is_dir() && !is_test {
            files(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            paths.push(path);
        }
    }
    Ok(())
}

/// The lines of a file outside of comments and tests.
fn run_time_lines(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The modules that a file names outside of comments and tests.
fn imports(text: &str) -> Vec<String> {
    let lines = run_time_lines(text);
    let name = |import: &str| {
        let end = import.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        import[..end.unwrap_or(import.len())].to_owned()
    };
    let mut modules = Vec::new();
    for line in lines {
        for (at, path) in line.match_indices("crate::") {
            let after_crate = &line[at + path.len()..];
            match after_crate.strip_prefix('{').and_then(|list| list.split_once('}')) {
                Some((several, _)) => modules.extend(several.split(", ").map(name)),
                None => modules.push(name(after_crate)),
            }
        }
    }
    modules
}

#[test]
fn each_module_imports_only_what_is_declared_before_it() {
    let groups = groups().unwrap();
    assert!(groups.len() > 20, "{groups:?}");
    let mut paths = Vec::new();
    for source in library_sources() {
        files(&source, &mut paths).unwrap();
    }
    let mut backward = Vec::new();
    for path in paths {
        let below_source = |source: &PathBuf| path.strip_prefix(source).ok();
        let sources = library_sources();
        let relative = sources.iter().find_map(below_source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        let Some(own) = groups.get(module) else {
            assert!(["lib", "main"].contains(&module), "{module} is not declared in lib.rs");
            continue;
        };
        for import in imports(&fs::read_to_string(&path).unwrap()) {
            let is_later = groups.get(&import).is_none_or(|group| group >= own);
            let is_foreign = module == "view" && !OF_VIEWS.contains(&import.as_str());
            if import != module && (is_later || is_foreign) {
                backward.push(format!("{} imports {import}", relative.display()));
            }
        }
    }
    assert!(backward.is_empty(), "{}", backward.join("\n"));
}

/// The path of a module below a folder of modules: empty for the folder itself.
type ModulePath = Vec<String>;

/// The modules of a folder, and which of them each imports. A module also imports those that it
/// declares.
fn imports_within(folder: &str) -> io::Result<BTreeMap<ModulePath, BTreeSet<ModulePath>>> {
    let root = source_path(folder);
    let mut paths = Vec::new();
    files(&root, &mut paths)?;
    let module_of = |path: &PathBuf| {
        let relative = path.strip_prefix(&root).unwrap_or(path).with_extension("");
        let names = relative.iter().map(|name| name.to_string_lossy().into_owned());
        names.filter(|name| name != "mod").collect::<ModulePath>()
    };
    let modules: BTreeSet<ModulePath> = paths.iter().map(module_of).collect();
    let imports_of_file = |path: &PathBuf| {
        let module = module_of(path);
        let text = fs::read_to_string(path)?;
        let code = run_time_lines(&text).collect::<Vec<_>>().join(" ");
        let mut imported = imported_paths(&module, &code, folder, &modules);
        let parent = module.len();
        imported.extend(
            modules
                .iter()
                .filter(|child| child.len() == parent + 1 && child.starts_with(&module))
                .cloned(),
        );
        imported.remove(&module);
        Ok((module, imported))
    };
    paths.iter().map(imports_of_file).collect()
}

/// The modules that code of a module names by a path that begins with `super`, `self` or the
/// folder.
fn imported_paths(
    module: &[String],
    code: &str,
    folder: &str,
    modules: &BTreeSet<ModulePath>,
) -> BTreeSet<ModulePath> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let parent = module.split_last().map_or(&[][..], |(_, parent)| parent);
    let mut imported = BTreeSet::new();
    for (begin, start) in
        [("super::", parent), ("self::", module), (&format!("crate::{folder}::"), &[])]
    {
        for (position, _) in code.match_indices(begin) {
            // Within a path, whose begin is found by itself, or a visibility.
            let before = &code[..position];
            if before.ends_with(|c| is_name(c) || c == ':') || before.ends_with("pub(in ") {
                continue;
            }
            let mut target = start.to_vec();
            let mut remaining = &code[position + begin.len()..];
            loop {
                let (name, after) =
                    remaining.split_at(remaining.find(|c| !is_name(c)).unwrap_or(remaining.len()));
                let child = [&target[..], &[name.to_owned()]].concat();
                if name == "super" {
                    target.pop();
                } else if modules.contains(&child) {
                    target = child;
                } else {
                    break;
                }
                let Some(next) = after.strip_prefix("::") else { break };
                remaining = next;
            }
            let listed = remaining.strip_prefix('{').and_then(|list| list.split_once('}'));
            let names = listed.map_or("self", |(list, _)| list).split(',').map(str::trim);
            for name in names.filter(|name| !name.is_empty()) {
                let child = [&target[..], &[name.to_owned()]].concat();
                imported.insert(if modules.contains(&child) { child } else { target.clone() });
            }
        }
    }
    imported
}

/// A file that imports another in a circle cannot be read, tested or moved without that one. What
/// two files need stands in a third, below both.
#[test]
fn no_files_of_attribute_import_each_other_in_a_circle() {
    let mut imports = imports_within("attribute").unwrap();
    assert!(imports.len() > 40, "{}", imports.len());
    let learner = &imports[&vec!["learner".to_owned()]];
    assert!(learner.contains(&vec!["history".to_owned()]), "imports are not found: {learner:?}");
    // What imports nothing that is left, or is imported by nothing that is left, is in no circle.
    loop {
        let left: BTreeSet<ModulePath> = imports.keys().cloned().collect();
        let imported: BTreeSet<ModulePath> = imports.values().flatten().cloned().collect();
        imports.retain(|module, of_module| {
            of_module.retain(|target| left.contains(target));
            !of_module.is_empty() && imported.contains(module)
        });
        if imports.len() == left.len() {
            break;
        }
    }
    let circles = imports.iter().map(|(module, of_module)| {
        let targets: Vec<String> = of_module.iter().map(|target| target.join("::")).collect();
        format!("attribute::{} imports {}", module.join("::"), targets.join(", "))
    });
    assert!(imports.is_empty(), "{}", circles.collect::<Vec<_>>().join("\n"));
}

/// The groups of the modules of `tables`, and those from which each may import.
const OF_TABLES: [(&str, &[&str]); 4] = [
    ("Shared", &["Shared"]),
    ("Reading", &["Shared", "Reading"]),
    ("Writing", &["Shared", "Writing"]),
    ("Maintenance", &["Shared", "Reading", "Writing", "Maintenance"]),
];

/// The group of each module of `tables`, by the comment above the declarations.
fn groups_of_tables() -> io::Result<BTreeMap<String, String>> {
    let mut groups = BTreeMap::new();
    let mut group = "";
    let text = fs::read_to_string(source_path("tables/mod.rs"))?;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("// ") {
            group = heading.trim_end_matches('.');
        }
        let declared = line.trim_start_matches("pub ").strip_prefix("mod ");
        if let Some(module) = declared.and_then(|name| name.strip_suffix(';')) {
            groups.insert(module.to_owned(), group.to_owned());
        }
    }
    Ok(groups)
}

/// A program that only reads recordings needs no code that writes them.
#[test]
fn readers_of_tables_import_no_writers_and_writers_no_readers() {
    let groups = groups_of_tables().unwrap();
    for (group, _) in OF_TABLES {
        assert!(groups.values().filter(|of_module| *of_module == group).count() > 2, "{group}");
    }
    let mut wrong = Vec::new();
    for (module, imported) in imports_within("tables").unwrap() {
        let Some(own) = module.first() else { continue };
        let group = &groups[own];
        let allowed = OF_TABLES.iter().find(|(name, _)| name == group).unwrap().1;
        for target in imported.iter().filter_map(|target| target.first()) {
            if !allowed.contains(&groups[target].as_str()) {
                wrong.push(format!(
                    "{} ({group}) imports {target} ({})",
                    module.join("::"),
                    groups[target]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// rustfmt has this rule too (`imports_granularity = "Module"`), but not on stable.
#[test]
fn each_import_list_is_of_one_module() {
    let mut paths = Vec::new();
    for source in library_sources() {
        files(&source, &mut paths).unwrap();
    }
    for dir in
        ["../tests", "../xtask/src", "../uncore-trace-upload/src", "../uncore-trace-common/src"]
    {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut paths).unwrap();
    }
    assert!(paths.len() > 200, "{}", paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            // A line of a text may begin with the word too.
            let is_import =
                words.next() == Some("use") && words.next().is_some_and(|path| path.contains("::"));
            if !is_import {
                continue;
            }
            let following = lines[number..].join("\n");
            let statement = following.split(';').next().unwrap_or_default();
            let list = statement.split_once('{').map(|(_, list)| list);
            if list.is_some_and(|list| list.contains("::") || list.contains('{')) {
                wrong.push(format!("{}: {statement}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "one line for each module:\n{}", wrong.join("\n"));
}

/// A test that sleeps until something has probably happened fails on a busy machine, and wastes
/// time on others: `tests/wait.rs` waits for events, and names the reasons for which time passes.
#[test]
fn tests_wait_for_events_and_do_not_sleep() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut integration_tests = Vec::new();
    files(&workspace.join("tests"), &mut integration_tests).unwrap();
    integration_tests.retain(|path| !path.ends_with("tests/wait.rs"));
    assert!(integration_tests.len() > 100, "{}", integration_tests.len());
    let mut sources = Vec::new();
    for dir in ["uncore-trace/src", "uncore-trace-upload/src", "xtask/src"] {
        files(&workspace.join(dir), &mut sources).unwrap();
    }
    let sleeps = |code: &str| {
        let mut imports = code.lines().filter(|line| line.starts_with("use std::thread"));
        imports.any(|line| line.contains("sleep")) || code.contains(concat!("thread::", "sleep("))
    };
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let mut wrong = integration_tests;
    wrong.retain(|path| sleeps(&read(path)));
    wrong.extend(sources.into_iter().filter(|path| {
        read(path).split_once("\nmod tests {").is_some_and(|(_, unit_tests)| sleeps(unit_tests))
    }));
    assert!(wrong.is_empty(), "use tests/wait.rs: {wrong:?}");
}

/// Modules that read files which others write: of a machine, which may be a tree below `--root`, or
/// in `/run`.
const OF_THE_MACHINE: [&str; 13] = [
    "discover", "catalog", "plan", "open", "identity", "assemble", "doctor", "record", "stat",
    "agent", "confine", "config", "cmd",
];

/// Opening a FIFO to read it waits for ever, and a file may have any size. Directories and links
/// have no such content, and a loop of links is an error.
#[test]
fn files_of_the_machine_are_read_within_bounds() {
    let mut paths = Vec::new();
    for stage in OF_THE_MACHINE {
        files(&source_path(stage), &mut paths).unwrap();
    }
    let is_for_tests = |path: &PathBuf| {
        ["fake.rs", "document.rs", "manual.rs"].iter().any(|name| path.ends_with(name))
    };
    let mut around = Vec::new();
    for path in paths.into_iter().filter(|path| !is_for_tests(path)) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let readers = ["fs::read(", "fs::read_to_string(", "File::open("];
            // A directory is opened to lock it.
            let reads = readers.iter().any(|reader| line.contains(reader));
            if reads && !line.contains("File::open(dir)") {
                around.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(around.is_empty(), "use bounds.rs: {around:#?}");
}

/// The coordinators of a recording: a feature is a file of its own and one line in a list.
const HUBS: [&str; 3] = ["record/recorder.rs", "assemble/mod.rs", "attribute/attributor.rs"];

#[test]
fn hubs_do_not_grow_with_features() {
    for hub in HUBS {
        let lines = fs::read_to_string(source_path(hub)).unwrap().lines().count();
        assert!(lines <= 350, "{hub} has {lines} lines: CONTRIBUTING.md says how to add a feature");
    }
}

/// The upload has a network and no privileges: code that could use BPF must not be in it.
#[test]
fn a_program_that_reads_recordings_links_no_bpf() {
    let dependencies = |package: &str| -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = fs::read_to_string(root.join(package).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        manifest["dependencies"].as_table().unwrap().keys().cloned().collect()
    };
    let own = |names: &BTreeSet<String>| -> Vec<String> {
        names.iter().filter(|name| name.starts_with("uncore-trace")).cloned().collect()
    };
    assert_eq!(own(&dependencies("uncore-trace-upload")), ["uncore-trace-recording"]);
    let recording = dependencies("uncore-trace-recording");
    assert!(own(&recording).is_empty(), "{recording:?}");
    assert!(!recording.iter().any(|name| name.starts_with("aya")), "{recording:?}");
}
