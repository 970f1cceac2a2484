//! The BPF programs that see who holds which device: those that follow the files of watched
//! devices, and the iterator over the files of all processes.
//!
//! Guarantee: if the kernel lacks what it takes to follow files, they can still be read now and
//! then, and a text says so.
#![expect(
    unsafe_code,
    reason = "bpf(2) has no safe wrapper for an iterator that is read repeatedly"
)]

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use aya::maps::Array;
use aya::programs::{FEntry, Iter};
use aya::{Btf, Ebpf, EbpfLoader};
use uncore_trace_common::config;
use uncore_trace_common::record::FileEvent;

use super::btf::{GlobalValue, KernelTypes, MemberGlobal, read_word};
use super::counters::bpf_call;
use super::programs::{attach_raw, check_load, find_program};
use crate::clock::TimeSpan;
use crate::clock::mono_ns;

/// The programs, none of which every recording attaches.
pub(super) const PROGRAMS: [&str; 4] = [GOT, LEFT, FORK, ITERATOR];

/// At the functions of these names.
pub(super) const ENTRIES: [&str; 2] = [GOT, LEFT];

/// Sees the files that a process gets.
const GOT: &str = "fd_install";
/// Sees those that it leaves.
const LEFT: &str = "locks_remove_posix";
/// Sees copies of tables.
const FORK: &str = "sched_process_fork";
/// Visits all files; also the name of what it iterates over.
pub(super) const ITERATOR: &str = "task_file";

/// Processes and devices that the programs remember, 1 MiB of kernel memory. Servers of GPUs have
/// some thousand processes with some ten devices each at most.
const REMEMBERED: u32 = 1 << 13;

/// Processes and devices in a reading, 20 MiB.
const MOST_SEEN: usize = 1 << 18;

/// Where a record has its process and its device.
const KEY: [usize; 3] =
    [offset_of!(FileEvent, task.pid), offset_of!(FileEvent, block), offset_of!(FileEvent, device)];

/// Size of the buffer that the iterator fills, in bytes: whole records.
const CHUNK: usize = 512 * size_of::<FileEvent>();

/// Major numbers have 12 bits: `MINORBITS` is 20 of 32 (`include/linux/kdev_t.h`, Linux 6.1 to
/// 7.2).
const MAJORS: u32 = 1 << 12;

/// `BPF_LINK_CREATE`, `BPF_ITER_CREATE` and `BPF_TRACE_ITER`, `include/uapi/linux/bpf.h`.
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
const TRACE_ITER: u32 = 28;

/// The first fields of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

/// The fields of `union bpf_attr` for `BPF_ITER_CREATE`.
#[repr(C)]
struct IterCreateAttr {
    link_fd: u32,
    flags: u32,
}

/// What the programs need.
const OFFSETS: [MemberGlobal; 12] = [
    (config::TASK_TGID, &[("task_struct", "tgid")]),
    (config::TASK_COMM, &[("task_struct", "comm")]),
    (config::TASK_FILES, &[("task_struct", "files")]),
    (config::TASK_CGROUPS, &[("task_struct", "cgroups")]),
    (config::CSET_CGROUP, &[("css_set", "dfl_cgrp")]),
    (config::FILES_TABLE, &[("files_struct", "fdt")]),
    (config::TABLE_SIZE, &[("fdtable", "max_fds")]),
    (config::TABLE_FILES, &[("fdtable", "fd")]),
    (config::FILE_INODE, &[("file", "f_inode")]),
    (config::FILE_MODE, &[("file", "f_mode")]),
    (config::INODE_MODE, &[("inode", "i_mode")]),
    (config::INODE_DEVICE, &[("inode", "i_rdev")]),
];

/// What the running kernel has of it.
#[derive(Debug)]
pub(super) struct HolderSettings(Vec<GlobalValue>);

impl HolderSettings {
    /// Looks up what the programs need.
    pub(super) fn from_types(types: &KernelTypes) -> Result<Self> {
        types.member_values(&OFFSETS).map(Self)
    }

    /// Sets the programs' globals and sizes their maps.
    pub(super) fn apply_settings<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        for (name, value) in &self.0 {
            loader.override_global(name, value, true);
        }
        loader.map_max_entries("HELD", REMEMBERED);
        loader.map_max_entries("HOLDERS", REMEMBERED);
    }
}

/// The files of watched devices that all processes had open.
#[derive(Clone, Debug)]
pub struct OpenFiles {
    /// When they were read, ns on `CLOCK_MONOTONIC`: begin and end.
    pub span: TimeSpan,
    /// Records of the programs, one after the other.
    pub records: Vec<u8>,
}

