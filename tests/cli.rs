//! What the commands say and leave behind when what was typed, or what they find, is bad; and that
//! names and pipes they do not control do no harm. Everything is tried on the real binary.
//!
//! That a kernel has no BTF or no ring buffer cannot be brought about on a machine that has them:
//! `doctor` is asked about a captured machine instead.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow::array::RecordBatch;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::reader::Recording;
use uncore_trace::tables::writer::{Create, Target, Writer};

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
fn unknown_names_are_named_with_what_there_is() {
    record_refuses(&["-p", "bogus"], &["no group 'bogus'", "the groups are mem, cache"]);
    record_refuses(&["-p", "hots"], &["no group 'hots'", "did you mean host?"]);
    record_refuses(&[], &["-p GROUP, -e EVENT or -M METRIC"]);
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
    let line = place.refuses(["record", "-p", "host", "--", "true"]);
    assert!(line.contains("-o is needed"), "{line}");
    // Else they would take their time and leave nothing.
    for (flag, output) in [("--slices", "x.parquet"), ("--io", "x.parquet"), ("--io", "-")] {
        let line =
            place.refuses(["record", "-p", "host", flag, "-o", output, "--duration", "100ms"]);
        assert!(line.contains(flag) && line.contains("give a directory"), "{line}");
    }
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
fn without_privileges_it_says_which_are_needed() {
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
    let line = place.refuses(["list", "--root", "/nonexistent"]);
    assert!(line.contains("/nonexistent/sys") && line.contains("--root"), "{line}");
    assert!(place.content().is_empty());
}

/// A directory `name` here with the family of Grace's PCIe ports, the tenth port left out.
fn nine_ports(place: &Place, name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog/nvidia_pcie.toml");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("root_port=0x3ff"), "{text}");
    let dir = place.path(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("ports.toml"), text.replace("root_port=0x3ff", "root_port=0x1ff")).unwrap();
    dir
}

#[test]
fn a_family_from_outside_replaces_the_embedded_one() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let plan = ["record", "--dry-run", "--root", &root, "-p", "pcie"];
    assert!(place.run(plan).ok().contains("root_port=0x3ff"));
    nine_ports(&place, "given");
    let given = place.run([&plan[..], &["--catalog", "given"]].concat()).ok();
    assert!(given.contains("root_port=0x1ff") && !given.contains("root_port=0x3ff"), "{given}");

    let user = nine_ports(&place, "config/uncore-trace/catalog");
    let with_user = |args: &[&str]| {
        let config = place.path("config");
        Answer::of(place.tool(args).env("XDG_CONFIG_HOME", config).output().unwrap()).ok()
    };
    assert_eq!(with_user(&plan), given);
    let text = fs::read_to_string(user.join("ports.toml")).unwrap();
    let about = text.replace("NVIDIA Grace PCIe root ports", "ports as the user knows them");
    fs::write(user.join("ports.toml"), about).unwrap();
    let list = ["list", "pmus", "--root", &root];
    assert!(with_user(&list).contains("ports as the user knows them"));
    let list = with_user(&[&list[..], &["--catalog", "given"]].concat());
    assert!(list.contains("NVIDIA Grace PCIe root ports"), "{list}");
}

