//! `python -m uncore_trace mcp`, asked by the SDK's own client: the numbers of `report`, refusals,
//! losses, and what an assistant must not reach.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::PROGRAM;
use crate::analysis::{root, script};
use crate::command::Place;
use crate::harness::made::{self, Size, UNEVEN};
use crate::small::small_recording;

/// Asks about the recording at `path` of `place`; returns the number of comparisons.
fn count_comparisons(question: &str, place: &Place) -> u64 {
    let path = place.path(".").canonicalize().unwrap();
    let answer = script("assistants.py", &[question, PROGRAM, path.to_str().unwrap()]);
    answer.as_u64().unwrap()
}

/// The sample, and a recording with losses, peaks and unknown windows.
fn recordings() -> Place {
    let place = Place::new();
    copy(&root().join("samples/grace"), &place.path("grace"));
    fs::copy(root().join("samples/vm.parquet"), place.path("vm.parquet")).unwrap();
    made::write(&place.path("made"), Size { windows: 500, ..UNEVEN });
    place
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn answers_have_the_numbers_of_report() {
    assert!(count_comparisons("numbers", &recordings()) > 100);
}

#[test]
fn shares_below_the_least_confidence_are_refused_with_a_reason() {
    assert!(count_comparisons("refusals", &recordings()) > 10);
}

#[test]
fn losses_are_those_of_the_span_and_have_the_advice_of_the_program() {
    assert!(count_comparisons("losses", &recordings()) >= 24);
}

#[test]
fn names_of_the_machine_are_data() {
    let place = recordings();
    small_recording(&place.path("small.parquet"));
    assert!(count_comparisons("hostile", &place) > 10);
}

#[test]
fn nothing_outside_of_the_directory_is_read_and_no_damage_ends_the_server() {
    let place = recordings();
    let outside = Place::new();
    copy(&root().join("samples/grace"), &outside.path("grace"));
    // Directories and tables that lead outside.
    symlink(outside.path("grace"), place.path("linked")).unwrap();
    fs::create_dir(place.path("table")).unwrap();
    symlink(outside.path("grace/fabric.parquet"), place.path("table/fabric.parquet")).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    assert!(count_comparisons("outside", &place) > 8);
}
