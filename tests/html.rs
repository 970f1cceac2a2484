//! `report --html` in a real browser: its drawings and texts, its controls, and that recorded text
//! is inert.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::command::Place;
use crate::harness::browser::Browser;
use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::made::{self, USUAL};
use crate::harness::page::{
    COLOURS, column_sum, eval_number, eval_text, open_page, page_data, plot_middle, save_picture,
    scroll_to_plots,
};
use crate::harness::recorder::Recorder;
use crate::harness::{need, or_skip, python, root_or_skip, run_ok, text};
use crate::pages::compared;
use crate::wait::run_for;

/// A hostile name of a cgroup, without a slash; of a process name only the first 15 bytes are kept.
const HOSTILE: &str = "<img src=x onerror=alert(1)><b>&lt;\u{202e}\u{2028}\u{1b}[2J";

#[test]
fn a_busy_machine_with_hostile_names_is_a_page_of_text() {
    let _machine = root_or_skip!();
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let shell = dir.path().join("<b onclick=x>");
    symlink("/bin/sh", &shell).unwrap();
    let cgroups: [Cgroup; 2] = [or_skip!(Cgroup::new(HOSTILE)), or_skip!(Cgroup::new("plain"))];
    let script = "while :; do /bin/true; i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done; done";
    let loads: Vec<Load> = cgroups
        .iter()
        .map(|cgroup| {
            let load = Load::start(&shell, &["-c", script]);
            cgroup.add_process(load.pid());
            load
        })
        .collect();
    let recording = dir.path().join("run");
    let recorder = Recorder::start(&dir.path().join("run/"), &["-p", "host"]);
    run_for(Duration::from_secs(2));
    recorder.stop();
    drop(loads);
    let mut browser = Browser::start(1280, 800);
    for (by, hostile) in
        [("cgroup", "<img src=x onerror=alert(1)><b>&lt;"), ("pid", "<b onclick=x>")]
    {
        let page = open_page(&mut browser, &recording, &["--by", by, "--top", "1000"]);
        let data = page_data(&page);
        // The numbers of elements are those of the page, whatever was recorded.
        for (selector, expected) in [("img", 0.0), ("script", 2.0), ("b", 1.0), ("[onclick]", 0.0)]
        {
            let count = format!("document.querySelectorAll(\"{selector}\").length");
            assert!((eval_number(&mut browser, &count) - expected).abs() < 0.5, "{selector}");
        }
        browser.eval("document.getElementById('more').click()");
        let names = eval_text(&mut browser, "document.getElementById('lines').textContent");
        assert!(names.contains(hostile), "{names}");
        assert!(!names.contains(['\u{202e}', '\u{2028}', '\u{1b}']), "{names:?}");
        assert_same_sums(&data, &recording, by);
        assert!(eval_number(&mut browser, COLOURS) > 20.0);
        save_picture(&mut browser, &format!("host-{by}"));
        assert_eq!(browser.complaints(), Vec::<String>::new());
        compared(&mut browser, &recording, by, hostile);
    }
}

/// The lines and the areas of each event sum to the values of `report --json`.
fn assert_same_sums(data: &Value, recording: &Path, by: &str) {
    let json = run_ok(["report", recording.to_str().unwrap(), "--by", by, "--json"]);
    let mut totals: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (total, unknown) =
            totals.entry(line["event"].as_str().unwrap().to_owned()).or_default();
        *total += line["value"].as_f64().unwrap_or(0.0);
        let number = |key: &str| line[key].as_f64().unwrap();
        let known_fraction = number("known_ns") / (number("end_ns") - number("begin_ns"));
        *unknown = f64::max(*unknown, 1.0 - known_fraction);
    }
    let plots = data["plots"].as_array().unwrap();
    assert_eq!(plots.len(), totals.len());
    let bucket = data["time"]["bucket"].as_f64().unwrap();
    for plot in plots {
        let (total, unknown) = totals[plot["name"].as_str().unwrap()];
        let lines = plot["lines"].as_array().unwrap().iter();
        let lines: f64 = lines.filter_map(|line| line["value"].as_f64()).sum();
        let areas = plot["areas"].as_array().unwrap();
        let area: f64 = areas.iter().map(|area| column_sum(&area["value"])).sum();
        // The last bucket may be incomplete: its mean is not over its whole length.
        let last = areas.iter().filter_map(|area| area["value"].as_array()?.last()?.as_f64());
        let last = last.sum::<f64>() * bucket;
        // A mean is that of the known time, which is not all of a bucket on a busy machine: at
        // worst the time that is missing is in the bucket that has most.
        let of_bucket = |bucket_index: usize| -> f64 {
            areas
                .iter()
                .filter_map(|area| area["value"].as_array()?.get(bucket_index)?.as_f64())
                .sum()
        };
        let length = areas.iter().filter_map(|area| Some(area["value"].as_array()?.len())).max();
        let length = length.unwrap_or_default();
        let most = (0..length).map(of_bucket).fold(0.0, f64::max);
        let missing = most * bucket * length as f64 * unknown;
        for (sum, over) in [(lines, 0.0), (area * bucket, last + missing)] {
            // Numbers have four digits.
            let most = 0.01 * total + over;
            assert!((sum - total).abs() <= most, "{}: {sum}, {total}, {over}", plot["name"]);
        }
    }
}

