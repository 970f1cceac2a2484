//! What scripts that were written for `perf stat` find in the output of `stat`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::{Answer, Place, script};
use crate::harness::cgroup::Cgroup;
use crate::harness::{or_skip, root_or_skip};

fn stat(args: &str) -> Answer {
    Place::new().typed(&format!("stat {args}"))
}

/// The fields of the lines that are no messages.
fn rows<'a>(answer: &'a Answer, separator: &str) -> Vec<Vec<&'a str>> {
    assert_eq!(answer.code, 0, "{answer:#?}");
    let lines = answer.err.lines().filter(|line| !line.starts_with("uncore-trace: "));
    lines.map(|line| line.split(separator).collect()).collect()
}

/// The checks of `tools/perf/tests/shell/stat+csv_summary.sh` (Linux 7.2), with a `perf` that
/// executes this program, and an event that every machine has.
#[test]
fn perfs_own_test_of_the_csv_summary_passes() {
    let _machine = root_or_skip!();
    let place = Place::new();
    script(&place.path("perf"), &format!("#!/bin/sh\nexec {} \"$@\"\n", crate::PROGRAM));
    let test = "set -e\n\
        perf stat -a -e cpu-clock -x' ' -I300 --interval-count 1 --summary 2>&1 | grep -e summary | \
        while read summary _ _ _ _; do [ $summary = summary ] || exit 1; done\n\
        perf stat -a -e cpu-clock -x' ' -I300 --interval-count 1 --summary --no-csv-summary 2>&1 | \
        (! grep -e summary)\n";
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", place.path(".").display());
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", test]).env("PATH", path).current_dir(place.path("."));
    let answer = Answer::of(shell.output().unwrap());
    assert_eq!(answer.code, 0, "{answer:#?}");
}

#[test]
fn separated_fields_have_no_padding() {
    let _machine = root_or_skip!();
    for separator in [" ", ";", ","] {
        let args = ["stat", "-e", "page-faults", "-x", separator, "-I", "30", "--summary"];
        let answer = Place::new().run(args.iter().chain(&["--interval-count", "1"]));
        let rows = rows(&answer, separator);
        assert!(rows[0][0].parse::<f64>().is_ok_and(|seconds| seconds > 0.0), "{answer:#?}");
        assert_eq!((rows[0][3], rows[1][0], rows[1][3]), ("page-faults", "summary", "page-faults"));
    }
}

/// The checks of `test_stat_delay`, tools/perf/tests/shell/stat.sh (Linux 7.2).
#[test]
fn a_delay_is_no_part_of_the_elapsed_time() {
    let _machine = root_or_skip!();
    let text = stat("-D 500 -e duration_time sleep 1.5").err;
    let first = |of: &str| {
        let line = text.lines().find(|line| line.contains(of)).unwrap();
        line.split_whitespace().next().unwrap().replace(',', "").parse::<f64>().unwrap()
    };
    let (duration, elapsed) = (first("duration_time"), first("seconds time elapsed"));
    assert!((duration - elapsed * 1e9).abs() < 200e6, "{text}");
    assert!(duration > 100e6 && !text.contains("seconds counted"), "{text}");
    let begin = std::time::Instant::now();
    let text = stat("-D 500 -n sleep 1.5").err;
    let line = text.lines().find(|line| line.contains("time elapsed")).unwrap();
    let elapsed: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    assert!(elapsed <= begin.elapsed().as_secs_f64() - 0.5, "{text}");
}

#[test]
fn times_in_the_text_are_whole_nanoseconds() {
    let _machine = root_or_skip!();
    let text = stat("-e duration_time,user_time,system_time sleep 0.1").err;
    for time in ["duration_time", "user_time", "system_time"] {
        let line = text.lines().find(|line| line.contains(time)).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(words[0].replace(',', "").parse::<u64>().is_ok(), "{text}");
        assert_eq!(words[1..], ["ns", time], "{text}");
    }
}

