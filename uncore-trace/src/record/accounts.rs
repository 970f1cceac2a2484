//! Reads what devices count themselves, once a second, on a thread of its own: a driver may ask the
//! device's firmware, which must not hold up the drain.
//!
//! The thread keeps no capability, with one exception. What processes tell of their files of GPUs takes
//! the right to trace them: `CAP_SYS_PTRACE`, and no Landlock ([`Needs::traces`]). It is kept only by a
//! recorder that was given it without `CAP_SYS_ADMIN`, so on purpose: root has both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities};

use crate::assemble::AccountReading;
use crate::clock::mono_ns;
use crate::confine::{self, Needs};
use crate::discover::Machine;
use crate::discover::accounts::{Account, Found, HeldDevices, Netlink, AccountReader, Source};
use crate::entries::Accounted;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// A reading takes at most this part of the time.
const PART: u32 = 100;

/// Readings that wait for the recorder. More are dropped: later ones have the same sums.
const MOST_WAITING: usize = 64;

/// How long the last reading is waited for, and how often it is looked at.
const LAST_WAIT: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Why fdinfo is not read.
const NO_RIGHT: &str = "what each process used of a GPU is not read: it takes CAP_SYS_PTRACE without \
    CAP_SYS_ADMIN, see docs/privileges.md";

/// A reading as the thread made it.
#[derive(Debug)]
struct Read {
    time: u64,
    found: Found,
}

/// Accounts that are not read yet.
#[derive(Debug)]
pub(super) struct Ready {
    reader: AccountReader,
    needs: Needs,
    traces: bool,
}

impl Ready {
    /// Opens what a confined process cannot.
    pub(super) fn of(machine: &Machine) -> Self {
        let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
        let traces = may_trace(has);
        let netlink = Netlink::open();
        if let Err(error) = &netlink {
            log::info!("the bytes of virtual functions are not read: no netlink: {error}");
        }
        let reader = AccountReader::new(&machine.root, netlink.ok(), traces);
        Self { reader, needs: needs(&machine.root, traces), traces }
    }

    /// Starts to read.
    pub(super) fn start(self) -> Option<Accounts> {
        // Who holds what now replaces what the thread has not asked for yet.
        let (held, asked) = sync_channel(1);
        let (sender, readings) = sync_channel(MOST_WAITING);
        let Self { reader, needs, traces } = self;
        let thread = std::thread::Builder::new().name("accounts".to_owned());
        match thread.spawn(move || read(reader, &needs, &asked, &sender)) {
            Ok(thread) => Some(Accounts {
                readings,
                held: Some(held),
                told: None,
                traces,
                last: BTreeMap::new(),
                noted: BTreeSet::new(),
                thread: Some(thread),
            }),
            Err(error) => {
                log::warn!("devices' own accounts are not read: cannot start a thread: {error}");
                None
            }
        }
    }
}

/// Whether these capabilities were given for this.
fn may_trace(has: CapabilitySet) -> bool {
    has.contains(CapabilitySet::SYS_PTRACE) && !has.contains(CapabilitySet::SYS_ADMIN)
}

fn needs(root: &Path, traces: bool) -> Needs {
    let mut needs = Needs { reads: vec![root.join("sys")], traces, ..Needs::default() };
    if traces {
        needs.reads.push(root.join("proc"));
    }
    needs
}

/// The accounts of a recording; the thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Accounts {
    readings: Receiver<Read>,
    held: Option<SyncSender<HeldDevices>>,
    told: Option<Instant>,
    traces: bool,
    /// The last value of each account.
    last: BTreeMap<Account, u64>,
    /// Sources of which it was said that they cannot be read.
    noted: BTreeSet<Source>,
    thread: Option<JoinHandle<()>>,
}