#[test]
fn idle_links_have_no_plot_and_notes_are_one_line() {
    need("chromium");
    // The page is written beside the recording.
    let dir = tempfile::tempdir().unwrap();
    let sample = dir.path().join("vm.parquet");
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/vm.parquet");
    fs::copy(original, &sample).unwrap();
    let mut browser = Browser::start(1280, 800);
    open_page(&mut browser, &sample, &[]);
    let plots = eval_text(&mut browser, "document.querySelector('#plots > p').textContent");
    assert_eq!(plots, "Nothing was counted of: net eth0, net lo");
    let rows = "document.querySelectorAll('#glance tbody tr').length";
    assert!((eval_number(&mut browser, rows) - 6.0).abs() < 0.5);
    let marks = eval_text(&mut browser, "document.getElementById('marks').textContent");
    assert!(marks.contains(" context switches were not seen: less precise"), "{marks}");
    save_picture(&mut browser, "idle");
}

#[test]
fn a_page_of_links_says_who_filled_which_when() {
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    made::write(&recording, USUAL);
    let mut browser = Browser::start(1280, 800);
    let page = open_page(&mut browser, &recording, &[]);
    let answer = eval_text(&mut browser, "document.getElementById('answer').textContent");
    let expected = "/lab/train had 74 % (68 to 81 %) of what went over memory 0 (in)";
    assert!(answer.replace('\u{a0}', " ").starts_with(expected), "{answer}");
    let incomplete = eval_text(&mut browser, "document.getElementById('incomplete').textContent");
    assert!(incomplete.starts_with("incomplete: 3 records were dropped"), "{incomplete}");
    // Memory has one plot, because its peak is for both directions; the others have two.
    let rows = "document.querySelectorAll('#glance tbody tr').length";
    assert!((eval_number(&mut browser, rows) - 7.0).abs() < 0.5);
    assert!(page_data(&page)["plots"][2]["areas"][0]["value"].to_string().contains("null"));
    save_picture(&mut browser, "links");

    scroll_to_plots(&mut browser);
    save_picture(&mut browser, "plots");
    together_and_apart(&mut browser);
    sorted_table(&mut browser);
    one_tenant(&mut browser);
    zoom(&mut browser);
    let marks = eval_text(&mut browser, "document.getElementById('marks').textContent");
    assert!(marks.contains("3 records were dropped") && marks.contains("CPU 1offline"), "{marks}");
    looks(&mut browser);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn together_and_apart(browser: &mut Browser) {
    let plots = "document.querySelector('.link').querySelectorAll('.plot').length";
    assert!((eval_number(browser, plots) - 1.0).abs() < 0.5);
    browser.eval("document.querySelector('.link h3 button').click()");
    assert!((eval_number(browser, plots) - 2.0).abs() < 0.5);
    let rows = "document.querySelectorAll('#glance tbody tr').length";
    assert!((eval_number(browser, rows) - 8.0).abs() < 0.5);
    browser.eval("document.querySelector('.link h3 button').click()");
    browser.settle();
    browser.settle();
    assert!(eval_number(browser, COLOURS) > 20.0);
}

fn sorted_table(browser: &mut Browser) {
    let column = |number: usize| {
        format!(
            "[...document.querySelectorAll('#lines tbody tr')].map(row => row.cells[{number}].textContent)"
        )
    };
    let shares = |browser: &mut Browser| -> Vec<f64> {
        let cells = browser.eval(&column(4));
        let part = |cell: &Value| cell.as_str().unwrap().split('\u{a0}').next().unwrap().parse();
        cells.as_array().unwrap().iter().map(|cell| part(cell).unwrap()).collect()
    };
    let first = shares(browser);
    assert_eq!(first.len(), 30);
    assert!(first.is_sorted_by(|a, b| a >= b), "{first:?}");
    for (head, number) in [("Tenant", 1), ("Share", 4)] {
        let click = format!(
            "[...document.querySelectorAll('#lines th button')]
            .find(it => it.textContent.startsWith('{head}')).click()"
        );
        browser.eval(&click);
        let before = browser.eval(&column(number));
        browser.eval(&click);
        assert_ne!(before, browser.eval(&column(number)), "{head}");
        assert_eq!(
            browser.eval("document.activeElement.textContent.slice(0, -2)"),
            Value::from(head)
        );
    }
    browser.eval("document.getElementById('more').click()");
    assert!(shares(browser).len() > 200);
    browser.eval("document.getElementById('of').value = '0'");
    browser.eval("document.getElementById('of').dispatchEvent(new Event('change'))");
    let plots = browser.eval(&format!("new Set({}).size", column(0)));
    assert_eq!(plots, Value::from(1));
    browser.eval("document.getElementById('of').value = ''");
    browser.eval("document.getElementById('of').dispatchEvent(new Event('change'))");
}

fn one_tenant(browser: &mut Browser) {
    let before = eval_number(browser, COLOURS);
    browser.eval("document.querySelector('.names button.tenant').click()");
    scroll_to_plots(browser);
    assert_eq!(
        eval_text(browser, "document.getElementById('only-name').textContent"),
        "/lab/train"
    );
    assert_eq!(
        browser.eval("document.querySelectorAll('.names [aria-pressed=true]').length > 2"),
        true
    );
    // A stack has more colours than one tenant in front of a grey sum.
    assert!(eval_number(browser, COLOURS) < before);
    let names = "new Set([...document.querySelectorAll('#lines tbody tr')].map(row => row.cells[1].textContent)).size";
    assert!((eval_number(browser, names) - 1.0).abs() < 0.5);
    save_picture(browser, "single");
    browser.eval("document.getElementById('all').click()");
    assert_eq!(browser.eval("document.getElementById('only').hidden"), true);
}

/// The page used to say that the tenant had nothing there.
#[test]
fn a_tenant_too_small_for_a_plot_is_named() {
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    made::write(&recording, made::Size { windows: 200, ..USUAL });
    let mut browser = Browser::start(1280, 3000);
    open_page(&mut browser, &recording, &["--top", "1"]);
    browser.eval(
        "[...document.querySelectorAll('.names button.tenant')]
            .find(it => it.textContent.includes('/lab/backup')).click()",
    );
    browser.settle();
    let names = "[...document.querySelectorAll('.names')].map(it => it.textContent).join('|')";
    let names = eval_text(&mut browser, names);
    let small = "/lab/backup is not among the largest 1 here; (others) may have a part of it.";
    assert!(names.contains(small) && !names.contains("had nothing here"), "{names}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn zoom(browser: &mut Browser) {
    let range = "document.getElementById('range').textContent";
    scroll_to_plots(browser);
    assert_eq!(eval_text(browser, range), "all 20.0\u{a0}s");
    let (x, y) = plot_middle(browser);
    browser.mouse("mouseMoved", x, y);
    browser.settle();
    let tip = eval_text(browser, "document.getElementById('tip').textContent");
    assert!(tip.contains("/lab/train") && tip.contains("confidence 0.93"), "{tip}");
    assert!(tip.contains("2026-11-23 09:00:"), "{tip}");
    save_picture(browser, "tip");
    browser.mouse("mousePressed", x, y);
    browser.mouse("mouseMoved", x + 100.0, y);
    browser.mouse("mouseReleased", x + 100.0, y);
    browser.settle();
    let zoomed = eval_text(browser, range);
    assert!(zoomed.contains(", 1.9"), "{zoomed}");
    let answer_again = eval_text(browser, "document.getElementById('again').textContent");
    assert!(
        answer_again.contains(" --from ") && answer_again.ends_with("--html part.html"),
        "{answer_again}"
    );
    save_picture(browser, "zoom");
    // By keys, in a plot that has the focus.
    browser.eval("document.querySelector('.space').focus()");
    browser.key("-");
    assert!(eval_text(browser, range).contains(", 3.9"));
    browser.key("0");
    assert_eq!(eval_text(browser, range), "all 20.0\u{a0}s");
    for _ in 0..20 {
        browser.key("+");
    }
    // Not closer than a few windows.
    assert!(eval_text(browser, range).ends_with(", 80.0\u{a0}ms"));
    browser.eval("document.getElementById('whole').click()");
    assert_eq!(eval_text(browser, range), "all 20.0\u{a0}s");
}

fn looks(browser: &mut Browser) {
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = eval_text(browser, ground);
    browser.dark(true);
    scroll_to_plots(browser);
    assert_ne!(eval_text(browser, ground), light);
    save_picture(browser, "dark");
    // The button overrides the preference of the system.
    browser.eval("document.getElementById('theme').click()");
    assert_eq!(eval_text(browser, ground), light);
    for width in [320, 390, 800] {
        browser.size(width, 800, 2.0);
        browser.settle();
        browser.eval("scrollTo(0, 0)");
        let needed = eval_number(browser, "document.documentElement.scrollWidth");
        assert!(needed <= f64::from(width), "{needed} in {width}");
        save_picture(browser, &format!("width-{width}"));
    }
    scroll_to_plots(browser);
    save_picture(browser, "plots-800");
}

#[test]
fn the_queries_of_a_page_run_on_its_recording() {
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    let dataset = dir.path().join("it's");
    made::write(&dataset, made::Size { windows: 200, small: 3, ..USUAL });
    for recording in [dataset.clone(), dataset.join("fabric.parquet")] {
        let page =
            run_ok(["report".as_ref(), recording.as_os_str(), "--html".as_ref(), "-".as_ref()]);
        let queries = page_data(&page)["queries"].clone();
        let expected = if recording == dataset { 3 } else { 2 };
        assert_eq!(queries.as_array().unwrap().len(), expected);
        let script = "import duckdb, json, sys
for query in json.load(sys.stdin):
    print(duckdb.sql(query['sql']))";
        let mut child = Command::new(&python)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(queries.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let answers = String::from_utf8(output.stdout).unwrap();
        assert!(answers.matches("/lab/train").count() >= expected, "{answers}");
    }
}

#[test]
fn a_page_is_whole_or_not_there_and_as_private_as_its_recording() {
    let place = Place::new();
    made::write(&place.path("run"), made::Size { windows: 20, small: 0, ..USUAL });
    for mode in [0o600, 0o640] {
        let fabric = place.path("run/fabric.parquet");
        fs::set_permissions(fabric, fs::Permissions::from_mode(mode)).unwrap();
        let stderr = place.typed("report run --html page.html --force").ok();
        assert!(stderr.starts_with("page.html: ") && stderr.ends_with(" kB\n"), "{stderr}");
        let bits = fs::metadata(place.path("page.html")).unwrap().permissions().mode();
        assert_eq!(bits & 0o777, mode);
    }
    let before = fs::read(place.path("page.html")).unwrap();
    for (typed, why) in [
        ("report run --html page.html", "page.html exists; use --force to replace it"),
        ("report run --html run/links.parquet --force", "the recording"),
        ("report run --html none/page.html", "there is no directory none"),
        ("report run --html run --force", "run is a directory"),
        ("report run --html new.html --from 3h", "nothing was recorded in that time"),
        ("report run --html new.html --json", "cannot be used with"),
        ("report run --html new.html --csv", "cannot be used with"),
        ("report run --force", "--html"),
        ("report run --html --force", "write a file name that begins with - as ./--force"),
    ] {
        let line = place.refuses(typed.split_whitespace());
        assert!(line.contains(why), "{typed}: {line}");
    }
    assert_eq!(place.typed("report run --html -").ok().into_bytes(), before);
}
