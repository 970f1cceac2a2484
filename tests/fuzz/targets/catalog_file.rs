//! Catalog files of users: an error is one line that begins with the file's name, and a refused
//! file does not change the catalog.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::overlay::FamilyFile;

fuzz_target!(|text: &str| {
    let mut catalog = Catalog { families: Vec::new(), outside: Vec::new() };
    let file = FamilyFile { name: "file.toml".to_owned(), text: text.to_owned() };
    if let Err(error) = catalog.add_files(vec![file]) {
        let line = format!("{error:#}");
        assert!(line.starts_with("file.toml"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
});