impl Accounts {
    /// Once a second, tells the thread who holds what. Returns what is not read because of that.
    pub(super) fn tell(&mut self, held: impl FnOnce() -> HeldDevices) -> Option<&'static str> {
        if self.told.is_some_and(|told| told.elapsed() < PERIOD) {
            return None;
        }
        self.told = Some(Instant::now());
        let held = held();
        let lacks = !self.traces && held.is_shared() && self.noted.insert(Source::Drm);
        // A thread that has ended was reported by the panic handler.
        // One that waits for a driver is told the next time.
        self.held.as_ref().map(|thread| thread.try_send(held));
        lacks.then_some(NO_RIGHT)
    }

    /// The readings since the last call, and what could not be read: each source once.
    pub(super) fn take(&mut self) -> Vec<(Arc<AccountReading>, Vec<String>)> {
        let read: Vec<Read> = self.readings.try_iter().collect();
        read.into_iter().map(|read| self.enter(read)).collect()
    }

    fn enter(&mut self, Read { time, found }: Read) -> (Arc<AccountReading>, Vec<String>) {
        let accounts = follow(&mut self.last, time, found.values);
        let new = found.unread.into_iter().filter(|(source, _)| self.noted.insert(*source));
        let new = new.map(|(source, why)| format!("{}: {why}", source.name())).collect();
        (Arc::new(AccountReading { time, accounts }), new)
    }

    /// Reads once more, and then no more. A thread that waits for a driver is not waited for.
    pub(super) fn stop(&mut self) {
        drop(self.held.take());
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

impl Drop for Accounts {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Compares a reading with the last values. An account that is gone has no value. So has one that begins
/// anew, before its new value: the sum of a function is less after its driver was loaded again. Those of
/// DRM may be less for a while; then the larger one counts (`drm-engine-<keystr>`,
/// `Documentation/gpu/drm-usage-stats.rst`, Linux 7.2).
fn follow(
    last: &mut BTreeMap<Account, u64>,
    time: u64,
    values: BTreeMap<Account, u64>,
) -> Vec<Accounted> {
    let entry = |account: &Account, value| Accounted { time, account: account.clone(), value };
    let gone = last.keys().filter(|account| !values.contains_key(account));
    let mut all: Vec<Accounted> = gone.map(|account| entry(account, None)).collect();
    let mut now = BTreeMap::new();
    for (account, mut value) in values {
        let before = last.get(&account).filter(|before| account.unit.is_sum() && **before > value);
        match before {
            Some(before) if account.source == Source::Drm => value = *before,
            Some(_) => all.push(entry(&account, None)),
            None => {}
        }
        all.push(entry(&account, Some(value)));
        now.insert(account, value);
    }
    *last = now;
    all
}

fn read(mut reader: AccountReader, needs: &Needs, asked: &Receiver<HeldDevices>, sender: &SyncSender<Read>) {
    confine::thread(needs);
    let mut held = HeldDevices::default();
    let (mut last, mut pause) = (Instant::now(), Duration::ZERO);
    let mut had = false;
    let mut look = |held: &HeldDevices, is_last: bool| {
        // A last reading says that the accounts are gone.
        if !is_last && last.elapsed() < pause || held.functions.is_empty() && !had {
            return;
        }
        let begin = Instant::now();
        let time = mono_ns() as u64;
        let found = reader.read(held);
        had = !held.functions.is_empty();
        (last, pause) = (Instant::now(), PART * begin.elapsed());
        if let Err(TrySendError::Full(_)) = sender.try_send(Read { time, found }) {
            log::debug!("a reading of accounts was dropped: the recorder is late");
        }
    };
    let period = PERIOD.as_nanos() as u64;
    let mut end = next(period);
    loop {
        let now = mono_ns() as u64;
        match asked.recv_timeout(Duration::from_nanos(end.saturating_sub(now))) {
            Ok(new) => {
                // What is held from here on is read at once, so that its growth is known.
                let has_new = !new.functions.is_subset(&held.functions);
                held = new;
                if has_new {
                    look(&held, false);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                look(&held, false);
                end = next(period);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    look(&held, true);
}

/// The next time at which a period ends, ns on `CLOCK_MONOTONIC`.
fn next(period: u64) -> u64 {
    (mono_ns() as u64 / period + 1) * period
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::discover::accounts::Unit;

    const NIC: &str = "0002:01:00.0";

    fn account(source: Source, unit: Unit) -> Account {
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

    fn followed(source: Source, unit: Unit, values: &[Option<u64>]) -> Vec<Option<u64>> {
        let mut last = BTreeMap::new();
        let each = values.iter().flat_map(|value| {
            let values = value.map(|value| (account(source, unit), value)).into_iter().collect();
            follow(&mut last, 1, values)
        });
        each.map(|its| its.value).collect()
    }

    #[test]
    fn sums_do_not_decrease_while_an_account_exists() {
        let values = [Some(5), Some(9), Some(2), None, None, Some(1)];
        let of = |source, unit| followed(source, unit, &values);
        assert_eq!(of(Source::Net, Unit::Bytes), [Some(5), Some(9), None, Some(2), None, Some(1)]);
        assert_eq!(of(Source::Drm, Unit::Ns), [Some(5), Some(9), Some(9), None, Some(1)]);
        assert_eq!(of(Source::Drm, Unit::Resident), [Some(5), Some(9), Some(2), None, Some(1)]);
    }

    #[test]
    fn only_who_was_given_it_on_purpose_traces() {
        let (ptrace, admin) = (CapabilitySet::SYS_PTRACE, CapabilitySet::SYS_ADMIN);
        assert!(may_trace(ptrace | CapabilitySet::BPF));
        assert!(!may_trace(ptrace | admin));
        assert!(!may_trace(CapabilitySet::BPF));
        let needs = needs(Path::new("/"), false);
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
        let ready = Ready { reader, needs: needs(root, false), traces: false };
        let mut accounts = ready.start().unwrap();
        let begin = Instant::now();
        let mut values = Vec::new();
        let mut wait = |accounts: &mut Accounts, bytes: u64| {
            while values.last() != Some(&Some(bytes)) {
                assert!(begin.elapsed() < Duration::from_mins(1), "{values:?}");
                std::thread::sleep(Duration::from_millis(1));
                let new = accounts.take();
                assert!(new.iter().all(|(_, lost)| lost.is_empty()), "{new:?}");
                values.extend(new.iter().flat_map(|(its, _)| &its.accounts).map(|its| its.value));
            }
        };
        let held = || HeldDevices { functions: [NIC.parse().unwrap()].into(), ..HeldDevices::default() };
        assert_eq!(accounts.tell(held), None);
        wait(&mut accounts, 100);
        set("130\n");
        wait(&mut accounts, 130);
        set("131\n");
        accounts.stop();
        wait(&mut accounts, 131);
        // What nobody holds any more is gone.
        let reader = AccountReader::new(root, None, false);
        let ready = Ready { reader, needs: needs(root, false), traces: false };
        let mut accounts = ready.start().unwrap();
        accounts.tell(held);
        while accounts.take().is_empty() {
            assert!(begin.elapsed() < Duration::from_mins(1));
            std::thread::sleep(Duration::from_millis(1));
        }
        accounts.told = None;
        accounts.tell(HeldDevices::default);
        accounts.stop();
        let last = accounts.take();
        assert_eq!(last.last().unwrap().0.accounts.last().unwrap().value, None);
    }

    #[test]
    fn what_cannot_be_read_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let ready = Ready {
            reader: AccountReader::new(dir.path(), None, false),
            needs: needs(dir.path(), false),
            traces: false,
        };
        let mut accounts = ready.start().unwrap();
        let read = || Read {
            time: 1,
            found: Found { unread: [(Source::Rdma, "N/A".to_owned())].into(), ..Found::default() },
        };
        assert_eq!(accounts.enter(read()).1, ["rdma: N/A"]);
        assert!(accounts.enter(read()).1.is_empty());
        let gpu: BTreeSet<_> = [NIC.parse().unwrap()].into();
        let shared = || HeldDevices {
            functions: gpu.clone(),
            clients: [(7, gpu.clone()), (8, gpu.clone())].into(),
        };
        assert_eq!(accounts.tell(shared), Some(NO_RIGHT));
        accounts.told = None;
        assert_eq!(accounts.tell(shared), None);
    }
}
