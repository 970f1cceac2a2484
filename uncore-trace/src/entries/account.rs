//! What devices count themselves.

use std::collections::BTreeMap;

use crate::discover::accounts::{Account, AccountSource, IoDirection, Unit};
use crate::discover::pci::PciAddress;

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
pub struct AccountGrowth(BTreeMap<Account, Growth>);

#[derive(Debug, Default)]
struct Growth {
    /// The last value; `None`: it is gone.
    last_value: Option<u64>,
    /// Growth since the last call of [`AccountGrowth::restart`]; `None`: it was not read twice.
    since: Option<u64>,
}

impl AccountGrowth {
    /// Adds an entry.
    pub fn add_reading(&mut self, accounted: &Accounted) {
        let growth = self.0.entry(accounted.account.clone()).or_default();
        if let (Some(previous), Some(current)) = (growth.last_value, accounted.value) {
            let increase = if accounted.account.unit.is_sum() {
                growth.since.unwrap_or(0).saturating_add(current.saturating_sub(previous))
            } else {
                current
            };
            growth.since = Some(increase);
        }
        growth.last_value = accounted.value;
    }

    /// Begins anew: growth is counted from the last values on. Accounts that are gone are
    /// forgotten.
    pub fn restart(&mut self) {
        self.0.retain(|_, growth| growth.last_value.is_some());
        self.0.values_mut().for_each(|growth| growth.since = None);
    }

    /// Bytes that a function moved, in a direction or in both; `None` if nothing counts them, or it
    /// was not read twice. What its physical function counts for a virtual one has all bytes.
    /// Otherwise packets and RDMA are counted apart.
    pub fn moved_bytes(&self, function: PciAddress, direction: Option<IoDirection>) -> Option<u64> {
        let sum = |sources: &[AccountSource]| {
            let is_wanted = |candidate: &Account| {
                candidate.unit == Unit::Bytes
                    && candidate.pid.is_none()
                    && sources.contains(&candidate.source)
                    && (direction.is_none() || candidate.direction == direction)
            };
            let matching =
                self.growth_of_function(function).filter(|(account, _)| is_wanted(account));
            matching.map(|(_, grown)| grown).reduce(u64::saturating_add)
        };
        sum(&[AccountSource::Vf]).or_else(|| sum(&[AccountSource::Net, AccountSource::Rdma]))
    }

    /// What each process used of a function, of the best measure that any of them has: the time in
    /// which engines copied for it (kfd), the time or the cycles in which engines worked for it
    /// (drm), or the memory that it has. Empty if nothing is counted by process; a process without
    /// an entry used nothing of it.
    pub fn usage_by_process(&self, function: PciAddress) -> BTreeMap<u32, u64> {
        const MEASURES: [(AccountSource, Unit); 5] = [
            (AccountSource::Kfd, Unit::Ns),
            (AccountSource::Drm, Unit::Ns),
            (AccountSource::Drm, Unit::Cycles),
            (AccountSource::Kfd, Unit::Resident),
            (AccountSource::Drm, Unit::Resident),
        ];
        let measure_usage = |(source, unit): (AccountSource, Unit)| {
            let mut usage_by_pid: BTreeMap<u32, u64> = BTreeMap::new();
            for (account, grown) in self.growth_of_function(function) {
                if let Some(pid) =
                    account.pid.filter(|_| (account.source, account.unit) == (source, unit))
                {
                    let sum = usage_by_pid.entry(pid).or_default();
                    *sum = sum.saturating_add(grown);
                }
            }
            usage_by_pid
        };
        let mut measured = MEASURES.into_iter().map(measure_usage);
        measured.find(|usage| usage.values().any(|used| *used > 0)).unwrap_or_default()
    }

    /// The accounts of a function that were read twice, and their growth.
    fn growth_of_function(&self, function: PciAddress) -> impl Iterator<Item = (&Account, u64)> {
        let range_start = Account {
            function,
            source: AccountSource::ALL[0],
            name: "".into(),
            direction: None,
            unit: Unit::ALL[0],
            pid: None,
            client: None,
        };
        let accounts = self
            .0
            .range(range_start..)
            .take_while(move |(candidate, _)| candidate.function == function);
        accounts.filter_map(|(account, growth)| Some((account, growth.since?)))
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

    fn add(grown: &mut AccountGrowth, account: &Account, values: &[Option<u64>]) {
        for value in values {
            grown.add_reading(&Accounted { time: 0, account: account.clone(), value: *value });
        }
    }

    #[test]
    fn bytes_of_a_function_come_from_the_most_complete_source() {
        let nic: PciAddress = NIC.parse().unwrap();
        let mut grown = AccountGrowth::default();
        let all = |source, name| account(NIC, source, name, Unit::Bytes, None);
        add(&mut grown, &all(AccountSource::Net, "rx"), &[Some(10)]);
        assert_eq!(grown.moved_bytes(nic, None), None);
        add(&mut grown, &all(AccountSource::Net, "rx"), &[Some(15)]);
        add(&mut grown, &all(AccountSource::Net, "tx"), &[Some(0), Some(1)]);
        add(&mut grown, &all(AccountSource::Rdma, "rx"), &[Some(100), Some(300)]);
        assert_eq!(grown.moved_bytes(nic, Some(IoDirection::Read)), Some(205));
        assert_eq!(grown.moved_bytes(nic, Some(IoDirection::Write)), Some(1));
        assert_eq!(grown.moved_bytes(nic, None), Some(206));
        add(&mut grown, &all(AccountSource::Vf, "rx"), &[Some(1000), Some(1500)]);
        assert_eq!(grown.moved_bytes(nic, Some(IoDirection::Read)), Some(500));
        assert_eq!(grown.moved_bytes(GPU.parse().unwrap(), None), None);
        grown.restart();
        assert_eq!(grown.moved_bytes(nic, None), None);
        // Counted from the last value on; what begins anew has no growth over the gap.
        add(&mut grown, &all(AccountSource::Vf, "rx"), &[Some(1501), None, Some(7), Some(9)]);
        assert_eq!(grown.moved_bytes(nic, None), Some(3));
    }

    #[test]
    fn processes_are_compared_by_one_measure() {
        let gpu: PciAddress = GPU.parse().unwrap();
        let mut grown = AccountGrowth::default();
        let drm = |name, unit, pid| account(GPU, AccountSource::Drm, name, unit, Some(pid));
        add(&mut grown, &drm("vram", Unit::Resident, 7), &[Some(50), Some(60)]);
        add(&mut grown, &drm("vram", Unit::Resident, 8), &[Some(5), Some(20)]);
        assert_eq!(grown.usage_by_process(gpu), [(7, 60), (8, 20)].into());
        add(&mut grown, &drm("gfx", Unit::Ns, 7), &[Some(50), Some(51)]);
        add(&mut grown, &drm("dma", Unit::Ns, 7), &[Some(50), Some(u64::MAX)]);
        add(&mut grown, &drm("cycles", Unit::Cycles, 8), &[Some(5), Some(20)]);
        assert_eq!(grown.usage_by_process(gpu), [(7, u64::MAX - 49)].into());
        assert!(grown.usage_by_process(NIC.parse().unwrap()).is_empty());
        add(&mut grown, &drm("vram", Unit::Resident, 8), &[None]);
        grown.restart();
        assert!(grown.usage_by_process(gpu).is_empty());
    }
}
