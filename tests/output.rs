//! Where a recording may be written, who may read it, and two processes with the same output. All
//! tests use the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FileType, Mode, makedev, mknodat};
use uncore_trace::schema::{SCHEMA_VERSION, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

use crate::command::{Answer, Place};
use crate::harness::recorder::Recorder;
use crate::harness::subject::Measurement;
use crate::harness::{need, root_or_skip, rows};
use crate::wait::wait_or_explain;

/// A dataset without rows, made without the kernel.
fn empty_dataset(path: &Path) {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    let pairs = BTreeMap::from([version]);
    let target = RecordingTarget::Dataset(path.to_owned());
    Writer::create(target, CreateOptions::default(), &pairs).unwrap().finish(&pairs).unwrap();
}

/// The permission bits of what is at a path.
fn bits(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// `attribute s -o s/readings.parquet --force` used to destroy its input.
#[test]
fn attribute_does_not_replace_its_input() {
    let place = Place::new();
    empty_dataset(&place.path("s"));
    fs::create_dir(place.path("s/sub")).unwrap();
    symlink("s", place.path("link")).unwrap();
    symlink("s/readings.parquet", place.path("soft.parquet")).unwrap();
    fs::hard_link(place.path("s/runtime.parquet"), place.path("hard.parquet")).unwrap();
    let absolute = place.path("s/loss.parquet").display().to_string();
    for output in [
        "s/readings.parquet",
        "./s//readings.parquet",
        "s/../s/readings.parquet",
        "s/sub/../tasks.parquet",
        "link/readings.parquet",
        "s/new.parquet",
        "s/sub/new.parquet",
        "link/sub/fabric.parquet",
        &absolute,
    ] {
        let line = place.refuses(["attribute", "s", "-o", output, "--force"]);
        assert!(line.contains("inside the recording s") && line.contains(output), "{line}");
    }
    for (output, table) in [("soft.parquet", "readings"), ("hard.parquet", "runtime")] {
        let line = place.refuses(["attribute", "link/", "-o", output, "--force"]);
        assert!(line.contains(&format!("same file as link/{table}.parquet")), "{line}");
    }
    let mut command = place.tool(["attribute", ".", "-o", "readings.parquet", "--force"]);
    let line = Answer::of(command.current_dir(place.path("s")).output().unwrap()).refused();
    assert!(line.contains("inside the recording"), "{line}");
    fs::copy(place.path("s/fabric.parquet"), place.path("run.parquet")).unwrap();
    let line = place.refuses(["attribute", "run.parquet", "-o", "run.parquet", "--force"]);
    assert!(line.contains("without raw tables"), "{line}");
}

#[test]
fn attribute_replaces_the_timeline_of_its_recording() {
    let _machine = root_or_skip!();
    let place = Place::new();
    place.typed("record -p host -o s/ --duration 300ms").recorded();
    let before = rows::read_shares(&place.path("s")).len();
    let line = place.refuses(["attribute", "s", "-o", "s/fabric.parquet"]);
    assert!(line.contains("s/fabric.parquet exists; use --force"), "{line}");
    place.typed("attribute s -o s/fabric.parquet --force").ok();
    assert_eq!(rows::read_shares(&place.path("s")).len(), before);
    place.typed("check s").ok();
    let readings = place.path("s/readings.parquet");
    let mut bytes = fs::read(&readings).unwrap();
    bytes[40] ^= 1;
    fs::write(&readings, bytes).unwrap();
    let line = place.refuses(["attribute", "s", "-o", "x.parquet"]);
    assert!(line.contains("s/readings.parquet is damaged in row group 0"), "{line}");
    let checked = place.typed("check s");
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains("row group 0 (rows 0 to "), "{checked:?}");
}

/// Starts `record -p host ARGS` and waits for the first rows on disk, in `partial`.
fn start_recorder(place: &Place, args: &[&str], partial: &str) -> Measurement {
    let args = [&["record", "-p", "host", "--flush", "100ms"], args].concat();
    let recorder = Measurement::start(&mut place.tool(args));
    let segment = place.path(partial).join("000001-000001.parquet");
    wait_or_explain("the first rows", || segment.exists().then_some(()), || recorder.stderr_text());
    recorder
}

/// The second recorder used to advise removing the directory to which the first was writing.
#[test]
fn a_live_recording_is_reported_as_live() {
    let _machine = root_or_skip!();
    let place = Place::new();
    for (output, partial) in
        [("run.parquet", "run.parquet.partial"), ("run/", "run/readings.parquet.partial")]
    {
        let recorder = start_recorder(&place, &["-o", output], partial);
        let writer = format!("is being recorded now (process {})", recorder.pid());
        for typed in [
            format!("record -p host -o {output} -- true"),
            format!("record -p host -o {output} --force -- true"),
            format!("repair {output}"),
        ] {
            let line = place.typed(&typed).refused();
            assert!(line.contains(&writer) && line.contains(output), "{typed}: {line}");
            assert!(!line.contains("remove"), "{typed}: {line}");
        }
        drop(recorder);
        let line = place.typed(&format!("record -p host -o {output} -- true")).refused();
        let repair = format!("`uncore-trace repair {output}`");
        assert!(line.contains("did not end") && line.contains(&repair), "{line}");
        assert!(!line.contains("remove"), "{line}");
        place.typed(&format!("repair {output}")).ok();
    }
}

/// The first recorder used to say that its rows were kept, although its segments had been removed.
#[test]
fn a_recorder_whose_segments_were_removed_reports_the_loss() {
    let _machine = root_or_skip!();
    let place = Place::new();
    // Renamed first, because otherwise the recorder could write into a directory that is half
    // removed.
    let remove = |partial: &str| {
        fs::rename(place.path(partial), place.path("away")).unwrap();
        fs::remove_dir_all(place.path("away")).unwrap();
    };
    let mut recorder = start_recorder(&place, &["-o", "run.parquet"], "run.parquet.partial");
    remove("run.parquet.partial");
    let line = recorder.wait().1;
    assert!(line.contains("run.parquet.partial was removed or replaced"), "{line}");
    assert!(line.contains("the whole recording is lost"), "{line}");
    assert!(!line.contains("kept") && !line.contains("repair"), "{line}");

    let mut recorder = start_recorder(&place, &["-o", "run/"], "run/readings.parquet.partial");
    remove("run/readings.parquet.partial");
    let line = recorder.wait().1;
    assert!(line.contains("segments of readings are lost; to keep the other data"), "{line}");
    place.typed("repair run").ok();
    place.typed("report run").ok();
}

/// A directory that replaces a removed one belongs to somebody else.
#[test]
fn a_recorder_leaves_files_that_replaced_its_segments() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let mut recorder = start_recorder(&place, &["-o", "run.parquet"], "run.parquet.partial");
    fs::rename(place.path("run.parquet.partial"), place.path("away")).unwrap();
    fs::create_dir(place.path("run.parquet.partial")).unwrap();
    fs::write(place.path("run.parquet.partial/kept"), "kept").unwrap();
    let (_, stderr) = recorder.wait();
    assert!(stderr.contains("was removed or replaced"), "{stderr}");
    let entries: Vec<_> = fs::read_dir(place.path("run.parquet.partial")).unwrap().collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
}

