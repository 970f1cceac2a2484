use std::fs;
use std::io::ErrorKind;
use std::thread::spawn;

use super::*;

/// Runs `act` in a thread that is confined and then ends.
fn confined<T: Send + 'static>(needs: Needs, act: impl FnOnce() -> T + Send + 'static) -> T {
    let confined = move || {
        let done = confine(&needs);
        assert!(done.capabilities.is_ok(), "{done}");
        act()
    };
    spawn(confined).join().unwrap()
}

#[test]
fn files_outside_are_neither_read_nor_written() {
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
    let needs = Needs {
        reads: vec![path("read")],
        writes: vec![path("write")],
        names: vec![path("name")],
        ..Needs::default()
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
    let needs = Needs { reads: vec![tree.clone()], ..Needs::default() };
    let made = tree.clone();
    let (go, wait) = std::sync::mpsc::channel();
    let reader = spawn(move || {
        confined(needs, move || {
            go.send(()).unwrap();
            let begin = std::time::Instant::now();
            loop {
                match fs::read_to_string(made.join("file")) {
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
fn only_what_is_asked_for_is_kept() {
    let has = |set| rustix::thread::capabilities(None).unwrap().permitted.contains(set);
    if !has(CapabilitySet::PERFMON | CapabilitySet::BPF | CapabilitySet::DAC_OVERRIDE) {
        return;
    }
    let kept = |needs: Needs| {
        confined(needs, || {
            let sets = rustix::thread::capabilities(None).unwrap();
            assert_eq!(sets.effective, sets.permitted);
            sets.permitted
        })
    };
    assert_eq!(kept(Needs::default()), CapabilitySet::empty());
    assert_eq!(kept(Needs { capabilities: RECORDER, ..Needs::default() }), RECORDER);
    assert_eq!(kept(Needs { command: Some(1), ..Needs::default() }), CapabilitySet::KILL);
    // Root needs no capability in its own directory, and one in that of another user.
    let dir = tempfile::tempdir().unwrap();
    let to_write = || Needs::to_write(&dir.path().join("file"));
    assert_eq!(kept(to_write()), CapabilitySet::empty());
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    assert_eq!(kept(to_write()), CapabilitySet::DAC_OVERRIDE);
    // A file of another user in a directory with the sticky bit.
    fs::write(dir.path().join("file"), "").unwrap();
    std::os::unix::fs::chown(dir.path().join("file"), Some(65533), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(dir.path(), mode).unwrap();
    assert_eq!(kept(to_write()), CapabilitySet::FOWNER);
}

/// The calls that an attacker would use.
#[test]
fn calls_are_refused() {
    let filtered = spawn(|| {
        let program = seccomp::program(Some(1)).unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        seccompiler::apply_filter(&program).unwrap();
        let denied = |what: &str, done: std::io::Result<()>| {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::PermissionDenied, "{what}");
        };
        let run = std::process::Command::new("true").status();
        denied("execute", run.map(drop));
        denied("connect", std::os::unix::net::UnixStream::connect("/run/x").map(drop));
        denied("listen", std::net::TcpListener::bind("127.0.0.1:0").map(drop));
        let signal = |pid: u32| {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::test_kill_process(pid).map_err(std::io::Error::from)
        };
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        denied("signal another", signal(parent));
        signal(std::process::id()).unwrap();
        let namespace = rustix::thread::UnshareFlags::NEWNS;
        #[expect(deprecated, reason = "its successor is unsafe")]
        denied("unshare", rustix::thread::unshare(namespace).map_err(std::io::Error::from));
        // Still allowed: threads, files, socket pairs.
        spawn(|| fs::read("/proc/self/stat").unwrap()).join().unwrap();
        std::os::unix::net::UnixStream::pair().unwrap();
    });
    filtered.join().unwrap();
}
