//! Containers and pods from the cgroups of a real recording, and `--cgroup-depth`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use uncore_trace::discover::machine;

use crate::harness::cgroup::{self, Cgroup};
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, or_skip, root_or_skip, rows, run_ok};
use crate::sums::conserved;
use crate::wait::run_for;

const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
const POD: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

/// Cgroups with names as in Kubernetes, in a cgroup of the test; removed on drop.
struct Tree {
    /// Deepest first.
    dirs: Vec<PathBuf>,
    /// The deepest, as in the tables.
    path: String,
    top: Cgroup,
}

impl Tree {
    fn new(tag: &str) -> Result<Self, String> {
        Self::with_cgroups(tag, &format!("kubepods/burstable/pod{POD}/{ID}/inner"))
    }

    fn with_cgroups(tag: &str, below: &str) -> Result<Self, String> {
        let top = Cgroup::new(tag)?;
        let mount = machine(Path::new("/")).unwrap().cgroups.v2.unwrap();
        let path = format!("{}/{below}", top.path);
        let deepest = mount.join(path.trim_start_matches('/'));
        fs::create_dir_all(&deepest).unwrap();
        let dirs = deepest.ancestors().take(5).map(Path::to_owned).collect();
        Ok(Self { dirs, path, top })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| cgroup::remove_cgroup(dir));
    }
}

/// Records for a second while a shell runs in the tree's deepest cgroup.
fn record(tree: &Tree, output: &Path, options: &[&str]) {
    let procs = tree.dirs[0].join("cgroup.procs");
    let script = format!("echo $$ > {}; echo $$; while :; do :; done", procs.display());
    let options = [&["-p", "host"], options].concat();
    let recorder = Recorder::with_command(output, &options, &script);
    run_for(Duration::from_secs(1));
    recorder.stop();
    assert_checked(output);
    assert!(conserved(output) > 20);
}

/// Whether a share is of no cgroup of others, whose containers and jobs may run on this machine.
fn is_of_no_other(tree: &Tree, share: &rows::ShareRow) -> bool {
    let path = share.cgroup.as_deref();
    path.is_none_or(|path| path == "/" || path.starts_with(&tree.top.path))
}

#[test]
fn a_containers_cgroup_is_in_its_columns() {
    let _machine = root_or_skip!();
    let tree = or_skip!(Tree::new("container"));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    record(&tree, &run, &[]);
    let shares = rows::read_shares(&run);
    let inside = |share: &&rows::ShareRow| share.cgroup.as_deref() == Some(tree.path.as_str());
    assert!(shares.iter().filter(inside).count() > 20);
    for share in shares.iter().filter(|share| is_of_no_other(&tree, share)) {
        let names_found = (share.container.as_deref(), share.pod.as_deref());
        let expected = if inside(&share) { (Some(&ID[..12]), Some(POD)) } else { (None, None) };
        assert_eq!(names_found, expected, "{share:?}");
    }
    let cgroups = rows::read_cgroups(&run);
    assert_eq!(cgroups[&tree.path], (Some(ID[..12].to_owned()), Some(POD.to_owned())));
    assert_eq!(cgroups[&tree.top.path], (None, None));
    for (by, key) in [("container", &ID[..12]), ("pod", POD)] {
        let args = ["report".as_ref(), run.as_os_str(), "--by".as_ref(), by.as_ref()];
        assert!(run_ok(args).contains(key), "{by}");
    }
}