impl OpenFiles {
    /// The bytes of each record.
    pub fn each_record(&self) -> impl Iterator<Item = &[u8]> {
        self.records.chunks_exact(size_of::<FileEvent>())
    }
}

/// The attached programs.
#[derive(Debug)]
pub(super) struct HolderPrograms {
    iterator: OwnedFd,
    /// Why files are not followed, if they are not.
    pub(super) unfollowed: Option<String>,
}

impl HolderPrograms {
    /// Loads and attaches the programs for devices with these major numbers; `true` for block
    /// devices.
    ///
    /// # Errors
    ///
    /// The kernel has no type information of its own, or refuses to iterate over files.
    pub(super) fn attach_programs(
        ebpf: &mut Ebpf,
        kernel: Option<&Btf>,
        majors: impl Iterator<Item = (bool, u32)>,
    ) -> Result<Self> {
        let kernel = kernel.context("this kernel has no BTF of its own")?;
        watch_majors(ebpf, majors)?;
        let program: &mut Iter = find_program(ebpf, ITERATOR)?;
        check_load(ITERATOR, program.load(ITERATOR, kernel))?;
        let program = program.fd().context("the iterator is not loaded")?.as_fd().as_raw_fd();
        let mut link = LinkCreateAttr {
            prog_fd: program as u32,
            target_fd: 0,
            attach_type: TRACE_ITER,
            flags: 0,
        };
        let iterator = bpf_call(LINK_CREATE, &mut link).context("cannot iterate over all files")?;
        // SAFETY: the kernel has just returned this descriptor, nobody else owns it.
        let iterator = unsafe { OwnedFd::from_raw_fd(iterator) };
        let unfollowed = follow_files(ebpf, kernel).err().map(|error| format!("{error:#}"));
        Ok(Self { iterator, unfollowed })
    }

    /// Reads the files of all processes.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or more than [`MOST_SEEN`] processes have files of devices.
    pub(super) fn read_files(&self) -> Result<OpenFiles> {
        let begin_ns = mono_ns() as u64;
        let mut create = IterCreateAttr { link_fd: self.iterator.as_raw_fd() as u32, flags: 0 };
        let opened = bpf_call(ITER_CREATE, &mut create).context("cannot read all files")?;
        // SAFETY: the kernel has just returned this descriptor, nobody else owns it.
        let mut file = unsafe { File::from_raw_fd(opened) };
        let mut records = Vec::new();
        let mut seen: HashSet<[u32; 3]> = HashSet::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            // The kernel gives whole records (`bpf_seq_read`, kernel/bpf/bpf_iter.c, Linux 6.1 to
            // 7.2), and fewer than the buffer has room for; the next read goes on.
            let len = match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read all files"),
            };
            for bytes in chunk[..len].chunks_exact(size_of::<FileEvent>()) {
                // A process may have a million files of one device.
                if seen.insert(KEY.map(|offset| read_word(bytes, offset))) {
                    records.extend_from_slice(bytes);
                }
                ensure!(seen.len() <= MOST_SEEN, "too many processes have files of devices open");
            }
        }
        Ok(OpenFiles { span: TimeSpan::new(begin_ns, mono_ns() as u64), records })
    }
}

/// Loads and attaches the programs that follow files.
fn follow_files(ebpf: &mut Ebpf, kernel: &Btf) -> Result<()> {
    for name in ENTRIES {
        let program: &mut FEntry = find_program(ebpf, name)?;
        check_load(name, program.load(name, kernel))?;
        program.attach().with_context(|| format!("cannot attach to the function {name}"))?;
    }
    attach_raw(ebpf, FORK, FORK)
}

