//! `uncore-trace stat` on this kernel: consistency of its output, and control by another process.
//! `perf_stat` compares it with `perf stat`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command::{Answer, Place};
use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::subject::{ending_signals, wait_until_handled};
use crate::harness::{need, or_skip, root_or_skip, uncore_trace};
use crate::wait::run_for;

/// A load with a number of page faults that other programs do not reach.
const FAULTS: &str = "dd if=/dev/zero of=/dev/null bs=64M count=4";

fn stat(args: &[&str]) -> Answer {
    Place::new().run([&["stat"], args].concat())
}

/// The lines of `-x,`, split into fields.
fn fields(answer: &Answer) -> Vec<Vec<String>> {
    let line = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect();
    answer.err.lines().filter(|line| !line.starts_with("uncore-trace:")).map(line).collect()
}

/// The objects of `-j`.
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

#[test]
fn intervals_add_up_to_the_total() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let args = "stat -e page-faults,duration_time -j -o - -I 100 --summary -- sh -c";
    let script = format!("{FAULTS} 2>/dev/null; sleep 0.35");
    let args = args.split(' ').chain([script.as_str()]);
    let rows = objects(&place.run(args).ok());
    for event in ["page-faults", "duration_time"] {
        let faults_in = |summary: bool| -> f64 {
            let rows = rows.iter().filter(|row| row["event"] == event);
            let rows = rows.filter(|row| row["summary"].is_null() != summary);
            rows.map(|row| number(row["counter-value"].as_str().unwrap())).sum()
        };
        assert!(
            faults_in(true) > 0.0 && (faults_in(true) - faults_in(false)).abs() < 0.5,
            "{event}: {rows:#?}"
        );
    }
    let times: Vec<_> = rows.iter().filter_map(|row| row["interval"].as_f64()).collect();
    // On a late machine an interval may be left out; the sum shows that no count is lost.
    assert!(times.len() >= 2 && times.is_sorted(), "{times:?}");
}

#[test]
fn stat_ends_after_its_intervals_or_its_time() {
    let _machine = root_or_skip!();
    for (args, lines) in [
        ("-x, -e page-faults -I 50 --interval-count 3 -- sleep 1", 3),
        ("-x, -e page-faults -I 50 --interval-count 3", 3),
        ("-x, -e page-faults --timeout 120 -- sleep 60", 1),
        ("-x, -e page-faults --timeout 120", 1),
    ] {
        let begin = Instant::now();
        let answer = stat(&args.split(' ').collect::<Vec<_>>());
        assert!(begin.elapsed() < Duration::from_secs(10), "{args}: {:?}", begin.elapsed());
        assert_eq!(answer.code, 0, "{args}: {answer:#?}");
        assert_eq!(fields(&answer).len(), lines, "{args}: {answer:#?}");
    }
}

#[test]
fn a_signal_prints_the_counts_so_far() {
    let _machine = root_or_skip!();
    for signal in [ending_signals(), vec![Signal::INT]].concat() {
        // If the command is left running it keeps stderr open.
        for command in [&[][..], &["--", "sleep", "2"]] {
            let mut tool = uncore_trace();
            tool.args(["stat", "-x,", "-e", "page-faults"]).args(command);
            let child = tool.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // The tool does when it begins to count.
            wait_until_handled(child.id(), &[Signal::INT, Signal::TERM]);
            run_for(Duration::from_millis(400));
            kill_process(Pid::from_child(&child), signal).unwrap();
            let answer = Answer::of(child.wait_with_output().unwrap());
            assert_eq!(answer.code, 0, "{answer:#?}");
            let ran = number(&fields(&answer)[0][3]);
            assert!(ran > 50e6, "{answer:#?}");
        }
    }
}

#[test]
fn the_commands_exit_code_is_passed_on_and_a_missing_one_leaves_nothing() {
    let _machine = root_or_skip!();
    let exits = |code: &str, more: &[&str]| {
        let script = format!("exit {code}");
        stat(&[&["-e", "page-faults"], more, &["--", "sh", "-c", &script]].concat()).code
    };
    assert_eq!([exits("0", &[]), exits("7", &[]), exits("7", &["-r", "2"])], [0, 7, 7]);
    // As with perf, the command begins with the first word that is no option.
    assert_eq!(stat(&["-e", "page-faults", "sh", "-c", "exit 5"]).code, 5);
    assert!(stat(&["-e", "page-faults", "-Z", "sh"]).refused().contains("-Z"));
    for more in [&[][..], &["-I", "10"], &["-r", "2"], &["-D", "10"], &["--for-each-cgroup", "/"]] {
        let place = Place::new();
        let args = ["stat", "-e", "page-faults", "-o", "counts"];
        let line = place.refuses([&args, more, &["--", "/no/such/command"]].concat());
        assert!(line.contains("/no/such/command"), "{more:?}: {line}");
    }
}

