//! Assignments of devices to pods, from a kubelet that gRPC's own implementation stands for, and
//! from others that answer with anything else.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::spawn;
use std::time::{Duration, Instant};

use uncore_trace::identity::assignments::list_assignments;
use uncore_trace::identity::kubelet::{ask_once, socket};
use uncore_trace::schema::assignments::TABLE;
use uncore_trace::schema::columns::{i64_column, nullable_value, word_column};

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::rows::{read_rows, wait_for_row};
use crate::harness::{assert_checked, root_or_skip, rows as tables, run_ok};
use crate::needs::python;

/// The server, killed on drop. Each time that it is asked, it prints a line when it has answered.
struct Kubelet(Load);

impl Kubelet {
    fn start(socket: &Path, how: &str) -> Self {
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kubelet.py");
        let args = [script.as_os_str(), socket.as_os_str(), how.as_ref()];
        let mut server = Load::start(python(), &args);
        assert_eq!(server.read_line(), "ready");
        Self(server)
    }
}

#[test]
fn a_kubelet_says_which_devices_pods_have() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ask_once(dir.path()).unwrap(), None);
    let kubelet = Kubelet::start(&socket(dir.path()), "pods");
    let listed = ask_once(dir.path()).unwrap().unwrap();
    let assignments = list_assignments(&listed, dir.path()).unwrap();
    let lines: Vec<String> = assignments
        .iter()
        .map(|assignment| {
            let (claim, cdi) = (assignment.claim.as_deref(), assignment.cdi.as_deref());
            let claim_and_cdi = format!("{} {}", claim.unwrap_or("-"), cdi.unwrap_or("-"));
            format!(
                "{} {} {} {} {claim_and_cdi}",
                assignment.pod, assignment.container, assignment.resource, assignment.device
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "shop/train\u{1b}[2J-0 main gpu.nvidia.com node/gpu-0 shop/one a.com/b=0,a.com/b=1",
            "shop/web-0 main nvidia.com/gpu 0000:ff:1f.7 - -",
            "shop/web-0 main nvidia.com/gpu GPU-2f8e3c5a - -",
        ]
    );
    // No device of this machine is among them.
    assert!(
        assignments
            .iter()
            .all(|assignment| assignment.functions.is_empty() && assignment.ports.is_empty())
    );
    drop(kubelet);
    assert!(ask_once(dir.path()).is_err());
}

#[test]
fn answers_are_bounded_in_size_and_time() {
    let _machine = root_or_skip!();
    for (how, why) in [
        ("huge", "more than 4194304 bytes"),
        ("error", "the error 12"),
        ("late", "does not answer in 5s"),
        ("nonsense", "belongs to another method"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let _kubelet = Kubelet::start(&socket(dir.path()), how);
        let begin = Instant::now();
        let error = format!("{:#}", ask_once(dir.path()).unwrap_err());
        assert!(error.contains(why), "{how}: {error}");
        assert!(begin.elapsed() < Duration::from_secs(12), "{how}");
    }
    // What does not even speak HTTP/2: silence, bytes without end, and the end.
    for (how, bytes) in
        [("silent", None), ("garbage", Some(&b"\xff\0garbage "[..])), ("closed", Some(b""))]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = socket(dir.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            match bytes {
                None => drop(stream.read_to_end(&mut Vec::new())),
                Some(b"") => {}
                Some(bytes) => while stream.write_all(bytes).is_ok() {},
            }
        });
        let begin = Instant::now();
        assert!(ask_once(dir.path()).is_err(), "{how}");
        assert!(begin.elapsed() < Duration::from_secs(12), "{how}");
    }
}

/// The socket of a kubelet on this machine, removed on drop.
struct Place(PathBuf);

impl Place {
    fn new() -> Option<Self> {
        let place = Self(socket("/".as_ref()));
        // A real kubelet is left alone.
        (!place.0.exists()).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
        let above = self.0.ancestors().skip(1).take(2);
        above.for_each(|dir| drop(fs::remove_dir(dir)));
    }
}

/// Pod, device, and whether begin and end are known, of each row.
fn recorded(run: &Path) -> Vec<(String, String, bool, bool)> {
    let column_names = ["pod", "device", "begin_ns", "end_ns"];
    let mut recorded_rows = read_rows(run, &TABLE, &column_names, |batch, row| {
        let word = |name| word_column(batch, name).unwrap().get(row).unwrap().to_owned();
        let is_known = |name| nullable_value(i64_column(batch, name).unwrap(), row).is_some();
        (word("pod"), word("device"), is_known("begin_ns"), is_known("end_ns"))
    });
    recorded_rows.sort_unstable();
    recorded_rows
}

#[test]
fn assignments_are_recorded_and_a_kubelet_that_fails_ends_nothing() {
    let _machine = root_or_skip!();
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let mut kubelet = Kubelet::start(&place.0, "pods");
    let options = ["-p", "io", "--flush", "200ms"];
    let recorder = Recorder::start(&run, &options);
    assert_eq!(kubelet.0.read_line(), "answered");
    kubelet.0.write_line("change");
    // It is asked again.
    wait_for_row(&run, "the end of an assignment", recorded, |(.., has_ended)| *has_ended);
    recorder.stop();
    assert_checked(&run);
    let line = |pod: &str, device: &str, end| (pod.to_owned(), device.to_owned(), false, end);
    let web = |device| line("shop/web-0", device, false);
    assert_eq!(
        recorded(&run),
        [
            line("shop/train\u{1b}[2J-0", "node/gpu-0", true),
            web("0000:ff:1f.7"),
            web("GPU-2f8e3c5a")
        ]
    );
    let listed = run_ok(["list", "devices"]);
    assert!(!listed.contains('\u{1b}'), "{listed}");
    drop(kubelet);
    drop(fs::remove_file(&place.0));
    // One that fails is a loss of precision, and the recording goes on.
    let failing = Kubelet::start(&place.0, "error");
    let run = dir.path().join("failed/");
    let recorder = Recorder::start(&run, &options);
    let is_refusal = |loss: &tables::LossRow| {
        loss.detail.as_deref().is_some_and(|detail| {
            detail.contains("cannot get the devices of pods from the kubelet")
                && detail.contains("error 12")
        })
    };
    wait_for_row(&run, "the refusal of the kubelet", tables::read_losses, is_refusal);
    recorder.stop();
    drop(failing);
    assert_checked(&run);
    assert_eq!(recorded(&run), []);
    assert!(tables::read_losses(&run).iter().any(is_refusal));
    assert!(!tables::read_shares(&run).is_empty());
}
