//! What users of `perf stat` type: each of its options, and events that are times.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::CommandFactory as _;
use rustix::process::{Pid, Signal, kill_process};
use uncore_trace::cmd::Cli;
use uncore_trace::cmd::stat::perf::{OPTIONS, PerfSupport};

use crate::command::{Answer, Place};
use crate::harness::{need, root_or_skip};
use crate::wait::wait_until;

/// The options of `perf stat`, one a line with all its names; the file says of which version.
const OF_PERF: &str = include_str!("perf-stat-options.txt");

/// Why it is not in [`OF_PERF`].
const OLDER: [&str; 1] = ["-c"];

fn stat(args: &str) -> Answer {
    Place::new().typed(&format!("stat {args}"))
}

/// The value and the event of each line of `-x,`.
fn counts(answer: &Answer) -> Vec<(String, String)> {
    assert_eq!(answer.code, 0, "{answer:#?}");
    let lines = answer.err.lines().filter(|line| !line.starts_with("uncore-trace: "));
    let fields = lines.map(|line| line.split(',').collect::<Vec<_>>());
    fields.map(|fields| (fields[0].to_owned(), fields[2].to_owned())).collect()
}

fn number(answer: &Answer, event: &str) -> f64 {
    let counts = counts(answer);
    let (value, _) = counts.iter().find(|(_, name)| name == event).unwrap();
    value.parse().unwrap_or_else(|_| panic!("{answer:#?}"))
}

/// The table of docs/limits.md: options with the same fate are one row.
fn table() -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for option in OPTIONS {
        let support_text = match option.support {
            PerfSupport::Has("") => "as in perf".to_owned(),
            PerfSupport::Has(differs) => format!("yes: {differs}"),
            PerfSupport::NoEffect(why) => format!("accepted without an effect: {why}"),
            PerfSupport::Refuses(why) => format!("no: {why}"),
        };
        let names = format!("`{}`", option.names.join(" "));
        match rows.iter_mut().find(|(row_text, _)| *row_text == support_text) {
            Some((_, all)) => all.push(names),
            None => rows.push((support_text, vec![names])),
        }
    }
    let row = |(support, names): &(String, Vec<String>)| {
        format!("| {} | {support} |\n", names.join(", "))
    };
    let rows: String = rows.iter().map(row).collect();
    format!("| `perf stat` | here |\n|---|---|\n{rows}")
}

#[test]
fn the_table_of_the_limits_has_every_option_of_perf() {
    let names = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    let lines = OF_PERF.lines().filter(|line| !line.starts_with('#'));
    let of_perf: BTreeSet<_> = lines.map(names).collect();
    let without_older = |names: &[&'static str]| -> Vec<&str> {
        names.iter().copied().filter(|name| !OLDER.contains(name)).collect()
    };
    let parsed_options: BTreeSet<_> =
        OPTIONS.iter().map(|option| without_older(option.names)).collect();
    assert_eq!(parsed_options, of_perf);
    assert_eq!(parsed_options.len(), OPTIONS.len());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, after) = document.split_once("| `perf stat` | here |\n").unwrap();
    let end = after.find("\n\n").map_or(after.len(), |end| end + 1);
    let expected_document = [before, &table(), &after[end..]].concat();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected_document).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap();
    assert!(
        document == expected_document,
        "docs/limits.md is stale: run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn every_option_of_perf_is_parsed_or_refused_as_the_table_says() {
    let cli = Cli::command();
    let command = cli.find_subcommand("stat").unwrap();
    let has = |name: &str| {
        command.get_arguments().any(|arg| {
            let long = name.strip_prefix("--");
            let letter = name.chars().nth(1).filter(|_| long.is_none());
            arg.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long.unwrap_or("")))
                || letter.is_some() && arg.get_short() == letter
        })
    };
    for option in OPTIONS {
        for name in option.names {
            let PerfSupport::Refuses(why) = option.support else {
                assert!(has(name), "{name} is not parsed");
                continue;
            };
            for value in ["", "=1", " 1"] {
                // A group of counters and no process.
                if *name == "-p" && value.is_empty() {
                    continue;
                }
                let line = stat(&format!("-e page-faults {name}{value} -- true")).refused();
                let has_reason = line.contains(why) && !line.contains("to pass '");
                assert!(
                    has_reason || !name.starts_with('-') && value == "=1",
                    "{name}{value}: {line}"
                );
            }
        }
    }
}

