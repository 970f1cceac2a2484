//! The sums of views equal those of the SQL in docs/tables.md, which is an independent
//! implementation.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{made, python, readers, run_ok};

/// Value, rate, known seconds and confidence, by event, owner and key.
type Sums = BTreeMap<(String, String, String), [Option<f64>; 4]>;

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn reported(recording: &Path) -> Sums {
    let text = run_ok(["report".as_ref(), recording.as_os_str(), "--json".as_ref()]);
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let key = ["event", "owner", "key"].map(|key| string(&line[key])).into();
        let known_s = line["known_ns"].as_f64().map(|ns| ns / 1e9);
        let number = |key: &str| line[key].as_f64();
        (key, [number("value"), number("rate_per_s"), known_s, number("confidence")])
    };
    text.lines().map(line).collect()
}

fn asked(recording: &Path) -> Sums {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tables.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, sql) = document.split_once("<!-- sums -->\n```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    let sql = sql.replace("run.parquet", recording.join("fabric.parquet").to_str().unwrap());
    let answer = readers(&python(), &["ask".as_ref(), sql.as_ref()]);
    let line = |line: &Value| {
        let event = match (string(&line[0]), string(&line[1])) {
            (event, filter) if filter.is_empty() => event,
            (event, filter) => format!("{event}[{filter}]"),
        };
        let owner = string(&line[3]);
        let key = line[4].as_str().map_or_else(|| owner.clone(), str::to_owned);
        ((event, owner, key), [5, 6, 7, 8].map(|place| line[place].as_f64()))
    };
    answer.as_array().unwrap().iter().map(line).collect()
}

#[test]
fn report_says_what_the_sql_of_the_document_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    made::write(&path, made::USUAL);
    let (ours, theirs) = (reported(&path), asked(&path));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    // One counter is unknown for a part of the time.
    let known_s: Vec<f64> = ours.values().filter_map(|line| line[2]).collect();
    let most = known_s.iter().copied().fold(0.0, f64::max);
    assert!(known_s.iter().any(|known_s| *known_s < 0.999 * most), "{known_s:?}");
    for (key, ours) in &ours {
        for (one, other) in ours.iter().zip(theirs[key]) {
            let off = one
                .zip(other)
                .map_or(0.0, |(one, other)| (one - other).abs() / (1e-12 + other.abs()));
            assert!(one.is_some() == other.is_some() && off < 1e-6, "{key:?}: {one:?} {other:?}");
        }
    }
}
