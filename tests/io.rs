//! I/O by owner on a real disk and interface, compared with the disk's own statistics and with the
//! programs' own numbers.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "the figures, for readers of the log")]

use std::borrow::Borrow;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::harness::cgroup::Cgroup;
use crate::harness::disk::find_disk;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{
    assert_checked, best_of_three, mono_ns, need, or_skip, python, root_or_skip, rows, run_ok,
};

/// Rows are soon on the disk, where tests wait for them.
const OPTIONS: [&str; 5] = ["-p", "host", "--io", "--flush", "200ms"];

/// Size of the file that is read and written.
const FILE_BYTES: usize = 64 << 20;

/// Bytes read from and written to a disk since it exists: sectors of 512 bytes, fields 3 and 7 of
/// its `stat` (Documentation/block/stat.rst, Linux 6.18).
fn statistics(disk: &Path) -> [u64; 2] {
    let text = fs::read_to_string(disk.join("stat")).unwrap();
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [fields[2] * 512, fields[6] * 512]
}

/// Runs fio in a cgroup with these options; returns its own numbers of bytes read and written.
fn fio(cgroup: &Cgroup, dir: &Path, options: &[&str]) -> [u64; 2] {
    let report = dir.join("fio.json");
    let script = "read go; exec fio \"$@\"";
    let mut typed = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned()];
    typed.push(format!("--filename={}", dir.join("file").display()));
    typed.push(format!("--output={}", report.display()));
    typed.extend(["--name=test", "--output-format=json", "--size=64m"].map(str::to_owned));
    typed.extend(options.iter().map(|&option| option.to_owned()));
    let mut load = Load::start("sh", &typed);
    cgroup.add_process(load.pid());
    load.write_line("go");
    assert_eq!(load.read_line(), "", "it ends without a word");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let job = &report["jobs"][0];
    ["read", "write"].map(|way| job[way]["io_bytes"].as_u64().unwrap())
}

/// A file whose data are on the disk.
fn prepare(dir: &Path) {
    let mut file = fs::File::create(dir.join("file")).unwrap();
    file.write_all(&vec![7; FILE_BYTES]).unwrap();
    file.sync_all().unwrap();
}

/// Bytes in these rows.
fn sum<T: Borrow<rows::MovedRow>>(rows: impl Iterator<Item = T>) -> u64 {
    rows.map(|row| row.borrow().bytes).sum()
}

/// Relative error of `found`.
fn relative_error(measured: u64, expected: u64, label: &str) -> f64 {
    println!("{label}: {measured} bytes, expected {expected}");
    measured.abs_diff(expected) as f64 / expected as f64
}

/// Records into a directory of which an earlier attempt may have made a recording.
fn record_anew(run: &Path) -> Recorder {
    // Its rows would be read as long as this recording is not finished.
    if run.exists() {
        fs::remove_dir_all(run).unwrap();
    }
    Recorder::start(run, &OPTIONS)
}

