//! The modules of the library import in one direction: `src/lib.rs` declares them in groups, and
//! each imports only modules of the groups before its own.

mod names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Modules that a view may import: it reads only tables.
const OF_VIEWS: [&str; 8] =
    ["schema", "tables", "terminal", "text", "table", "units", "clock", "view"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The group of each module, in the order of their declarations.
fn groups() -> io::Result<BTreeMap<String, usize>> {
    let mut groups = BTreeMap::new();
    let mut group = 0;
    for line in fs::read_to_string(source().join("lib.rs"))?.lines() {
        let declared = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "));
        match declared.and_then(|name| name.strip_suffix(';')) {
            Some(name) => drop(groups.insert(name.to_owned(), group)),
            None if line.is_empty() => group += 1,
            None => {}
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

/// The modules that a file names outside of comments and tests.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
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
    files(&source(), &mut paths).unwrap();
    let mut backward = Vec::new();
    for path in paths {
        let relative = path.strip_prefix(source()).unwrap();
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

/// rustfmt has this rule too (`imports_granularity = "Module"`), but not on stable.
#[test]
fn each_import_list_is_of_one_module() {
    let mut paths = Vec::new();
    for dir in ["src", "../tests", "../xtask/src", "../uncore-trace-common/src"] {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut paths).unwrap();
    }
    assert!(paths.len() > 200, "{}", paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            if words.next() != Some("use") {
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

/// Modules that read files which others write: of a machine, which may be a tree below `--root`, or
/// in `/run`.
const OF_THE_MACHINE: [&str; 12] = [
    "discover", "catalog", "plan", "open", "identity", "assemble", "doctor", "record", "stat",
    "agent", "confine", "cmd",
];

/// Opening a FIFO to read it waits for ever, and a file may have any size. Directories and links
/// have no such content, and a loop of links is an error.
#[test]
fn files_of_the_machine_are_read_within_bounds() {
    let mut paths = Vec::new();
    for stage in OF_THE_MACHINE {
        files(&source().join(stage), &mut paths).unwrap();
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
