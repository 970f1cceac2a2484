//! Processes that run as long as a soak.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take until it answers.
const START: Duration = Duration::from_mins(1);

/// A process; it is killed when dropped.
#[derive(Debug)]
pub(super) struct Service {
    name: &'static str,
    child: Child,
}

impl Service {
    pub(super) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { name, child })
    }

    /// Waits until it accepts connections.
    pub(super) fn wait_for_answer(&mut self, address: &str) -> Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let exit = self.child.try_wait().context("cannot wait for a process")?;
            ensure!(exit.is_none(), "{} has ended", self.name);
            ensure!(begin.elapsed() < START, "{} does not answer on {address}", self.name);
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Memory in use, KiB, and CPU time so far, s.
    pub(super) fn memory_and_cpu(&self) -> Result<(u64, f64)> {
        let process = procfs::process::Process::new(self.child.id() as i32)
            .with_context(|| format!("{} has ended", self.name))?;
        let status = process.status().context("cannot read the memory of a process")?;
        let stat = process.stat().context("cannot read the CPU time of a process")?;
        let ticks = (stat.utime + stat.stime) as f64;
        Ok((status.vmrss.unwrap_or_default(), ticks / procfs::ticks_per_second() as f64))
    }

    /// Ends it as a service manager does. Exit code 1 means that it lost something.
    pub(super) fn stop_service(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("cannot stop {}", self.name))?;
        let status = self.child.wait().context("cannot wait for a process")?;
        ensure!(matches!(status.code(), Some(0 | 1)), "{} ended with {status}", self.name);
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An address of the loopback interface with a port that is free.
pub(super) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot bind to the loopback")?;
    Ok(listener.local_addr().context("a socket has no address")?.to_string())
}

/// Makes a bucket in a store.
pub(super) fn make_bucket(address: &str, name: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("cannot reach the object store")?;
    let request = format!(
        "PUT /{name} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).context("cannot send a request to the object store")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the object store does not answer")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "no bucket was made: {answer:?}");
    Ok(())
}
