//! Names that an ordinary user gives to cgroups, and those of real runtimes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};
use uncore_trace::discover::machine;
use uncore_trace::identity::cgroups::Cgroups;

use crate::command::NOBODY;
use crate::harness::cgroup::{self, Cgroup};
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, or_skip, root_or_skip, rows, run_ok};

const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
const POD: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
const POD_: &str = "9b1deb4d_3b7d_4bad_9bdd_2b0d7b3dcb6d";

fn mount() -> PathBuf {
    machine(Path::new("/")).unwrap().cgroups.v2.unwrap()
}

/// Cgroups below one of the test; removed on drop.
struct Tree {
    top: Cgroup,
    dir: PathBuf,
}

impl Tree {
    fn new(tag: &str) -> Result<Self, String> {
        let top = Cgroup::new(tag)?;
        let dir = mount().join(top.path.trim_start_matches('/'));
        Ok(Self { top, dir })
    }

    fn make(&self, path: &str) -> PathBuf {
        let dir = self.dir.join(path);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Gives a cgroup to a user, as systemd does with `Delegate=yes` and `User=`.
    fn delegate(&self, path: &str) {
        let dir = self.make(path);
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            chown(dir.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fn remove(dir: &Path) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            cgroup::remove_cgroup(dir);
        }
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
    }
}

/// A shell of an ordinary user in a cgroup, killed on drop.
struct Tenant(Child);

impl Tenant {
    /// Root puts the shell into `dir`; then it runs the script.
    fn start(dir: &Path, script: &str) -> Self {
        let waits = format!("read go; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &waits]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.uid(NOBODY).gid(NOBODY).spawn().unwrap();
        fs::write(dir.join("cgroup.procs"), shell.id().to_string()).unwrap();
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut ready = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self(shell)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What an ordinary user makes in a cgroup that is theirs, and runs in.
fn attack(tree: &Tree, fake: &str) -> Tenant {
    tree.delegate("ci-runner.service");
    let own_dir = tree.dir.join("ci-runner.service");
    let fake = own_dir.join(fake);
    let script = format!(
        "mkdir -p {0} && echo $$ > {0}/cgroup.procs && echo ready; while :; do :; done",
        fake.display()
    );
    Tenant::start(&own_dir, &script)
}

#[test]
fn a_user_cannot_bill_their_time_to_another_pod() {
    let _machine = root_or_skip!();
    let tree = or_skip!(Tree::new("billed"));
    let pod = format!("kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope");
    let job = "slurmstepd.scope/job_7/step_0".to_owned();
    let dir = tempfile::tempdir().unwrap();
    // Before the recording, found by the walk; and during it, found by its records.
    for (number, (fake, is_before)) in
        [(&pod, true), (&pod, false), (&job, true)].into_iter().enumerate()
    {
        let path = format!("{}/ci-runner.service/{fake}", tree.top.path);
        let run = dir.path().join(format!("{number}/"));
        let before = is_before.then(|| attack(&tree, fake));
        let recorder = Recorder::start(&run, &["-p", "host", "--flush", "200ms"]);
        let tenant = before.unwrap_or_else(|| attack(&tree, fake));
        rows::wait_for_rows(&run, "shares of the tenant", rows::read_shares, |shares| {
            shares.iter().filter(|share| share.cgroup.as_ref() == Some(&path)).count() > 20
        });
        recorder.stop();
        drop(tenant);
        assert_checked(&run);
        let shares = rows::read_shares(&run);
        // Others may have pods and jobs on this machine, and names that are not believed.
        let is_own = |path: &str| path.starts_with(&tree.top.path);
        let named = |row: &rows::ShareRow| {
            row.cgroup.as_deref().is_some_and(is_own)
                && (row.pod.is_some() || row.container.is_some() || row.job.is_some())
        };
        assert!(!shares.iter().any(named));
        assert_eq!(rows::read_cgroups(&run)[&path], (None, None));
        let refused: Vec<_> = rows::read_losses(&run)
            .into_iter()
            .filter(|loss| loss.cause == "name_refused")
            .collect();
        let details = refused.iter().filter_map(|loss| loss.detail.as_deref());
        let details: Vec<_> = details.filter(|detail| is_own(detail)).collect();
        assert!(details.iter().any(|detail| detail.starts_with(&path)), "{details:?}");
        // The directory of the pod or job has its form, too.
        assert_eq!(details.len(), 2, "{details:?}");
        let count = refused.len();
        let refusal = format!("{count} names of containers, pods or jobs were not believed");
        assert!(run_ok(["check".as_ref(), run.as_os_str()]).contains(&refusal));
        // A replay has the table and not the machine.
        let attributed = dir.path().join(format!("{number}-again.parquet"));
        let typed = ["attribute".as_ref(), run.as_os_str(), "-o".as_ref(), attributed.as_os_str()];
        run_ok(typed);
        assert!(!rows::read_shares(&attributed).iter().any(named));
        fs::remove_dir(tree.dir.join(format!("ci-runner.service/{fake}"))).unwrap();
        for above in Path::new(&fake).ancestors().skip(1) {
            fs::remove_dir(tree.dir.join("ci-runner.service").join(above)).unwrap();
        }
    }
}

#[test]
fn a_cgroup_that_is_named_as_trusted_is_believed() {
    let _machine = root_or_skip!();
    let tree = or_skip!(Tree::new("trusted"));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let tenant = attack(&tree, &format!("docker-{ID}.scope"));
    let own_cgroup = format!("{}/ci-runner.service", tree.top.path);
    let path = format!("{own_cgroup}/docker-{ID}.scope");
    let options = ["-p", "host", "--flush", "200ms", "--trust-cgroup", &own_cgroup];
    let recorder = Recorder::start(&run, &options);
    rows::wait_for_row(&run, "a share of the tenant", rows::read_shares, |share| {
        share.cgroup.as_ref() == Some(&path)
    });
    recorder.stop();
    drop(tenant);
    assert_eq!(rows::read_cgroups(&run)[&path].0.as_deref(), Some(&ID[..12]));
    let is_own_refusal = |loss: &rows::LossRow| {
        let detail = loss.detail.as_deref().unwrap_or_default();
        loss.cause == "name_refused" && detail.starts_with(&tree.top.path)
    };
    assert!(!rows::read_losses(&run).iter().any(is_own_refusal));
}

/// What a cgroup is called, who has which of its directories, and the names that are believed.
struct Case {
    path: &'static str,
    /// Directories that systemd marks as delegated.
    marked: &'static [&'static str],
    /// Directories that belong to an ordinary user.
    others: &'static [&'static str],
    container: Option<&'static str>,
    pod: bool,
}

const SCOPE: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD_.slice/cri-containerd-ID.scope";
const SESSION: &str =
    "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container";

const SHORT: Option<&str> = Some("3f4e5d6c7b8a");

const fn root(path: &'static str, container: Option<&'static str>, pod: bool) -> Case {
    Case { path, marked: &[], others: &[], container, pod }
}

/// The cgroups of the runtimes, as they make them.
const LAYOUTS: &[Case] = &[
    // Kubernetes, systemd: containerd marks its scopes, whose processes make more below.
    Case { marked: &[SCOPE], ..root(SCOPE, SHORT, true) },
    Case {
        path: "kubepods.slice/kubepods-podPOD_.slice/crio-ID.scope/container/docker-OTHER.scope",
        marked: &["kubepods.slice/kubepods-podPOD_.slice/crio-ID.scope"],
        others: &["kubepods.slice/kubepods-podPOD_.slice/crio-ID.scope/container"],
        container: SHORT,
        pod: true,
    },
    // A pod with a user namespace: the container's root has the scope.
    Case { marked: &[SCOPE], others: &[SCOPE], ..root(SCOPE, SHORT, true) },
    // Kubernetes, cgroupfs; a systemd path given to it.
    root("kubepods/burstable/podPOD/ID", SHORT, true),
    Case {
        marked: &["system.slice/containerd.service"],
        ..root(
            "system.slice/containerd.service/kubepods-burstable-podPOD_.slice:cri-containerd:ID",
            SHORT,
            true,
        )
    },
    // Docker, both drivers; podman by root, alone and in a unit of its own (Quadlet).
    Case {
        marked: &["system.slice/docker-ID.scope"],
        ..root("system.slice/docker-ID.scope/init", SHORT, false)
    },
    root("docker/ID", SHORT, false),
    Case {
        marked: &["machine.slice/libpod-ID.scope"],
        ..root("machine.slice/libpod-ID.scope/container", SHORT, false)
    },
    Case {
        marked: &["system.slice/web.service"],
        ..root("system.slice/web.service/libpod-payload-ID", SHORT, false)
    },
    // LXC with a user namespace; libvirt and systemd-nspawn, whose scopes are marked.
    Case {
        others: &["lxc.payload.web", "lxc.payload.web/system.slice"],
        ..root("lxc.payload.web/system.slice", Some("web"), false)
    },
    Case {
        marked: &[r"machine.slice/machine-qemu\x2d1\x2dvm.scope"],
        ..root(r"machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/vcpu0", Some("vm"), false)
    },
    Case {
        marked: &["machine.slice/systemd-nspawn@web.service"],
        others: &["machine.slice/systemd-nspawn@web.service/payload"],
        ..root("machine.slice/systemd-nspawn@web.service/payload", Some("web"), false)
    },
    root("qemu.slice/100.scope", Some("100"), false),
    root("firecracker/vm-7", Some("vm-7"), false),
    // A container in a job of Slurm, whose directories are root's.
    Case {
        marked: &["system.slice/slurmstepd.scope"],
        ..root("system.slice/slurmstepd.scope/job_7/step_0/user/ID", SHORT, false)
    },
    // What users make: in their session, in a service of theirs, and below a pod of theirs.
    Case {
        marked: &["user.slice/user-1000.slice/user@1000.service"],
        others: &[
            "user.slice/user-1000.slice/user@1000.service",
            "user.slice/user-1000.slice/user@1000.service/user.slice",
        ],
        ..root(SESSION, None, false)
    },
    Case {
        others: &["system.slice/ci.service"],
        ..root("system.slice/ci.service/docker-ID.scope", None, false)
    },
    Case {
        others: &["system.slice/ci.service"],
        ..root(r"system.slice/ci.service/machine.slice/machine-qemu\x2d1\x2dvm.scope", None, false)
    },
    Case {
        others: &["system.slice/slurmstepd.scope/job_7/step_0/user"],
        ..root("system.slice/slurmstepd.scope/job_7/step_0/user/kubepods/podPOD/ID", None, false)
    },
    // Root in a container that no rule knows has what it makes: the mark tells.
    Case {
        marked: &["system.slice/other-7.scope"],
        ..root(
            "system.slice/other-7.scope/kubepods.slice/kubepods-podPOD_.slice/crio-ID.scope",
            None,
            false,
        )
    },
    Case {
        marked: &["kubepods/podPOD/other"],
        ..root("kubepods/podPOD/other/docker-ID.scope", None, true)
    },
];

#[test]
fn the_layouts_of_runtimes_are_believed() {
    let _machine = root_or_skip!();
    for (number, case) in LAYOUTS.iter().enumerate() {
        let tree = or_skip!(Tree::new(&format!("layout-{number}")));
        let spelled = |text: &str| {
            let text = text.replace("POD_", POD_).replace("podPOD", &format!("pod{POD}"));
            text.replace("OTHER", &"0".repeat(64)).replace("ID", ID)
        };
        let path = spelled(case.path);
        let id = fs::metadata(tree.make(&path)).unwrap().ino();
        for marked in case.marked {
            let dir = tree.dir.join(spelled(marked));
            setxattr(&dir, "user.delegate", b"1", XattrFlags::empty()).unwrap();
        }
        for others in case.others {
            chown(tree.dir.join(spelled(others)), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // No file of a runtime is there.
        let nowhere = tempfile::tempdir().unwrap();
        let mut cgroups = Cgroups::new(Some(&mount()), nowhere.path(), Vec::new());
        let names = cgroups.cgroup_names(id, 1).unwrap().clone();
        let expected = (case.container, case.pod.then_some(POD));
        assert_eq!((names.container.as_deref(), names.pod.as_deref()), expected, "{path}");
    }
}