#[test]
fn a_number_after_p_is_a_process_and_no_group() {
    let place = Place::new();
    for typed in [
        "stat -p 1 -e page-faults",
        "stat -p 1,2 -- true",
        "stat -p1234",
        "stat --groups=1",
        "record -p 1234 -o out.parquet -- true",
        "top -p 1234",
    ] {
        let line = place.refuses(typed.split(' '));
        assert!(line.contains("-p takes groups of counters, not a process"), "{typed}: {line}");
        assert!(line.contains("report --by pid") && line.contains("--for-each-cgroup"), "{line}");
    }
    let line = stat("-p nosuch -- true").refused();
    assert!(line.contains("there is no group 'nosuch'"), "{line}");
}

#[test]
fn options_without_effect_are_accepted_and_named_with_v() {
    let _machine = root_or_skip!();
    let idle = OPTIONS.iter().filter(|option| matches!(option.support, PerfSupport::NoEffect(_)));
    let names: Vec<_> = idle.flat_map(|option| option.names).copied().collect();
    let typed = format!("{} -x, -e page-faults", names.join(" "));
    assert!(number(&stat(&format!("{typed} -- true")), "page-faults") > 0.0);
    let stderr = stat(&format!("-v {typed} -- true")).err;
    assert!(stderr.contains("--no-inherit has no effect: no task has a counter"), "{stderr}");
}

#[test]
fn only_the_given_cpus_count() {
    let _machine = root_or_skip!();
    // 100 ms of one CPU.
    let one_cpu_clock = number(&stat("-C 0 -x, -e cpu-clock -- sleep 0.1"), "cpu-clock");
    assert!((100.0..190.0).contains(&one_cpu_clock), "{one_cpu_clock}");
    let answer = stat("-C 0 -A -x, -e cpu-clock -- true");
    assert!(answer.err.starts_with("CPU0,") && answer.err.lines().count() == 1, "{answer:#?}");
    let line = stat("-C 9999 -e page-faults -- true").refused();
    assert!(line.contains("-C 9999 leaves nothing to count: software is read on CPU 0"), "{line}");
    let line = stat("-C x -e page-faults -- true").refused();
    assert!(line.contains("invalid value 'x' for '--cpu <CPUS>'"), "{line}");
}

/// perf's parser takes the beginning of a long option if it begins no other one.
#[test]
fn long_options_may_be_cut_short_where_that_is_unique() {
    let _machine = root_or_skip!();
    let rows = counts(&stat("--interval-p 30 --interval-cou 1 --field-sep , --ev page-faults"));
    assert_eq!(rows.len(), 1, "{rows:?}");
    let line = stat("--interval 30 -e page-faults").refused();
    assert!(line.contains("unexpected argument '--interval'"), "{line}");
    // The beginning of one that is refused.
    let line = stat("--topd -e page-faults -- true").refused();
    assert!(line.contains("-p core counts the events of the cores"), "{line}");
}

#[test]
fn events_that_counted_nothing_can_be_left_out() {
    let _machine = root_or_skip!();
    let typed = "-x, -e page-faults,software/config=7/,software/config=99/";
    let all = counts(&stat(&format!("{typed} -- true")));
    assert_eq!(all.len(), 3, "{all:?}");
    // alignment-faults are none on x86; what is not supported is said.
    let shown_counts = counts(&stat(&format!("{typed} --hide-zero-events -- true")));
    assert_eq!(shown_counts.len(), 2, "{shown_counts:?}");
    assert!(shown_counts.iter().any(|(value, _)| value == "<not supported>"), "{shown_counts:?}");
}

