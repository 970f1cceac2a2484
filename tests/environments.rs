//! `doctor` and `record` agree in every environment that a container, a batch system or a shell
//! makes: where `doctor` says that `record` works it does, and where it does not work `doctor` says
//! why.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::PROGRAM;
use crate::command::{Answer, NOBODY, Place};
use crate::harness::{mounts, need, root_or_skip};

/// A user with no more than what `record` needs.
const AS_USER: &str = "setpriv --reuid=65534 --clear-groups --inh-caps=-all,+perfmon,+bpf \
                       --ambient-caps=-all,+perfmon,+bpf --bounding-set=-all,+perfmon,+bpf --";

/// Makes the environment for `"$@"`; whether `record` works there.
type Environment = (&'static str, &'static str, bool);

const ENVIRONMENTS: &[Environment] = &[
    ("nothing is different", "exec \"$@\"", true),
    ("a user with two capabilities", "exec $AS_USER \"$@\"", true),
    ("a user without capabilities", "exec setpriv --reuid=65534 --clear-groups \"$@\"", false),
    ("without CAP_BPF", "exec setpriv --bounding-set=-bpf,-sys_admin \"$@\"", false),
    ("without CAP_PERFMON", "exec setpriv --bounding-set=-perfmon,-sys_admin \"$@\"", false),
    ("no new privileges", "exec setpriv --no-new-privs \"$@\"", true),
    (
        "no cgroup v2",
        "for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do umount -l $at; done; exec \"$@\"",
        true,
    ),
    ("no cgroups at all", "umount -lR /sys/fs/cgroup; exec \"$@\"", true),
    ("a cgroup namespace", "exec unshare --cgroup \"$@\"", true),
    (
        "a PID namespace",
        "exec unshare --pid --fork sh -ec 'mount -t proc proc /proc; exec \"$@\"' sh \"$@\"",
        true,
    ),
    ("a user namespace", "exec unshare --user --map-root-user \"$@\"", false),
    ("a network namespace", "exec unshare --net \"$@\"", true),
    ("no BTF", "mount -t tmpfs none /sys/kernel/btf; exec \"$@\"", false),
    ("no tracefs", "umount -lR /sys/kernel/tracing /sys/kernel/debug || true; exec \"$@\"", true),
    ("no sysfs", "mount -t tmpfs none /sys; exec \"$@\"", false),
    ("a sysfs that is read-only", "mount -o remount,bind,ro /sys; exec \"$@\"", true),
    ("no procfs", "mount -t tmpfs none /proc; exec \"$@\"", true),
    ("hidden processes", "mount -t proc -o hidepid=2 proc /proc; exec \"$@\"", true),
    ("few files for root, which may be raised", "exec prlimit --nofile=64:4096 \"$@\"", true),
    ("few files, which may be raised", "exec prlimit --nofile=64:4096 $AS_USER \"$@\"", true),
    ("32 files", "exec prlimit --nofile=32:32 $AS_USER \"$@\"", false),
    ("64 files", "exec prlimit --nofile=64:64 $AS_USER \"$@\"", false),
    ("112 files", "exec prlimit --nofile=112:112 $AS_USER \"$@\"", false),
    ("files for 2 CPUs", "exec prlimit --nofile=400:400 $AS_USER \"$@\"", true),
    ("files of 4 KiB", "exec prlimit --fsize=4096 \"$@\"", false),
    ("files of 8 KiB", "exec prlimit --fsize=8192 $AS_USER \"$@\"", false),
    ("files of 4 MiB", "exec prlimit --fsize=4194304 \"$@\"", true),
    ("no threads", "exec prlimit --nproc=1 $AS_USER \"$@\"", false),
    ("little data", "exec prlimit --data=40000000 \"$@\"", false),
    ("few addresses", "exec prlimit --as=140000000 \"$@\"", false),
    ("enough memory", "exec prlimit --data=100000000 --as=1000000000 \"$@\"", true),
    ("a minute of CPU time", "exec prlimit --cpu=60 \"$@\"", true),
    ("no locked memory", "exec prlimit --memlock=0 $AS_USER \"$@\"", true),
    ("one CPU", "exec taskset -c 0 \"$@\"", true),
    ("no core files, a small stack", "exec prlimit --core=0 --stack=1048576 \"$@\"", true),
    (
        "a directory that is read-only",
        "mount -t tmpfs -o ro none .; cd .; cd $PWD; exec \"$@\"",
        false,
    ),
];

