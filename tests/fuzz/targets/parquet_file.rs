//! A recording with changed bytes and a matching digest: each view gives an answer, or an error of
//! one line. The input selects the bytes that change, so the rest of the recording stays valid.
#![no_main]
#![expect(
    clippy::unwrap_used,
    reason = "a recording that cannot be made is a mistake of this target"
)]

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use twox_hash::XxHash64;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::reader::Recording;
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};
use uncore_trace::view::check;
use uncore_trace::view::grouping::GroupBy;
use uncore_trace::view::question::ReportQuestion;
use uncore_trace::view::report_sums::sum_report;

/// Text before the digits of the footer's digest.
const DIGEST: &[u8] = b"xxh64:";
const DIGITS: usize = 16;

struct Place {
    dir: TempDir,
    sound: Vec<u8>,
}

impl Place {
    fn file(&self) -> PathBuf {
        self.dir.path().join("run.parquet")
    }
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sound.parquet");
    let pairs: BTreeMap<_, _> =
        [(metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string())].into();
    let mut writer =
        Writer::create(RecordingTarget::File(path.clone()), CreateOptions::default(), &pairs)
            .unwrap();
    let mut rows = fabric::Builder::default();
    for row in 0..8 {
        append(&mut rows, row);
    }
    writer.write(&fabric::TABLE, &rows.finish()).unwrap();
    writer.finish(&pairs).unwrap();
    let sound = fs::read(path).unwrap();
    assert_eq!(signed(sound.clone()), sound, "a digest is made in another way");
    Place { dir, sound }
});

fn append(rows: &mut fabric::Builder, row: i32) {
    rows.append(&fabric::Row {
        ts: 1_700_000_000_000_000_000,
        mono_ns: 10_000_000 * i64::from(row / 2 + 1),
        window_ns: 10_000_000,
        host: "test",
        boot_id: "3f4e5d6c",
        subsystem: "host",
        pmu: "software",
        event: "page-faults",
        unit: "count",
        owner: "task",
        pid: Some(row % 2),
        comm: Some("comm"),
        cgroup_id: Some(1),
        cgroup: Some("/a"),
        value: Some(1.0),
        total: Some(2.0),
        running: 1.0,
        method: "exact",
        confidence: Some(1.0),
        ..fabric::Row::default()
    });
}

/// The file with the digest of its changed footer.
fn signed(mut file: Vec<u8>) -> Vec<u8> {
    let found = file.windows(DIGEST.len()).rposition(|window| window == DIGEST);
    let Some(at) = found.map(|at| at + DIGEST.len()).filter(|at| at + DIGITS + 8 <= file.len())
    else {
        return file;
    };
    let trailer = file.len() - 8;
    let length = u32::from_le_bytes(file[trailer..trailer + 4].try_into().unwrap());
    let Some(footer) = trailer.checked_sub(length as usize).filter(|footer| *footer < at) else {
        return file;
    };
    file[at..at + DIGITS].fill(b'0');
    let mut hash = XxHash64::with_seed(0);
    hash.write(&file[footer..]);
    file[at..at + DIGITS].copy_from_slice(format!("{:016x}", hash.finish()).as_bytes());
    file
}

fn assert_line(error: &anyhow::Error) {
    let text = format!("{error:#}");
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

fuzz_target!(|input: &[u8]| {
    let place = &*PLACE;
    let mut file = place.sound.clone();
    for change in input.as_chunks::<4>().0 {
        let [low, high, what, value] = *change;
        // Counted from the end: the footer is there, and most changes are to hit it.
        let back = usize::from(u16::from_le_bytes([low, high])) % file.len().max(1);
        let at = file.len() - back;
        match what % 4 {
            0 | 1 => file.iter_mut().skip(at).take(1).for_each(|byte| *byte = value),
            2 => file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (value % 8)),
            _ => drop(file.drain(at..(at + usize::from(value % 16)).min(file.len()))),
        }
    }
    fs::write(place.file(), signed(file)).unwrap();
    let recording = match Recording::open(&place.file()) {
        Ok(recording) => recording,
        Err(error) => return assert_line(&error),
    };
    match check::verify_recording(&recording) {
        Ok(findings) => assert!(!findings.is_empty()),
        Err(error) => assert_line(&error),
    }
    if let Err(error) = sum_report(&recording, &ReportQuestion::grouped_by(GroupBy::Cgroup)) {
        assert_line(&error);
    }
});