#[test]
fn runs_are_repeated_and_averaged() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let args = ["stat", "-j", "-e", "duration_time", "-e", "page-faults", "-r", "4", "-o", "-"];
    let script = "echo . >> runs; sleep 0.0$(wc -l < runs)";
    let begin = Instant::now();
    let rows = objects(&place.run([&args[..], &["--", "sh", "-c", script]].concat()).ok());
    let quarter = begin.elapsed().as_secs_f64() * 1e3 / 4.0;
    assert_eq!(place.content()[&place.path("runs")], b".\n.\n.\n.\n");
    let time = rows.iter().find(|row| row["event"] == "duration_time").unwrap();
    // 10, 20, 30 and 40 ms, and the time to start: the mean is above 25 ms; their standard error is
    // sqrt(500 / 3 / 4) = 6.5 ms, and no four greater values with that mean have a smaller one.
    let mean = number(time["counter-value"].as_str().unwrap()) / 1e6;
    assert!((25.0..=quarter).contains(&mean), "a quarter is {quarter} ms: {rows:#?}");
    let error = time["variance"].as_f64().unwrap() / 100.0 * mean;
    assert!((3.0..=mean).contains(&error), "{rows:#?}");
    let text = place.typed("stat -e page-faults -r 2 -- true").err;
    assert!(text.contains("(2 runs)") && text.contains("seconds time elapsed  ( +-"), "{text}");
}

#[test]
fn a_file_is_replaced_or_added_to() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let run = |args: &str| {
        let answer = place.typed(&format!("stat -e page-faults -o counts {args} -- true"));
        assert_eq!((answer.code, answer.err.as_str(), answer.out.as_str()), (0, "", ""));
        let text = fs::read_to_string(place.path("counts")).unwrap();
        (text.matches("# started on").count(), text.matches("page-faults").count())
    };
    assert_eq!(run(""), (1, 1));
    assert_eq!(run("--append"), (2, 2));
    assert_eq!(run("-x,"), (1, 1));
    assert_eq!(run("-j"), (0, 1));
    assert_eq!(run("-j --append"), (0, 2));
}

#[test]
fn unsupported_and_uncounted_events_are_marked_and_the_others_count() {
    let _machine = root_or_skip!();
    let events = "software/config=99/,page-faults";
    let answer = stat(&["-x,", "-e", events, "--", "true"]);
    assert_eq!(answer.code, 0, "{answer:#?}");
    let rows = fields(&answer);
    assert_eq!(rows[0][..3], ["<not supported>", "", "software/config=0x63/"], "{answer:#?}");
    assert!(number(&rows[1][0]) > 0.0, "{answer:#?}");
    assert_eq!(answer.err.matches("the PMU has no such event").count(), 1, "{answer:#?}");
    let off = stat(&["-x,", "-e", "page-faults", "-D", "-1", "--", "true"]);
    assert_eq!(fields(&off)[0][..3], ["<not counted>", "", "page-faults"], "{off:#?}");
    let none = stat(&["-e", "software/config=99/", "--", "true"]).refused();
    assert!(none.contains("no counter could be opened"), "{none}");
}

#[test]
fn a_delay_is_not_counted() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let begin = Instant::now();
    let answer = place.typed("stat -j -o - -e duration_time,page-faults -D 300 -- sleep 1.5");
    let most = begin.elapsed().as_secs_f64() * 1e3 - 300.0;
    let rows = objects(&answer.ok());
    let time = rows.iter().find(|row| row["event"] == "duration_time").unwrap();
    let ms = number(time["counter-value"].as_str().unwrap()) / 1e6;
    assert!(ms > 0.0 && ms <= most, "at most {most} ms: {rows:#?}");
}

/// A FIFO for each direction, held open so that neither side waits for the other.
fn fifos(place: &Place) -> (File, File) {
    let open = |name: &str| {
        let path = place.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        File::options().read(true).write(true).open(path).unwrap()
    };
    (open("ctl"), open("ack"))
}