/// Runs the tool in `dir`, which every user may write.
fn answer(tool: &Path, dir: &Path, environment: &str, args: &[&str]) -> Answer {
    let mut command = mounts::shell(environment);
    command.arg("sh").arg(tool).args(args).current_dir(dir).env("AS_USER", AS_USER);
    Answer::of(command.env_remove("UNCORE_TRACE_LOG").output().unwrap())
}

/// Whether a user namespace can be made: the kernel makes none in a chroot
/// (`user_namespaces(7)`).
fn has_user_namespaces() -> bool {
    mounts::shell("exec unshare --user true").output().unwrap().status.success()
}

/// Whether `doctor` says that a recording into the working directory works.
fn is_ready(doctor: &Answer) -> bool {
    doctor.code == 0 && !doctor.out.lines().any(|line| line.starts_with("warn  output "))
}

#[test]
fn doctor_and_record_agree() {
    let _machine = root_or_skip!();
    for program in ["setpriv", "prlimit", "unshare", "taskset"] {
        need(program);
    }
    let place = Place::new();
    let tool = place.tool_for_all();
    let mut wrong = Vec::new();
    for (name, environment, works) in ENVIRONMENTS {
        if environment.contains("unshare --user") && !has_user_namespaces() {
            eprintln!("{name} is left out: no user namespace can be made here");
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), None).unwrap();
        let doctor = answer(&tool, dir.path(), environment, &["doctor"]);
        let typed = ["record", "-p", "host", "-o", "x.parquet", "--duration", "1s"];
        let record = answer(&tool, dir.path(), environment, &typed);
        let (says_ready, did) = (is_ready(&doctor), record.code < 2);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path()).collect();
        if says_ready != did || did != *works || (!did && !left.is_empty()) || record.code > 2 {
            wrong.push(format!("{name}: {says_ready} {did}, {left:?}\n{doctor:#?}\n{record:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The reason and the way out are the same in each command that names cgroups.
#[test]
fn options_that_name_cgroups_are_refused_without_cgroup_v2() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let config = format!(
        "[record]\ngroups = ['host']\n[rollup]\ndirectory = '{}'\n",
        place.path("rollup").display()
    );
    fs::write(place.path("agent.toml"), config).unwrap();
    let before = place.content();
    let run = |typed: &str| {
        let environment = "umount -lR /sys/fs/cgroup; exec \"$@\"";
        answer(
            Path::new(PROGRAM),
            &place.path(""),
            environment,
            &typed.split(' ').collect::<Vec<_>>(),
        )
    };
    let reason = "no cgroup v2 hierarchy is mounted, so cgroups have no names: mount one (mount -t \
                  cgroup2 none /sys/fs/cgroup)";
    for typed in [
        "record -p host -o x.parquet --cgroup /docker -- true",
        "record -p host -o x.parquet --cgroup-depth 2 -- true",
        "record -p host --dry-run --cgroup /docker",
        "agent --config agent.toml --duration 1s",
        "agent --config agent.toml --check",
        "top -p host --once",
        "top -p host --once --by pod",
        "stat --for-each-cgroup ^/docker -e page-faults -- true",
    ] {
        let answer = run(typed);
        assert!(answer.code == 2 && answer.err.contains(reason), "{typed}: {answer:?}");
        assert_eq!(place.content(), before, "{typed}");
    }
    assert_eq!(run("top -p host --once --by pid").code, 0);
    let record = run("record -p host -o x.parquet -- sleep 0.3").recorded();
    let note = "cgroups had no path, as no cgroup v2 hierarchy was mounted";
    assert!(record.err.contains(reason) && record.err.contains(note), "{record:?}");
    let report = place.typed("report x.parquet");
    assert!(report.code == 0 && report.err.contains(note), "{report:?}");
}
