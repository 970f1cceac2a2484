//! Reads the monitors of resctrl at the end of each window, on a thread of its own: each read
//! interrupts a CPU in each domain, which must not hold up the drain.
//!
//! Groups are found again once a second, since tenants come and go. Nothing is changed, unless
//! `--monitor` asks for groups of the largest tenants ([`groups`]): these are removed at the end,
//! or by [`remove_left_groups`] if the recorder was killed.

mod groups;
mod lost_readings;
mod reader;
mod tenant_choice;
mod tree;

use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use self::reader::MonitorReader;
pub use self::tree::remove_left_groups;
use self::tree::{KernelTree, ResctrlTree};
use super::side_sources::{Preparation, SideSetup, SideSource, StopPoint, spawn_thread};
use super::state::RecorderState;
use crate::assemble::MonitorReading;
use crate::clock::mono_ns;
use crate::confine;
use crate::discover::Machine;
use crate::discover::resctrl::MONITORING;
use crate::plan::Plan;
use crate::schema::link::MEMORY;

/// Readings that wait for the recorder, which takes them at each drain. More are dropped.
const MOST_WAITING: usize = 64;

/// Shortest window at whose end monitors are read: each reading interrupts a CPU of every domain
/// for every group.
const SHORTEST_WINDOW_NS: u64 = 10_000_000;

/// Time between two lists of the largest tenants.
const RANKS: Duration = Duration::from_secs(1);

/// Prepares the monitors, if any measure what is counted.
///
/// # Errors
///
/// Groups are to be made, and cannot be, or nothing would be measured.
pub(super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Result<Option<SideSetup<'a>>> {
    let Preparation { machine, plan, options, .. } = preparation;
    // A recorder that was killed may have left monitoring groups.
    remove_left_groups();
    let setup = MonitorSetup::prepare_monitors(machine, plan, options.monitor)?;
    // Its thread confines itself: it may change resctrl, and the recorder's may not.
    let with_thread = |setup: MonitorSetup| {
        SideSetup::new(|_begun| setup.start_thread().map(|thread| Box::new(thread) as _))
    };
    Ok(setup.map(with_thread))
}

/// The thread that reads the monitors of a recording; it ends when this is dropped.
#[derive(Debug)]
struct MonitorThread {
    measured: Receiver<MonitorReading>,
    /// Paths of cgroups, the largest first, if groups are made.
    tenants: Option<Sender<Vec<Arc<str>>>>,
    makes_groups: bool,
    last_ranked: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

/// Monitors that are not read yet.
#[derive(Debug)]
pub(super) struct MonitorSetup {
    reader: MonitorReader,
    window_ns: u64,
    makes_groups: bool,
}

impl MonitorSetup {
    /// Finds what is to be read, and makes up to `max_groups` groups during the recording. `None`
    /// if nothing could be measured and no groups are to be made.
    ///
    /// # Errors
    ///
    /// Groups are to be made, and cannot be, or nothing would be measured.
    pub(super) fn prepare_monitors(
        machine: &Machine,
        plan: &Plan,
        max_groups: Option<usize>,
    ) -> Result<Option<Self>> {
        Self::prepare_with_tree(machine, plan, max_groups, Box::new(KernelTree))
    }

    fn prepare_with_tree(
        machine: &Machine,
        plan: &Plan,
        max_groups: Option<usize>,
        tree: Box<dyn ResctrlTree>,
    ) -> Result<Option<Self>> {
        let setup = Self::set_up_reader(machine, plan);
        let Some(group_limit) = max_groups else {
            return Ok(setup.inspect_err(|why| log::info!("resctrl is not read: {why}")).ok());
        };
        let failed = |why: String| {
            anyhow::anyhow!("cannot make monitoring groups: {why}; or leave out --monitor")
        };
        let mut with_groups = setup.map_err(failed)?;
        let resctrl = &with_groups.reader.resctrl;
        if resctrl.max_groups().is_none() {
            bail!(failed("this CPU has no monitors of bandwidth (info/L3_MON)".to_owned()));
        }
        let dir = resctrl.mount_dir().join(MONITORING);
        accessat(CWD, &dir, Access::WRITE_OK, AtFlags::EACCESS)
            .with_context(|| failed(format!("{} cannot be written: run as root", dir.display())))?;
        with_groups.reader.make_groups(group_limit, tree);
        with_groups.makes_groups = true;
        Ok(Some(with_groups))
    }