/// `check` used to pass 15 of 150 recordings in which one byte had changed, and recordings without
/// one of their tables.
#[test]
fn check_finds_every_changed_byte_and_every_missing_table() {
    let _machine = root_or_skip!();
    let place = Place::new();
    place.typed("record -p host -I 100ms -o run.parquet --duration 200ms").recorded();
    place.typed("check run.parquet").ok();
    let path = place.path("run.parquet");
    let sound = fs::read(&path).unwrap();
    for at in (0..sound.len()).step_by(97) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        let answer = place.typed("check run.parquet");
        assert!([1, 2].contains(&answer.code), "byte {at} of {}: {answer:?}", sound.len());
        assert!(!answer.err.contains("panicked"), "byte {at}: {answer:?}");
    }
    place.typed("record -p host -o run/ --duration 200ms").recorded();
    place.typed("check run").ok();
    for entry in fs::read_dir(place.path("run")).unwrap() {
        let path = entry.unwrap().path();
        let table = path.file_name().unwrap().to_str().unwrap();
        let sound = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let answer = place.typed("check run");
        assert!([1, 2].contains(&answer.code), "{table}: {answer:?}");
        let answer_text = format!("{}{}", answer.out, answer.err);
        assert!(answer_text.contains(table), "{table}: {answer_text}");
        fs::write(&path, sound).unwrap();
    }
    place.typed("check run").ok();
}