/// Records fio in one cgroup beside a busy process in another; returns the largest relative error
/// of a known sum.
fn beside_a_burner(dir: &Path, disk: &Path, run: &Path, [tenant, other]: [&Cgroup; 2]) -> f64 {
    let burner = Load::spin(0);
    other.add_process(burner.pid());
    let recorder = record_anew(run);
    recorder.wait_for_first_window();
    let (before, begin) = (statistics(disk), mono_ns());
    let options = ["--rw=randrw", "--direct=1", "--bs=16k", "--io_size=128m", "--iodepth=8"];
    let fio_bytes = fio(tenant, dir, &[&options[..], &["--ioengine=libaio"]].concat());
    let (after, end) = (statistics(disk), mono_ns());
    rows::wait_for_window_after(run, end);
    recorder.stop();
    assert_checked(run);
    let name = disk.file_name().unwrap().to_str().unwrap();
    let moved: Vec<_> = rows::read_io(run).into_iter().filter(|row| row.device == name).collect();
    let mut worst: f64 = 0.0;
    for (way, direction) in ["read", "write"].into_iter().enumerate() {
        let all = || moved.iter().filter(|row| row.direction == direction);
        let within = all().filter(|row| (begin..end).contains(&row.mono_ns));
        worst = worst.max(relative_error(sum(within), after[way] - before[way], direction));
        let tenant_rows = all().filter(|row| row.cgroup.as_deref() == Some(tenant.path.as_str()));
        worst = worst.max(relative_error(
            sum(tenant_rows),
            fio_bytes[way],
            &format!("fio's {direction}"),
        ));
    }
    let burnt = moved.iter().filter(|row| row.cgroup.as_deref() == Some(other.path.as_str()));
    assert_eq!(sum(burnt), 0, "the burner moved nothing");
    let path = fs::canonicalize(disk).unwrap();
    let on_pci = path.to_string_lossy().contains("/pci");
    assert!(moved.iter().all(|row| row.bdf.is_some() == on_pci));
    // The owner of a request that was under way when the programs were attached is not known.
    let within = moved.iter().filter(|row| (begin..end).contains(&row.mono_ns));
    let nobodys = sum(within.filter(|row| row.owner != "task"));
    println!("of no task: {nobodys} bytes");
    worst.max(nobodys as f64 / sum(moved.iter()) as f64)
}

#[test]
fn bytes_of_a_disk_belong_to_the_requester() {
    let _machine = root_or_skip!();
    need("fio");
    // Not the temporary directory, which may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = or_skip!(find_disk(dir.path()));
    let (tenant, burner_cgroup) = (or_skip!(Cgroup::new("fio")), or_skip!(Cgroup::new("burn")));
    prepare(dir.path());
    let run = dir.path().join("run/");
    // Other programs' requests in the first and last moment are included.
    let worst =
        best_of_three(0.01, || beside_a_burner(dir.path(), &disk, &run, [&tenant, &burner_cgroup]));
    assert!(worst <= 0.01, "off by {worst:.4} of what was moved");
    assert_attributed_again(&run, dir.path());
}

/// `attribute` makes the same rows again.
fn assert_attributed_again(run: &Path, dir: &Path) {
    let file = dir.join("attributed.parquet");
    run_ok(["attribute".as_ref(), run.as_os_str(), "-o".as_ref(), file.as_os_str()]);
    let rows = |path: &Path| rows::read_shares(path).iter().map(|row| format!("{row:?}")).collect();
    let (first, second): (Vec<String>, Vec<String>) = (rows(run), rows(&file));
    assert_eq!(first, second);
}

/// The file is written through the page cache: by fsync of fio itself, or later by the kernel's
/// writeback for it, if the io controller tells its cgroup. Returns the fraction that is not
/// attributed so.
fn through_the_cache(dir: &Path, disk: &Path, run: &Path, tenant: &Cgroup, synced: bool) -> f64 {
    let recorder = record_anew(run);
    let end = if synced { "--end_fsync=1" } else { "--end_fsync=0" };
    let fio_bytes = fio(tenant, dir, &["--rw=write", "--bs=64k", end]);
    if !synced {
        rustix::fs::sync();
    }
    rows::wait_for_window_after(run, mono_ns());
    recorder.stop();
    assert_checked(run);
    let name = disk.file_name().unwrap().to_str().unwrap();
    let moved = rows::read_io(run);
    let writes = moved.iter().filter(|row| row.device == name && row.direction == "write");
    let tenant_writes =
        writes.clone().filter(|row| row.cgroup.as_deref() == Some(tenant.path.as_str()));
    let workers = writes.filter(|row| row.comm.starts_with("kworker"));
    if synced || writers_know(tenant) {
        relative_error(sum(tenant_writes), fio_bytes[1], "written")
    } else {
        println!("no io and memory controller in v2 here: the kernel's writers have it");
        1.0 - sum(workers) as f64 / fio_bytes[1] as f64
    }
}

