//! Reads what devices count themselves, once a second, on a thread of its own: a driver may ask the
//! device's firmware, which must not hold up the drain.
//!
//! The thread keeps no capability, with one exception. What processes tell of their files of GPUs
//! takes the right to trace them: `CAP_SYS_PTRACE`, and no Landlock ([`ThreadNeeds::traces`]). It
//! is kept only by a recorder that was given it without `CAP_SYS_ADMIN`, so on purpose: root has
//! both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CapabilitySet, capabilities};

use super::side_sources::{Preparation, SideSetup, SideSource, StopPoint, spawn_thread};
use super::state::RecorderState;
use crate::assemble::AccountReading;
use crate::clock::mono_ns;
use crate::confine::{self, ThreadNeeds};
use crate::discover::Machine;
use crate::discover::accounts::{
    Account, AccountReader, AccountSource, AccountValues, HeldDevices, Netlink,
};
use crate::entries::Accounted;
use crate::schema::loss::LossCause;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// A reading takes at most this part of the time.
const TIME_DIVISOR: u32 = 100;

/// Readings that wait for the recorder. More are dropped: later ones have the same sums.
const MOST_WAITING: usize = 64;

/// How long the last reading is waited for, and how often it is looked at.
const LAST_WAIT: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Why fdinfo is not read.
const NO_RIGHT: &str = "what each process used of a GPU is not read: it takes CAP_SYS_PTRACE \
                        without CAP_SYS_ADMIN, see docs/privileges.md";

/// Prepares the accounts, if it is recorded who holds which device.
pub(super) fn prepare_source<'a>(preparation: &Preparation<'_, 'a>) -> Option<SideSetup<'a>> {
    let setup = || {
        SideSetup::new(|begun| {
            // The kernel may not say it.
            if !begun.session.sees_holders() {
                return None;
            }
            Some(Box::new(AccountSetup::prepare_reading(begun.machine).start_thread()?))
        })
    };
    preparation.wants_holders.then(setup)
}

/// A reading as the thread made it.
#[derive(Debug)]
struct RawAccountReading {
    time_ns: u64,
    snapshot: AccountValues,
}

/// Accounts that are not read yet.
#[derive(Debug)]
struct AccountSetup {
    reader: AccountReader,
    needs: ThreadNeeds,
    traces: bool,
}

impl AccountSetup {
    /// Opens what a confined process cannot open.
    fn prepare_reading(machine: &Machine) -> Self {
        let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
        let traces = may_trace(permitted);
        let netlink = Netlink::open();
        if let Err(error) = &netlink {
            log::info!("the bytes of virtual functions are not read: no netlink: {error}");
        }
        let reader = AccountReader::new(&machine.root, netlink.ok(), traces);
        Self { reader, needs: thread_needs(&machine.root, traces), traces }
    }

    /// Starts the thread that reads the accounts.
    fn start_thread(self) -> Option<AccountThread> {
        // Who holds what now replaces what the thread has not asked for yet.
        let (held, asked) = sync_channel(1);
        let (sender, readings) = sync_channel(MOST_WAITING);
        let Self { reader, needs, traces } = self;
        let read = move || read_periodically(reader, &needs, &asked, &sender);
        let thread = spawn_thread("accounts", "devices' own accounts are not read", read)?;
        Some(AccountThread {
            readings,
            held_sender: Some(held),
            last_sent: None,
            traces,
            last_values: BTreeMap::new(),
            noted_sources: BTreeSet::new(),
            thread: Some(thread),
        })
    }
}

/// Whether these capabilities were given on purpose, to trace processes.
fn may_trace(permitted: CapabilitySet) -> bool {
    permitted.contains(CapabilitySet::SYS_PTRACE) && !permitted.contains(CapabilitySet::SYS_ADMIN)
}

fn thread_needs(root: &Path, traces: bool) -> ThreadNeeds {
    let mut needs = ThreadNeeds { reads: vec![root.join("sys")], traces, ..ThreadNeeds::default() };
    if traces {
        needs.reads.push(root.join("proc"));
    }
    needs
}