/// Files used to be 0644, with the command line and the names of everybody's processes.
#[test]
fn only_the_owner_reads_a_recording_unless_asked_otherwise() {
    let _machine = root_or_skip!();
    let place = Place::new();
    for (umask, options, file, directory) in [
        ("022", "", 0o600, 0o700),
        ("000", "", 0o600, 0o700),
        ("077", "--mode 0644", 0o644, 0o755),
        ("022", "--mode 660", 0o660, 0o770),
    ] {
        let tool = crate::PROGRAM;
        let shell = |line: &str| {
            let script = format!("umask {umask}; exec {tool} {line} {options}");
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(place.path(""));
            Answer::of(command.output().unwrap()).recorded();
        };
        shell("record -p host -o run.parquet --duration 100ms --force");
        assert_eq!(bits(&place.path("run.parquet")), file, "umask {umask} {options}");
        shell("record -p host -o run/ --duration 100ms");
        assert_eq!(bits(&place.path("run")), directory, "umask {umask} {options}");
        for entry in fs::read_dir(place.path("run")).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(bits(&path), file, "umask {umask} {options}: {}", path.display());
        }
        shell("attribute run -o attributed.parquet --force");
        assert_eq!(bits(&place.path("attributed.parquet")), file, "umask {umask} {options}");
        shell("stat -p host -o counts --timeout 10");
        assert_eq!(bits(&place.path("counts")), file, "umask {umask} {options}");
        fs::remove_file(place.path("counts")).unwrap();
        fs::remove_dir_all(place.path("run")).unwrap();
    }
}

#[test]
fn running_and_repaired_recordings_have_the_mode() {
    let _machine = root_or_skip!();
    let place = Place::new();
    for (options, file, directory) in [(None, 0o600, 0o700), (Some("0640"), 0o640, 0o750)] {
        let args: Vec<&str> = ["-p", "host", "--force"]
            .into_iter()
            .chain(options.map(|_| "--mode"))
            .chain(options)
            .collect();
        let mut recorder = Recorder::start(&place.path("run.parquet"), &args);
        let partial = place.path("run.parquet.partial");
        assert_eq!(bits(&partial), directory);
        for entry in fs::read_dir(&partial).unwrap() {
            let path = entry.unwrap().path();
            // A file that is being written may be renamed now.
            let Ok(found) = fs::metadata(&path) else { continue };
            assert_eq!(found.permissions().mode() & 0o777, file, "{}", path.display());
        }
        recorder.kill();
        place.typed("repair run.parquet").ok();
        assert_eq!(bits(&place.path("run.parquet")), file);
    }
}

#[test]
fn a_mode_that_cannot_be_is_refused() {
    let place = Place::new();
    for mode in ["0888", "rw", "0755", "0444"] {
        let line = place.refuses(["record", "-p", "host", "-o", "x.parquet", "--mode", mode]);
        assert!(line.contains(mode) && line.contains("in octal: 0600, 0640"), "{line}");
    }
}

#[test]
fn a_command_line_can_be_left_out() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let holds = |options: &[&str]| {
        let secret = "MYSQL_PWD=open-sesame";
        let args = ["record", "-p", "host", "-o", "run.parquet", "--force"];
        let args = [&args, options, &["--", "env", secret, "true"]].concat();
        place.run(args).recorded();
        let bytes = fs::read(place.path("run.parquet")).unwrap();
        let has_secret = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        let pair = rows::metadata_value(&place.path("run.parquet"), metadata::COMMAND_LINE);
        assert_eq!(pair.is_some_and(|line| line.contains(secret)), has_secret);
        has_secret
    };
    assert!(holds(&[]));
    assert!(!holds(&["--no-cmdline"]));
}

