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
use std::time::Duration;

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

use crate::wait::wait_within;
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
            log: open_log(&log_path)?,
            log_path,
            cgroup: Mutex::new(cgroup_path(cgroup)),
            files: Mutex::default(),
            listener: receives.map(listen).transpose()?,
        })
    }

    /// Does everything, each at its time after `begin`.
    pub(crate) fn run(&self, begin: u64) -> Result<()> {
        for timed in &self.hold.acts {
            time::sleep_until(begin + u64::from(timed.after_ms) * NS_PER_MS)?;
            self.do_act(&timed.act).with_context(|| format!("{:?}", timed.act))?;
        }
        Ok(())
    }

    /// Calls `work` if the process has a file, which it keeps meanwhile.
    pub(crate) fn while_held<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let files = self.lock_files();
        (!files.is_empty()).then(work)
    }

    /// The process ends, which closes what it still has.
    pub(crate) fn end_process(&self) -> Result<()> {
        let now_ns = time::now_ns();
        let has_any = !self.lock_files().is_empty();
        if has_any { self.log_left("death", now_ns, now_ns + DEATH_NS) } else { Ok(()) }
    }

    fn do_act(&self, act: &Act) -> Result<()> {
        // Flows go on meanwhile.
        match act {
            Act::Storm { per_ms, ms } => return self.run_storm(*per_ms, *ms),
            Act::Receive { .. } => return self.wait_for_file(),
            _ => {}
        }
        let mut files = self.lock_files();
        let begin = time::now_ns();
        match act {
            Act::Open => {
                files.push(self.open_device()?);
                if files.len() == 1 {
                    self.log_got(process::id(), "open", begin)?;
                }
            }
            Act::Path => {
                let flags = OFlags::PATH.bits().cast_signed();
                let path_file =
                    OpenOptions::new().read(true).custom_flags(flags).open(&self.hold.path);
                drop(path_file.with_context(|| format!("find {}", self.hold.path))?);
            }
            Act::Duplicate => {
                let first = files.first().context("it has no file")?;
                let copy = first.try_clone().context("duplicate it")?;
                *files = vec![copy];
            }
            Act::Close => {
                files.clear();
                self.log_left("close", begin, time::now_ns())?;
            }
            Act::Fork { ms } => {
                // Without the flag to close it, it stays open when the child executes a program.
                let kept = dup(files.first().context("it has no file")?).context("duplicate it")?;
                let this_program = env::current_exe().context("find this program")?;
                let mut child = Command::new(this_program);
                child.arg("keep").arg(&self.log_path).arg(&*self.lock_cgroup()).arg(ms.to_string());
                let child = child.stdin(Stdio::null()).spawn().context("start the child")?;
                drop(kept);
                self.log_got(child.id(), "fork", begin)?;
            }
            Act::Enter { cgroup } => {
                // Both lines are about one moment.
                cgroup::create_cgroup(cgroup)?;
                let begin = time::now_ns();
                cgroup::enter_cgroup(cgroup)?;
                self.log_left("move", begin, time::now_ns())?;
                *self.lock_cgroup() = cgroup_path(Some(cgroup));
                self.log_got(process::id(), "move", begin)?;
            }
            Act::Send { socket } => {
                let receiver = UnixStream::connect(socket_path(socket)).context("connect")?;
                send_file(&receiver, files.first().context("it has no file")?)?;
            }
            Act::Receive { .. } | Act::Storm { .. } => {}
        }
        Ok(())
    }

    /// Waits for a file, its first.
    fn wait_for_file(&self) -> Result<()> {
        let listener = self.listener.as_ref().context("it has no socket")?;
        let (sender_stream, _) = listener.accept().context("wait for the sender")?;
        poll(&mut [PollFd::new(&sender_stream, PollFlags::IN)], None).context("wait for it")?;
        let mut files = self.lock_files();
        let begin = time::now_ns();
        files.push(receive_file(&sender_stream)?);
        self.log_got(process::id(), "open", begin)
    }

    /// Opens and closes the file many times.
    fn run_storm(&self, per_ms: u32, ms: u32) -> Result<()> {
        let is_first = self.lock_files().is_empty();
        let (begin, used) = (time::now_ns(), time::used_ns());
        for step in 0..ms {
            time::sleep_until(begin + u64::from(step) * NS_PER_MS)?;
            for _ in 0..per_ms {
                drop(self.open_device()?);
            }
        }
        let (used, opens) = (time::used_ns() - used, per_ms * ms);
        let times = if is_first { opens } else { 0 };
        self.log_line(&json!({
            "pid": process::id(), "cgroup": *self.lock_cgroup(), "what": "storm", "opens": opens,
            "times": times, "cpu_ns": used, "begin": begin, "end": time::now_ns(),
        }))
    }

    fn open_device(&self) -> Result<OwnedFd> {
        let path = Path::new(&self.hold.path);
        let file = wait_within(PATIENCE, || File::open(path).ok());
        let file = file.map_or_else(|| File::open(path), Ok);
        Ok(file.with_context(|| format!("open {}", path.display()))?.into())
    }

    fn log_got(&self, pid: u32, how: &str, begin: u64) -> Result<()> {
        self.log_line(&json!({
            "pid": pid, "cgroup": *self.lock_cgroup(), "what": "got", "how": how,
            "begin": begin, "end": time::now_ns(),
        }))
    }

    fn log_left(&self, how: &str, begin: u64, end: u64) -> Result<()> {
        let cgroup = self.lock_cgroup().clone();
        self.log_line(&left_line(process::id(), &cgroup, how, begin, end))
    }

    fn log_line(&self, line: &serde_json::Value) -> Result<()> {
        write_line(&self.log, line)
    }

    fn lock_files(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_cgroup(&self) -> MutexGuard<'_, String> {
        self.cgroup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The child of a holder: it ends after some time, without closing what it inherited.
pub(crate) fn keep_inherited(log: &Path, cgroup: &str, ms: u64) -> Result<()> {
    time::sleep_until(time::now_ns() + ms * NS_PER_MS)?;
    let now_ns = time::now_ns();
    write_line(
        &open_log(log)?,
        &left_line(process::id(), cgroup, "death", now_ns, now_ns + DEATH_NS),
    )
}

fn left_line(pid: u32, cgroup: &str, how: &str, begin: u64, end: u64) -> serde_json::Value {
    json!({"pid": pid, "cgroup": cgroup, "what": "left", "how": how, "begin": begin, "end": end})
}

fn open_log(path: &Path) -> Result<File> {
    let log = OpenOptions::new().append(true).create(true).open(path);
    log.with_context(|| format!("open {}", path.display()))
}

/// Writes a line at once: other processes write too.
fn write_line(mut log: &File, line: &serde_json::Value) -> Result<()> {
    log.write_all(format!("{line}\n").as_bytes()).context("write the log")
}

/// The path of a tenant's cgroup, as in the tables.
fn cgroup_path(cgroup: Option<&str>) -> String {
    cgroup.map_or_else(|| "/".to_owned(), |cgroup| format!("/lab/{cgroup}"))
}

fn socket_path(name: &str) -> PathBuf {
    Path::new(SOCKETS).join(name)
}

fn send_file(stream: &UnixStream, file: &OwnedFd) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !rights.push(SendAncillaryMessage::ScmRights(&files)) {
        bail!("the message is too short for a file");
    }
    sendmsg(stream, &[IoSlice::new(b"x")], &mut rights, SendFlags::empty())
        .context("send the file")?;
    Ok(())
}

fn receive_file(stream: &UnixStream) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut rights, flags).context("receive")?;
    let received = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    received.context("no file came")
}
