//! Errors of commands that cannot be carried out, and the files they leave: wrong names and times,
//! missing groups, invalid outputs. With the real binary.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::command::{Answer, NOBODY, Place};
use crate::harness::has_root;
use crate::skip;

/// The user and group of a command; supplementary groups are dropped with them.
fn as_nobody(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// `record ARGS -o x.parquet -- true` is refused with a line that holds all of `words`.
fn record_refuses(args: &[&str], words: &[&str]) {
    let place = Place::new();
    let all = [&["record", "-o", "x.parquet"], args, &["--", "true"]].concat();
    let line = place.refuses(all);
    for word in words {
        assert!(line.contains(word), "{args:?}: no {word:?} in: {line}");
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    record_refuses(&["-p", "bogus"], &["no group 'bogus'", "the groups are mem, cache"]);
    record_refuses(&["-p", "hots"], &["no group 'hots'", "did you mean host?"]);
    record_refuses(&["-e", "duration_time"], &["-p GROUP, -e EVENT or -M METRIC"]);
    record_refuses(&["-e", "nopmu/event=1/"], &["no PMU nopmu", "column 1", "software"]);
    record_refuses(&["-e", "software/page-fault/"], &["did you mean page-faults?", "column 10"]);
    record_refuses(&["-e", "software/page-faults,x=1/"], &["no term x", "terms: config"]);
    record_refuses(&["-e", "software/page-faults"], &["no closing '/'"]);
    record_refuses(&["-e", "software/config=/"], &["expected a value after '='"]);
}

#[test]
fn a_value_too_large_says_the_maximum() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let plan = |event| ["record", "--dry-run", "--root", &root, "-e", event].map(str::to_owned);
    let line = place.refuses(plan("nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x1000/"));
    assert!(line.contains("0x1000 is too large") && line.contains("maximum is 0x3ff"), "{line}");
    let line = place.refuses(plan("nvidia_pcie_pmu_0/event=0xfffffffffffffffff/"));
    assert!(line.contains("64 bits"), "{line}");
}

#[test]
fn a_group_without_a_pmu_says_which_groups_there_are() {
    let place = Place::new();
    let root = place.machine("vm-no-uncore");
    let line = place.refuses(["record", "--dry-run", "--root", &root, "-p", "pcie"]);
    assert!(line.contains("group pcie") && line.contains("groups here are host"), "{line}");
    let list = place.typed("list groups --json").ok();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let groups = list["groups"].as_array().unwrap();
    if groups.iter().any(|row| row["group"] == "pcie" && row["counters"] != 0) {
        return skip::show("this machine has PCIe PMUs");
    }
    record_refuses(&["-p", "pcie"], &["group pcie", "host", "doctor"]);
}

/// A group that is left out must be visible without asking for notes.
#[test]
fn a_missing_group_among_others_is_an_error_or_a_warning() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let root = elsewhere.machine("sapphire-rapids-2s");
    let dry = ["record", "--dry-run", "--root", &root, "-p", "mem,mesh"];
    let line = place.refuses(dry);
    assert!(line.contains("group mesh") && line.contains("--allow-missing"), "{line}");
    let plan = place.run([&dry[..], &["--allow-missing"]].concat()).ok();
    let warning = "warning: the group mesh is not counted: no PMU of this machine is in it";
    assert!(plan.lines().any(|line| line == warning), "{plan}");
    let json = place.run([&dry[..], &["--allow-missing", "--json"]].concat()).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["warnings"][0].as_str().is_some_and(|it| warning.ends_with(it)), "{json}");

    let groups = place.typed("list groups --json").ok();
    let groups: serde_json::Value = serde_json::from_str(&groups).unwrap();
    let rows = groups["groups"].as_array().unwrap();
    let Some(missing) = rows.iter().find(|row| row["counters"] == 0) else {
        return skip::show("this machine has PMUs of every group");
    };
    let missing = missing["group"].as_str().unwrap();
    let warning = format!("uncore-trace: warning: the group {missing} is not counted: ");
    for command in ["record -o x.parquet --force", "stat"] {
        let line = place.typed(&format!("{command} -p host,{missing} -- true")).refused();
        assert!(line.contains(missing) && line.contains("--allow-missing"), "{line}");
        if !has_root("a warning of a group that is not counted") {
            continue;
        }
        let allowed = format!("{command} -p host,{missing} --allow-missing -- true");
        let answer = place.typed(&allowed);
        assert!(answer.code == 0 || answer.recorded_in_part(), "{answer:#?}");
        let warnings = answer.err.lines().filter(|line| line.starts_with(&warning)).count();
        assert_eq!(warnings, 1, "{answer:#?}");
    }
    if has_root("record -q") {
        let quiet = format!("record -q -o q.parquet -p host,{missing} --allow-missing -- true");
        let answer = place.typed(&quiet);
        assert!(answer.err.is_empty() || answer.code == 1, "{answer:#?}");
    }
}

/// If no metric is available, the error used to list every PMU of every vendor in 2000 characters.
#[test]
fn all_metrics_are_those_that_are_here_or_refused_in_short() {
    let place = Place::new();
    let grace = place.machine("grace-2s");
    let plan = place.run(["record", "--root", &grace, "--dry-run", "-M", "*"]).ok();
    assert!(plan.contains("pcie_read_bandwidth") && plan.contains("backend_stalled"), "{plan}");
    let root = place.machine("vm-no-uncore");
    let line = place.refuses(["record", "--root", &root, "--dry-run", "-M", "*"]);
    assert!(line.len() < 400 && line.contains("none of the"), "{line}");
    assert!(line.contains("more;") && line.contains("-p host"), "{line}");
    if has_root("stat -M '*' on this machine") {
        let answer = place.run(["stat", "-M", "*", "--timeout", "50"]);
        if answer.code != 0 {
            assert!(answer.refused().len() < 400);
        }
    }
}

