//! The group `io` on a disk and an interface of the test's own: no other program moves a byte
//! there.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{
    assert_checked, need, or_skip, python, root_or_skip, rows, run, run_ok, text,
};

const MIB: u64 = 1 << 20;

/// Runs a command that must succeed; returns what it prints.
fn ok(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    }
    Err(format!("{program} {}: {}", args.join(" "), text(&output)))
}

/// A disk that is a file; it is detached on drop.
struct LoopDisk(String);

impl LoopDisk {
    fn new(dir: &Path, mib: u64) -> Result<Self, String> {
        let file = dir.join("image");
        fs::File::create(&file).unwrap().set_len(mib * MIB).unwrap();
        ok("losetup", &["--find", "--show", &file.to_string_lossy()]).map(Self)
    }

    /// `loop3`
    fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }

    /// Bytes read and written so far: sectors of 512 bytes, fields 3 and 7 of `stat`
    /// (Documentation/block/stat.rst, Linux 6.18).
    fn moved(&self) -> [u64; 2] {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.name())).unwrap();
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
        [fields[2] * 512, fields[6] * 512]
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _detached = ok("losetup", &["--detach", &self.0]);
    }
}

/// Both ends of a virtual link, the second one in a network namespace; removed on drop.
struct Link {
    namespace: String,
    name: String,
}

impl Link {
    fn new(tag: &str) -> Result<Self, String> {
        let namespace = format!("ut-{}-{tag}", std::process::id());
        let name = format!("ut{tag}{}", std::process::id() % 10_000);
        ok("ip", &["netns", "add", &namespace])?;
        let link = Self { namespace, name };
        let (space, name) = (&*link.namespace, &*link.name);
        ok("ip", &["link", "add", name, "type", "veth", "peer", "name", "peer", "netns", space])?;
        ok("ip", &["address", "add", "198.51.100.1/24", "dev", name])?;
        ok("ip", &["link", "set", name, "up"])?;
        link.run_inside(&["ip", "address", "add", "198.51.100.2/24", "dev", "peer"])?;
        link.run_inside(&["ip", "link", "set", "peer", "up"])?;
        Ok(link)
    }

    /// Runs a command in the namespace of the peer. `ip -n` and `ip netns exec` also change mounts,
    /// which fails in a chroot whose `/` is no mount point.
    fn run_inside(&self, command: &[&str]) -> Result<String, String> {
        let namespace = format!("--net=/run/netns/{}", self.namespace);
        ok("nsenter", &[&[namespace.as_str()], command].concat())
    }

