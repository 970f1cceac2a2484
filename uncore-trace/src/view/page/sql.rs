//! SQL queries in a page; they run unchanged in `DuckDB` on this recording.

use serde::Serialize;

use crate::schema::{fabric, links};
use crate::tables::reader::Recording;
use crate::text::printable;

/// A query and the question that it answers.
#[derive(Debug, Serialize)]
pub(super) struct Query {
    pub question: String,
    pub sql: String,
}

/// The queries for a recording at `path`, as typed; `event` is one that it has.
pub(super) fn build_queries(recording: &Recording, path: &str, event: Option<&str>) -> Vec<Query> {
    let table = |name: &str| {
        let file = if recording.is_dataset() {
            format!("{}/{name}.parquet", path.trim_end_matches('/'))
        } else {
            path.to_owned()
        };
        format!("'{}'", sql_string(&file))
    };
    let fabric = table(fabric::TABLE.name);
    let mut queries = Vec::new();
    let mut add_query = |question: &str, sql: String| {
        queries.push(Query { question: question.to_owned(), sql });
    };
    add_query(
        "Who had how much of each event, and how sure is it?",
        format!(
            "SELECT event, unit, owner, cgroup, sum(value) AS value,\n\x20      sum(confidence * \
             value) / sum(value) FILTER (WHERE confidence IS NOT NULL) AS confidence\nFROM \
             {fabric}\nWHERE value > 0\nGROUP BY ALL ORDER BY event, value DESC;"
        ),
    );
    if recording.has_table(&links::TABLE) {
        add_query(
            "Who moved how much over each link?",
            format!(
                "SELECT link, direction, owner, cgroup, sum(value) / 1e9 AS gb\nFROM {fabric} \
                 JOIN (SELECT DISTINCT host, boot_id, counter, link, direction\n\x20   FROM {}) \
                 USING (host, boot_id, counter)\nWHERE value > 0\nGROUP BY ALL ORDER BY link, \
                 direction, gb DESC;",
                table(links::TABLE.name)
            ),
        );
    }
    if let Some(event) = event {
        add_query(
            "In which windows was most counted, and who had it?",
            format!(
                "SELECT ts, cgroup, pid, comm, sum(value) * 1e9 / max(window_ns) AS \
                 per_second\nFROM {fabric}\nWHERE event = '{}' AND owner = 'task'\nGROUP BY ALL \
                 ORDER BY per_second DESC NULLS LAST LIMIT 20;",
                sql_string(event)
            ),
        );
    }
    queries
}

/// The content of an SQL string, escaped for display; a path with escapes makes the query fail, and
/// nothing else.
fn sql_string(text: &str) -> String {
    printable(text).replace('\'', "''")
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{INTACT, SampleRecording};
    use super::*;

    #[test]
    fn names_are_quoted_and_tables_are_those_there_are() {
        let file = SampleRecording::new(false, &INTACT).open();
        let of_file = build_queries(&file, "it's.parquet", Some("o'event"));
        assert_eq!(of_file.len(), 2);
        assert!(of_file.iter().all(|it| it.sql.contains("'it''s.parquet'")), "{of_file:?}");
        assert!(of_file[1].sql.contains("event = 'o''event'"), "{of_file:?}");
        let dataset = SampleRecording::new(true, &INTACT);
        let of_dataset = build_queries(&dataset.open(), "run/", None);
        assert!(of_dataset[0].sql.contains("'run/fabric.parquet'"), "{of_dataset:?}");
    }
}
