//! README.md says what the code does: its lists of columns and tables are those of the registry.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;

use uncore_trace::schema::{ALL, fabric};

/// The names in the first cells of the table below `heading`, and of the words in between commas.
fn first_cells(readme: &str, heading: &str) -> Vec<String> {
    let below = readme.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let section = below.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split(", "));
    names.map(|name| name.trim_matches('`').to_owned()).collect()
}

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

#[test]
fn it_lists_the_columns_of_the_timeline_in_their_order() {
    let schema = (fabric::TABLE.schema)();
    let columns: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(first_cells(&readme(), "The timeline"), columns);
}

#[test]
fn it_lists_the_raw_tables() {
    let mut listed = first_cells(&readme(), "The raw tables");
    let mut tables: Vec<_> = ALL.iter().map(|table| table.name.to_owned()).collect();
    tables.retain(|name| name != fabric::TABLE.name);
    listed.sort();
    tables.sort();
    assert_eq!(listed, tables);
}
