//! `docs/tables.md` is made from the tables: everything below its marker.

use std::{env, fmt::Write as _, fs, path::Path};

use arrow::datatypes::DataType;

use super::{ALL, TableDef};

/// What stands above it is written by hand.
const MARKER: &str =
    "<!-- Made by `UPDATE_DOCS=1 cargo test -p uncore-trace --lib document`. -->\n";

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(..) | DataType::Utf8 => "string".to_owned(),
        DataType::Timestamp(unit, zone) => {
            format!("timestamp, {unit:?}, {}", zone.as_deref().unwrap_or("no zone")).to_lowercase()
        }
        other => other.to_string().to_lowercase(),
    }
}

fn section(table: &TableDef) -> String {
    let mut doc = table.doc.chars();
    let first = doc.next().unwrap().to_uppercase();
    let mut text = format!("\n## `{}`\n\n{first}{}.", table.name, doc.as_str());
    if !table.sort.is_empty() {
        let columns: Vec<_> = table.sort.iter().map(|column| format!("`{column}`")).collect();
        write!(text, " Sorted by {} within each row group.", columns.join(", ")).unwrap();
    }
    text.push_str("\n\n| column | type | null | meaning |\n|---|---|---|---|\n");
    let schema = (table.schema)();
    assert_eq!(schema.fields().len(), table.column_docs.len());
    for (field, (name, doc)) in schema.fields().iter().zip(table.column_docs) {
        assert_eq!(field.name(), name);
        let null = if field.is_nullable() { "yes" } else { "" };
        let doc = doc.replace('|', "\\|");
        let data_type = type_name(field.data_type());
        writeln!(text, "| `{name}` | {data_type} | {null} | {doc} |").unwrap();
    }
    text
}

#[test]
fn the_document_has_every_column() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tables.md");
    let text = fs::read_to_string(&path).unwrap();
    let (by_hand, made) = text.split_once(MARKER).expect("docs/tables.md has no marker");
    // `fabric` first: it is what most readers want.
    let sections: String = ALL.iter().rev().map(|table| section(table)).collect();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{by_hand}{MARKER}{sections}")).unwrap();
        return;
    }
    assert!(
        made == sections,
        "docs/tables.md is stale: run UPDATE_DOCS=1 cargo test -p uncore-trace --lib document"
    );
}