#[test]
fn times_out_of_range_say_the_range() {
    for interval in ["0", "1ns", "1year", "99us", "2m"] {
        record_refuses(&["-p", "host", "-I", interval], &["interval", "choose 100us to 1m"]);
    }
    for tick in ["0", "10us", "2s"] {
        record_refuses(&["-p", "host", "--tick", tick], &["tick", "choose 100us to 1s"]);
    }
    for tick in ["3ms", "20ms"] {
        let words = ["not a whole number of ticks", tick, "--tick"];
        record_refuses(&["-p", "host", "--tick", tick], &words);
    }
    record_refuses(&["-p", "host", "--duration", "0"], &["--duration 0", "Ctrl-C"]);
    record_refuses(&["-p", "host", "--duration", "2years"], &["--duration", "a year"]);
    record_refuses(&["-p", "host", "--flush", "1ms"], &["--flush 1ms", "at least 100ms"]);
    record_refuses(&["-p", "host", "--lag", "1m"], &["--lag 1m", "at most 10s"]);
    record_refuses(&["-p", "host", "--lag", "2s"], &["--lag 2s", "half of --flush (2s)"]);
    record_refuses(&["-p", "host", "--buffer", "3"], &["--buffer 3", "power of two"]);
}

#[test]
fn a_time_that_is_none_says_how_to_write_it() {
    let answer = Place::new().typed("record -p host -o x.parquet -I soon -- true");
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("'soon'") && answer.err.contains("10ms"), "{answer:?}");
}

#[test]
fn outputs_that_cannot_be_are_refused() {
    let place = Place::new();
    let refuses = |output: &str, words: &[&str]| {
        let line = place.refuses(["record", "-p", "host", "-o", output, "--", "true"]);
        assert!(words.iter().all(|word| line.contains(word)), "{output}: {line}");
    };
    refuses("x.pq", &["x.pq.parquet", "x.pq/"]);
    refuses("none/x.parquet", &["no directory none", "make it first"]);
    refuses("none/x/", &["no directory none", "make it first"]);
    fs::write(place.path("old.parquet"), "kept").unwrap();
    refuses("old.parquet", &["old.parquet exists", "--force"]);
    refuses("old.parquet/", &["is a file"]);
    fs::create_dir(place.path("run")).unwrap();
    fs::write(place.path("run/tasks.parquet"), "kept").unwrap();
    refuses("run/", &["run/tasks.parquet exists", "--force"]);
    fs::create_dir(place.path("dir.parquet")).unwrap();
    refuses("dir.parquet", &["is a directory", "end the name with /"]);
    // Otherwise the options would have a cost and no effect.
    for (flag, output) in [("--slices", "x.parquet"), ("--io", "x.parquet"), ("--io", "-")] {
        let line =
            place.refuses(["record", "-p", "host", flag, "-o", output, "--duration", "100ms"]);
        assert!(line.contains(flag) && line.contains("give a directory"), "{line}");
    }
}

#[test]
fn monitoring_groups_need_counters_of_memory() {
    if has_root("record --monitor") {
        let words = ["cannot make monitoring groups", "no bytes of memory", "-p mem"];
        record_refuses(&["-e", "page-faults", "--monitor"], &words);
        record_refuses(&["-e", "page-faults", "--monitor=8"], &["; or leave out --monitor"]);
    }
    record_refuses(&["-e", "page-faults", "--monitor=0"], &["--monitor", "1..=255"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    if !has_root("a directory that cannot be written (made as root, used as nobody)") {
        return;
    }
    let place = Place::new();
    let tool = place.tool_for_all();
    for (output, named) in [("x.parquet", "x.parquet.partial"), ("x/", "x/")] {
        let before = place.content();
        let path = place.path(output);
        let mut command = Command::new(&tool);
        command.args(["record", "-p", "host", "-o"]).arg(path).args(["--", "true"]);
        let line = Answer::of(as_nobody(&mut command).output().unwrap()).refused();
        assert!(line.contains(named) && line.contains("permission denied"), "{line}");
        assert_eq!(place.content(), before);
    }
}

#[test]
fn without_privileges_the_needed_ones_are_named() {
    let (place, output) = (Place::new(), Place::new());
    let tool = place.tool_for_all();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(output.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = Command::new(tool);
    command.args(["record", "-p", "host", "-o", "x.parquet", "--", "true"]);
    command.current_dir(output.path(""));
    let line = Answer::of(as_nobody(&mut command).output().unwrap()).refused();
    assert!(line.contains("CAP_PERFMON") && line.contains("doctor"), "{line}");
    assert!(output.content().is_empty());
}

#[test]
fn a_captured_machine_is_planned_and_not_recorded() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let root = elsewhere.machine("grace-2s");
    let line = place.refuses(["record", "--root", &root, "-p", "pcie", "-o", "x.parquet"]);
    assert!(line.contains("not the running machine") && line.contains("--dry-run"), "{line}");
    let plan = place.run(["record", "--root", &root, "-p", "pcie", "--dry-run"]).ok();
    assert!(plan.contains("nvidia_pcie_pmu_1  wr_bytes_rem"), "{plan}");
    let plan = place.run(["record", "--root", &root, "-p", "pcie", "--dry-run", "--json"]).ok();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["counters"].as_array().unwrap().len(), 8);
    assert!(place.run(["list", "--root", &root]).ok().contains("nvidia_scf_pmu_0"));
    let line = place.refuses(["list", "--root", "."]);
    assert!(line.contains("./sys") && line.contains("--root"), "{line}");
    assert!(place.content().is_empty());
}