/// The thread that reads accounts; it ends when this is dropped.
#[derive(Debug)]
struct AccountThread {
    readings: Receiver<RawAccountReading>,
    held_sender: Option<SyncSender<HeldDevices>>,
    last_sent: Option<Instant>,
    traces: bool,
    /// The last value of each account.
    last_values: BTreeMap<Account, u64>,
    /// Sources of which it was said that they cannot be read.
    noted_sources: BTreeSet<AccountSource>,
    thread: Option<JoinHandle<()>>,
}

impl AccountThread {
    /// Once a second, tells the thread who holds what. Returns what is not read because of that.
    fn send_held(&mut self, held: impl FnOnce() -> HeldDevices) -> Option<&'static str> {
        if self.last_sent.is_some_and(|sent| sent.elapsed() < PERIOD) {
            return None;
        }
        self.last_sent = Some(Instant::now());
        let held = held();
        let lacks =
            !self.traces && held.is_shared() && self.noted_sources.insert(AccountSource::Drm);
        // A thread that has ended was reported by the panic handler.
        // One that waits for a driver is told the next time.
        self.held_sender.as_ref().map(|thread| thread.try_send(held));
        lacks.then_some(NO_RIGHT)
    }

    /// The readings since the last call, and what could not be read: each source once.
    fn take_readings(&mut self) -> Vec<(Arc<AccountReading>, Vec<String>)> {
        let read: Vec<RawAccountReading> = self.readings.try_iter().collect();
        read.into_iter().map(|read| self.enter_reading(read)).collect()
    }

    fn enter_reading(
        &mut self,
        RawAccountReading { time_ns: time, snapshot: contents }: RawAccountReading,
    ) -> (Arc<AccountReading>, Vec<String>) {
        let accounts = compare_values(&mut self.last_values, time, contents.values);
        let new =
            contents.unread.into_iter().filter(|(source, _)| self.noted_sources.insert(*source));
        let new = new.map(|(source, why)| format!("{}: {why}", source.source_name())).collect();
        (Arc::new(AccountReading { time_ns: time, accounts }), new)
    }

    /// Reads once more, and then no more. A thread that waits for a driver is not waited for.
    fn stop_thread(&mut self) {
        drop(self.held_sender.take());
        let Some(thread) = self.thread.take() else { return };
        let begin = Instant::now();
        while !thread.is_finished() && begin.elapsed() < LAST_WAIT {
            std::thread::sleep(LAST_LOOK);
        }
        if thread.is_finished() {
            drop(thread.join());
        }
    }
}

impl SideSource for AccountThread {
    fn poll(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        for (reading, unread) in self.take_readings() {
            state.open_parts.feed_reading(&reading);
            for why in unread {
                state.note_loss(LossCause::AccountUnread, reading.time_ns, &why);
            }
        }
        if !state.is_ending
            && let Some(why) = self.send_held(|| state.open_parts.live.timeline.held_devices())
        {
            state.note_loss(LossCause::AccountUnread, mono_ns() as u64, why);
        }
        Ok(())
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    /// A thread that waits for a driver is not waited for: what it sends later is still taken.
    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_thread();
        Ok(())
    }
}