/// `--force` used to replace FIFOs, devices and symbolic links.
#[test]
fn only_regular_files_are_replaced() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let make = |name: &str, kind, device| {
        let path = place.path(name);
        mknodat(rustix::fs::CWD, path, kind, Mode::RUSR | Mode::WUSR, device).unwrap();
    };
    fs::create_dir(place.path("some")).unwrap();
    make("some/fifo.parquet", FileType::Fifo, 0);
    make("some/null.parquet", FileType::CharacterDevice, makedev(1, 3));
    fs::write(place.path("some/file.parquet"), "kept").unwrap();
    symlink("file.parquet", place.path("some/soft.parquet")).unwrap();
    symlink("nowhere", place.path("some/dangling.parquet")).unwrap();
    fs::create_dir(place.path("some/run")).unwrap();
    symlink("../file.parquet", place.path("some/run/tasks.parquet")).unwrap();
    let kinds = || -> Vec<String> {
        let mut kinds: Vec<_> = fs::read_dir(place.path("some"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| format!("{:?} {:?}", entry.file_name(), entry.file_type().unwrap()))
            .collect();
        kinds.sort();
        kinds
    };
    let before = kinds();
    for (output, kind) in [
        ("some/fifo.parquet", "a FIFO"),
        ("some/null.parquet", "a character device"),
        ("some/soft.parquet", "a symbolic link"),
        ("some/dangling.parquet", "a symbolic link"),
        ("some/run/", "a symbolic link"),
    ] {
        for force in [&["--force"][..], &[]] {
            let args =
                [&["record", "-p", "host", "-o", output][..], force, &["--", "true"]].concat();
            let line = place.run(args).refused();
            assert!(line.contains(kind) && line.contains("only a regular file"), "{line}");
            assert!(!line.contains("use --force"), "{line}");
        }
    }
    assert_eq!(kinds(), before);
    assert_eq!(fs::read(place.path("some/file.parquet")).unwrap(), b"kept");
    place.typed("record -p host -o some/file.parquet --force -- true").recorded();
}

#[test]
fn a_device_is_refused_with_advice_that_helps() {
    let place = Place::new();
    for device in ["/dev/null", "/dev/zero"] {
        let line = place.refuses(["record", "-p", "host", "-o", device, "--", "true"]);
        assert!(line.contains(&format!("-o - > {device}")), "{line}");
        assert!(!line.contains(&format!("{device}.parquet")), "{line}");
    }
}

#[test]
fn a_terminal_gets_no_binary_stream() {
    let place = Place::new();
    need("script");
    let typed = format!("{} record -p host -o - -- true", crate::PROGRAM);
    let mut script = Command::new("script");
    script.args(["-qec", &typed, "/dev/null"]).current_dir(place.path("")).stdin(Stdio::null());
    let answer = Answer::of(script.output().unwrap());
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.out.contains("standard output is a terminal"), "{answer:?}");
    assert!(place.content().is_empty());
}

#[test]
fn a_name_that_begins_with_a_hyphen_gets_a_tip_that_is_right() {
    let place = Place::new();
    for typed in [
        "record -p host -o -lead.parquet -- true",
        "record -p host --output=-lead.parquet -- true",
        "attribute run -o -lead.parquet",
        "stat -p host -o -lead.parquet -- true",
    ] {
        let line = place.refuses(typed.split(' '));
        assert!(
            line.contains("write a file name that begins with - as ./-lead.parquet"),
            "{typed}: {line}"
        );
    }
    let line = place.refuses(["record", "-o", "-p", "host"]);
    assert!(line.contains("'-p' for '--output") && line.contains("./-p"), "{line}");
    let _machine = root_or_skip!();
    place.typed("record -p host -o ./-lead.parquet -- true").recorded();
    File::open(place.path("-lead.parquet")).unwrap();
}
