//! What devices count themselves.

use std::collections::BTreeMap;

use crate::discover::accounts::{Account, IoDirection, AccountSource, Unit};
use crate::discover::pci::Address;

/// An account at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounted {
    /// When it was read, ns on `CLOCK_MONOTONIC`.
    pub time: u64,
    /// What is counted.
    pub account: Account,
    /// The sum since it exists, or the amount ([`Unit::is_sum`]). `None`: it is gone, could not be
    /// read, or begins anew.
    pub value: Option<u64>,
}

/// By how much accounts grew.
#[derive(Debug, Default)]
pub struct Grown(BTreeMap<Account, Growth>);

#[derive(Debug, Default)]
struct Growth {
    /// The last value; `None`: it is gone.
    last: Option<u64>,
    /// Growth since the last call of [`Grown::clear`]; `None`: it was not read twice.
    since: Option<u64>,
}

impl Grown {
    /// Takes an entry.
    pub fn add(&mut self, accounted: &Accounted) {
        let growth = self.0.entry(accounted.account.clone()).or_default();
        if let (Some(before), Some(after)) = (growth.last, accounted.value) {
            let more = if accounted.account.unit.is_sum() {
                growth.since.unwrap_or(0).saturating_add(after.saturating_sub(before))
            } else {
                after
            };
            growth.since = Some(more);
        }
        growth.last = accounted.value;
    }

    /// Begins anew: growth is counted from the last values on. Accounts that are gone are forgotten.
    pub fn clear(&mut self) {
        self.0.retain(|_, growth| growth.last.is_some());
        self.0.values_mut().for_each(|growth| growth.since = None);
    }

    /// Bytes that a function moved, in a direction or in both; `None` if nothing counts them, or it was
    /// not read twice. What its physical function counts for a virtual one has all bytes. Otherwise
    /// packets and RDMA are counted apart.
    pub fn bytes(&self, function: Address, direction: Option<IoDirection>) -> Option<u64> {
        let sum = |sources: &[AccountSource]| {
            let is_wanted = |its: &Account| {
                its.unit == Unit::Bytes
                    && its.pid.is_none()
                    && sources.contains(&its.source)
                    && (direction.is_none() || its.direction == direction)
            };
            let its = self.of(function).filter(|(account, _)| is_wanted(account));
            its.map(|(_, grown)| grown).reduce(u64::saturating_add)
        };
        sum(&[AccountSource::Vf]).or_else(|| sum(&[AccountSource::Net, AccountSource::Rdma]))
    }

    /// What each process used of a function, of the best measure that any of them has: the time in
    /// which engines copied for it (kfd), the time or the cycles in which engines worked for it (drm),
    /// or the memory that it has. Empty if nothing is counted by process; a process without an entry
    /// used nothing of it.
    pub fn processes(&self, function: Address) -> BTreeMap<u32, u64> {
        const MEASURES: [(AccountSource, Unit); 5] = [
            (AccountSource::Kfd, Unit::Ns),
            (AccountSource::Drm, Unit::Ns),
            (AccountSource::Drm, Unit::Cycles),
            (AccountSource::Kfd, Unit::Resident),
            (AccountSource::Drm, Unit::Resident),
        ];
        let by = |(source, unit): (AccountSource, Unit)| {
            let mut all: BTreeMap<u32, u64> = BTreeMap::new();
            for (account, grown) in self.of(function) {
                if let Some(pid) =
                    account.pid.filter(|_| (account.source, account.unit) == (source, unit))
                {
                    let sum = all.entry(pid).or_default();
                    *sum = sum.saturating_add(grown);
                }
            }
            all
        };
        let mut all = MEASURES.into_iter().map(by);
        all.find(|its| its.values().any(|used| *used > 0)).unwrap_or_default()
    }