#[test]
fn clusters_and_caches_have_the_names_and_keys_of_perf() {
    let _machine = root_or_skip!();
    for (option, key, begin) in
        [("--per-cache", "cache", "S0-D0-L"), ("--per-cluster", "cluster", "S0-D0-CLS")]
    {
        let answer = stat(&format!("-j {option} -e page-faults -- true"));
        let row: serde_json::Value =
            serde_json::from_str(answer.err.lines().next().unwrap()).unwrap();
        assert!(row[key].as_str().unwrap().starts_with(begin), "{row}");
        let text = stat(&format!("{option} -e page-faults -I 20 --interval-count 1")).err;
        assert!(text.contains(&format!(" {key} ")) && text.contains(begin), "{text}");
    }
}

#[test]
fn cores_have_the_names_and_keys_of_perf() {
    let _machine = root_or_skip!();
    need("perf");
    let places = |text: &str| -> BTreeSet<String> {
        let rows = text.lines().filter(|line| line.starts_with('{'));
        rows.map(|row| {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            row["core"].as_str().unwrap().to_owned()
        })
        .collect()
    };
    let args = ["stat", "-a", "-j", "--per-core", "-e", "page-faults,cpu-clock", "true"];
    let ours = places(&Place::new().run(args).err);
    let perf = Command::new("perf").args(args).output().unwrap();
    assert_eq!(ours, places(&String::from_utf8(perf.stderr).unwrap()));
    assert!(ours.first().is_some_and(|core| core.starts_with("S0-D0-C")), "{ours:?}");
}

#[test]
fn no_event_at_all_counts_what_perf_counts_and_the_traffic() {
    let _machine = root_or_skip!();
    let events = counts(&stat("-x, -- true"));
    for event in ["context-switches", "cpu-migrations", "page-faults", "cpu-clock"] {
        assert!(events.iter().any(|(_, name)| name == event), "{event}: {events:?}");
    }
}

#[test]
fn events_of_time_need_no_counter() {
    let _machine = root_or_skip!();
    let time = number(&stat("-x, -e duration_time -- sleep 0.1"), "duration_time");
    assert!((100e6..5e9).contains(&time), "{time}");
    let times = "-x, -e user_time,system_time";
    let place = Place::new();
    let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let args = ["stat", "-x,", "-e", "user_time,system_time,duration_time", "--", "sh", "-c", spin];
    let busy = place.run(args);
    let [user, system, whole] =
        ["user_time", "system_time", "duration_time"].map(|time| number(&busy, time));
    assert!(user > 10e6 && user + system <= whole, "{busy:#?}");
    let copy =
        stat(&format!("{times} -- dd if=/dev/zero of=/dev/null bs=64M count=10 status=none"));
    assert!(number(&copy, "system_time") > 10e6, "{copy:#?}");
    // Without a command, and before its end, there is no such time.
    for args in ["--timeout 20", "-I 20 --interval-count 1 -- sleep 0.1"] {
        let answer = stat(&format!("{times} {args}"));
        assert!(answer.err.matches("<not counted>").count() == 2, "{answer:#?}");
    }
    let text = stat("-e page-faults -- true").err;
    assert!(text.contains(" seconds user\n") && text.contains(" seconds sys\n"), "{text}");
    for refused in ["record -o x.parquet -e user_time", "stat --for-each-cgroup / -e user_time"] {
        let line = place.refuses(refused.split(' '));
        assert!(line.contains("-e task-clock"), "{line}");
    }
}

