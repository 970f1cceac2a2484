use std::fs;
use std::io::ErrorKind;
use std::thread::spawn;

use super::*;

/// Runs `act` in a thread that is confined and then ends.
fn confined<T: Send + 'static>(needs: ThreadNeeds, act: impl FnOnce() -> T + Send + 'static) -> T {
    let confined = move || {
        let done = restrict_caller(&needs);
        assert!(done.capabilities.is_ok(), "{done}");
        act()
    };
    spawn(confined).join().unwrap()
}

#[test]
fn files_outside_the_allowed_paths_are_neither_read_nor_written() {
    if !has_landlock() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["read", "write", "name"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("old"), "old").unwrap();
    }
    fs::write(path("outside"), "secret").unwrap();
    let needs = ThreadNeeds {
        reads: vec![path("read")],
        writes: vec![path("write")],
        names: vec![path("name")],
        ..ThreadNeeds::default()
    };
    let root = dir.path().to_owned();
    confined(needs, move || {
        let path = |name: &str| root.join(name);
        let denied = |done: std::io::Result<()>, what: &str| {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::PermissionDenied, "{what}");
        };
        assert_eq!(fs::read_to_string(path("read/old")).unwrap(), "old");
        fs::write(path("write/new"), "new").unwrap();
        // The rename that gives a finished table its name.
        fs::rename(path("write/new"), path("name/old")).unwrap();
        denied(fs::read(path("outside")).map(drop), "read outside");
        denied(fs::write(path("outside"), ""), "write outside");
        denied(fs::write(path("read/old"), ""), "write what is read");
        denied(fs::write(path("name/new"), ""), "make a file where names are given");
        denied(fs::read(path("name/old")).map(drop), "read where names are given");
        denied(fs::rename(path("write/old"), path("read/new")), "name elsewhere");
        denied(std::os::unix::fs::symlink("old", path("write/link")), "make a link");
    });
    assert_eq!(fs::read_to_string(path("name/old")).unwrap(), "new");
}

#[test]
fn a_tree_that_is_not_there_yet_can_be_read_later() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("later/tree");
    let needs = ThreadNeeds { reads: vec![tree.clone()], ..ThreadNeeds::default() };
    let new_tree = tree.clone();
    let (go, wait) = std::sync::mpsc::channel();
    let reader = spawn(move || {
        confined(needs, move || {
            go.send(()).unwrap();
            let begin = std::time::Instant::now();
            loop {
                match fs::read_to_string(new_tree.join("file")) {
                    Ok(text) if !text.is_empty() => return text,
                    _ => assert!(begin.elapsed().as_secs() < 60, "it cannot be read"),
                }
                std::thread::yield_now();
            }
        })
    });
    wait.recv().unwrap();
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    assert_eq!(reader.join().unwrap(), "text");
}