    /// The accounts of a function that were read twice, and their growth.
    fn of(&self, function: Address) -> impl Iterator<Item = (&Account, u64)> {
        let first = Account {
            function,
            source: AccountSource::ALL[0],
            name: "".into(),
            direction: None,
            unit: Unit::ALL[0],
            pid: None,
            client: None,
        };
        let its = self.0.range(first..).take_while(move |(its, _)| its.function == function);
        its.filter_map(|(account, growth)| Some((account, growth.since?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "0002:01:00.0";
    const NIC: &str = "0002:02:00.3";

    fn account(
        function: &str,
        source: AccountSource,
        name: &str,
        unit: Unit,
        pid: Option<u32>,
    ) -> Account {
        let direction = match name {
            "rx" => Some(IoDirection::Read),
            "tx" => Some(IoDirection::Write),
            _ => None,
        };
        let function = function.parse().unwrap();
        Account { function, source, name: name.into(), direction, unit, pid, client: None }
    }

    fn add(grown: &mut Grown, account: &Account, values: &[Option<u64>]) {
        for value in values {
            grown.add(&Accounted { time: 0, account: account.clone(), value: *value });
        }
    }

    #[test]
    fn bytes_of_a_function_are_of_one_who_counts_all() {
        let nic: Address = NIC.parse().unwrap();
        let mut grown = Grown::default();
        let all = |source, name| account(NIC, source, name, Unit::Bytes, None);
        add(&mut grown, &all(AccountSource::Net, "rx"), &[Some(10)]);
        assert_eq!(grown.bytes(nic, None), None);
        add(&mut grown, &all(AccountSource::Net, "rx"), &[Some(15)]);
        add(&mut grown, &all(AccountSource::Net, "tx"), &[Some(0), Some(1)]);
        add(&mut grown, &all(AccountSource::Rdma, "rx"), &[Some(100), Some(300)]);
        assert_eq!(grown.bytes(nic, Some(IoDirection::Read)), Some(205));
        assert_eq!(grown.bytes(nic, Some(IoDirection::Write)), Some(1));
        assert_eq!(grown.bytes(nic, None), Some(206));
        add(&mut grown, &all(AccountSource::Vf, "rx"), &[Some(1000), Some(1500)]);
        assert_eq!(grown.bytes(nic, Some(IoDirection::Read)), Some(500));
        assert_eq!(grown.bytes(GPU.parse().unwrap(), None), None);
        grown.clear();
        assert_eq!(grown.bytes(nic, None), None);
        // Counted from the last value on; what begins anew has no growth over the gap.
        add(&mut grown, &all(AccountSource::Vf, "rx"), &[Some(1501), None, Some(7), Some(9)]);
        assert_eq!(grown.bytes(nic, None), Some(3));
    }

    #[test]
    fn processes_are_compared_by_one_measure() {
        let gpu: Address = GPU.parse().unwrap();
        let mut grown = Grown::default();
        let drm = |name, unit, pid| account(GPU, AccountSource::Drm, name, unit, Some(pid));
        add(&mut grown, &drm("vram", Unit::Resident, 7), &[Some(50), Some(60)]);
        add(&mut grown, &drm("vram", Unit::Resident, 8), &[Some(5), Some(20)]);
        assert_eq!(grown.processes(gpu), [(7, 60), (8, 20)].into());
        add(&mut grown, &drm("gfx", Unit::Ns, 7), &[Some(50), Some(51)]);
        add(&mut grown, &drm("dma", Unit::Ns, 7), &[Some(50), Some(u64::MAX)]);
        add(&mut grown, &drm("cycles", Unit::Cycles, 8), &[Some(5), Some(20)]);
        assert_eq!(grown.processes(gpu), [(7, u64::MAX - 49)].into());
        assert!(grown.processes(NIC.parse().unwrap()).is_empty());
        add(&mut grown, &drm("vram", Unit::Resident, 8), &[None]);
        grown.clear();
        assert!(grown.processes(gpu).is_empty());
    }
}
