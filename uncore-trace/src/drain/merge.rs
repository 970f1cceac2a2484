//! Puts the records of several rings into the order of their times.
//!
//! A ring has the records of its CPUs in the order in which they were sent, and that order is kept.
//! Between rings the earlier record comes first, so what is left at any time is not older than what
//! was returned, as with one ring.

use super::decode::{DrainedRecord, Undecodable};

type DecodedRecord = Result<DrainedRecord, Undecodable>;

/// One record of each ring, waiting for its turn.
#[derive(Debug, Default)]
pub struct Merge {
    rings: Vec<RingHead>,
}

/// The next record of a ring.
#[derive(Debug, Default)]
struct RingHead {
    record: Option<DecodedRecord>,
    /// Latest time of a record of this ring.
    newest_ns: u64,
}

impl Merge {
    /// Of `rings` rings.
    pub fn new(rings: usize) -> Self {
        Self { rings: std::iter::repeat_with(RingHead::default).take(rings).collect() }
    }

    /// The next record; `None` if all rings are empty. `read` takes the next one out of the ring
    /// with this number.
    pub fn next(
        &mut self,
        mut read: impl FnMut(usize) -> Option<DecodedRecord>,
    ) -> Option<DecodedRecord> {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            if ring.record.is_none() {
                ring.record = read(number);
                let sent_ns =
                    ring.record.as_ref().and_then(|decoded| decoded.as_ref().ok()?.sent_ns());
                ring.newest_ns = ring.newest_ns.max(sent_ns.unwrap_or(0));
            }
        }
        let waiting = self.rings.iter_mut().filter(|ring| ring.record.is_some());
        waiting.min_by_key(|ring| ring.newest_ns)?.record.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::drain::{IrqRecord, RunRecord};

    fn run(cpu: u32, end: u64) -> DrainedRecord {
        DrainedRecord::Run(RunRecord {
            cpu,
            begin_ns: end - 1,
            last_slot_begin: end,
            end,
            slots: Vec::new(),
        })
    }

    fn irq(cpu: u32) -> DrainedRecord {
        DrainedRecord::Irq(IrqRecord { cpu, tick_end_ns: 1, span: None, slots: Vec::new() })
    }

    fn all(merge: &mut Merge, rings: &mut [VecDeque<DecodedRecord>]) -> Vec<DecodedRecord> {
        let mut next = || merge.next(|ring| rings[ring].pop_front());
        std::iter::from_fn(&mut next).collect()
    }

    #[test]
    fn the_earlier_record_of_all_rings_is_next() {
        let mut rings = [
            VecDeque::from([run(0, 10), run(1, 30), run(0, 40)].map(Ok)),
            VecDeque::from([run(2, 5), run(3, 20), run(2, 50)].map(Ok)),
            VecDeque::new(),
        ];
        let mut merge = Merge::new(3);
        let order = [(2, 5), (0, 10), (3, 20), (1, 30), (0, 40), (2, 50)];
        assert_eq!(all(&mut merge, &mut rings), order.map(|(cpu, end)| Ok(run(cpu, end))));
        // A ring that was empty has later records.
        rings[2].push_back(Ok(run(4, 60)));
        assert_eq!(all(&mut merge, &mut rings), [Ok(run(4, 60))]);
    }

    /// Whatever their times, records of a ring stay in order; those without one follow the record
    /// before them.
    #[test]
    fn a_ring_keeps_its_order() {
        let unknown = Err(Undecodable::Kind(99));
        let one = [Ok(run(0, 10)), Ok(irq(1)), unknown, Ok(run(1, 9)), Ok(run(0, 30))];
        let mut rings = [VecDeque::from(one.clone()), VecDeque::from([Ok(run(2, 11))])];
        let [first, second, third, fourth, last] = one;
        let order = [first, second, third, fourth, Ok(run(2, 11)), last];
        assert_eq!(all(&mut Merge::new(2), &mut rings), order);
    }
}