#[test]
fn a_step_of_slurm_has_its_job() {
    let _machine = root_or_skip!();
    let tree = or_skip!(Tree::with_cgroups("job", "slurmstepd.scope/job_7/step_batch/user/task_0"));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    record(&tree, &run, &[]);
    let attributed = dir.path().join("again.parquet");
    run_ok(["attribute".as_ref(), run.as_os_str(), "-o".as_ref(), attributed.as_os_str()]);
    for run in [&run, &attributed] {
        let shares = rows::read_shares(run);
        let inside = |share: &&rows::ShareRow| share.cgroup.as_deref() == Some(tree.path.as_str());
        assert!(shares.iter().filter(inside).count() > 20);
        for share in shares.iter().filter(|share| is_of_no_other(&tree, share)) {
            let expected = inside(&share).then_some("7.batch");
            assert_eq!(share.job.as_deref(), expected, "{share:?}");
        }
    }
    let jobs = |options: &[&str]| -> BTreeSet<String> {
        let keys = reported(&run, &[&["--by", "job"], options].concat());
        keys.into_keys().map(|(_, key)| key).filter(|key| key.contains(['7', 'j'])).collect()
    };
    assert_eq!(jobs(&[]), ["(no job)".to_owned(), "7".to_owned()].into());
    let rolled = dir.path().join("rollup");
    run_ok(["rollup".as_ref(), run.as_os_str(), "-o".as_ref(), rolled.as_os_str()]);
    let args =
        ["report".as_ref(), rolled.as_os_str(), "--by".as_ref(), "job".as_ref(), "--json".as_ref()];
    assert!(run_ok(args).contains(r#""key":"7""#));
}

/// The sums of a report by event and key, and the total of each event.
fn reported(run: &Path, options: &[&str]) -> BTreeMap<(String, String), f64> {
    let typed = ["report", run.to_str().unwrap(), "--json"];
    let text = run_ok(typed.iter().chain(options));
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| line[key].as_str().unwrap().to_owned();
        ((word("event"), word("key")), line["value"].as_f64().unwrap_or(0.0))
    };
    text.lines().map(line).collect()
}

#[test]
fn deep_cgroups_roll_up() {
    let _machine = root_or_skip!();
    let tree = or_skip!(Tree::new("depth"));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    for (depth, cgroup, container) in [
        ("0", "/", None),
        ("1", tree.top.path.as_str(), None),
        ("9", tree.path.as_str(), Some(&ID[..12])),
    ] {
        record(&tree, &run, &["--force", "--cgroup-depth", depth]);
        let shares = rows::read_shares(&run);
        let paths: BTreeSet<&str> =
            shares.iter().filter_map(|share| share.cgroup.as_deref()).collect();
        assert!(paths.contains(cgroup), "{depth}: {paths:?}");
        let depth: usize = depth.parse().unwrap();
        let deep = |path: &&&str| path.split('/').filter(|part| !part.is_empty()).count() > depth;
        assert_eq!(paths.iter().find(deep), None);
        let own_shares = shares.iter().filter(|share| is_of_no_other(&tree, share));
        let containers: BTreeSet<_> =
            own_shares.filter_map(|share| share.container.as_deref()).collect();
        assert_eq!(containers.into_iter().next(), container);
    }
    // The last was recorded in full depth; the report cuts it.
    let [full_depth, cut] = ["9", "1"].map(|depth| reported(&run, &["--cgroup-depth", depth]));
    for ((event, key), value) in &cut {
        let below = full_depth.iter().filter(|((full_event, path), _)| {
            let inside = path
                .strip_prefix(key)
                .is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('/'));
            event == full_event && if key == "/" { path == key } else { inside }
        });
        let sum: f64 = below.map(|(_, value)| value).sum();
        assert!((sum - value).abs() <= value * 1e-9, "{event} {key}: {sum}, {value}");
    }
    assert!(cut.keys().any(|(_, key)| *key == tree.top.path), "{cut:?}");
}

/// The lines of every grouping sum to each event's total.
#[test]
fn every_grouping_of_a_report_has_the_same_total() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run.parquet");
    let recorder = Recorder::start(&run, &["-p", "host", "-I", "1ms"]);
    run_for(Duration::from_secs(1));
    recorder.stop();
    let totals = |options: &[&str]| {
        let mut totals: BTreeMap<String, f64> = BTreeMap::new();
        for ((event, _), value) in reported(&run, options) {
            *totals.entry(event).or_default() += value;
        }
        totals
    };
    let all_totals = totals(&[]);
    assert!(all_totals["context-switches"] > 0.0, "{all_totals:?}");
    let assert_same_totals = |parts: &BTreeMap<String, f64>, label: &str| {
        for (event, total) in &all_totals {
            let sum = parts.get(event).copied().unwrap_or_default();
            assert!((sum - total).abs() <= total * 1e-9, "{label}: {event}: {sum} of {total}");
        }
    };
    for by in ["container", "pod", "job", "pid", "pmu", "port", "device", "owner"] {
        assert_same_totals(&totals(&["--by", by]), by);
    }
    let mut halves = totals(&["--to", "500ms"]);
    let second = totals(&["--from", "500ms"]);
    // A rare event may have all counts in one half; switches and time have some in both.
    for event in ["context-switches", "cpu-clock"] {
        let (first, second) = (halves[event], second[event]);
        assert!(first > 0.0 && second > 0.0, "{event}: {first}, {second}");
    }
    for (event, second_value) in second {
        *halves.entry(event).or_default() += second_value;
    }
    assert_same_totals(&halves, "halves");
}
