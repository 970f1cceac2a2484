//! The sums of every view equal those of the SQL in docs/tables.md, which is an independent
//! implementation.
//!
//! The recording has counters that go and come back, missing readings, windows without a value, and
//! shares without a confidence. For views that sum links or steps of time instead of events, the
//! query runs over rows whose columns were replaced accordingly.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::Place;
use crate::harness::made::{self, Size, UNEVEN};
use crate::harness::{page, python, readers};

/// Event or link, filter or direction, owner, key.
type Line = [String; 4];

/// The columns of the query's result.
const COLUMNS: [&str; 6] =
    ["value", "rate_per_s", "known_s", "peak_per_s", "confidence", "confidence_min"];

type Numbers = [Option<f64>; COLUMNS.len()];

/// Numbers of a view's line, in the order of [`COLUMNS`]; NaN: the view does not have this number.
type Found = BTreeMap<Line, Numbers>;

/// A number that the view does not have.
const UNSAID: Option<f64> = Some(f64::NAN);

/// Owner and name of a line of `--by cgroup`.
const CGROUPS: &str = "coalesce(cgroup, owner) AS cgroup";

/// Sums over all owners.
const NOBODY: &str = "'' AS owner, '' AS cgroup";

/// Rows named by their link and direction. Links whose peak is for both directions also have rows
/// for `both`.
const LINKS: &str =
    "SELECT * EXCLUDE (event, filter, link, direction), link AS event, direction AS filter
    FROM (SELECT f.*, l.link, unnest(CASE WHEN l.peak_direction = 'both' THEN [l.direction, 'both']
                                          ELSE [l.direction] END) AS direction
          FROM 'FABRIC' f JOIN 'LINKS' l USING (counter))";

/// The result of the document's query over `rows`.
fn query_document(run: &Path, rows: &str) -> Found {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tables.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, sql) = document.split_once("<!-- sums -->\n```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    let file = |name: &str| run.join(name).to_str().unwrap().to_owned();
    let sql = sql
        .replace("'run.parquet'", &format!("({rows})"))
        .replace("FABRIC", &file("fabric.parquet"))
        .replace("LINKS", &file("links.parquet"));
    let answer = readers(&python(), &["ask".as_ref(), sql.as_ref()]);
    let line = |line: &Value| {
        let names = [0, 1, 3, 4].map(|place| line[place].as_str().unwrap_or_default().to_owned());
        (names, [5, 6, 7, 8, 9, 10].map(|place| line[place].as_f64()))
    };
    answer.as_array().unwrap().iter().map(line).collect()
}