    fn set_up_reader(machine: &Machine, plan: &Plan) -> Result<Self, String> {
        if !plan.links.iter().any(|link| link.kind == MEMORY && link.socket.is_some()) {
            return Err("no bytes of memory are counted: count them, e.g. with -p mem".to_owned());
        }
        if plan.window_ns < SHORTEST_WINDOW_NS {
            return Err("windows are shorter than 10 ms: choose a longer --interval".to_owned());
        }
        Ok(Self {
            reader: MonitorReader::new(machine)?,
            window_ns: plan.window_ns,
            makes_groups: false,
        })
    }

    /// Starts the thread that reads the monitors.
    fn start_thread(self) -> Option<MonitorThread> {
        let (tenants, ranks) = channel();
        let (sender, measured) = sync_channel(MOST_WAITING);
        let Self { reader, window_ns, makes_groups } = self;
        let read = move || read_windows(reader, window_ns, &ranks, &sender);
        let thread = Some(spawn_thread("monitors", "resctrl is not read", read)?);
        let tenants = Some(tenants);
        Some(MonitorThread { measured, tenants, makes_groups, last_ranked: None, thread })
    }
}

impl MonitorThread {
    /// The readings since the last call.
    fn take_readings(&self) -> impl Iterator<Item = Arc<MonitorReading>> {
        self.measured.try_iter().map(Arc::new)
    }

    /// Gives the thread the largest tenants, once a second, if groups are made for them.
    fn rank_tenants(&mut self, largest: impl FnOnce() -> Vec<Arc<str>>) {
        if self.makes_groups && self.last_ranked.is_none_or(|ranked| ranked.elapsed() >= RANKS) {
            self.last_ranked = Some(Instant::now());
            // A thread that has ended was reported by the panic handler.
            self.tenants.as_ref().map(|tenants| tenants.send(largest()));
        }
    }

    /// Reads no more. Groups that were made are removed, within the time of a reading.
    fn stop_thread(&mut self) {
        drop(self.tenants.take());
        self.thread.take().map(JoinHandle::join);
    }
}

impl SideSource for MonitorThread {
    fn poll(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        for reading in self.take_readings() {
            state.open_parts.feed_reading(&reading);
            for lost in &reading.lost {
                state.open_parts.ledger_at(lost.time_ns).add_monitor_loss(lost);
            }
        }
        Ok(())
    }