    /// Bytes received and sent so far.
    fn moved(&self) -> [u64; 2] {
        ["rx_bytes", "tx_bytes"].map(|file| {
            let path = format!("/sys/class/net/{}/statistics/{file}", self.name);
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _removed = ok("ip", &["link", "del", &self.name]);
        let _removed = ok("ip", &["netns", "del", &self.namespace]);
    }
}

/// Runs a shell script in a cgroup.
fn run_in(cgroup: &Cgroup, script: &str) {
    let mut load = Load::start("sh", &["-c", &format!("read go; {script}; echo done")]);
    cgroup.add_process(load.pid());
    load.write_line("go");
    assert_eq!(load.read_line(), "done");
}

/// Bytes of an event in `fabric`: of all owners, of a cgroup, of the device.
fn shares(run: &Path, event: &str, cgroup: &Cgroup) -> [u64; 3] {
    let rows: Vec<_> =
        rows::read_shares(run).into_iter().filter(|row| row.event == event).collect();
    assert!(rows.iter().all(|row| ["exact", "none"].contains(&row.method.as_str())));
    let sum = |is_counted: &dyn Fn(&rows::ShareRow) -> bool| {
        rows.iter().filter(|row| is_counted(row)).filter_map(|row| row.value).sum::<f64>() as u64
    };
    [
        sum(&|_| true),
        sum(&|row| row.cgroup.as_deref() == Some(cgroup.path.as_str())),
        sum(&|row| row.owner == "device"),
    ]
}

/// Bytes in the details of `unseen_request`: those of the events that this kernel hides.
fn unseen(run: &Path, way: &str) -> u64 {
    let losses = rows::read_losses(run).into_iter().filter(|loss| loss.cause == "unseen_request");
    let details = losses.filter_map(|loss| loss.detail);
    let way_details = details.filter(|detail| detail.contains(way));
    way_details.map(|detail| detail.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Every byte of a disk is of who moved it; what the programs did not see is of the device, and a
/// loss says so.
#[test]
fn the_bytes_of_a_disk_are_exact() {
    let _machine = root_or_skip!();
    need("losetup");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = or_skip!(LoopDisk::new(dir.path(), 128));
    let cgroup = or_skip!(Cgroup::new("disk"));
    let run = dir.path().join("run/");
    let before = disk.moved();
    let recorder = Recorder::start(&run, &["-p", "io", "--device", disk.name()]);
    let copy = |from: &str, to: &str, flag: &str| {
        format!("dd if={from} of={to} bs=1M count=100 {flag}=direct 2>/dev/null")
    };
    run_in(&cgroup, &copy(&disk.0, "/dev/null", "iflag"));
    run_in(&cgroup, &copy("/dev/zero", &disk.0, "oflag"));
    let after = disk.moved();
    recorder.stop();
    assert_checked(&run);
    for (way, event) in ["read", "write"].into_iter().enumerate() {
        let [all, cgroup_bytes, device] = shares(&run, &format!("{event}_bytes"), &cgroup);
        println!("{event}: {all} bytes, {cgroup_bytes} of dd, {device} of the device");
        assert_eq!(all, after[way] - before[way], "{event}");
        assert_eq!(device, unseen(&run, event), "{event}");
        assert!(
            cgroup_bytes + device >= 100 * MIB,
            "{event}: {cgroup_bytes} of dd, {device} of the device"
        );
        assert!(cgroup_bytes <= 100 * MIB, "{event}: {cgroup_bytes} of dd");
    }
    let file = dir.path().join("again.parquet");
    run_ok(["attribute".as_ref(), run.as_os_str(), "-o".as_ref(), file.as_os_str()]);
    let all = |path: &Path| format!("{:?}", rows::read_shares(path));
    assert_eq!(all(&run), all(&file));
}

const RECEIVE: &str = "
import socket
server = socket.create_server(('198.51.100.1', 5999))
print('ready', flush=True)
peer, _ = server.accept()
while peer.recv(1 << 16): pass
print('done', flush=True)
";

const SEND: &str = "
import socket
peer = socket.create_connection(('198.51.100.1', 5999))
for _ in range(512): peer.sendall(bytes(1 << 16))
peer.close()
";

/// The total is that of the interface; the reader has what it read, and the device the headers.
#[test]
fn the_bytes_of_an_interface_are_its_statistics() {
    let _machine = root_or_skip!();
    need("ip");
    let python = python();
    let link = or_skip!(Link::new("io"));
    let cgroup = or_skip!(Cgroup::new("read"));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let script = dir.path().join("send.py");
    fs::write(&script, SEND).unwrap();
    let recorder = Recorder::start(&run, &["-p", "io", "--device", &link.name]);
    let before = link.moved();
    let receiver = format!("exec {} -c \"{RECEIVE}\"", python.display());
    let mut receiver = Load::start("sh", &["-c", &format!("read go; {receiver}")]);
    cgroup.add_process(receiver.pid());
    receiver.write_line("go");
    assert_eq!(receiver.read_line(), "ready");
    let (python, script) = (python.to_string_lossy(), script.to_string_lossy());
    let sent = link.run_inside(&[&python, &script]);
    assert_eq!(sent.as_deref(), Ok(""));
    assert_eq!(receiver.read_line(), "done");
    let after = link.moved();
    recorder.stop();
    assert_checked(&run);
    let sent = 512 << 16;
    let [all, cgroup_bytes, device] = shares(&run, "receive_bytes", &cgroup);
    println!("{all} bytes, {cgroup_bytes} of the reader, {device} of the device; sent {sent}");
    // A neighbour's request may come between the two readings of the statistics and the recording.
    assert!((after[0] - before[0]).abs_diff(all) < 1000, "{all}");
    // Packets that came while the kernel hid a process from tracers are of the device.
    assert!(
        cgroup_bytes <= sent && cgroup_bytes + device >= sent && cgroup_bytes > sent / 2,
        "{cgroup_bytes} of {sent}"
    );
    let [all, ..] = shares(&run, "transmit_bytes", &cgroup);
    assert!((after[1] - before[1]).abs_diff(all) < 1000, "{all}");
}

/// A disk that is built on another one is counted on demand only, and one that goes away stops.
#[test]
fn the_group_counts_each_byte_on_one_device() {
    let _machine = root_or_skip!();
    need("losetup");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = or_skip!(LoopDisk::new(dir.path(), 8));
    let planned = run_ok(["record", "-p", "io", "--dry-run"]);
    let counter = format!("disk_{} ", disk.name());
    assert!(!planned.lines().any(|line| line.contains("bytes") && line.contains(&counter)));
    assert!(planned.contains("io leaves out "), "{planned}");
    let planned = run_ok(["record", "--device", disk.name(), "--dry-run"]);
    assert_eq!(planned.lines().filter(|line| line.contains(&counter)).count(), 2, "{planned}");
    let output = run(["record", "-p", "io", "--device", "no-such-disk", "--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("there is no device no-such-disk"), "{}", text(&output));
}

/// `stat` counts what `record` does.
#[test]
fn stat_counts_the_bytes_of_a_disk() {
    let _machine = root_or_skip!();
    need("losetup");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = or_skip!(LoopDisk::new(dir.path(), 8));
    let event = format!("disk_{}/read_bytes/", disk.name());
    let from = format!("if={}", disk.0);
    let output: PathBuf = dir.path().join("stat.json");
    let copy = ["dd", &from, "of=/dev/null", "bs=1M", "count=4", "iflag=direct"];
    let head = ["stat", "-e", &event, "-j", "-o", output.to_str().unwrap(), "--"];
    run_ok(head.iter().chain(&copy));
    let text = fs::read_to_string(output).unwrap();
    let counted: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let value = counted["counter-value"].as_str().unwrap().parse::<f64>().unwrap();
    assert_eq!(value as u64, 4 * MIB, "{text}");
}