fn ask(control: &mut File, ack: &mut File, order: &str) {
    control.write_all(order.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while answer.len() < 5 {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(ack, PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "{order:?} has the answer {answer:?} and no more");
        let mut byte = [0; 1];
        ack.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    assert_eq!(answer, b"ack\n\0");
}

#[test]
fn another_process_says_when_to_count() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let (mut control, mut ack) = fifos(&place);
    let mut tool = place.tool(["stat", "-j", "-e", "duration_time,page-faults", "-D", "-1"]);
    let tool = tool.args(["--control", "fifo:ctl,ack"]).stderr(Stdio::piped());
    let child = tool.stdout(Stdio::piped()).spawn().unwrap();
    ask(&mut control, &mut ack, "ping\n");
    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // Not counted.
        run_for(Duration::from_millis(200));
        let begin = Instant::now();
        ask(&mut control, &mut ack, "enable\n");
        run_for(Duration::from_millis(100));
        ask(&mut control, &mut ack, "disable\n");
        time += begin.elapsed();
    }
    ask(&mut control, &mut ack, "stop\n");
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(answer.code, 0, "{answer:#?}");
    let rows = answer.err.lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>();
    let rows = objects(&rows.join("\n"));
    let counted = rows.iter().find(|row| row["event"] == "duration_time").unwrap();
    let ms = number(counted["counter-value"].as_str().unwrap()) / 1e6;
    let within = time.as_secs_f64() * 1e3;
    assert!((180.0..=within).contains(&ms), "{ms} of {within} ms: {rows:#?}");
    let faults = rows.iter().find(|row| row["event"] == "page-faults").unwrap();
    assert!(faults["event-runtime"].as_f64().unwrap() > 180e6, "{rows:#?}");
}

#[test]
fn orders_are_obeyed_during_the_delay() {
    let _machine = root_or_skip!();
    for (orders, counted) in [(["ping\n", "stop\n"], false), (["enable\n", "stop\n"], true)] {
        let place = Place::new();
        let (mut control, mut ack) = fifos(&place);
        let mut tool = place.tool(["stat", "-x,", "-e", "page-faults", "-D", "60s"]);
        let tool = tool.args(["--control", "fifo:ctl,ack"]).stderr(Stdio::piped());
        let begin = Instant::now();
        let child = tool.stdout(Stdio::piped()).spawn().unwrap();
        for order in orders {
            ask(&mut control, &mut ack, order);
        }
        let answer = Answer::of(child.wait_with_output().unwrap());
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        assert_eq!(answer.code, 0, "{answer:#?}");
        assert_eq!(fields(&answer)[0][0] != "<not counted>", counted, "{answer:#?}");
    }
}

#[test]
fn an_unknown_command_is_not_acknowledged_here_nor_by_perf() {
    let _machine = root_or_skip!();
    need("perf");
    for program in [crate::PROGRAM, "perf"] {
        let place = Place::new();
        let (mut control, mut ack) = fifos(&place);
        let mut tool = Command::new(program);
        tool.args(["stat", "-a", "-e", "page-faults", "-D", "-1", "--control", "fifo:ctl,ack"]);
        let tool = tool.current_dir(place.path(".")).stderr(Stdio::piped());
        let child = tool.stdout(Stdio::piped()).spawn().unwrap();
        ask(&mut control, &mut ack, "ping\n");
        control.write_all(b"dissable\n").unwrap();
        ask(&mut control, &mut ack, "ping\n");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let answer = Answer::of(child.wait_with_output().unwrap());
        // Commands are handled in order: an answer to the unknown one would be the one that was
        // read, and that to `ping` would be left.
        assert_eq!(rustix::io::ioctl_fionread(&ack).unwrap(), 0, "{program}: {answer:#?}");
        let warned = answer.err.contains("unknown command 'dissable', not acknowledged");
        assert!(warned || program == "perf", "{answer:#?}");
    }
}

#[test]
fn orders_come_through_inherited_descriptors_too() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let (mut control, mut ack) = fifos(&place);
    let script = "exec \"$0\" \"$@\" 3<>ctl 4<>ack";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, crate::PROGRAM, "stat", "-x,"]);
    shell.args(["-e", "page-faults", "-D", "-1", "--control", "fd:3,4"]);
    let child = shell.current_dir(place.path(".")).stderr(Stdio::piped()).spawn().unwrap();
    for order in ["enable\n", "stop\n"] {
        ask(&mut control, &mut ack, order);
    }
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(answer.code, 0, "{answer:#?}");
    assert!(number(&fields(&answer)[0][3]) > 0.0, "{answer:#?}");
}

/// Sums of a run with `--for-each-cgroup`, by event and cgroup.
fn parts(rows: &[Value]) -> BTreeMap<(String, String), f64> {
    let mut parts = BTreeMap::new();
    for row in rows {
        let key = |name: &str| row[name].as_str().unwrap().to_owned();
        *parts.entry((key("event"), key("cgroup"))).or_default() += number(&key("counter-value"));
    }
    parts
}