#[test]
fn a_recording_names_the_families_from_outside() {
    if !has_root("the catalog in a recording's metadata") {
        return;
    }
    let place = Place::new();
    nine_ports(&place, "given");
    for (options, files) in [("", "[]"), ("--catalog given", r#"["given/ports.toml"]"#)] {
        let typed = format!("record -p host -o x.parquet --force {options} -- true");
        place.typed(&typed).recorded();
        let recording = Recording::open(&place.path("x.parquet")).unwrap();
        let table = recording.table(&fabric::TABLE).unwrap();
        assert_eq!(table.metadata()[metadata::CATALOG], files);
    }
}

#[test]
fn a_catalog_that_cannot_be_used_is_refused_with_its_name() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let refuses = |words: &[&str]| {
        for verb in ["record --dry-run -p pcie", "list"] {
            let args = verb.split(' ').chain(["--root", &root, "--catalog", "given"]);
            let line = place.refuses(args);
            assert!(words.iter().all(|word| line.contains(word)), "{verb}: {line}");
        }
    };
    refuses(&["the catalog given", "o such file or directory"]);
    fs::create_dir(place.path("given")).unwrap();
    refuses(&["the catalog given holds no .toml file"]);
    let file = nine_ports(&place, "given").join("ports.toml");
    let sound = fs::read_to_string(&file).unwrap();
    fs::write(&file, sound.replace("group = \"pcie\"", "group = \"pci\"")).unwrap();
    let before = sound.lines().take_while(|line| !line.starts_with("group"));
    let line = format!("given/ports.toml, line {}: ", before.count() + 1);
    refuses(&[line.as_str(), "pci", "pcie"]);
    fs::write(&file, "family = \"x\"\nabout\n").unwrap();
    refuses(&["given/ports.toml, line 2: ", "key with no value"]);

    fs::write(&file, sound.replace("root_port=0x1ff", "root_port=0x7ff")).unwrap();
    let line =
        place.refuses(["record", "--dry-run", "-p", "pcie", "--root", &root, "--catalog", "given"]);
    assert!(line.contains("nvidia_pcie") && line.contains("root_port"), "{line}");
}

#[test]
fn doctor_says_what_a_machine_without_bpf_lacks() {
    let place = Place::new();
    let answer = place.run(["doctor", "--root", &place.machine("vm-no-uncore")]);
    assert_eq!(answer.code, 2);
    assert!(answer.out.contains("FAIL  BTF"), "{answer:?}");
    assert!(answer.out.contains("CONFIG_BPF_SYSCALL=y"), "{answer:?}");
}