#[test]
fn a_name_changes_neither_unit_nor_metric() {
    let _machine = root_or_skip!();
    for event in ["cpu-clock", "task-clock", "context-switches", "page-faults"] {
        let bare = stat(&format!("-a -x, -e {event} sleep 0.1"));
        for text in [format!("{event}/name=foo/"), format!("software/{event},name=foo/")] {
            let named = stat(&format!("-a -x, -e {text} sleep 0.1"));
            let (bare, named) = (rows(&bare, ","), rows(&named, ","));
            assert_eq!((bare[0][1], bare[0][6]), (named[0][1], named[0][6]), "{text}");
            assert_eq!(named[0][2], "foo", "{text}");
        }
    }
    if Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        let named = stat("-a -x, -e msr/tsc,name=foo/ sleep 0.1");
        assert_eq!(rows(&named, ",")[0][1..3], ["", "foo"], "{named:#?}");
    }
    let named = stat("-a -j -e cpu-clock/name=foo/ true");
    let row: Value = serde_json::from_str(named.err.lines().last().unwrap()).unwrap();
    assert_eq!((&row["unit"], &row["event"]), (&"msec".into(), &"foo".into()));
    assert_eq!(row["metric-unit"], "CPUs utilized");
}

#[test]
fn events_that_count_nothing_are_0() {
    let _machine = root_or_skip!();
    for event in ["dummy", "bpf-output", "software/dummy/"] {
        let answer = stat(&format!("-a -x, -e {event} true"));
        let name = event.trim_matches('/').trim_start_matches("software/");
        assert_eq!(rows(&answer, ",")[0][..3], ["0", "", name], "{answer:#?}");
    }
    let place = Place::new();
    let both = "record -o x.parquet -e dummy,bpf-output";
    let plan = place.typed(&format!("{both} --dry-run")).ok();
    assert!(plan.contains("dummy and bpf-output count nothing: they are always 0"), "{plan}");
    place.typed(&format!("{both} --duration 100ms")).recorded();
}

#[test]
fn cgroups_are_called_as_they_were_typed() {
    let _machine = root_or_skip!();
    let cgroup = or_skip!(Cgroup::new("label"));
    let bare = cgroup.path.trim_start_matches('/');
    for (typed, label) in [
        (bare.to_owned(), bare.to_owned()),
        (cgroup.path.clone(), cgroup.path.clone()),
        (format!("{bare}/"), format!("{bare}/")),
        (format!("^{bare}$"), bare.to_owned()),
        ("/".to_owned(), "/".to_owned()),
    ] {
        let run = |format: &str| {
            let args = ["stat", "-a", "--for-each-cgroup", &typed, "-e", "cs", format];
            Place::new().run(args.into_iter().filter(|arg| !arg.is_empty()).chain(["sleep", "0.1"]))
        };
        let csv = run("-x;");
        assert_eq!(rows(&csv, ";")[0][3], label, "{csv:#?}");
        let json = run("-j");
        let row: Value = serde_json::from_str(json.err.lines().next().unwrap()).unwrap();
        assert_eq!(row["cgroup"], label.as_str(), "{json:#?}");
        let text = run("").err;
        let line = text.lines().find(|line| line.contains("context-switches")).unwrap();
        assert!(line.split_whitespace().any(|word| word == label), "{text}");
    }
}

#[test]
fn a_missing_cgroup_is_a_warning_and_the_others_count() {
    let _machine = root_or_skip!();
    let answer = stat("-a --for-each-cgroup /,no/such -x, -e cs sleep 0.1");
    assert!(answer.err.contains("there is no cgroup /no/such; "), "{answer:#?}");
    let rows = rows(&answer, ",");
    assert_eq!(rows[0][2..4], ["context-switches", "/"], "{answer:#?}");
    let none = stat("-a --for-each-cgroup no/such,nor/this -x, -e cs true").refused();
    assert!(none.contains("there is no cgroup /no/such; "), "{none}");
}
