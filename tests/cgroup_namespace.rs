//! A recorder in a cgroup namespace of its own, as in most containers: one cgroup has one path, and
//! what has none is said, with the way out.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use uncore_trace::discover::machine;
use uncore_trace::schema::cgroups;
use uncore_trace::schema::columns::{bits_column, text_column};

use crate::PROGRAM;
use crate::command::Answer;
use crate::harness::cgroup::{self, Cgroup};
use crate::harness::{assert_checked, mounts, or_skip, root_or_skip, rows, run, text};

/// Processes enter a cgroup that was there before, and one that is made and removed meanwhile.
const WORKLOAD: &str = "echo $$ > $1/in/cgroup.procs
for i in 1 2 3; do
  mkdir $1/new$i; echo $$ > $1/new$i/cgroup.procs; head -c 3000000 /dev/zero | tail -c 1
  echo $$ > $1/in/cgroup.procs; rmdir $1/new$i
done
sleep 0.3";

/// What a recording in a namespace shows.
struct Recorded {
    dir: tempfile::TempDir,
    /// What `record` and `doctor` print.
    said: String,
    /// Paths by id.
    paths: BTreeMap<u64, BTreeSet<String>>,
    /// The cgroup that is the root of the namespace, as on the host.
    root: Cgroup,
}

impl Recorded {
    /// Records in a namespace after a script has mounted what a runtime mounts. `$1` is the mount
    /// point on the host, `$2` an empty directory, `$3` the namespace's root on the host; the
    /// script sets `$root`, the place of that root in the namespace.
    fn record_in(tag: &str, mount: &str) -> Result<Self, String> {
        let root = Cgroup::new(tag)?;
        fs::create_dir(root.dir().join("in")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mount")).unwrap();
        let script = format!(
            "echo $$ > {0}/cgroup.procs; exec unshare --cgroup sh -ec '
             set -- {1} {2}/mount {0}; root=$1; {mount}
             {PROGRAM} record -p host -o {2}/run/ -- sh -ec \"$WORKLOAD\" sh $root 2>&1 || [ $? = 1 ]
             {PROGRAM} doctor || true'",
            root.dir().display(),
            machine(Path::new("/")).unwrap().cgroups.v2.unwrap().display(),
            dir.path().display(),
        );
        let mut command = mounts::shell(&script);
        let output = command.env("WORKLOAD", WORKLOAD).output().unwrap();
        let output_text = text(&output);
        cgroup::remove_cgroup(&root.dir().join("in"));
        assert!(output.status.success(), "{output_text}");
        let run = dir.path().join("run");
        assert_checked(&run);
        let mut paths: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for (id, path) in rows::read_rows(&run, &cgroups::TABLE, &["id", "path"], |batch, row| {
            let path = text_column(batch, "path").unwrap().value(row).to_owned();
            (bits_column(batch, "id").unwrap().value_or_zero(row), path)
        }) {
            paths.entry(id).or_default().insert(path);
        }
        Ok(Self { dir, said: output_text, paths, root })
    }

    /// The line of `doctor` about cgroups.
    fn finding(&self) -> &str {
        self.said.lines().find(|line| line.contains("  cgroups ")).unwrap()
    }

    /// What `report` prints beside its tables.
    fn report_note(&self) -> String {
        let answer = Answer::of(run(["report".as_ref(), self.dir.path().join("run").as_os_str()]));
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.err
    }

    fn has(&self, path: &str) -> bool {
        self.paths.values().any(|paths| paths.contains(path))
    }
}

/// Cgroups that appear in every recording: they have one path each, below `root`.
fn assert_paths(recorded: &Recorded, root: &str) {
    let several: Vec<_> = recorded.paths.values().filter(|paths| paths.len() > 1).collect();
    assert!(several.is_empty(), "{several:?}");
    for name in ["in", "new1", "new2", "new3"] {
        let path = format!("{root}/{name}");
        assert!(recorded.has(&path), "no {path}: {:?}", recorded.paths);
        let other_path =
            format!("{}/{name}", if root.is_empty() { &recorded.root.path } else { "" });
        assert!(!recorded.has(&other_path), "{other_path}: {:?}", recorded.paths);
    }
}

/// The runtime has mounted the namespace's tree in place of the host's, or over it.
#[test]
fn a_cgroup_namespace_is_reported_with_its_remedy() {
    let _machine = root_or_skip!();
    for (tag, mount) in
        [("own", "umount $1; mount -t cgroup2 none $1"), ("over", "mount --bind $3 $1")]
    {
        let recorded = or_skip!(Recorded::record_in(tag, mount));
        assert_paths(&recorded, "");
        let output_text = &recorded.said;
        assert!(
            output_text.contains("warning: paths begin at the root of a cgroup namespace"),
            "{output_text}"
        );
        let note = "the cgroup / was not the root of the host's";
        assert!(output_text.contains(note), "{output_text}");
        assert!(recorded.report_note().contains(note), "{}", recorded.report_note());
        let finding = recorded.finding();
        assert!(finding.starts_with("warn ") && finding.contains("namespace"), "{output_text}");
        assert!(
            output_text.contains("fix: start the container with --cgroupns=host"),
            "{output_text}"
        );
        let run = recorded.dir.path().join("run");
        let losses = rows::read_losses(&run);
        let partial: Vec<_> =
            losses.iter().filter(|loss| loss.cause == "cgroups_partial").collect();
        assert_eq!(partial.len(), 1, "{losses:?}");
    }
}

/// The host's tree is mounted too, at any place.
#[test]
fn names_come_from_the_most_complete_mount() {
    let _machine = root_or_skip!();
    for (tag, mount) in [
        ("host", "mount --bind $1 $2; umount $1; mount -t cgroup2 none $1"),
        ("chart", "mount --bind $1 $2; mount --bind $3 $1"),
        ("alone", "root=$3"),
        (
            "beside",
            "mount -t tmpfs none $2; mkdir $2/a $2/b; mount --bind $1 $2/b; umount $1
             mount -t cgroup2 none $1; mount --bind $1/in $2/a",
        ),
    ] {
        let recorded = or_skip!(Recorded::record_in(tag, mount));
        assert_paths(&recorded, &recorded.root.path);
        assert!(recorded.has("/"), "{:?}", recorded.paths);
        let output_text = &recorded.said;
        assert!(
            !output_text.contains("namespace,") && !output_text.contains("not the root"),
            "{output_text}"
        );
        assert_eq!(recorded.report_note(), "");
        assert!(recorded.finding().starts_with("ok "), "{output_text}");
    }
}
