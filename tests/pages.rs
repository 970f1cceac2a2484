//! `report --html` of long recordings and of many tenants, and `diff --html`, in a real browser.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::browser::Browser;
use crate::harness::made::{self, USUAL};
use crate::harness::page::{
    column_sum, eval_number, eval_text, open_page, page_data, plot_middle, save_picture,
    scroll_to_plots,
};
use crate::harness::{need, run_ok};

/// More windows than a plot has steps.
#[test]
fn a_long_recording_keeps_its_highest_windows() {
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    made::write(&recording, made::Size { windows: 4500, links: 1, small: 0, ..USUAL });
    let mut browser = Browser::start(1280, 800);
    let page = page_data(&open_page(&mut browser, &recording, &["--by", "owner"]));
    assert_eq!((&page["time"]["count"], &page["time"]["bucket"]), (&2250.into(), &0.04.into()));
    let key = eval_text(&mut browser, "document.getElementById('key').textContent");
    assert!(key.contains("A step is 40.0\u{a0}ms, 2 windows"), "{key}");
    let json = run_ok(["report", recording.to_str().unwrap(), "--links", "--json"]);
    let ways: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let both = ways.iter().find(|way| way["direction"] == "both").unwrap();
    let shown =
        eval_text(&mut browser, "document.querySelector('#glance tbody tr').cells[3].textContent");
    let highest = both["highest_per_s"].as_f64().unwrap() / 1e9;
    assert_eq!(shown, format!("{highest:.1}\u{a0}GB/s"));
    scroll_to_plots(&mut browser);
    let (x, y) = plot_middle(&mut browser);
    browser.mouse("mouseMoved", x, y);
    browser.settle();
    let tip = eval_text(&mut browser, "document.getElementById('tip').textContent");
    assert!(tip.contains("windows from "), "{tip}");
    save_picture(&mut browser, "long");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// All but the largest share one area; the table has as many lines as requested.
#[test]
fn five_hundred_tenants_are_the_largest_and_the_rest() {
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    made::write(&recording, made::Size { windows: 600, links: 1, small: 500, ..USUAL });
    let mut browser = Browser::start(1280, 800);
    let page = page_data(&open_page(&mut browser, &recording, &[]));
    let areas = page["plots"][0]["areas"].as_array().unwrap().len();
    assert!((31..40).contains(&areas), "{areas}");
    let rest = eval_text(&mut browser, "document.querySelector('.names').textContent");
    assert!(rest.contains("others"), "{rest}");
    assert_same_totals(&page);
    let size = fs::metadata(recording.with_extension("html")).unwrap().len();
    assert!(size < 20_000_000, "{size} bytes");
    open_page(&mut browser, &recording, &["--top", "500"]);
    let took = browser.open(&recording.with_extension("html"));
    println!("500 areas: {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    save_picture(&mut browser, "tenants");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The areas of a plot sum to its mean.
fn assert_same_totals(page: &Value) {
    for plot in page["plots"].as_array().unwrap() {
        let areas = plot["areas"].as_array().unwrap().iter().map(|area| column_sum(&area["value"]));
        let (areas, mean) = (areas.sum::<f64>(), column_sum(&plot["mean"]));
        assert!((areas - mean).abs() <= 0.01 * mean, "{}: {areas}, {mean}", plot["name"]);
    }
}

#[test]
fn a_page_of_a_comparison_says_what_changed() {
    need("chromium");
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    made::write(&recording, USUAL);
    let page = dir.path().join("diff.html");
    let [from, to] = [&recording, &page].map(|path| path.to_str().unwrap());
    let compared = ["diff", from, "--before", "0..5s", "--after", "6s..16s"];
    run_ok([&compared[..], &["--html", to]].concat());
    let mut browser = Browser::start(1280, 800);
    browser.open(&page);
    save_picture(&mut browser, "diff");
    // The same summary as in text, and a plot for each table.
    let text = run_ok([&compared[..], &["--wide"]].concat());
    let answer = eval_text(&mut browser, "document.getElementById('answer').textContent");
    assert_eq!(answer.replace('\u{a0}', " ").replace('→', "->"), text.lines().next().unwrap());
    let lines = run_ok([&compared[..], &["--json"]].concat());
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let build: Vec<&Value> = lines.iter().filter(|line| line["key"] == "/lab/build").collect();
    assert!(build.iter().any(|line| line["verdict"] == "new"), "{build:?}");
    let new = "[...document.querySelectorAll('#ways tr')].filter(row =>
        row.cells[0].textContent === '/lab/build' && row.cells[7].textContent.startsWith('new')).length";
    let expected = build.iter().filter(|line| line["verdict"] == "new").count();
    assert_eq!(eval_number(&mut browser, new) as usize, expected);
    assert!(
        eval_number(&mut browser, "document.querySelectorAll('tr.more svg .reach').length") > 1.0
    );
    // The largest difference is first, until a column is selected.
    let names = "[...document.querySelectorAll('#ways .link:first-child tbody tr')]
        .slice(1).map(row => row.cells[0].textContent)";
    let before = browser.eval(names);
    browser.eval("document.querySelector('#ways th button').click()");
    let after = browser.eval(names);
    assert_ne!(before, after);
    let sorted: Vec<&str> =
        after.as_array().unwrap().iter().map(|row_name| row_name.as_str().unwrap()).collect();
    assert_eq!(sorted.len(), 12);
    assert!(sorted.is_sorted_by_key(|name| name.to_lowercase()), "{sorted:?}");
    browser.eval("document.querySelector('#ways .link:first-child > button').click()");
    assert!(browser.eval(names).as_array().unwrap().len() > 12);
    // No table is wider than its card.
    let over = "Math.max(...[...document.querySelectorAll('.wide')].map(it => it.scrollWidth - it.clientWidth))";
    for width in [1280, 1120, 900] {
        browser.size(width, 800, 1.0);
        browser.settle();
        assert!(eval_number(&mut browser, over) <= 0.0, "{width}");
    }
    browser.dark(true);
    browser.size(390, 800, 1.0);
    let wide = "document.documentElement.scrollWidth - innerWidth";
    assert!(eval_number(&mut browser, wide) <= 0.0);
    save_picture(&mut browser, "diff-dark-phone");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Names in the page of a comparison are inert too.
pub(crate) fn compared(browser: &mut Browser, recording: &Path, by: &str, hostile: &str) {
    let page = recording.with_extension("html");
    let [from, to] = [recording, &page].map(|path| path.to_str().unwrap());
    let spans = ["--before", "..1s", "--after", "1s..", "--by", by, "--top", "1000"];
    run_ok([&["diff", from, "--html", to, "--force"], &spans[..]].concat());
    browser.open(&page);
    for (selector, expected) in [("img", 0.0), ("script", 2.0), ("b", 0.0), ("[onclick]", 0.0)] {
        let count = format!("document.querySelectorAll(\"{selector}\").length");
        assert!((eval_number(browser, &count) - expected).abs() < 0.5, "{selector}");
    }
    browser.eval("document.querySelectorAll('.link > button').forEach(button => button.click())");
    let names = eval_text(browser, "document.getElementById('ways').textContent");
    assert!(names.contains(hostile), "{names}");
    assert!(!names.contains(['\u{202e}', '\u{2028}', '\u{1b}']), "{names:?}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
