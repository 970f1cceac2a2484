//! `doctor` and `record` tell one truth: kernels that are older than their processor, PMUs without
//! known events, seccomp profiles.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::PathBuf;

use crate::command::{Answer, Place};
use crate::harness::{has_root, python, rows};

const DEVICES: &str = "sys/bus/event_source/devices";

/// What a tree under `root` is made of.
struct Tree(PathBuf);

impl Tree {
    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A machine of one socket of 4 CPUs, with a core PMU.
    fn machine(self, (vendor, family, model): (&str, u32, u32), release: &str) -> Self {
        let cpuinfo = format!(
            "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: made\n\
             flags\t\t: fpu\n"
        );
        self.write("proc/cpuinfo", &cpuinfo);
        self.write("proc/self/mountinfo", "");
        self.write("proc/sys/kernel/osrelease", &format!("{release}\n"));
        self.write("sys/devices/system/cpu/online", "0-3\n");
        self.write(&format!("{DEVICES}/software/type"), "1\n");
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            self.write(&path, "0\n");
        }
        self
    }

    /// A PMU with the formats `event` and `umask`, and without events.
    fn pmu(self, name: &str, attr_type: u32) -> Self {
        let file = |file: &str| format!("{DEVICES}/{name}/{file}");
        self.write(&file("type"), &format!("{attr_type}\n"));
        self.write(&file("cpumask"), "0\n");
        self.write(&file("format/event"), "config:0-7\n");
        self.write(&file("format/umask"), "config:8-15\n");
        self
    }
}

/// What `doctor`, `list` and `record` say of one machine.
struct Said {
    doctor: String,
    list: String,
    /// The refusals of `-p mem` and `-M mem_bandwidth`.
    record: [String; 2],
}

fn ask(place: &Place, root: &str) -> Said {
    let plan = |options: [&str; 2]| {
        let args = ["record", "--dry-run", "-o", "x.parquet", "--root", root];
        place.refuses([&args[..], &options].concat())
    };
    Said {
        doctor: place.run(["doctor", "--root", root]).out,
        list: place.run(["list", "absent", "--root", root]).ok(),
        record: [plan(["-p", "mem"]), plan(["-M", "mem_bandwidth"])],
    }
}

/// All of them say `what`, and none that all is well or that something else is to be asked.
fn assert_all_say(answers: &Said, expected: &str) {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in answers.record.iter().chain([&answers.doctor, &answers.list]) {
        let text = flat(text);
        assert!(text.contains(expected), "no {expected:?} in {text}");
        for wrong in ["its PMUs are here", "missing drivers", "drivers are missing"] {
            assert!(!text.contains(wrong), "{text}");
        }
    }
    assert!(!answers.doctor.contains("\nok    PMU drivers"), "{}", answers.doctor);
}

/// Report 18: Granite Rapids before 632c4bf6d007 (Linux 6.8).
#[test]
fn a_kernel_older_than_the_processor_is_named_with_the_one_that_knows_it() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let root = elsewhere.machine("granite-rapids-old-kernel-2s");
    let answers = ask(&place, &root);
    assert_all_say(
        &answers,
        "intel_uncore of this kernel (7.2.13) does not know the uncore counters of this processor \
         (Granite Rapids), although that of Linux 6.8 and later does; they are here without names, as \
         uncore_type_0_0, uncore_type_0_1 and 2 more",
    );
    assert!(answers.doctor.contains("fix: boot a kernel >= 6.8\n"), "{}", answers.doctor);
    let typed = "uncore_type_6/event=0x5,umask=0xcf/";
    assert!(
        answers.doctor.contains(&format!("or: uncore-trace record -o run.parquet -e {typed} -e ")),
        "{}",
        answers.doctor
    );
    // cas_count_read_sch0 of gnr_uncore_imc_events (uncore_snbep.c, Linux 7.2).
    let plan = ["record", "--dry-run", "-o", "x.parquet", "--root", &root, "-e", typed, "--json"];
    let plan: serde_json::Value = serde_json::from_str(&place.run(plan).ok()).unwrap();
    let counters = plan["counters"].as_array().unwrap();
    assert_eq!(counters.len(), 4);
    assert!(counters.iter().all(|counter| counter["config"][0] == 0xcf05), "{counters:#?}");
    let line = place.refuses(
        "record --dry-run -o x.parquet -e uncore_imc/cas_count_read_sch0/ --root"
            .split(' ')
            .chain([root.as_str()]),
    );
    assert!(line.contains("there is no PMU uncore_imc: intel_uncore of this kernel"), "{line}");
}

