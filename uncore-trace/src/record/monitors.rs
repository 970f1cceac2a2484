//! Reads the monitors of resctrl at the end of each window, on a thread of its own: each read
//! interrupts a CPU in each domain, which must not hold up the drain.
//!
//! Groups are found again once a second, since tenants come and go. Nothing is changed.

mod reader;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use self::reader::Reader;
use crate::assemble::Measured;
use crate::clock::mono_ns;
use crate::discover::Machine;
use crate::plan::Plan;
use crate::schema::link::MEMORY;

/// Readings that wait for the recorder, which takes them at each drain. More are dropped.
const MOST_WAITING: usize = 64;

/// Shortest window at whose end monitors are read: each reading interrupts a CPU of every domain
/// for every group.
const SHORTEST_WINDOW_NS: u64 = 10_000_000;

/// The monitors of a recording; the thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Monitors {
    measured: Receiver<Measured>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitors {
    /// Starts to read; `None` if nothing could be measured: the plan counts no memory, or resctrl
    /// is not mounted or does not say how much goes to which memory.
    pub(super) fn start(machine: &Machine, plan: &Plan) -> Option<Self> {
        if !plan.links.iter().any(|link| link.kind == MEMORY && link.socket.is_some()) {
            return None;
        }
        let reader = Reader::new(machine)?;
        if plan.window_ns < SHORTEST_WINDOW_NS {
            log::info!("resctrl is not read: its windows would be shorter than 10 ms");
            return None;
        }
        let (stop, stopped) = channel();
        let (sender, measured) = sync_channel(MOST_WAITING);
        let window_ns = plan.window_ns;
        let thread = std::thread::Builder::new()
            .name("monitors".to_owned())
            .spawn(move || read(reader, window_ns, &stopped, &sender));
        match thread {
            Ok(thread) => Some(Self { measured, stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                log::warn!("resctrl is not read: cannot start a thread: {error}");
                None
            }
        }
    }

    /// The readings since the last call.
    pub(super) fn take(&self) -> impl Iterator<Item = Arc<Measured>> {
        self.measured.try_iter().map(Arc::new)
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It ends within the time of a reading. A panic in it was reported by the panic handler.
        self.thread.take().map(JoinHandle::join);
    }
}

fn read(mut reader: Reader, window_ns: u64, stopped: &Receiver<()>, sender: &SyncSender<Measured>) {
    loop {
        let now = mono_ns() as u64;
        let rest = Duration::from_nanos(window_ns - now % window_ns);
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if let Some(measured) = reader.read(mono_ns() as u64) {
            // A full queue means that the recorder is far behind: these bytes are lost, and their
            // windows are divided without them.
            if sender.try_send(measured).is_err() {
                log::debug!("a reading of resctrl is dropped: the recorder is behind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::reader::tests::{fill, machine};
    use super::*;
    use crate::discover::resctrl::fake::Fake;

    const WINDOW_NS: u64 = SHORTEST_WINDOW_NS;

    fn plan(window_ns: u64, kind: &str) -> Plan {
        serde_json::from_value(serde_json::json!({
            "tick_ns": 1_000_000, "window_ns": window_ns,
            "counters": [], "metrics": [], "notes": [],
            "links": [{ "name": "a", "kind": kind, "subsystem": "mem", "socket": 0,
                        "counters": [] }],
        }))
        .unwrap()
    }

    #[test]
    fn all_bytes_are_in_one_reading() {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::new(dir.path());
        fill(&fake);
        let set = |bytes: u64| {
            for group in ["", "web", "web/mon_groups/x"] {
                fake.value(group, 0, "mbm_total_bytes", &format!("{bytes}\n"));
            }
        };
        set(1000);
        let machine = machine(dir.path(), 1);
        let monitors = Monitors::start(&machine, &plan(WINDOW_NS, MEMORY)).unwrap();
        // The bytes of x so far, and whether there is a new reading without any.
        let begin = Instant::now();
        let mut sum = 0;
        let mut settle = || {
            loop {
                assert!(begin.elapsed() < Duration::from_mins(1));
                std::thread::sleep(Duration::from_nanos(WINDOW_NS));
                let new: Vec<u64> = monitors
                    .take()
                    .map(|its| {
                        let of_x = |its: &&crate::entries::Monitored| {
                            its.cgroup.as_deref() == Some("/pods/a/x")
                        };
                        its.bytes.iter().find(of_x).unwrap().bytes
                    })
                    .collect();
                sum += new.iter().sum::<u64>();
                if new.last() == Some(&0) {
                    return sum;
                }
            }
        };
        assert_eq!(settle(), 0);
        for bytes in 0..50 {
            set(1000 + 7 * bytes);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(settle(), 343);
    }

    #[test]
    fn what_nothing_is_measured_of_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path(), 1);
        assert!(Monitors::start(&machine, &plan(WINDOW_NS, MEMORY)).is_none());
        fill(&Fake::new(dir.path()));
        assert!(Monitors::start(&machine, &plan(WINDOW_NS, MEMORY)).is_some());
        assert!(Monitors::start(&machine, &plan(WINDOW_NS / 10, MEMORY)).is_none());
        assert!(Monitors::start(&machine, &plan(WINDOW_NS, "PCIe")).is_none());
    }
}