/// What can be counted is said in the same words by both.
#[test]
fn doctor_begins_as_list_does() {
    let place = Place::new();
    for name in ["vm-no-uncore", "grace-2s"] {
        let root = place.machine(name);
        let begin = |command| {
            let text = place.run([command, "--root", &root]).out;
            text.lines().take(5).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(begin("doctor"), begin("list"));
        assert!(begin("doctor").concat().contains("-p host"), "{:#?}", begin("doctor"));
    }
    let text = place.run(["doctor", "--root", "/nonexistent"]).out;
    assert!(text.starts_with("cannot find what can be counted here: "), "{text}");
}

/// Without a PMU for any, the refusal once listed every PMU of every vendor in 2000 characters.
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

/// A recording of one row, made without the kernel.
pub(crate) fn small_recording(path: &Path) {
    small_recording_into(Target::File(path.to_owned()));
}

fn small_recording_into(target: Target) {
    small_recording_with(target, &[]);
}

/// With more metadata.
fn small_recording_with(target: Target, more: &[(&str, &str)]) {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let pairs: BTreeMap<_, _> = [version].into_iter().chain(more).collect();
    let mut writer = Writer::create(target, Create::default(), &pairs).unwrap();
    writer.write(&fabric::TABLE, &one_row()).unwrap();
    writer.finish(&pairs).unwrap();
}

/// A row of `fabric` with hostile names.
fn one_row() -> RecordBatch {
    rows(&[3.0], Some(1.0))
}

/// The rows of one window with these values, each of a process with hostile names.
fn rows(values: &[f64], confidence: Option<f32>) -> RecordBatch {
    let mut rows = fabric::Builder::default();
    for (pid, value) in (7..).zip(values) {
        append(&mut rows, pid, *value, values.iter().sum(), confidence);
    }
    rows.finish()
}

fn append(rows: &mut fabric::Builder, pid: i32, value: f64, total: f64, confidence: Option<f32>) {
    rows.append(&fabric::Row {
        ts: 1_700_000_000_000_000_000,
        mono_ns: 10_000_000,
        window_ns: 10_000_000,
        host: "test",
        boot_id: "3f4e5d6c",
        cluster: None,
        counter: 0,
        socket: None,
        cpu: 0,
        subsystem: "host",
        pmu: "software",
        event: "page-faults",
        filter: "",
        unit: "count",
        owner: "task",
        pid: Some(pid),
        number: None,
        comm: Some("a\u{1b}[2Jb\nc"),
        cgroup_id: Some(1),
        cgroup: Some("/x\u{1b}]0;title\u{7}\u{202e}"),
        container: Some("c\u{9b}31m,\"\n\u{1b}[2J"),
        pod: Some("p\u{202e}\r\n=1+1"),
        value: Some(value),
        total: Some(total),
        running: 1.0,
        method: "exact",
        confidence,
    });
}

#[test]
fn files_that_are_no_recording_are_refused() {
    let place = Place::new();
    let good = place.path("good.parquet");
    small_recording(&good);
    let bytes = fs::read(&good).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(place.path(name), bytes).unwrap();
    write("cut.parquet", &bytes[..bytes.len() / 2]);
    write("tail.parquet", &bytes[bytes.len() / 2..]);
    write("empty.parquet", b"");
    write("text.parquet", b"PAR1 is how it begins, and nothing more PAR1");
    fs::create_dir(place.path("dir")).unwrap();
    foreign(&place.path("foreign.parquet"));
    let stream = File::create(place.path("stream.arrow")).unwrap();
    small_recording_into(Target::Stream(Box::new(stream)));
    let cases = [
        ("cut.parquet", "not a readable Parquet file"),
        ("tail.parquet", "tail.parquet"),
        ("empty.parquet", "is empty"),
        ("text.parquet", "not a readable Parquet file"),
        ("foreign.parquet", "not one that uncore-trace recorded"),
        ("stream.arrow", "is an Arrow IPC stream"),
        ("dir", "no fabric.parquet"),
        ("none.parquet", "cannot open none.parquet"),
    ];
    for verb in ["report", "check", "repair"] {
        for (name, word) in cases {
            let answer = place.run([verb, name]);
            if name == "tail.parquet" && answer.code == 0 {
                // Its footer is whole: these look at no more than that where there are no rows to
                // read.
                assert_ne!(verb, "check");
                continue;
            }
            let line = answer.refused();
            assert!(line.contains(name) && line.contains(word), "{verb} {name}: {line}");
        }
    }
}

/// A recording of another schema is refused by every command, and the line says who wrote it.
#[test]
fn a_recording_of_another_schema_is_refused() {
    let place = Place::new();
    let old = [(metadata::SCHEMA_VERSION, "1"), (metadata::TOOL_VERSION, "0.0.9\u{1b}[2J")];
    small_recording_with(Target::File(place.path("file.parquet")), &old);
    small_recording_with(Target::Dataset(place.path("run")), &old);
    let pairs = old.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let target = Target::File(place.path("killed.parquet"));
    let mut killed = Writer::create(target, Create::default(), &pairs).unwrap();
    killed.write(&fabric::TABLE, &one_row()).unwrap();
    killed.seal().unwrap();
    drop(killed);
    let before = fs::read_dir(place.path("killed.parquet.partial")).unwrap().count();
    for typed in [
        "report file.parquet",
        "check file.parquet",
        "repair file.parquet",
        "repair killed.parquet",
        "report run",
        "check run",
        "repair run",
        "attribute run -o again.parquet",
    ] {
        let line = place.typed(typed).refused();
        assert!(line.contains("schema version 1, written by uncore-trace 0.0.9"), "{line}");
        assert!(line.contains("record again with this version"), "{line}");
        assert!(line.contains(&format!("schema version {SCHEMA_VERSION}")), "{line}");
    }
    assert!(!place.path("again.parquet").exists() && !place.path("killed.parquet").exists());
    let after = fs::read_dir(place.path("killed.parquet.partial")).unwrap().count();
    assert_eq!(before, after, "what was recorded is kept");
}

/// Shares that are made from the tables of two recordings would look sound.
#[test]
fn a_missing_or_foreign_table_is_not_attributed() {
    let place = Place::new();
    for name in ["run", "other"] {
        small_recording_with(Target::Dataset(place.path(name)), &[(metadata::HOST, name)]);
    }
    let table = place.path("run/runtime.parquet");
    fs::copy(place.path("other/runtime.parquet"), &table).unwrap();
    let line = place.typed("attribute run -o again.parquet").refused();
    assert!(line.contains("runtime.parquet is of another recording; put its own"), "{line}");
    fs::remove_file(&table).unwrap();
    let line = place.typed("attribute run -o again.parquet").refused();
    assert!(line.contains("runtime.parquet is missing; put its own table back"), "{line}");
    assert!(!place.path("again.parquet").exists());
}

/// A table of numbers from which some are missing looks like any other.
#[test]
fn a_report_says_first_what_is_missing() {
    let place = Place::new();
    let pairs = [
        (metadata::COMPLETE, "false"),
        (metadata::LOSS, r#"{"late_tick":12,"lost_sample":5286}"#),
        (metadata::LOSS_FIRST, r#"{"late_tick":1000000,"lost_sample":4000000}"#),
    ];
    small_recording_with(Target::File(place.path("lost.parquet")), &pairs);
    let whole = [(metadata::COMPLETE, "true"), (metadata::LOSS, r#"{"late_tick":12}"#)];
    small_recording_with(Target::File(place.path("whole.parquet")), &whole);
    let line =
        "incomplete: 5286 lost_sample (first at 0.004 s); see `uncore-trace check lost.parquet`";
    let report = |options: &str| place.typed(&format!("report {options}"));

    let answer = report("lost.parquet");
    assert_eq!(answer.out.lines().next(), Some(line), "{answer:?}");
    assert_eq!(answer.err, "");
    for (options, words) in [("--json", r#""complete":false,"incomplete":{"#), ("--csv", ",false")]
    {
        let answer = report(&format!("lost.parquet {options}"));
        assert_eq!(answer.err, format!("uncore-trace: warning: {line}\n"));
        assert!(answer.out.contains(words) && !answer.out.contains(line), "{answer:?}");
    }
    for (options, words) in [
        ("", "page-faults  3.00 in"),
        ("--json", r#""complete":true,"incomplete":null}"#),
        ("--csv", ",true"),
    ] {
        let answer = report(&format!("whole.parquet {options}"));
        assert_eq!(answer.err, "");
        assert!(answer.out.contains(words) && !answer.out.contains("incomplete:"), "{answer:?}");
    }
    let json = report("lost.parquet --json").out;
    let json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let loss = serde_json::json!([
        {"cause": "lost_sample", "count": 5286, "first_ns": 4_000_000}
    ]);
    assert_eq!(json["incomplete"]["losses"], loss);
}

/// A bill has them beside its amount.
#[test]
fn a_report_has_the_interval_of_each_value() {
    let place = Place::new();
    let interval = |confidence, form: &str| {
        let pairs =
            BTreeMap::from([(metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string())]);
        let create = Create { overwrite: true, ..Create::default() };
        let mut writer =
            Writer::create(Target::File(place.path("x.parquet")), create, &pairs).unwrap();
        writer.write(&fabric::TABLE, &rows(&[2.0, 1.0], confidence)).unwrap();
        writer.finish(&pairs).unwrap();
        place.typed(&format!("report x.parquet --by pid {form}")).ok()
    };
    for (confidence, ends, shown) in [
        (Some(1.0), Some((2.0, 2.0)), " 2.00  "),
        (Some(0.9), Some((1.8, 2.2)), " 1.80-2.20  "),
        (Some(0.0), Some((0.0, 3.0)), " 0-3.00  "),
        (None, None, " -  "),
    ] {
        let json = interval(confidence, "--json");
        let json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        let found = json["value_low"].as_f64().zip(json["value_high"].as_f64());
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs().max((b - d).abs()) < 1e-6;
        let agree = found.zip(ends).map_or(found == ends, |(found, ends)| near(found, ends));
        assert!(agree, "{confidence:?}: {json}");
        let text = interval(confidence, "--ascii");
        assert!(text.contains("90 % interval") && text.contains(shown), "{text}");
        let csv = interval(confidence, "--csv");
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let (names, first) = (lines.next().unwrap(), lines.next().unwrap());
        let at = |name| first[names.iter().position(|it| *it == name).unwrap()].parse().ok();
        assert_eq!(at("value_low").zip(at("value_high")), found, "{csv}");
    }
}

fn foreign(path: &Path) {
    use arrow::array::Int32Array;
    use std::sync::Arc;
    let column: arrow::array::ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Every part of a sound file is overwritten in turn: an answer or one line, never a panic.
#[test]
fn a_damaged_recording_never_panics() {
    let place = Place::new();
    let path = place.path("x.parquet");
    small_recording(&path);
    let bytes = fs::read(&path).unwrap();
    for at in (4..bytes.len()).step_by(bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, damaged).unwrap();
        for verb in ["report", "check"] {
            let answer = place.run([verb, "x.parquet"]);
            assert!((0..=2).contains(&answer.code), "byte {at}: {verb}: {answer:?}");
            assert!(!answer.err.contains("panicked"), "byte {at}: {answer:?}");
        }
    }
}

#[test]
fn names_in_a_recording_cannot_steer_the_terminal() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    for by in ["cgroup", "container", "pod", "pid", "pmu", "port", "device", "owner"] {
        for form in ["", "--ascii", "--json", "--csv"] {
            let text = place.typed(&format!("report x.parquet --by {by} {form}")).ok();
            let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(steers), "{text:?}");
        }
    }
    let text = place.typed("report x.parquet --by pid").ok();
    assert!(text.contains("a\\u{1b}[2Jb\\nc (7)"), "{text}");
    let text = place.typed("report x.parquet").ok();
    assert!(text.contains("/x\\u{1b}]0;title\\u{7}\\u{202e}"), "{text}");
}

/// The reader has gone before the first byte, which `| head -1` only brings about at times.
#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    let root = place.machine("all-drivers-acpi");
    let commands: [&[&str]; 7] = [
        &["report", "x.parquet"],
        &["report", "x.parquet", "--json"],
        &["list", "--root", &root],
        &["record", "--dry-run", "-p", "all", "--root", &root],
        &["record", "--dry-run", "--json", "-p", "all", "--root", &root],
        &["--help"],
        &["record", "--help"],
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let answer =
            Answer::of(place.tool(args).stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        assert!(!answer.err.contains("panicked") && !answer.err.contains("ipe"), "{answer:?}");
    }
}

/// A file system of 1 MiB; gone with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&path);
        assert!(mount.status().unwrap().success(), "cannot mount a tmpfs at {}", path.display());
        Self(path)
    }

    fn fill(&self, bytes: usize) {
        fs::write(self.0.join("filler"), vec![0; bytes]).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that stays does no harm: the result of the test is what counts.
        let _status = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_what_was_sealed() {
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let place = Place::new();
    let disk = SmallDisk::mount(place.path("small"));
    disk.fill(700_000);
    let typed = "record -p host -I 1ms --flush 100ms --duration 60s -o small/run.parquet";
    let line = place.typed(typed).refused();
    let way_out = "`uncore-trace repair small/run.parquet`";
    assert!(line.contains("no space left on the disk") && line.contains(way_out), "{line}");
    assert!(!place.path("small/run.parquet").exists());
    let line = place.typed("report small/run.parquet").refused();
    assert!(line.contains(way_out), "{line}");
    fs::remove_file(place.path("small/filler")).unwrap();
    place.typed("repair small/run.parquet").ok();
    assert!(!place.path("small/run.parquet.partial").exists());
    assert!(place.typed("report small/run.parquet").ok().contains("context-switches"));
    Recording::open(&place.path("small/run.parquet")).unwrap();
}

#[test]
fn a_disk_that_is_full_from_the_start_is_left_as_it_was() {
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let place = Place::new();
    let disk = SmallDisk::mount(place.path("small"));
    disk.fill(1 << 20);
    for output in ["small/run.parquet", "small/run/"] {
        let line = place.refuses(["record", "-p", "host", "-o", output, "--", "true"]);
        assert!(line.contains(output) && line.contains("no space left"), "{line}");
    }
}