#[test]
fn each_processor_that_an_older_kernel_lacks_is_named() {
    const INTEL: &str = "GenuineIntel";
    for (processor, release, name, since) in [
        ((INTEL, 6, 0xaf), "6.6.8", "Sierra Forest or Grand Ridge", "6.8"),
        ((INTEL, 6, 0xdd), "6.12.0-rc1", "Clearwater Forest", "6.13"),
        ((INTEL, 19, 1), "6.12.117", "Diamond Rapids", "7.0"),
        ((INTEL, 6, 0xaa), "6.1.0-28-amd64", "Meteor Lake", "6.3"),
        ((INTEL, 6, 0xc6), "6.1.0-28-amd64", "Arrow Lake", "6.12"),
        ((INTEL, 6, 0xbd), "6.8.0-40-generic", "Lunar Lake", "6.12"),
        ((INTEL, 6, 0xcc), "6.12.117", "Panther Lake", "6.17"),
        ((INTEL, 18, 1), "6.12.117", "Nova Lake", "7.0"),
        (("AuthenticAMD", 26, 2), "6.1.0-28-amd64", "Zen 4 or later", "6.7"),
    ] {
        let place = Place::new();
        let _tree = Tree(place.path("m")).machine(processor, release);
        let answers = ask(&place, place.path("m").to_str().unwrap());
        let what = format!("({name}), that of Linux {since} and later does");
        assert_all_say(&answers, &what);
        // The driver is not loaded, because it knows nothing here.
        assert!(!answers.doctor.contains("modprobe intel_uncore"), "{}", answers.doctor);
        assert!(
            answers.doctor.contains(&format!("fix: boot a kernel >= {since}\n")),
            "{}",
            answers.doctor
        );
        // The next kernel that knows it has another fault, such as a driver that is not loaded.
        let _newer = Tree(place.path("m")).machine(processor, &format!("{since}.0"));
        let answers = ask(&place, place.path("m").to_str().unwrap());
        assert!(!answers.record.concat().contains(name), "{:?}", answers.record);
    }
}

/// Type 6 of `spr_uncores` is the memory controller, and that of the discovery table of clients
/// (`spr_uncore_imc_events`, `uncore_snbep.c`; `ptl_uncores`, `uncore_snb.c`, Linux 7.2).
#[test]
fn memory_is_counted_by_the_number_of_its_type() {
    let cas = ["event=0x5,umask=0xcf", "event=0x5,umask=0xf0"];
    let data = ["event=0x3a", "event=0x3b"];
    for (model, release, since, events, first) in [
        (0x8f, "5.10.0", "5.15", cas, 0xcf05),
        (0xcf, "6.1.0", "6.2", cas, 0xcf05),
        (0xcf, "6.12.0", "6.2", cas, 0xcf05),
        (0xd5, "6.18.0", "6.19", data, 0x3a),
    ] {
        let place = Place::new();
        let tree = Tree(place.path("m")).machine(("GenuineIntel", 6, model), release);
        let _tree = tree.pmu("uncore_type_0_0", 20).pmu("uncore_type_6_0", 21);
        let answers = ask(&place, "m");
        assert_all_say(&answers, &format!("that of Linux {since} and later does"));
        let typed = events.map(|event| format!("-e uncore_type_6/{event}/")).join(" ");
        assert_all_say(&answers, &typed);
        let works = format!("record --dry-run -o x.parquet --root m --json {typed}");
        let plan: serde_json::Value = serde_json::from_str(&place.typed(&works).ok()).unwrap();
        assert_eq!(plan["counters"][0]["config"][0], first);
    }
}