/// Sets the bits of the major numbers.
fn watch_majors(ebpf: &mut Ebpf, majors: impl Iterator<Item = (bool, u32)>) -> Result<()> {
    let map = ebpf.map_mut("WATCHED").context("the BPF object has no map WATCHED")?;
    let mut map: Array<_, u64> =
        map.try_into().context("the BPF map WATCHED is of another type")?;
    for (is_block, major) in majors.filter(|(_, major)| *major < MAJORS) {
        let bit = u32::from(is_block) * MAJORS + major;
        let word = map.get(&(bit / 64), 0).context("cannot read the map WATCHED")?;
        map.set(bit / 64, word | 1 << (bit % 64), 0).context("cannot write the map WATCHED")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::process::{Command, Stdio, id};
    use std::time::{Duration, Instant};

    use aya::VerifierLogLevel;
    use aya::maps::{MapData, RingBuf};

    use super::super::counters::CounterArray;
    use super::super::open_counter::SwitchReadings;
    use super::super::{SessionOptions, Timer, programs, rings};
    use super::*;
    use crate::discover::nodes::DeviceNumber;
    use crate::drain::{DrainedRecord, FileChange, FileRecord, decode_record};
    use crate::skip::has_root;

    /// The driver of `/dev/null` (`MEM_MAJOR`, `include/uapi/linux/major.h`) has no device of
    /// [`HolderPrograms`]; it stands for one that every machine has.
    const MEM: (bool, u32) = (false, 1);
    /// `/dev/full`.
    const FULL: DeviceNumber = DeviceNumber { is_block: false, major: 1, minor: 7 };
    /// `/dev/zero`, which can be mapped.
    const ZERO: DeviceNumber = DeviceNumber { is_block: false, major: 1, minor: 5 };

    /// One process opens a file and sends it to another.
    const SEND: &str = "
import os, socket
one, other = socket.socketpair(socket.AF_UNIX)
child = os.fork()
if child == 0:
    one.close()
    received = socket.recv_fds(other, 1, 1)[1][0]
    os._exit(0)
other.close()
socket.send_fds(one, [b'x'], [os.open('/dev/full', os.O_RDONLY)])
os.waitpid(child, 0)
print(os.getpid(), child)
";

    /// One process opens a file, and closes it when it keeps it by another way.
    const HIDE: &str = "
import ctypes, os, socket, sys
libc, way = ctypes.CDLL(None, use_errno=True), sys.argv[1]
file = os.open('/dev/zero', os.O_RDWR)
print('open', flush=True)
sys.stdin.readline()
if way == 'mapping':
    libc.mmap.restype = ctypes.c_void_p
    kept = libc.mmap(None, ctypes.c_size_t(4096), 3, 2, file, ctypes.c_long(0)) % 2**64 < 2**63
elif way == 'in flight':
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kept = socket.send_fds(one, [b'x'], [file]) > 0
else:
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
    kept = libc.syscall(427, ring, 2, ctypes.byref(ctypes.c_int(file)), 1) == 0
os.close(file)
print('kept' if kept else os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.readline()
";

    struct Case {
        rings: Vec<RingBuf<MapData>>,
        holders: HolderPrograms,
        _ebpf: Ebpf,
    }

    impl Case {
        fn new() -> Self {
            let types = KernelTypes::read(super::super::btf::VMLINUX.as_ref()).unwrap();
            let kernel = HolderSettings::from_types(&types).unwrap();
            let options = SessionOptions {
                tick_ns: 1_000_000,
                slices: false,
                sample_on_sched: false,
                sample_on_irq: false,
                min_gap_ns: 0,
                io: false,
                holders: true,
                timer: Timer::Auto,
                buffer_bytes: 1 << 22,
            };
            let online: Vec<u32> = crate::open::online_cpus("/".as_ref()).unwrap();
            let possible = online.iter().max().unwrap() + 1;
            let counters = CounterArray::create(1).unwrap();
            let log = VerifierLogLevel::default();
            let optional = programs::OptionalPrograms { io: None, files: Some(&kernel) };
            let mut ebpf = programs::load_object(
                &options,
                possible,
                SwitchReadings::Nothing,
                &counters,
                &types,
                optional,
                log,
            )
            .unwrap();
            let rings = rings::make_rings(&mut ebpf, &online, possible, 1 << 22).unwrap();
            let own_types = Btf::from_sys_fs().unwrap();
            let holders =
                HolderPrograms::attach_programs(&mut ebpf, Some(&own_types), [MEM].into_iter())
                    .unwrap();
            Self { rings, holders, _ebpf: ebpf }
        }

        /// What was reported of `/dev/full` since the last call, and all copies, in the order of
        /// time.
        fn events(&mut self) -> Vec<FileRecord> {
            let mut file_records = Vec::new();
            for ring in &mut self.rings {
                while let Some(record) = ring.next() {
                    let Ok(DrainedRecord::File(event)) = decode_record(&record) else { continue };
                    let is_fork = matches!(event.change, FileChange::Fork(_));
                    file_records.extend((is_fork || event.number == FULL).then_some(event));
                }
            }
            file_records.sort_by_key(|event| event.time_ns);
            file_records
        }

        fn changes_of(&mut self, pid: u32) -> Vec<FileChange> {
            let events = self.events();
            events.iter().filter(|event| event.task.pid == pid).map(|event| event.change).collect()
        }
    }

    fn full() -> File {
        File::open("/dev/full").unwrap()
    }

    /// A file that only names the place.
    fn place() -> File {
        File::options().read(true).custom_flags(libc::O_PATH).open("/dev/full").unwrap()
    }

    #[test]
    fn the_files_of_all_processes_can_be_read_again_and_again() {
        if !has_root("loading BPF programs") {
            return;
        }
        let case = Case::new();
        let own_records = || {
            let files = case.holders.read_files().unwrap();
            assert!(files.span.begin_ns < files.span.end_ns, "{files:?}");
            let is_own = |bytes: &&[u8]| {
                let Ok(DrainedRecord::File(event)) = decode_record(bytes) else {
                    panic!("{bytes:?}")
                };
                assert!(event.number.major == MEM.1 && event.task.cgroup_id > 0, "{event:?}");
                event.change == FileChange::Seen && (event.number, event.task.pid) == (FULL, id())
            };
            files.each_record().filter(is_own).count()
        };
        let before = own_records();
        let (first_file, second_file) = (full(), full());
        assert_eq!(own_records(), 1);
        drop((first_file, second_file));
        let place = place();
        assert_eq!(own_records(), before);
        drop(place);
        // That of another process.
        let mut child = Command::new("sleep").arg("60").stdin(full()).spawn().unwrap();
        let of_child = || {
            let files = case.holders.read_files().unwrap();
            let records = files.each_record().filter_map(|bytes| decode_record(bytes).ok());
            let is_of_child = |record: &DrainedRecord| matches!(record, DrainedRecord::File(event) if (event.number, event.task.pid) == (FULL, child.id()));
            records.filter(is_of_child).count()
        };
        // While it executes its program it still has the copy that is closed then.
        let deadline = Instant::now() + Duration::from_secs(30);
        while of_child() != 1 {
            assert!(Instant::now() < deadline, "{}", of_child());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// What `held` gives others then has a lower confidence: see `SEEN_PROBABILITY` in
    /// `attribute/stages/holders.rs`. A way that is seen needs none, nor a line in
    /// `docs/attribution-sources.md`.
    #[test]
    fn who_keeps_a_device_without_a_file_in_a_table_is_not_seen() {
        if !has_root("loading BPF programs") {
            return;
        }
        let case = Case::new();
        for way in ["mapping", "in flight", "io_uring"] {
            let mut child = Command::new("python3")
                .args(["-c", HIDE, way])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id();
            let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut lines = BufReader::new(output).lines();
            let holds = || {
                let files = case.holders.read_files().unwrap();
                let mut records = files.each_record().filter_map(|bytes| decode_record(bytes).ok());
                records.any(|record| {
                    matches!(record, DrainedRecord::File(event)
                        if (event.number, event.task.pid) == (ZERO, pid))
                })
            };
            assert_eq!(lines.next().unwrap().unwrap(), "open");
            assert!(holds(), "{way}");
            input.write_all(b"\n").unwrap();
            let answer = lines.next().unwrap().unwrap();
            // A machine may forbid io_uring.
            if answer == "kept" {
                assert!(!holds(), "{way} is seen");
            } else {
                assert_eq!(way, "io_uring", "{answer}");
            }
            drop(input);
            child.wait().unwrap();
        }
    }

    #[test]
    fn the_files_of_a_device_are_followed() {
        if !has_root("loading BPF programs") {
            return;
        }
        let mut case = Case::new();
        // A machine may forbid programs at functions of the kernel.
        if let Some(why) = &case.holders.unfollowed {
            assert!(why.contains("fd_install"), "{why}");
            return;
        }
        // A second file of the same device changes nothing, however the process gets it.
        let first = full();
        let (second, third) = (full(), first.try_clone().unwrap());
        assert_eq!(case.changes_of(id()), [FileChange::Got]);
        drop((first, third));
        // Other files are not reported, nor is a place.
        drop(place());
        for _ in 0..1000 {
            drop(File::open("/proc/self/stat").unwrap());
        }
        assert_eq!(case.changes_of(id()), []);
        // A child has a copy until it executes another program.
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(case.changes_of(pid), [FileChange::Fork(id()), FileChange::Left]);
        drop(second);
        assert_eq!(case.changes_of(id()), [FileChange::Left]);
        let sent = Command::new("python3").args(["-c", SEND]).output().unwrap();
        let pids = String::from_utf8(sent.stdout).unwrap();
        let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let events = case.events();
        for pid in pids {
            let pid_events = events.iter().filter(|event| event.task.pid == pid);
            let all = pid_events
                .clone()
                .map(|event| event.change)
                .filter(|change| !matches!(change, FileChange::Fork(_)));
            assert_eq!(all.collect::<Vec<_>>(), [FileChange::Got, FileChange::Left], "{pid}");
            assert!(pid_events.clone().all(|event| event.task.cgroup_id > 0), "{events:?}");
        }
        // The threads of other tests may have made children; nothing of them is left.
        assert!(
            fs::read_dir("/proc/self/fd").unwrap().flatten().all(|fd| {
                fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() != "/dev/full")
            })
        );
    }
}
