//! Pages in a browser.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::browser::{Browser, pictures};
use super::run_ok;

/// Writes the page of a recording beside it, and opens it.
pub(crate) fn open_page(browser: &mut Browser, recording: &Path, options: &[&str]) -> String {
    let page = recording.with_extension("html");
    let (recording_path, page_path) = (recording.to_str().unwrap(), page.to_str().unwrap());
    run_ok([&["report", recording_path, "--html", page_path, "--force"], options].concat());
    browser.open(&page);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    fs::read_to_string(page).unwrap()
}

/// The data block of a page.
pub(crate) fn page_data(page: &str) -> Value {
    let (_, after_tag) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(after_tag.split_once("</script>").unwrap().0).unwrap()
}

pub(crate) fn eval_number(browser: &mut Browser, expression: &str) -> f64 {
    browser.eval(expression).as_f64().unwrap()
}

pub(crate) fn eval_text(browser: &mut Browser, expression: &str) -> String {
    browser.eval(expression).as_str().unwrap().to_owned()
}

/// Saves a picture, if that was requested.
pub(crate) fn save_picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = pictures() {
        browser.picture(&folder.join(format!("{name}.png")), false);
    }
}

/// Scrolls to the first plot.
pub(crate) fn scroll_to_plots(browser: &mut Browser) {
    browser.eval("document.querySelector('.link').scrollIntoView(); scrollBy(0, -60)");
    browser.settle();
    browser.settle();
}

/// Number of colours in a plot.
pub(crate) const COLOURS: &str = "(() => { const it = document.querySelector('.space canvas');
    const copy = document.createElement('canvas');
    [copy.width, copy.height] = [it.width, it.height];
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(it, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, it.width, it.height).data.buffer);
    return new Set(pixels).size; })()";

/// The middle of the first plot.
pub(crate) fn plot_middle(browser: &mut Browser) -> (f64, f64) {
    let of = "document.querySelector('.space .u-over').getBoundingClientRect()";
    let x = eval_number(browser, &format!("{of}.x + {of}.width / 2"));
    (x, eval_number(browser, &format!("{of}.y + {of}.height / 2")))
}

/// The entries of a page's column, in which `[COUNT, NUMBER]` is a run of equal numbers.
pub(crate) fn column_values(column: &Value) -> Vec<Option<f64>> {
    let values_of = |entry: &Value| match entry.as_array() {
        Some(run) => vec![run[1].as_f64(); run[0].as_u64().unwrap() as usize],
        None => vec![entry.as_f64()],
    };
    column.as_array().unwrap().iter().flat_map(values_of).collect()
}

/// The sum of a column.
pub(crate) fn column_sum(packed: &Value) -> f64 {
    column_values(packed).into_iter().flatten().sum()
}