/// Units that are left without a name on a processor that is known, and a processor that is not.
#[test]
fn units_without_names_are_named_by_their_encoding() {
    for (model, release, description) in [
        (0x8f, "6.8.0", "(Sapphire Rapids or Emerald Rapids), that of Linux 6.11 and later does"),
        (0x1ff, "7.2.13", "does not know all uncore counters of this processor"),
    ] {
        let place = Place::new();
        let tree = Tree(place.path("m")).machine(("GenuineIntel", 6, model), release);
        let _tree = tree.pmu("uncore_type_14_0", 20).pmu("uncore_type_14_1", 21);
        let doctor = place.run(["doctor", "--root", "m"]).out;
        let flat = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains(description) && flat.contains("as uncore_type_14_0, uncore_type_14_1"),
            "{flat}"
        );
        let typed = "; -e uncore_type_14_0/event=0xNN,umask=0xNN/ counts an event by its encoding";
        assert!(flat.contains(typed), "{flat}");
    }
}

/// Diamond Rapids' memory controllers have no events in sysfs (`dmr_uncore_imc`, `uncore_snbep.c`,
/// Linux 7.2), and nobody published those of Hygon's data fabric.
#[test]
fn a_pmu_without_known_events_is_no_missing_driver() {
    for (processor, release, pmu) in [
        (("GenuineIntel", 19, 1), "7.2.13", "uncore_imc_0"),
        (("GenuineIntel", 19, 1), "6.6.0-velinux", "uncore_imc_0"),
        (("HygonGenuine", 24, 1), "6.1.0-28-amd64", "amd_df"),
        (("AuthenticAMD", 27, 1), "7.2.13", "amd_df"),
    ] {
        let place = Place::new();
        let _tree = Tree(place.path("m")).machine(processor, release).pmu(pmu, 20);
        let answers = ask(&place, place.path("m").to_str().unwrap());
        assert_all_say(
            &answers,
            "is here, but neither this kernel nor this program names events of it",
        );
        let typed = format!("-e {pmu}/event=0xNN,umask=0xNN/ counts an event by its encoding");
        assert!(answers.record.iter().all(|line| line.contains(&typed)), "{:?}", answers.record);
        let works = format!("record --dry-run -o x.parquet --root m -e {pmu}/event=0x1,umask=0x2/");
        place.typed(&works).ok();
    }
}

/// Report 07: `amd_umc` came with Linux 6.7.
#[test]
fn zen4_before_its_memory_controllers_says_so() {
    let place = Place::new();
    let root = place.machine("zen4-old-kernel-2s");
    let doctor = place.run(["doctor", "--root", &root]).out;
    let flat = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains(
            "amd_uncore of this kernel (6.1.0-28-amd64) does not know the memory controllers (amd_umc) of \
             this processor (Zen 4 or later), that of Linux 6.7 and later does"
        ),
        "{doctor}"
    );
    assert!(!doctor.contains("its PMUs are here"), "{doctor}");
    assert!(doctor.contains("fix: boot a kernel >= 6.7\n"), "{doctor}");
}

/// Installs a seccomp filter and executes a command: the calls in the list answer with the error.
const FILTER: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
error, calls = int(sys.argv[1]), [int(call) for call in sys.argv[2].split(',')]
statement = lambda code, k: struct.pack('HBBI', code, 0, 0, k)
jump = lambda k, yes: struct.pack('HBBI', 0x15, yes, 0, k)
program = statement(0x20, 0)
for place, call in enumerate(calls):
    program += jump(call, len(calls) - place)
program += statement(0x06, 0x7fff0000) + statement(0x06, 0x00050000 | error)
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('at', ctypes.c_void_p)]
filter = Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])
";

