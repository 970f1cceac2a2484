//! Each invariant holds on a sound recording, and fails on one that violates only this invariant.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::super::grouping::GroupBy;
use super::super::incomplete::Incomplete;
use super::super::question::ReportQuestion;
use super::super::report_sums::sum_report;
use super::super::sample::{BEGIN, Broken, INTACT, SampleRecording};
use super::super::{machine_output, render};
use super::{CheckFinding, CheckOutcome, intact, verify_recording};
use crate::schema::{ALL, TableDef, fabric, io, loss, metadata, readings};
use crate::tables::names::table_path;
use crate::tables::reader::Recording;

/// Names of the invariants that fail, and of those that cannot be verified.
fn judge_checks(dataset: bool, broken: &Broken) -> (Vec<&'static str>, Vec<&'static str>) {
    let sample = SampleRecording::new(dataset, broken);
    let findings = verify_recording(&sample.open()).unwrap();
    let mut lists = (Vec::new(), Vec::new());
    for finding in findings {
        match finding.outcome {
            CheckOutcome::Ok(_) => {}
            CheckOutcome::Failed(text) => {
                println!("{}: {text}", finding.name);
                lists.0.push(finding.name);
            }
            CheckOutcome::NotVerifiable(_) => lists.1.push(finding.name),
        }
    }
    lists
}

fn failed_checks(broken: &Broken) -> Vec<&'static str> {
    judge_checks(true, broken).0
}

#[test]
fn a_sound_dataset_keeps_every_invariant() {
    assert_eq!(judge_checks(true, &INTACT), (vec![], vec![]));
}

#[test]
fn a_sound_file_keeps_what_a_file_can_show() {
    assert_eq!(
        judge_checks(false, &INTACT),
        (vec![], vec!["time adds up per tick", "totals agree with readings"])
    );
}

/// Deletes, or replaces, one table of a sound dataset.
fn faults_after_change(
    change: impl Fn(&SampleRecording, &Path),
) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let change = |def: &&'static TableDef| {
        let sample = SampleRecording::new(true, &INTACT);
        let recording = sample.open();
        change(&sample, &table_path(&sample.path, def));
        let failed = |finding: CheckFinding| match finding.outcome {
            CheckOutcome::Failed(text) => Some((finding.name, text)),
            CheckOutcome::Ok(_) | CheckOutcome::NotVerifiable(_) => None,
        };
        let findings =
            verify_recording(&recording).map(|all| all.into_iter().filter_map(failed).collect());
        (def.name, findings.unwrap_or_default())
    };
    ALL.iter().filter(|def| def.name != "fabric").map(change).collect()
}

#[test]
fn a_table_that_is_missing_is_named() {
    for (name, failed) in faults_after_change(|_, path| fs::remove_file(path).unwrap()) {
        let missing = ("all tables are there", format!("{name}.parquet is missing"));
        assert!(failed.contains(&missing), "{name}: {failed:?}");
    }
}

#[test]
fn a_table_of_another_recording_is_named() {
    let change_host = |pairs: &mut BTreeMap<String, String>| {
        pairs.insert(metadata::HOST.to_owned(), "another".to_owned());
    };
    let other_recording = SampleRecording::new(true, &Broken { metadata: change_host, ..INTACT });
    let replace = |_: &SampleRecording, path: &Path| {
        fs::copy(other_recording.path.join(path.file_name().unwrap()), path).unwrap();
    };
    for (name, failed) in faults_after_change(replace) {
        let replaced = ("all tables are there", format!("{name}.parquet is of another recording"));
        assert!(failed.contains(&replaced), "{name}: {failed:?}");
    }
}

/// A changed byte used to pass if it made another plausible name, time or count.
#[test]
fn each_changed_byte_is_found_with_its_table() {
    let sample = SampleRecording::new(true, &INTACT);
    let recording = sample.open();
    for def in ALL {
        let path = table_path(&sample.path, def);
        let sound = fs::read(&path).unwrap();
        for position in (0..sound.len()).step_by(97).chain(sound.len() - 20..sound.len()) {
            let mut bytes = sound.clone();
            bytes[position] ^= 1 << (position % 8);
            fs::write(&path, bytes).unwrap();
            match intact::verify_bytes(&recording) {
                CheckOutcome::Failed(text) => {
                    let file = format!("{}.parquet", def.name);
                    assert!(text.contains(&file) && !text.contains('\n'), "{position}: {text}");
                }
                other => panic!("{} byte {position}: {other:?}", def.name),
            }
        }
        fs::write(&path, sound).unwrap();
    }
    assert!(matches!(intact::verify_bytes(&recording), CheckOutcome::Ok(_)));
}