#[test]
fn cgroups_get_their_parts_and_the_parts_add_up() {
    let _machine = root_or_skip!();
    let cgroup = or_skip!(Cgroup::new("stat"));
    let load = Load::forks();
    cgroup.add_process(load.pid());
    let place = Place::new();
    let name = cgroup.path.trim_start_matches('/');
    let pattern = format!("^{name}$");
    for which in [name, &pattern] {
        let args = ["stat", "-j", "-o", "-", "-e", "page-faults,cpu-clock", "--for-each-cgroup"];
        let args = [&args[..], &[which, "-I", "200", "--interval-count", "3"]].concat();
        // An interval during which the machine was stopped has no rows: one of three attempts must
        // have all.
        let mut attempts = (0..3).map(|_| {
            let answer = place.run(&args);
            assert!(answer.code == 0 || answer.err.contains("incomplete"), "{answer:#?}");
            let rows = objects(&answer.out);
            let times: Vec<_> = rows.iter().map(|row| row["interval"].as_f64().unwrap()).collect();
            assert!(times.is_sorted(), "{times:?}");
            (times.last().copied().unwrap(), times, rows)
        });
        let complete = |(last, times, _): &(f64, Vec<f64>, Vec<Value>)| {
            let distinct: BTreeSet<u64> = times.iter().map(|time| time.to_bits()).collect();
            *last > 0.4 && distinct.len() == 3
        };
        let Some((last, _, rows)) = attempts.find(complete) else {
            panic!("{which}: three times no three intervals of 200 ms");
        };
        let parts = parts(&rows);
        let part_of = |event: &str, cgroup: &str| {
            parts.get(&(event.to_owned(), cgroup.to_owned())).copied().unwrap_or_default()
        };
        let clock_ms: f64 =
            parts.iter().filter(|(key, _)| key.0 == "cpu-clock").map(|part| part.1).sum();
        // The clock of every CPU runs all the time, and the windows are together as long as the
        // intervals; ms.
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        let length = last * 1e3 * cpus;
        assert!((clock_ms / length - 1.0).abs() < 0.05, "{clock_ms} of {length}: {parts:#?}");
        assert!(part_of("page-faults", name) > 0.0, "{parts:#?}");
        assert!(part_of("cpu-clock", name) > 0.05 * clock_ms, "{parts:#?}");
        // The shares of each event and interval sum to the whole.
        let mut shares: BTreeMap<(String, u64), f64> = BTreeMap::new();
        for row in &rows {
            let interval_bits = row["interval"].as_f64().unwrap().to_bits();
            let event = row["event"].as_str().unwrap().to_owned();
            *shares.entry((event, interval_bits)).or_default() +=
                row["metric-value"].as_f64().unwrap();
        }
        assert!(shares.values().all(|share| (share - 100.0).abs() < 1e-3), "{shares:#?}");
        let used = rows.iter().filter(|row| row["cgroup"] == name);
        assert!(used.clone().count() > 0 && used.clone().all(|row| row.get("method").is_some()));
    }
}

#[test]
fn impossible_options_of_stat_are_refused_with_the_remedy() {
    let _machine = root_or_skip!();
    let refused = |args: &str, words: &[&str]| {
        let all: Vec<_> =
            ["stat", "-e", "page-faults"].into_iter().chain(args.split(' ')).collect();
        let line = Place::new().refuses(all);
        for word in words {
            assert!(line.contains(word), "{args}: no {word:?} in: {line}");
        }
    };
    refused("-I 0 -- true", &["--interval-print", "1ms"]);
    refused("-I x -- true", &["with a unit"]);
    refused("--interval-count 2 -- true", &["--interval-print"]);
    refused("-r -1 -- true", &["--repeat"]);
    refused("-r 0", &["-- CMD", "--timeout"]);
    refused("-r 2", &["-- CMD", "--timeout"]);
    refused("-r 2 -I 100 -- true", &["--repeat", "--interval-print"]);
    refused("-D -2 -- true", &["--delay"]);
    refused("-x, -j -- true", &["--json-output"]);
    refused("--per-socket --per-node -- true", &["--per-socket", "--per-node"]);
    refused("--metric-only -- true", &["-M"]);
    refused("-M nonsense -- true", &["no metric nonsense"]);
    refused("--control pipe:x -- true", &["fifo:CTL"]);
    refused("--control fifo:/no/such/fifo -- true", &["/no/such/fifo", "mkfifo"]);
    refused("-o /no/such/dir/file -- true", &["cannot write /no/such/dir/file"]);
    refused(
        "--for-each-cgroup no/such/cgroup -- true",
        &["no cgroup /no/such/cgroup", "; the nearest "],
    );
    refused("--for-each-cgroup (x -- true", &["not a regular expression"]);
    refused("--for-each-cgroup / -D -1 -- true", &["--control"]);
    refused("--for-each-cgroup / -I 1500us -- true", &["-I", "whole milliseconds"]);
}