    /// Tells which tenants are the largest, now that the newest windows are closed.
    fn end_drain(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        self.rank_tenants(|| state.open_parts.live.timeline.largest_cgroups());
        Ok(())
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_thread();
        Ok(())
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

fn read_windows(
    mut reader: MonitorReader,
    window_ns: u64,
    ranks: &Receiver<Vec<Arc<str>>>,
    sender: &SyncSender<MonitorReading>,
) {
    confine::restrict_thread(&reader.thread_needs());
    loop {
        let now_ns = mono_ns() as u64;
        match ranks.recv_timeout(Duration::from_nanos(window_ns - now_ns % window_ns)) {
            Ok(tenants) => {
                reader.rank_tenants(tenants);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some(measured) = reader.read_groups(mono_ns() as u64) {
            // A full queue means that the recorder is far behind: these bytes are lost, and their
            // windows are divided without them.
            if let Err(TrySendError::Full(measured)) = sender.try_send(measured) {
                reader.note_dropped(measured);
            }
        }
    }
    reader.end_reading(mono_ns() as u64).map(|final_reading| sender.try_send(final_reading));
}

#[cfg(test)]
mod tests {
    use super::reader::tests::{fill, machine};
    use super::*;
    use crate::discover::resctrl::fake::FakeResctrl;
    use crate::wait::{pace, wait_for, wait_until};

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

    fn started(machine: &Machine, plan: &Plan) -> Option<MonitorThread> {
        MonitorSetup::prepare_monitors(machine, plan, None)
            .unwrap()
            .and_then(MonitorSetup::start_thread)
    }

    #[test]
    fn all_bytes_are_in_one_reading() {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeResctrl::new(dir.path());
        fill(&fake);
        let set = |bytes: u64| {
            for group in ["", "web", "web/mon_groups/x"] {
                fake.write_count(group, 0, "mbm_total_bytes", &format!("{bytes}\n"));
            }
        };
        set(1000);
        let machine = machine(dir.path(), 1);
        let monitors = started(&machine, &plan(WINDOW_NS, MEMORY)).unwrap();
        // The bytes of x in new readings, and their number.
        let take_bytes = || {
            let bytes_of_x = |reading: Arc<MonitorReading>| {
                let mut all = reading.bytes.iter();
                all.find(|monitored| monitored.cgroup.as_deref() == Some("/pods/a/x"))
                    .unwrap()
                    .bytes
            };
            let new: Vec<u64> = monitors.take_readings().map(bytes_of_x).collect();
            (new.iter().sum::<u64>(), new.len())
        };
        let mut sum = 0;
        let mut wait_for_all = || {
            sum += take_bytes().0;
            // One may have begun before.
            let mut count = 0;
            wait_until("two readings", || {
                let (bytes, new_count) = take_bytes();
                (sum, count) = (sum + bytes, count + new_count);
                count >= 2
            });
            sum
        };
        assert_eq!(wait_for_all(), 0);
        for bytes in 0..50 {
            set(1000 + 7 * bytes);
            pace(Duration::from_millis(1));
        }
        assert_eq!(wait_for_all(), 343);
    }

    #[test]
    fn what_nothing_is_measured_of_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path(), 1);
        assert!(started(&machine, &plan(WINDOW_NS, MEMORY)).is_none());
        fill(&FakeResctrl::new(dir.path()));
        assert!(started(&machine, &plan(WINDOW_NS, MEMORY)).is_some());
        assert!(started(&machine, &plan(WINDOW_NS / 10, MEMORY)).is_none());
        assert!(started(&machine, &plan(WINDOW_NS, "PCIe")).is_none());
    }

    #[test]
    fn what_groups_cannot_be_made_for_is_said_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path(), 1);
        let fake = FakeResctrl::new(dir.path());
        let why = |plan: &Plan| {
            let ready =
                MonitorSetup::prepare_with_tree(&machine, plan, Some(4), Box::new(fake.clone()));
            ready.map(drop).map_err(|error| error.to_string()).err()
        };
        let memory = plan(WINDOW_NS, MEMORY);
        assert!(why(&memory).unwrap().contains("no monitors of bandwidth"));
        fake.write_file("info/L3_MON/num_rmids", "16\n");
        assert!(why(&memory).unwrap().contains("run as root"));
        fake.add_group("mon_groups/a", &[], "");
        assert_eq!(why(&memory), None);
        assert!(why(&plan(WINDOW_NS, "PCIe")).unwrap().contains("-p mem"));
        assert!(why(&plan(WINDOW_NS / 10, MEMORY)).unwrap().contains("--interval"));
        std::fs::write(dir.path().join("proc/self/mountinfo"), "").unwrap();
        let not_mounted = why(&memory).unwrap();
        assert!(not_mounted.contains("mount -t resctrl") && not_mounted.contains("--monitor"));
    }

    #[test]
    fn groups_of_the_largest_are_made_measured_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path(), 1);
        let fake = FakeResctrl::new(dir.path());
        fill(&fake);
        fake.write_file("info/L3_MON/num_rmids", "16\n");
        let plan = plan(WINDOW_NS, MEMORY);
        let ready =
            MonitorSetup::prepare_with_tree(&machine, &plan, Some(4), Box::new(fake.clone()));
        let mut monitors = ready.unwrap().and_then(MonitorSetup::start_thread).unwrap();
        monitors.rank_tenants(|| vec!["/pods/b".into()]);
        let mut bytes = 0;
        let measured = wait_for("a measurement of /pods/b", || {
            bytes += 10;
            for group in fake.group_names() {
                fake.write_count(&group, 0, "mbm_total_bytes", &format!("{bytes}\n"));
            }
            let bytes_of_b = |reading: Arc<MonitorReading>| {
                let mut all = reading.bytes.iter();
                let monitored =
                    all.find(|monitored| monitored.cgroup.as_deref() == Some("/pods/b"));
                monitored.map(|monitored| monitored.bytes)
            };
            monitors.take_readings().find_map(bytes_of_b).filter(|bytes| *bytes > 0)
        });
        assert!(measured.is_multiple_of(10) && measured <= bytes, "{measured}");
        let own_groups: Vec<String> =
            fake.group_names().into_iter().filter(|name| name.contains("uncore-trace-")).collect();
        assert_eq!(own_groups.len(), 1);
        assert_eq!(fake.read_tasks(&own_groups[0]), [4]);
        monitors.stop_thread();
        assert_eq!(fake.group_names(), ["", "web", "web/mon_groups/x"]);
    }
}