#[test]
fn a_null_run_prints_the_time_only() {
    let _machine = root_or_skip!();
    let text = stat("-n -- sleep 0.05").err;
    assert!(text.contains("seconds time elapsed") && text.contains("seconds user"), "{text}");
    assert_eq!(stat("--null -x, -- true").err, "");
    let table = stat("-n -r 3 --table -- sleep 0.01").err;
    assert!(table.contains("# Table of individual measurements:\n"), "{table}");
    let runs = table.lines().filter(|line| line.ends_with('#') && line.contains(" ("));
    assert_eq!(runs.count(), 3, "{table}");
    assert!(stat("--table -r 1 -n -- true").refused().contains("-r 2 or more"));
    assert!(stat("-n -e page-faults -- true").refused().contains("cannot be used with"));
}

#[test]
fn hooks_run_before_and_after_each_run() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let hooks = ["stat", "-S", "-n", "-r", "2", "--pre", "echo pre >> log", "--post"];
    let args = [&hooks[..], &["echo post >> log", "--", "sh", "-c", "echo run >> log"]].concat();
    place.run(args).ok();
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert_eq!(log, "pre\nrun\npost\n".repeat(2));
    let line = place.refuses(["stat", "-n", "--pre", "exit 3", "--", "touch", "started"]);
    assert!(line.contains("the command of --pre failed: exit status: 3"), "{line}");
    let answer = place.run(["stat", "-x,", "-e", "page-faults", "--post", "exit 3", "--", "true"]);
    assert!(number(&answer, "page-faults") > 0.0, "{answer:#?}");
    assert!(answer.err.contains("the command of --post failed: exit status: 3"), "{answer:#?}");
}

#[test]
fn output_goes_where_the_option_says() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, crate::PROGRAM]).current_dir(place.path("."));
        Answer::of(command.output().unwrap())
    };
    let answer = shell("echo first > log; \"$0\" stat -n --log-fd 3 --append -- true 3>> log");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.starts_with("first\n") && log.contains("seconds time elapsed"), "{log}");
    assert!(shell("\"$0\" stat -n --log-fd 1 -- true").ok().contains("seconds time elapsed"));
    assert!(stat("-n --log-fd 77 -- true").refused().contains("cannot write to descriptor 77"));
    assert!(stat("-n --log-fd 3 -o x -- true").refused().contains("cannot be used with"));
    let quiet = stat("--quiet -e page-faults,software/config=99/ -- true");
    assert_eq!((quiet.code, quiet.err.as_str(), quiet.out.as_str()), (0, "", ""));
    let clear = "-I 20 --interval-count 1 --interval-clear -e page-faults";
    assert!(stat(clear).refused().contains("needs a terminal"));
    let rows =
        counts(&stat("-x, -e page-faults -I 30 --interval-count 1 --summary --no-csv-summary"));
    // The second line begins with the count, as without -I.
    assert_eq!(rows[1].1, "page-faults", "{rows:?}");
}

#[test]
fn zero_runs_are_repeated_until_ctrl_c() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let script = "echo . >> runs; sleep 0.05";
    let mut tool = place.tool(["stat", "-x,", "-r", "0", "-e", "page-faults", "--"]);
    let tool = tool.args(["sh", "-c", script]).stderr(Stdio::piped()).stdout(Stdio::piped());
    let child = tool.spawn().unwrap();
    let runs = || fs::read_to_string(place.path("runs")).unwrap_or_default().len() / 2;
    wait_until("four runs", || runs() >= 4);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert!(counts(&answer).len() >= 3, "{answer:#?}");
}

#[test]
fn events_that_cannot_be_counted_are_refused_with_the_reason() {
    let line = stat("-M Memory_BW -- true").refused();
    assert!(line.contains("there is no metric Memory_BW"), "{line}");
    assert!(line.contains("list metrics"), "{line}");
    let line = stat("-e cycles:u -- true").refused();
    assert!(line.contains("the modifier u counts user space only"), "{line}");
    for typed in ["record -e page-faults -- true", "report", "report -i perf.data"] {
        let line = stat(typed).refused();
        assert!(line.contains("`uncore-trace report FILE` shows it"), "{line}");
    }
}