impl Drop for AccountThread {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

/// Compares a reading with the last values. An account that is gone has no value. So has one that
/// begins anew, before its new value: the sum of a function is less after its driver was loaded
/// again. Those of DRM may be less for a while; then the larger one counts (`drm-engine-<keystr>`,
/// `Documentation/gpu/drm-usage-stats.rst`, Linux 7.2).
fn compare_values(
    last_values: &mut BTreeMap<Account, u64>,
    time_ns: u64,
    values: BTreeMap<Account, u64>,
) -> Vec<Accounted> {
    let entry =
        |account: &Account, value| Accounted { time: time_ns, account: account.clone(), value };
    let vanished = last_values.keys().filter(|account| !values.contains_key(account));
    let mut accounted: Vec<Accounted> = vanished.map(|account| entry(account, None)).collect();
    let mut new_values = BTreeMap::new();
    for (account, mut value) in values {
        let previous =
            last_values.get(&account).filter(|earlier| account.unit.is_sum() && **earlier > value);
        match previous {
            Some(larger) if account.source == AccountSource::Drm => value = *larger,
            Some(_) => accounted.push(entry(&account, None)),
            None => {}
        }
        accounted.push(entry(&account, Some(value)));
        new_values.insert(account, value);
    }
    *last_values = new_values;
    accounted
}

fn read_periodically(
    mut reader: AccountReader,
    needs: &ThreadNeeds,
    asked: &Receiver<HeldDevices>,
    sender: &SyncSender<RawAccountReading>,
) {
    confine::restrict_thread(needs);
    let mut held = HeldDevices::default();
    let (mut last_read, mut pause) = (Instant::now(), Duration::ZERO);
    let mut had_functions = false;
    let mut read_once = |held: &HeldDevices, is_last: bool| {
        // A last reading says that the accounts are gone.
        if !is_last && last_read.elapsed() < pause || held.functions.is_empty() && !had_functions {
            return;
        }
        let begin = Instant::now();
        let read_ns = mono_ns() as u64;
        let snapshot = reader.read(held);
        had_functions = !held.functions.is_empty();
        (last_read, pause) = (Instant::now(), TIME_DIVISOR * begin.elapsed());
        if let Err(TrySendError::Full(_)) =
            sender.try_send(RawAccountReading { time_ns: read_ns, snapshot })
        {
            log::debug!("a reading of accounts was dropped: the recorder is late");
        }
    };
    let period = PERIOD.as_nanos() as u64;
    let mut period_end_ns = next_period_end(period);
    loop {
        let now_ns = mono_ns() as u64;
        match asked.recv_timeout(Duration::from_nanos(period_end_ns.saturating_sub(now_ns))) {
            Ok(new) => {
                // What is held from here on is read at once, so that its growth is known.
                let has_new = !new.functions.is_subset(&held.functions);
                held = new;
                if has_new {
                    read_once(&held, false);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                read_once(&held, false);
                period_end_ns = next_period_end(period);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    read_once(&held, true);
}

/// The next time at which a period ends, ns on `CLOCK_MONOTONIC`.
fn next_period_end(period: u64) -> u64 {
    (mono_ns() as u64 / period + 1) * period
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::discover::accounts::Unit;
    use crate::wait::wait_until;

    const NIC: &str = "0002:01:00.0";

    fn account(source: AccountSource, unit: Unit) -> Account {
        let function = NIC.parse().unwrap();
        Account {
            function,
            source,
            name: "a".into(),
            direction: None,
            unit,
            pid: None,
            client: None,
        }
    }

    fn followed(source: AccountSource, unit: Unit, values: &[Option<u64>]) -> Vec<Option<u64>> {
        let mut last = BTreeMap::new();
        let each = values.iter().flat_map(|value| {
            let values = value.map(|value| (account(source, unit), value)).into_iter().collect();
            compare_values(&mut last, 1, values)
        });
        each.map(|counted| counted.value).collect()
    }

    #[test]
    fn sums_do_not_decrease_while_an_account_exists() {
        let values = [Some(5), Some(9), Some(2), None, None, Some(1)];
        let of = |source, unit| followed(source, unit, &values);
        assert_eq!(
            of(AccountSource::Net, Unit::Bytes),
            [Some(5), Some(9), None, Some(2), None, Some(1)]
        );
        assert_eq!(of(AccountSource::Drm, Unit::Ns), [Some(5), Some(9), Some(9), None, Some(1)]);
        assert_eq!(
            of(AccountSource::Drm, Unit::Resident),
            [Some(5), Some(9), Some(2), None, Some(1)]
        );
    }

    #[test]
    fn only_who_was_given_it_on_purpose_traces() {
        let (ptrace, admin) = (CapabilitySet::SYS_PTRACE, CapabilitySet::SYS_ADMIN);
        assert!(may_trace(ptrace | CapabilitySet::BPF));
        assert!(!may_trace(ptrace | admin));
        assert!(!may_trace(CapabilitySet::BPF));
        let needs = thread_needs(Path::new("/"), false);
        assert_eq!((needs.capabilities, needs.traces), (CapabilitySet::empty(), false));
        assert_eq!(needs.reads, [Path::new("/sys")]);
    }

    #[test]
    fn accounts_of_what_is_held_are_read_at_once_each_second_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let nic = format!("pci0002:00/{NIC}");
        let statistics = root.join(format!("sys/devices/{nic}/net/eth0/statistics"));
        fs::create_dir_all(&statistics).unwrap();
        fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
        symlink(format!("../../../devices/{nic}"), root.join("sys/bus/pci/devices").join(NIC))
            .unwrap();
        let set = |bytes: &str| fs::write(statistics.join("rx_bytes"), bytes).unwrap();
        set("100\n");
        let reader = AccountReader::new(root, None, false);
        let ready = AccountSetup { reader, needs: thread_needs(root, false), traces: false };
        let mut accounts = ready.start_thread().unwrap();
        let mut values = Vec::new();
        let mut wait_for_value = |accounts: &mut AccountThread, bytes: u64| {
            wait_until(&format!("a reading of {bytes} bytes"), || {
                let new = accounts.take_readings();
                assert!(new.iter().all(|(_, lost)| lost.is_empty()), "{new:?}");
                let accounts = new.iter().flat_map(|(reading, _)| &reading.accounts);
                values.extend(accounts.map(|account| account.value));
                values.last() == Some(&Some(bytes))
            });
        };
        let held =
            || HeldDevices { functions: [NIC.parse().unwrap()].into(), ..HeldDevices::default() };
        assert_eq!(accounts.send_held(held), None);
        wait_for_value(&mut accounts, 100);
        set("130\n");
        wait_for_value(&mut accounts, 130);
        set("131\n");
        accounts.stop_thread();
        wait_for_value(&mut accounts, 131);
        // What nobody holds any more is gone.
        let reader = AccountReader::new(root, None, false);
        let ready = AccountSetup { reader, needs: thread_needs(root, false), traces: false };
        let mut accounts = ready.start_thread().unwrap();
        accounts.send_held(held);
        wait_until("a reading", || !accounts.take_readings().is_empty());
        accounts.last_sent = None;
        accounts.send_held(HeldDevices::default);
        accounts.stop_thread();
        let last = accounts.take_readings();
        assert_eq!(last.last().unwrap().0.accounts.last().unwrap().value, None);
    }

    #[test]
    fn what_cannot_be_read_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let ready = AccountSetup {
            reader: AccountReader::new(dir.path(), None, false),
            needs: thread_needs(dir.path(), false),
            traces: false,
        };
        let mut accounts = ready.start_thread().unwrap();
        let read = || RawAccountReading {
            time_ns: 1,
            snapshot: AccountValues {
                unread: [(AccountSource::Rdma, "N/A".to_owned())].into(),
                ..AccountValues::default()
            },
        };
        assert_eq!(accounts.enter_reading(read()).1, ["rdma: N/A"]);
        assert!(accounts.enter_reading(read()).1.is_empty());
        let gpu: BTreeSet<_> = [NIC.parse().unwrap()].into();
        let shared = || HeldDevices {
            functions: gpu.clone(),
            clients: [(7, gpu.clone()), (8, gpu.clone())].into(),
        };
        assert_eq!(accounts.send_held(shared), Some(NO_RIGHT));
        accounts.last_sent = None;
        assert_eq!(accounts.send_held(shared), None);
    }
}