/// Runs the tool with calls that a filter answers with an error.
fn filtered(place: &Place, error: i32, calls: &[libc::c_long], typed: &str) -> Answer {
    let tool = place.tool(typed.split_whitespace());
    let mut command = std::process::Command::new(python());
    let calls: Vec<_> = calls.iter().map(ToString::to_string).collect();
    command.args(["-c", FILTER]).arg(error.to_string()).arg(calls.join(","));
    command.arg(tool.get_program()).args(tool.get_args());
    Answer::of(command.current_dir(place.path("")).output().unwrap())
}

/// Report 14: a container's profile answers EPERM to root with all capabilities, an older one
/// ENOSYS.
#[test]
fn a_seccomp_profile_is_named_with_what_allows_it() {
    if !has_root("a seccomp profile that stops root") {
        return;
    }
    let place = Place::new();
    let (perf, bpf) = (libc::SYS_perf_event_open, libc::SYS_bpf);
    for error in [libc::EPERM, libc::ENOSYS] {
        for typed in ["stat -e context-switches -- true", "record -p host -o x.parquet -- true"] {
            let line = filtered(&place, error, &[perf], typed).refused();
            let way = "a seccomp profile forbids perf_event_open: start the container with \
                       --security-opt seccomp=unconfined (docker, podman)";
            assert!(line.contains(way) && line.contains("seccompProfile"), "{line}");
            assert!(!line.contains("root, or"), "{line}");
        }
        let line = filtered(&place, error, &[bpf], "record -p host -o x.parquet -- true").refused();
        assert!(line.contains("(a seccomp profile forbids bpf: start the container"), "{line}");
        assert!(!line.contains("root, or"), "{line}");
        for (call, name) in [(perf, "perf_event_open"), (bpf, "bpf")] {
            let doctor = filtered(&place, error, &[call], "doctor");
            assert_eq!(doctor.code, 2, "{doctor:#?}");
            let failed: Vec<_> =
                doctor.out.lines().filter(|line| line.starts_with("FAIL")).collect();
            assert_eq!(failed.len(), 1, "{doctor:#?}");
            assert!(
                failed[0].contains(&format!("a seccomp profile forbids {name}: ")),
                "{failed:?}"
            );
            let fix = "fix: start the container with --security-opt seccomp=unconfined";
            assert!(doctor.out.contains(fix), "{doctor:#?}");
            assert!(!doctor.out.contains("record works here"), "{doctor:#?}");
        }
    }
}

/// Without a filter the same checks are met: they open what `record` opens.
#[test]
fn doctor_opens_a_counter_and_loads_a_program() {
    if !has_root("doctor opens a counter") {
        return;
    }
    let doctor = Place::new().typed("doctor").ok();
    for line in ["ok    perf_event_open", "ok    bpf"] {
        assert!(doctor.lines().any(|finding| finding.starts_with(line)), "{doctor}");
    }
}

/// A kernel without BTF of its own: the offsets are those of a file, and the programs attach to raw
/// tracepoints. This kernel's own file stands for that of another.
#[test]
fn a_file_gives_the_types_of_a_kernel_that_has_none() {
    if !has_root("a recording with --btf") {
        return;
    }
    let place = Place::new();
    fs::copy("/sys/kernel/btf/vmlinux", place.path("kernel.btf")).unwrap();
    let record = "record -p host -o run/ --duration 300ms --btf";
    place.typed(&format!("{record} kernel.btf")).recorded();
    assert_eq!(rows::recorder_use(&place.path("run/")).timer, "run-on-cpu");
    place.typed("check run/").ok();
    let report = place.typed("report run/").ok();
    assert!(report.contains("context-switches"), "{report}");
    fs::write(place.path("wrong"), "types").unwrap();
    let line = place.typed(&format!("{record} wrong --force")).refused();
    assert!(line.contains("the BTF file wrong cannot be used: it is not BTF"), "{line}");
    let line = place.typed(&format!("{record} none --force")).refused();
    assert!(line.contains("cannot read the BTF file none: No such file"), "{line}");
    let line = place.typed(&format!("{record} kernel.btf --force --timer pinned")).refused();
    assert!(line.contains("the kernel has no BTF"), "{line}");
}
