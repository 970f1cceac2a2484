//! What a tenant does with the file of a device, and when.
//!
//! Guarantees that a line of the log for each time at which a process got its first file of the
//! device, or left its last one, has two moments between which that was; and that flows that are
//! moved only [`Holder::while_held`] are moved while the process has a file.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::dup;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::json;
use uncore_trace_lab::spec::{Act, Hold};

use crate::{cgroup, time};

const NS_PER_MS: u64 = 1_000_000;
/// Where the steps have their results.
const OUT: &str = "/out";
/// The log's name there.
const LOG: &str = "held.jsonl";
/// Where the sockets are.
const SOCKETS: &str = "/tmp";
/// A process closes its files within this after its last line, also where others use its CPU.
const DEATH_NS: u64 = 20 * NS_PER_MS;
/// The device appears a moment after its driver was loaded. Emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tenant with files of a device.
#[derive(Debug)]
pub(crate) struct Holder {
    hold: Hold,
    log: File,
    log_path: PathBuf,
    cgroup: Mutex<String>,
    files: Mutex<Vec<OwnedFd>>,
    listener: Option<UnixListener>,
}

impl Holder {
    /// A tenant that has no file yet, but a socket if it will receive one. `work` is the step's
    /// file.
    pub(crate) fn new(hold: &Hold, work: &Path, cgroup: Option<&str>) -> Result<Self> {
        let step = work.file_stem().context("a step without a name")?;
        let log_path = Path::new(OUT).join(step).join(LOG);
        let receives = hold.acts.iter().find_map(|timed| match &timed.act {
            Act::Receive { socket } => Some(socket_path(socket)),
            _ => None,
        });
        let listen = |path: PathBuf| {
            UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))
        };
        Ok(Self {
            hold: hold.clone(),
            log: append(&log_path)?,
            log_path,
            cgroup: Mutex::new(name(cgroup)),
            files: Mutex::default(),
            listener: receives.map(listen).transpose()?,
        })
    }

    /// Does everything, each at its time after `begin`.
    pub(crate) fn run(&self, begin: u64) -> Result<()> {
        for timed in &self.hold.acts {
            time::sleep_until(begin + u64::from(timed.after_ms) * NS_PER_MS)?;
            self.act(&timed.act).with_context(|| format!("{:?}", timed.act))?;
        }
        Ok(())
    }

    /// Calls `work` if the process has a file, which it keeps meanwhile.
    pub(crate) fn while_held<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let files = self.files();
        (!files.is_empty()).then(work)
    }

    /// The process ends, which closes what it still has.
    pub(crate) fn die(&self) -> Result<()> {
        let now = time::now();
        let has_any = !self.files().is_empty();
        if has_any { self.left("death", now, now + DEATH_NS) } else { Ok(()) }
    }

    fn act(&self, act: &Act) -> Result<()> {
        // Flows go on meanwhile.
        match act {
            Act::Storm { per_ms, ms } => return self.storm(*per_ms, *ms),
            Act::Receive { .. } => return self.receive(),
            _ => {}
        }
        let mut files = self.files();
        let begin = time::now();
        match act {
            Act::Open => {
                files.push(self.open()?);
                if files.len() == 1 {
                    self.got(process::id(), "open", begin)?;
                }
            }
            Act::Path => {
                let flags = OFlags::PATH.bits().cast_signed();
                let place = OpenOptions::new().read(true).custom_flags(flags).open(&self.hold.path);
                drop(place.with_context(|| format!("find {}", self.hold.path))?);
            }
            Act::Duplicate => {
                let first = files.first().context("it has no file")?;
                let other = first.try_clone().context("duplicate it")?;
                *files = vec![other];
            }
            Act::Close => {
                files.clear();
                self.left("close", begin, time::now())?;
            }
            Act::Fork { ms } => {
                // Without the flag to close it, it stays open when the child executes a program.
                let kept = dup(files.first().context("it has no file")?).context("duplicate it")?;
                let own = env::current_exe().context("find this program")?;
                let mut child = Command::new(own);
                child.arg("keep").arg(&self.log_path).arg(&*self.cgroup()).arg(ms.to_string());
                let child = child.stdin(Stdio::null()).spawn().context("start the child")?;
                drop(kept);
                self.got(child.id(), "fork", begin)?;
            }
            Act::Enter { cgroup } => {
                // Both lines are about one moment.
                cgroup::create(cgroup)?;
                let begin = time::now();
                cgroup::enter(cgroup)?;
                self.left("move", begin, time::now())?;
                *self.cgroup() = name(Some(cgroup));
                self.got(process::id(), "move", begin)?;
            }
            Act::Send { socket } => {
                let to = UnixStream::connect(socket_path(socket)).context("connect")?;
                send(&to, files.first().context("it has no file")?)?;
            }
            Act::Receive { .. } | Act::Storm { .. } => {}
        }
        Ok(())
    }

    /// Waits for a file, its first.
    fn receive(&self) -> Result<()> {
        let listener = self.listener.as_ref().context("it has no socket")?;
        let (from, _) = listener.accept().context("wait for the sender")?;
        poll(&mut [PollFd::new(&from, PollFlags::IN)], None).context("wait for it")?;
        let mut files = self.files();
        let begin = time::now();
        files.push(receive(&from)?);
        self.got(process::id(), "open", begin)
    }

    /// Opens and closes the file many times.
    fn storm(&self, per_ms: u32, ms: u32) -> Result<()> {
        let is_first = self.files().is_empty();
        let (begin, used) = (time::now(), time::used());
        for step in 0..ms {
            time::sleep_until(begin + u64::from(step) * NS_PER_MS)?;
            for _ in 0..per_ms {
                drop(self.open()?);
            }
        }
        let (used, opens) = (time::used() - used, per_ms * ms);
        let times = if is_first { opens } else { 0 };
        self.line(&json!({
            "pid": process::id(), "cgroup": *self.cgroup(), "what": "storm", "opens": opens,
            "times": times, "cpu_ns": used, "begin": begin, "end": time::now(),
        }))
    }

    fn open(&self) -> Result<OwnedFd> {
        let path = Path::new(&self.hold.path);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match File::open(path) {
                Ok(file) => return Ok(file.into()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).with_context(|| format!("open {}", path.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn got(&self, pid: u32, how: &str, begin: u64) -> Result<()> {
        self.line(&json!({
            "pid": pid, "cgroup": *self.cgroup(), "what": "got", "how": how,
            "begin": begin, "end": time::now(),
        }))
    }

    fn left(&self, how: &str, begin: u64, end: u64) -> Result<()> {
        let cgroup = self.cgroup().clone();
        self.line(&left(process::id(), &cgroup, how, begin, end))
    }

    fn line(&self, line: &serde_json::Value) -> Result<()> {
        write(&self.log, line)
    }

    fn files(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cgroup(&self) -> MutexGuard<'_, String> {
        self.cgroup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The child of a holder: it ends after some time, without closing what it inherited.
pub(crate) fn keep(log: &Path, cgroup: &str, ms: u64) -> Result<()> {
    time::sleep_until(time::now() + ms * NS_PER_MS)?;
    let now = time::now();
    write(&append(log)?, &left(process::id(), cgroup, "death", now, now + DEATH_NS))
}

fn left(pid: u32, cgroup: &str, how: &str, begin: u64, end: u64) -> serde_json::Value {
    json!({"pid": pid, "cgroup": cgroup, "what": "left", "how": how, "begin": begin, "end": end})
}

fn append(path: &Path) -> Result<File> {
    let log = OpenOptions::new().append(true).create(true).open(path);
    log.with_context(|| format!("open {}", path.display()))
}

/// Writes a line at once: other processes write too.
fn write(mut log: &File, line: &serde_json::Value) -> Result<()> {
    log.write_all(format!("{line}\n").as_bytes()).context("write the log")
}

/// The path of a tenant's cgroup, as in the tables.
fn name(cgroup: Option<&str>) -> String {
    cgroup.map_or_else(|| "/".to_owned(), |cgroup| format!("/lab/{cgroup}"))
}

fn socket_path(name: &str) -> PathBuf {
    Path::new(SOCKETS).join(name)
}

fn send(to: &UnixStream, file: &OwnedFd) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !rights.push(SendAncillaryMessage::ScmRights(&files)) {
        bail!("the message is too short for a file");
    }
    sendmsg(to, &[IoSlice::new(b"x")], &mut rights, SendFlags::empty()).context("send the file")?;
    Ok(())
}

fn receive(from: &UnixStream) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut rights, flags).context("receive")?;
    let received = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    received.context("no file came")
}