fn word(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

fn seconds(ns: &Value) -> Option<f64> {
    ns.as_f64().map(|ns| ns / 1e9)
}

fn lines(json: &str) -> impl Iterator<Item = Value> + '_ {
    json.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn reported(json: &str) -> Found {
    let line = |line: Value| {
        let number = |key: &str| line[key].as_f64();
        let numbers = [
            number("value"),
            number("rate_per_s"),
            seconds(&line["known_ns"]),
            number("peak_per_s"),
            number("confidence"),
            number("confidence_min"),
        ];
        ([word(&line, "event"), String::new(), word(&line, "owner"), word(&line, "key")], numbers)
    };
    lines(json).map(line).collect()
}

fn linked(json: &str) -> Found {
    let line = |line: Value| {
        let number = |key: &str| line[key].as_f64();
        let numbers = [
            number("bytes"),
            number("average_per_s"),
            seconds(&line["known_ns"]),
            number("highest_per_s"),
            UNSAID,
            UNSAID,
        ];
        ([word(&line, "link"), word(&line, "direction"), String::new(), String::new()], numbers)
    };
    lines(json).map(line).collect()
}

/// One side of a comparison: the lines of tenants, or those of all tenants together.
fn compared(json: &str, side: &str, of_tenants: bool) -> Found {
    let line = |line: Value| {
        let number = |key: &str| line[side][key].as_f64();
        let numbers =
            [number("total"), number("rate_per_s"), number("seconds"), UNSAID, UNSAID, UNSAID];
        let names = ["link", "direction", "owner", "key"].map(|key| word(&line, key));
        (line["key"].is_string() == of_tenants && line["link"].is_string())
            .then_some((names, numbers))
    };
    lines(json).filter_map(line).collect()
}

/// Each plot of a page with its link and direction.
fn plots(data: &Value) -> impl Iterator<Item = (String, String, &Value)> {
    let plots = data["plots"].as_array().unwrap().iter();
    plots.filter_map(|plot| {
        let link = plot["link"].as_u64()?;
        Some((word(&data["links"][link as usize], "name"), word(plot, "direction"), plot))
    })
}

/// The mean of each step of each plot.
fn means(data: &Value) -> Found {
    let mut found = Found::new();
    for (link, direction, plot) in plots(data) {
        for (step, mean) in page::column_values(&plot["mean"]).into_iter().enumerate() {
            let line = [format!("{link}@{step}"), direction.clone(), String::new(), String::new()];
            let numbers = [UNSAID, mean, UNSAID, UNSAID, UNSAID, UNSAID];
            found.insert(line, numbers);
        }
    }
    found
}

/// The highest window that ends in each step of each plot.
fn highest(data: &Value) -> Found {
    let mut found = Found::new();
    for (link, direction, plot) in plots(data) {
        let means = page::column_values(&plot["mean"]);
        for (step, (most, mean)) in
            page::column_values(&plot["max"]).into_iter().zip(means).enumerate()
        {
            // If a window that ends later covers more of the step, the page has the mean.
            if most > mean {
                let line =
                    [format!("{link}@{step}"), direction.clone(), String::new(), String::new()];
                found.insert(line, [UNSAID, UNSAID, UNSAID, most, UNSAID, UNSAID]);
            }
        }
    }
    found
}

/// The lines of the table of a page.
fn tabled(data: &Value) -> Found {
    let mut found = Found::new();
    for (link, direction, plot) in plots(data) {
        for line in plot["lines"].as_array().unwrap() {
            let number = |key: &str| line[key].as_f64();
            let name = word(line, "name");
            let key = name.strip_prefix('(').and_then(|name| name.strip_suffix(')'));
            let owner = key.unwrap_or("task").to_owned();
            let key = key.map_or_else(|| name.clone(), str::to_owned);
            let numbers = [
                number("value"),
                UNSAID,
                UNSAID,
                number("peak"),
                number("confidence"),
                number("least"),
            ];
            found.insert([link.clone(), direction.clone(), owner, key], numbers);
        }
    }
    found
}

/// Differences between views and the query, one per line.
#[derive(Default)]
struct Differences {
    text: String,
    compared: usize,
}

impl Differences {
    /// `within`: the permitted relative difference of two numbers.
    fn add(&mut self, view: &str, ours: &Found, theirs: &Found, within: f64) {
        assert!(!ours.is_empty(), "{view} says nothing");
        for (line, numbers) in ours {
            let Some(expected) = theirs.get(line) else {
                // A line without known values may be missing from the query's result.
                if numbers.iter().any(|number| number.is_some_and(|number| number > 0.0)) {
                    writeln!(self.text, "{view}: {line:?} is not in SQL: {numbers:?}").unwrap();
                }
                continue;
            };
            self.line(view, line, numbers, expected, within);
        }
    }

    fn line(&mut self, view: &str, line: &Line, ours: &Numbers, theirs: &Numbers, within: f64) {
        for ((column, ours), theirs) in COLUMNS.iter().zip(ours).zip(theirs) {
            if ours.is_some_and(f64::is_nan) {
                continue;
            }
            self.compared += 1;
            let is_same = match (ours, theirs) {
                (Some(ours), Some(theirs)) => (ours - theirs).abs() <= within * theirs.abs() + 1e-9,
                (ours, theirs) => ours.is_none() == theirs.is_none(),
            };
            if !is_same {
                writeln!(self.text, "{view}: {line:?} {column}: {ours:?}, SQL: {theirs:?}")
                    .unwrap();
            }
        }
    }

    /// Also checks that the view has all lines of the query.
    fn all(&mut self, view: &str, ours: &Found, theirs: &Found, within: f64) {
        self.add(view, ours, theirs, within);
        for (line, numbers) in theirs {
            if !ours.contains_key(line) && numbers[0].is_some_and(|value| value > 0.0) {
                writeln!(self.text, "{view}: no line {line:?}").unwrap();
            }
        }
    }

    fn none(self, at_least: usize) {
        assert!(self.text.is_empty(), "\n{}", self.text);
        assert!(self.compared >= at_least, "only {} numbers were compared", self.compared);
    }
}

/// `rows` with other columns for the owner.
fn with_owner(rows: &str, owner_columns: &str) -> String {
    format!("SELECT * REPLACE ({owner_columns}) FROM ({rows})")
}

const FABRIC: &str = "FROM 'FABRIC'";

#[test]
fn report_has_the_sums_of_the_documented_sql() {
    let place = Place::new();
    let run = place.path("run");
    made::write(&run, UNEVEN);
    let mut differences = Differences::default();
    for (way, owner_columns) in [
        ("cgroup", CGROUPS),
        ("pid", "coalesce(comm || ' (' || pid || ')', comm, owner) AS cgroup"),
        ("comm", "coalesce(comm, owner) AS cgroup"),
        ("device", "CASE owner WHEN 'device' THEN coalesce(comm, owner) ELSE owner END AS cgroup"),
        ("owner", "owner AS cgroup"),
        ("pmu", "'' AS owner, pmu AS cgroup"),
    ] {
        let ours = reported(&place.run(["report", "run", "--json", "--by", way]).ok());
        differences.all(
            way,
            &ours,
            &query_document(&run, &with_owner(FABRIC, owner_columns)),
            1e-6,
        );
    }
    // Each link has its own known time.
    let ours = linked(&place.run(["report", "run", "--links", "--json"]).ok());
    let known_ns: Vec<f64> = ours.values().filter_map(|numbers| numbers[2]).collect();
    let most = known_ns.iter().copied().fold(0.0, f64::max);
    assert!(known_ns.iter().filter(|known| **known < 0.97 * most).count() >= 4, "{known_ns:?}");
    differences.all("links", &ours, &query_document(&run, &with_owner(LINKS, NOBODY)), 1e-6);
    differences.none(1000);
}

#[test]
fn a_roll_up_has_the_sums_of_its_windows_and_of_all_of_them() {
    let place = Place::new();
    let run = place.path("run");
    made::write(&run, UNEVEN);
    place.run(["rollup", "run", "-o", "rolled", "-w", "3s"]).ok();
    let mut differences = Differences::default();
    // The rows of a roll-up contain the links of a counter, its files do not.
    let ours = linked(&place.run(["report", "rolled", "--links", "--json"]).ok());
    let mut theirs = query_document(&run, &with_owner(LINKS, NOBODY));
    for numbers in theirs.values_mut() {
        numbers[3] = UNSAID;
    }
    let longer: Found = ours
        .into_iter()
        .map(|(line, mut numbers)| {
            // The highest rate of longer windows is a different number.
            numbers[3] = UNSAID;
            (line, numbers)
        })
        .collect();
    differences.all("links of the roll-up", &longer, &theirs, 1e-6);

    let file = first_file(&place.path("rolled"));
    let sql = format!(
        "SELECT event || '@' || mono_ns // 3000000000, pmu, '', owner, coalesce(cgroup, owner), sum(value),
                sum(value) / any_value(known_ns) * 1e9, any_value(known_ns) / 1e9, NULL,
                sum(confidence * value) / sum(value) FILTER (WHERE confidence IS NOT NULL), NULL
         FROM '{}' GROUP BY ALL",
        file.to_str().unwrap()
    );
    let rows = readers(&python(), &["ask".as_ref(), sql.as_ref()]);
    let row = |row: &Value| {
        let names = [0, 1, 3, 4].map(|place| row[place].as_str().unwrap_or_default().to_owned());
        let number = |place: usize| row[place].as_f64();
        (names, [number(5), number(6), number(7), UNSAID, number(9), UNSAID])
    };
    let ours: Found = rows.as_array().unwrap().iter().map(row).collect();
    let windows = "SELECT * REPLACE (event || '@' || (mono_ns + 2999999999) // 3000000000 AS event,
                                    pmu AS filter, coalesce(cgroup, owner) AS cgroup) FROM 'FABRIC'";
    // Confidences are rounded to hundredths.
    let theirs = query_document(&run, windows);
    let exact = |found_lines: &Found| -> Found {
        found_lines
            .iter()
            .map(|(line, n)| (line.clone(), [n[0], n[1], n[2], UNSAID, UNSAID, UNSAID]))
            .collect()
    };
    let rounded = |found_lines: &Found| -> Found {
        let round = |n: Option<f64>| n.map(|n| (n * 100.0 + 1e-6).round());
        found_lines
            .iter()
            .map(|(line, n)| (line.clone(), [UNSAID, UNSAID, UNSAID, UNSAID, round(n[4]), UNSAID]))
            .collect()
    };
    differences.all("windows of the roll-up", &exact(&ours), &theirs, 1e-6);
    differences.add("confidence of the roll-up", &rounded(&ours), &rounded(&theirs), 0.02);
    differences.none(1000);
}