#[test]
fn a_confined_thread_keeps_only_the_capabilities_it_needs() {
    let has = |set| rustix::thread::capabilities(None).unwrap().permitted.contains(set);
    if !has(CapabilitySet::PERFMON | CapabilitySet::BPF | CapabilitySet::DAC_OVERRIDE) {
        return;
    }
    let kept_capabilities = |needs: ThreadNeeds| {
        confined(needs, || {
            let sets = rustix::thread::capabilities(None).unwrap();
            assert_eq!(sets.effective, sets.permitted);
            sets.permitted
        })
    };
    assert_eq!(kept_capabilities(ThreadNeeds::default()), CapabilitySet::empty());
    assert_eq!(
        kept_capabilities(ThreadNeeds { capabilities: RECORDER, ..ThreadNeeds::default() }),
        RECORDER
    );
    assert_eq!(
        kept_capabilities(ThreadNeeds { command: Some(1), ..ThreadNeeds::default() }),
        CapabilitySet::KILL
    );
    // Root needs no capability in its own directory, and one in that of another user.
    let dir = tempfile::tempdir().unwrap();
    let to_write = || ThreadNeeds::to_write(&dir.path().join("file"));
    assert_eq!(kept_capabilities(to_write()), CapabilitySet::empty());
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    assert_eq!(kept_capabilities(to_write()), CapabilitySet::DAC_OVERRIDE);
    // A file of another user in a directory with the sticky bit.
    fs::write(dir.path().join("file"), "").unwrap();
    std::os::unix::fs::chown(dir.path().join("file"), Some(65533), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(dir.path(), mode).unwrap();
    assert_eq!(kept_capabilities(to_write()), CapabilitySet::FOWNER);
}

/// Runs `act` in a thread with the filter of system calls, which then ends.
fn filtered(needs: ThreadNeeds, act: impl FnOnce() + Send + 'static) {
    let filtered = move || {
        let program = seccomp::compile_filter(&needs).unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        seccompiler::apply_filter(&program).unwrap();
        act();
    };
    spawn(filtered).join().unwrap();
}

fn assert_denied(call: &str, done: std::io::Result<()>) {
    assert_eq!(done.unwrap_err().kind(), ErrorKind::PermissionDenied, "{call}");
}

/// The error of a system call that has only these arguments.
#[expect(unsafe_code, reason = "there is no safe way to make a call that is refused")]
fn error_of(call: libc::c_long, arguments: [libc::c_long; 3]) -> Option<i32> {
    let [first, second, three] = arguments;
    // SAFETY: the callers pass numbers only, and null for pointers.
    let done = unsafe { libc::syscall(call, first, second, three, 0, 0) };
    (done < 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

fn signal(pid: u32) -> std::io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::test_kill_process(pid).map_err(std::io::Error::from)
}

/// The calls that an attacker would use, whatever the process needs.
fn nothing_harmful() {
    let run = std::process::Command::new("true").status();
    assert_denied("execute", run.map(drop));
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
    assert_denied("signal another", signal(parent));
    signal(std::process::id()).unwrap();
    let namespace = rustix::thread::UnshareFlags::NEWNS;
    #[expect(deprecated, reason = "its successor is unsafe")]
    assert_denied("unshare", rustix::thread::unshare(namespace).map_err(std::io::Error::from));
    assert_denied("listen", std::net::TcpListener::bind("127.0.0.1:0").map(drop));
    let traced = [libc::c_long::from(libc::PTRACE_ATTACH), parent.into(), 0];
    assert_eq!(error_of(libc::SYS_ptrace, traced), Some(libc::EPERM));
    // Still allowed: threads and socket pairs.
    spawn(|| ()).join().unwrap();
    std::os::unix::net::UnixStream::pair().unwrap();
}

/// The first command of bpf(2) looks up an element; null is no argument for it.
fn looks_up() -> Option<i32> {
    error_of(libc::SYS_bpf, [1, 0, 0])
}

#[test]
fn harmful_calls_are_refused() {
    filtered(ThreadNeeds { command: Some(1), counts: true, ..ThreadNeeds::default() }, || {
        nothing_harmful();
        fs::read("/proc/self/stat").unwrap();
        assert_denied("connect", std::os::unix::net::UnixStream::connect("/run/x").map(drop));
        assert_denied("look up", std::net::UdpSocket::bind("127.0.0.1:0").map(drop));
    });
    filtered(ThreadNeeds::default(), || {
        assert_eq!(looks_up(), Some(libc::EPERM));
        assert_eq!(error_of(libc::SYS_perf_event_open, [0, 0, 0]), Some(libc::EPERM));
    });
}

#[test]
fn only_a_counting_thread_has_the_calls_for_counters() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let counts = ThreadNeeds { counts: true, capabilities: RECORDER, ..ThreadNeeds::default() };
    filtered(counts, || {
        assert!(![Some(libc::EPERM), None].contains(&looks_up()));
        assert_eq!(error_of(libc::SYS_perf_event_open, [0, 0, 0]), Some(libc::EFAULT));
    });
}

#[test]
fn a_connecting_thread_reaches_only_its_ports_and_name_servers() {
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (store, other) = (listen(), listen());
    let [store_at, other_at] = [&store, &other].map(|listener| listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _answers = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let needs = ThreadNeeds { connects: vec![store_at.port()], ..ThreadNeeds::default() };
    filtered(needs.clone(), move || {
        let confined = restrict_caller(&needs);
        assert!(confined.files.is_ok() || !has_landlock(), "{confined}");
        nothing_harmful();
        std::net::TcpStream::connect(store_at).unwrap();
        // Landlock knows ports since Linux 6.7, its fourth ABI.
        if has_ports() {
            assert_denied("another port", std::net::TcpStream::connect(other_at).map(drop));
        }
        // As the C library asks for a name, and a service on this host.
        let asks = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        asks.connect(other_at).unwrap();
        asks.send(b"name").unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        let socket = |family: i32, kind: i32, protocol: i32| {
            error_of(libc::SYS_socket, [family, kind, protocol].map(libc::c_long::from))
        };
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP), None);
        for (family, kind, protocol) in [
            (libc::AF_NETLINK, libc::SOCK_RAW, 0),
            (libc::AF_PACKET, libc::SOCK_RAW, 0),
            (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
            // Landlock does not know their ports.
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
        ] {
            assert_eq!(socket(family, kind, protocol), Some(libc::EPERM), "{family} {protocol}");
        }
        for (call, address_argument) in
            [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            assert_eq!(fast_open(call, address_argument), Some(libc::EPERM), "{call}");
        }
        assert_eq!(looks_up(), Some(libc::EPERM));
    });
}

/// Whether Landlock of this kernel knows ports.
fn has_ports() -> bool {
    use ::landlock::{
        ABI, Access as _, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    };
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create).is_ok()
}

/// The error of a call that sends, with the flag that connects at this position.
#[expect(unsafe_code, reason = "there is no safe way to make a call that is refused")]
fn fast_open(call: libc::c_long, address_argument: usize) -> Option<i32> {
    let mut arguments: [libc::c_long; 4] = [-1, 0, 0, 0];
    arguments[address_argument] = libc::MSG_FASTOPEN.into();
    let [socket, buffer, second, third] = arguments;
    // SAFETY: the socket is none, so no pointer is followed.
    let done = unsafe { libc::syscall(call, socket, buffer, second, third, 0, 0) };
    (done < 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

/// The option `hidepid` matters only to who reads `/proc` of others.
#[test]
fn only_a_thread_that_reads_all_of_proc_sees_processes() {
    let reads = |path: &str| ThreadNeeds { reads: vec![path.into()], ..ThreadNeeds::default() };
    assert!(sees_processes(&reads("/proc")));
    assert!(!sees_processes(&reads("/proc/sys")) && !sees_processes(&reads("/etc")));
}