#[test]
fn bytes_written_through_the_cache_belong_to_their_writer() {
    let _machine = root_or_skip!();
    need("fio");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = or_skip!(find_disk(dir.path()));
    let tenant = or_skip!(Cgroup::new("cache"));
    prepare(dir.path());
    let run = dir.path().join("run/");
    for synced in [true, false] {
        let off =
            best_of_three(0.02, || through_the_cache(dir.path(), &disk, &run, &tenant, synced));
        assert!(off <= 0.02, "synced: {synced}: off by {off:.4} of what was written");
    }
}

/// Whether dirty pages have a cgroup: `inode_cgwb_enabled`, include/linux/backing-dev.h, Linux
/// 6.18, and this is the nearest cgroup with the io controller.
fn writers_know(cgroup: &Cgroup) -> bool {
    let mount = uncore_trace::discover::machine(Path::new("/")).unwrap().cgroups.v2.unwrap();
    let file = mount.join(cgroup.path.trim_start_matches('/')).join("cgroup.controllers");
    let controllers = fs::read_to_string(file).unwrap();
    let has = |controller| controllers.split_whitespace().any(|name| name == controller);
    has("io") && has("memory")
}

/// Bytes to send.
const SENT: u64 = 64 << 20;

/// Waits for a line before it makes a socket, which belongs to its cgroup from then on.
const RECEIVE: &str = "
import socket, sys
sys.stdin.readline()
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
while peer.recv(1 << 16): pass
print('done', flush=True)
";

const SEND: &str = "
import socket, sys
port = int(sys.stdin.readline())
peer = socket.create_connection(('127.0.0.1', port))
block = bytes(1 << 16)
for _ in range(int(sys.argv[1]) >> 16): peer.sendall(block)
peer.close()
";

/// Records a sender in one cgroup and a reader in another; returns the largest relative error of
/// the bytes read, and of the bytes sent beyond headers.
fn packets(python: &Path, [from, to]: [&Cgroup; 2]) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let mut receiver = Load::start(python, &["-c", RECEIVE]);
    let mut sender = Load::start(python, &["-c", SEND, &SENT.to_string()]);
    to.add_process(receiver.pid());
    from.add_process(sender.pid());
    let recorder = Recorder::start(&run, &OPTIONS);
    receiver.write_line("go");
    let port = receiver.read_line();
    sender.write_line(&port);
    assert_eq!(receiver.read_line(), "done");
    rows::wait_for_window_after(&run, mono_ns());
    recorder.stop();
    assert_checked(&run);
    let moved = rows::read_io(&run);
    let moved_bytes = |cgroup: &Cgroup, direction: &str| {
        let lo_rows = moved.iter().filter(|row| row.device == "lo" && row.direction == direction);
        sum(lo_rows.filter(|row| row.cgroup.as_deref() == Some(cgroup.path.as_str())))
    };
    // Headers are sent too: at most 66 bytes per 1448, and acknowledgements in the other direction.
    let sent = (relative_error(moved_bytes(from, "write"), SENT, "sent") - 0.05).max(0.0);
    assert!(moved_bytes(to, "write") < SENT / 20 && moved_bytes(from, "read") < SENT / 100);
    let readers = moved.iter().filter(|row| row.direction == "read" && row.device == "lo");
    let read = readers.filter(|row| row.pid == Some(receiver.pid()));
    sent.max(relative_error(moved_bytes(to, "read"), SENT, "read")).max(relative_error(
        sum(read),
        SENT,
        "by process",
    ))
}

#[test]
fn packets_belong_to_their_sender_and_reader() {
    let _machine = root_or_skip!();
    let python = python();
    let (from, to) = (or_skip!(Cgroup::new("send")), or_skip!(Cgroup::new("receive")));
    let worst = best_of_three(0.01, || packets(&python, [&from, &to]));
    assert!(worst <= 0.01, "off by {worst:.4} of what was sent or read");
}