/// The first Parquet file below a directory.
fn first_file(dir: &Path) -> std::path::PathBuf {
    let mut entries: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let parquet_file = entries
        .iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    parquet_file
        .cloned()
        .unwrap_or_else(|| first_file(entries.iter().find(|path| path.is_dir()).unwrap()))
}

#[test]
fn a_page_has_the_sums_of_its_steps() {
    let place = Place::new();
    let run = place.path("run");
    made::write(&run, Size { windows: 4500, links: 2, small: 3, ..UNEVEN });
    place.run(["report", "run", "--html", "run.html"]).ok();
    let data = page::page_data(&fs::read_to_string(place.path("run.html")).unwrap());
    let bucket_ns = (data["time"]["bucket"].as_f64().unwrap() * 1e9).round() as i64;
    assert!(bucket_ns > UNEVEN.window_ns, "{bucket_ns}");
    let mut differences = Differences::default();
    // Numbers are rounded to four digits.
    let within = 1e-3;
    let begin = made::BEGIN;
    let steps = format!(
        "SELECT * EXCLUDE (step) REPLACE (
             event || '@' || step AS event, {NOBODY},
             least(mono_ns, {begin} + (step + 1) * {bucket_ns}) AS mono_ns,
             least(mono_ns, {begin} + (step + 1) * {bucket_ns})
                 - greatest(mono_ns - window_ns, {begin} + step * {bucket_ns}) AS window_ns,
             value * (least(mono_ns, {begin} + (step + 1) * {bucket_ns})
                 - greatest(mono_ns - window_ns, {begin} + step * {bucket_ns})) / window_ns AS value)
         FROM (SELECT *, unnest(range((mono_ns - window_ns - {begin}) // {bucket_ns},
                                      (mono_ns - 1 - {begin}) // {bucket_ns} + 1)) AS step
               FROM ({LINKS}))"
    );
    differences.add("steps of the page", &means(&data), &query_document(&run, &steps), within);
    let ends = format!(
        "SELECT * REPLACE (event || '@' || (mono_ns - 1 - {begin}) // {bucket_ns} AS event, {NOBODY})
         FROM ({LINKS})"
    );
    differences.add("highest of the page", &highest(&data), &query_document(&run, &ends), within);
    differences.add(
        "table of the page",
        &tabled(&data),
        &query_document(&run, &with_owner(LINKS, CGROUPS)),
        within,
    );
    differences.none(5000);
}

#[test]
fn a_comparison_has_the_sums_of_both_sides() {
    let place = Place::new();
    let (before, after) = (place.path("before"), place.path("after"));
    made::write(&before, UNEVEN);
    made::write(&after, Size { windows: 700, ..UNEVEN });
    let json = place.run(["diff", "before", "after", "--json"]).ok();
    let mut differences = Differences::default();
    for (side, run) in [("before", &before), ("after", &after)] {
        let all = query_document(run, &with_owner(LINKS, NOBODY));
        differences.add(side, &compared(&json, side, false), &all, 1e-6);
        let each = query_document(run, &with_owner(LINKS, CGROUPS));
        differences.add(side, &compared(&json, side, true), &each, 1e-6);
    }
    differences.none(200);
}