#[test]
fn a_damaged_row_group_is_told_from_a_damaged_footer() {
    let sample = SampleRecording::new(true, &INTACT);
    let path = table_path(&sample.path, &readings::TABLE);
    let sound = fs::read(&path).unwrap();
    for (at, words) in [
        (1, "row group 0 (rows 0 to 6002) of"),
        (sound.len() / 2, "row group 0 (rows 0 to 6002) of"),
        (sound.len() - 200, "its footer has changed since it was written"),
    ] {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let outcome = intact::verify_bytes(&sample.open());
        let named = format!("{}", path.display());
        assert!(
            matches!(&outcome, CheckOutcome::Failed(text) if text.contains(words) && text.contains(&named)),
            "{at}: {outcome:?}"
        );
    }
}

#[test]
fn a_value_that_vanished_breaks_conservation() {
    let broken = Broken { fabric: |_, number| number != 1001, ..INTACT };
    assert_eq!(failed_checks(&broken), ["shares sum to totals"]);
    let broken = Broken {
        fabric: |row, number| {
            row.value = row.value.map(|v| if number == 7 { v * (1.0 + 1e-7) } else { v });
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&broken), ["shares sum to totals"]);
}

#[test]
fn a_row_of_io_that_cannot_be_is_found() {
    let wrongs: [fn(&mut io::Row<'_>, usize); 3] = [
        |row, tick| row.mono_ns += i64::from(tick == 7),
        |row, _| row.owner = "device",
        |row, tick| {
            if tick == 7 {
                (row.bytes, row.requests) = (0, 0);
            }
        },
    ];
    for wrong in wrongs {
        assert_eq!(failed_checks(&Broken { io: wrong, ..INTACT }), ["device bytes are valid"]);
    }
}

/// Row groups are declared as sorted, and readers rely on it.
#[test]
fn a_row_out_of_order_is_found() {
    let late =
        Broken { io: |row, tick| row.mono_ns -= if tick == 7 { 5_000_000 } else { 0 }, ..INTACT };
    assert_eq!(failed_checks(&late), ["tables are readable"]);
}

#[test]
fn a_total_that_readings_do_not_make_is_found() {
    let broken = Broken {
        fabric: |row, _| {
            row.value = row.value.map(|v| v * 1.000_001);
            row.total = row.total.map(|v| v * 1.000_001);
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&broken), ["totals agree with readings"]);
}

#[test]
fn a_lost_reading_is_no_disagreement() {
    let broken = Broken { readings: |_, number| number % 50 != 7, ..INTACT };
    assert_eq!(failed_checks(&broken), Vec::<&str>::new());
}

#[test]
fn a_multiplexed_counter_is_scaled_by_its_times() {
    let broken = Broken {
        readings: |row, _| {
            let enabled = (row.mono_ns - BEGIN + 77) as u64;
            row.value = row.value.map(|value| value / 2);
            row.enabled = Some(enabled);
            row.running = Some(enabled / 2);
            row.counter != 1
        },
        fabric: |row, _| {
            row.running = 0.5;
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&broken), Vec::<&str>::new());
}

#[test]
fn a_cgroup_has_one_confidence_in_a_window() {
    let two_confidences: Broken = Broken {
        fabric: |row, _| {
            row.cgroup_id = row.cgroup_id.map(|_| 7);
            row.cgroup_confidence = Some(if row.owner == "task" { 0.8 } else { 0.5 });
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&two_confidences), Vec::<&str>::new());
    let wrongs: [fn(&mut fabric::Row<'_>, usize) -> bool; 4] = [
        |row, number| {
            row.cgroup_id = row.cgroup_id.map(|_| 7);
            row.cgroup_confidence = Some(if number == 8 { 0.7 } else { 0.8 });
            true
        },
        |row, number| {
            row.cgroup_id = row.cgroup_id.map(|_| 7);
            row.cgroup_confidence = Some(0.8).filter(|_| number != 9);
            true
        },
        |row, number| {
            row.cgroup_confidence = Some(if number == 8 { 1.1 } else { 0.8 });
            true
        },
        |row, number| {
            row.cgroup_confidence = Some(0.8);
            row.confidence = row.confidence.filter(|_| number != 8);
            true
        },
    ];
    for fabric in wrongs {
        assert_eq!(failed_checks(&Broken { fabric, ..INTACT }), ["values are valid"]);
    }
}

#[test]
fn silent_zeros_and_wrong_words_are_found() {
    let never_ran: Broken = Broken {
        fabric: |row, _| {
            row.running = 0.0;
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&never_ran), ["values are valid"]);
    let nan = Broken {
        fabric: |row, number| {
            row.value = if number == 3 { Some(f64::NAN) } else { row.value };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&nan), ["shares sum to totals", "values are valid"]);
    let word = Broken {
        fabric: |row, number| {
            row.owner = if number == 3 { "nobody" } else { row.owner };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&word), ["values are valid"]);
    let nobody = Broken {
        fabric: |row, number| {
            row.pid = if number == 0 { None } else { row.pid };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&nobody), ["values are valid"]);
    let without_number = Broken {
        fabric: |row, number| {
            row.number = if number == 2 { None } else { row.number };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&without_number), ["values are valid"]);
}

/// With `--cgroup`, all other tasks have one owner.
#[test]
fn rows_of_other_tasks_are_sound() {
    let others = Broken {
        fabric: |row, number| {
            if number % 4 == 1 {
                row.owner = "other_tasks";
                (row.pid, row.comm, row.cgroup_id, row.cgroup) = (None, None, None, None);
                (row.container, row.pod) = (None, None);
            }
            true
        },
        io: |row, _| {
            row.owner = "other_tasks";
            (row.pid, row.comm, row.cgroup_id) = (None, None, None);
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&others), Vec::<&str>::new());
    let named = Broken {
        fabric: |row, number| {
            row.owner = if number % 4 == 1 { "other_tasks" } else { row.owner };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&named), ["values are valid"]);
}

#[test]
fn a_counter_that_never_ran_is_null_and_sound() {
    let broken = Broken {
        fabric: |row, _| {
            (row.running, row.value, row.total) = (0.0, None, None);
            row.method = "none";
            true
        },
        ..INTACT
    };
    let (failed, unknown) = judge_checks(true, &broken);
    assert_eq!(failed, Vec::<&str>::new());
    assert_eq!(unknown, ["shares sum to totals", "totals agree with readings"]);
}

#[test]
fn a_gap_needs_a_loss() {
    let gap = |row: &mut fabric::Row<'_>, _: usize| row.mono_ns != BEGIN + 50_000_000;
    let broken = Broken { fabric: gap, ..INTACT };
    assert_eq!(failed_checks(&broken), ["windows are contiguous"]);
    let with_loss = Broken {
        fabric: gap,
        loss: Some(loss::Row {
            host: "test",
            boot_id: "3f4e5d6c",
            cluster: None,
            mono_ns: BEGIN + 50_000_000,
            span_ns: 10_000_000,
            cause: "late_tick",
            cpu: Some(0),
            counter: None,
            count: 10,
            detail: None,
        }),
        metadata: |pairs| {
            pairs.insert(metadata::LOSS.to_owned(), r#"{"late_tick":10}"#.to_owned());
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&with_loss), Vec::<&str>::new());
}

#[test]
fn loss_that_is_hidden_is_found() {
    let hidden = Broken {
        metadata: |pairs| {
            pairs.insert(metadata::LOSS.to_owned(), r#"{"ring_full":3}"#.to_owned());
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&hidden), ["losses are recorded"]);
    let malformed = Broken {
        metadata: |pairs| {
            pairs.insert(metadata::LOSS.to_owned(), "[".to_owned());
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&malformed), ["losses are recorded"]);
}

#[test]
fn a_reading_on_a_cpu_that_reads_no_such_counter_is_found() {
    let elsewhere = Broken {
        readings: |row, number| {
            row.cpu = i32::from(number == 3);
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&elsewhere), ["counters read on their CPUs"]);
}

#[test]
fn time_that_does_not_add_up_is_found() {
    let broken = Broken {
        runtime: |row, tick| {
            row.run_ns += if tick == 1234 && row.tid == 0 { 60_000 } else { 0 };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&broken), ["time adds up per tick"]);
    let summed = Broken {
        metadata: |pairs| {
            let text =
                pairs[metadata::CPU_TIME].replace("\"softirq_ns\":0", "\"softirq_ns\":99999");
            pairs.insert(metadata::CPU_TIME.to_owned(), text);
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&summed), ["CPU time adds up"]);
}

/// The recorder was killed after it had synced `runtime` and before `irqs`.
#[test]
fn a_repaired_recording_may_lack_the_interrupts_of_its_last_ticks() {
    let killed = Broken {
        irqs: |tick| tick <= 2000,
        metadata: |pairs| {
            pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&killed), Vec::<&str>::new());
    assert_eq!(
        failed_checks(&Broken { metadata: INTACT.metadata, ..killed }),
        ["time adds up per tick"]
    );
    let early = Broken { irqs: |tick| tick > 100, ..killed };
    assert_eq!(failed_checks(&early), ["time adds up per tick"]);
}

/// The recorder was killed after it had synced `sums` and before `fabric`.
#[test]
fn a_repaired_recording_may_lack_the_last_windows_of_a_second() {
    let sound = Broken { has_sums: true, ..INTACT };
    assert_eq!(failed_checks(&sound), Vec::<&str>::new());
    let killed = Broken {
        fabric: |row, _| row.mono_ns <= BEGIN + 2_800_000_000,
        metadata: |pairs| {
            pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
        },
        ..sound
    };
    assert_eq!(failed_checks(&killed), Vec::<&str>::new());
    let not_killed = Broken { metadata: INTACT.metadata, ..killed };
    assert!(failed_checks(&not_killed).contains(&"seconds sum up windows"));
    let gaps: [fn(&mut fabric::Row<'_>, usize) -> bool; 2] = [
        |row, _| row.mono_ns != BEGIN + 1_500_000_000,
        |row, _| row.counter == 0 || row.mono_ns <= BEGIN + 1_500_000_000,
    ];
    for gap in gaps {
        let broken = Broken { fabric: gap, ..killed };
        assert!(failed_checks(&broken).contains(&"seconds sum up windows"));
    }
}

#[test]
fn a_label_off_the_clock_is_found() {
    let broken = Broken {
        fabric: |row, number| {
            row.ts += if number == 99 { 2_000_000 } else { 0 };
            true
        },
        ..INTACT
    };
    assert_eq!(failed_checks(&broken), ["wall time agrees"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// A damaged file is an error, a failed invariant or still sound; it never panics a view.
    #[test]
    fn damaged_files_do_not_panic_the_views(
        cut in proptest::option::of(0.0_f64..1.0),
        flips in proptest::collection::vec((0.0_f64..1.0, 0_u8..8), 0..8),
    ) {
        let sample = SampleRecording::new(true, &INTACT);
        for table in ["fabric", "readings", "counters", "runtime"] {
            let path = sample.path.join(format!("{table}.parquet"));
            let mut bytes = fs::read(&path).unwrap();
            for (place, bit) in &flips {
                let position = (bytes.len() as f64 * place) as usize;
                bytes[position] ^= 1 << bit;
            }
            if let Some(cut) = cut {
                bytes.truncate((bytes.len() as f64 * cut) as usize);
            }
            fs::write(&path, &bytes).unwrap();
        }
        let Ok(recording) = Recording::open(&sample.path) else { return Ok(()) };
        for finding in verify_recording(&recording).into_iter().flatten() {
            if let CheckOutcome::Failed(text) = finding.outcome {
                prop_assert!(!text.contains('\n'), "{}", text);
            }
        }
        if let Ok(usage) = sum_report(&recording, &ReportQuestion::grouped_by(GroupBy::Pid)) {
            let incomplete = Incomplete::from_recording(&recording).unwrap_or_default();
            incomplete.as_ref().map(|incomplete| incomplete.summary_line(usage.start_ns));
            render::draw_report(&usage, render::TextStyle { ascii: false, width: Some(80) });
            machine_output::usage_as_json(&usage, incomplete.as_ref(), None).unwrap();
            machine_output::report_as_csv(&usage, incomplete.as_ref());
        }
    }
}

#[test]
fn foreign_files_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.parquet");
    fs::write(&empty, b"").unwrap();
    let text = dir.path().join("text.parquet");
    fs::write(&text, b"ts,value\n1,2\n").unwrap();
    let expected = [
        (dir.path().join("missing"), "no such file or directory"),
        (dir.path().to_owned(), "holds no recording"),
        (empty, "is empty (0 bytes)"),
        (text, "is not a readable Parquet file"),
    ];
    for (path, words) in expected {
        let error = format!("{:#}", Recording::open(&path).unwrap_err());
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn parquet_of_another_tool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.parquet");
    let file = fs::File::create(&path).unwrap();
    let schema = crate::schema::run::schema();
    parquet::arrow::ArrowWriter::try_new(file, schema, None).unwrap().close().unwrap();
    let error = format!("{:#}", Recording::open(&path).unwrap_err());
    assert!(error.contains("not one that uncore-trace recorded"), "{error}");
}
