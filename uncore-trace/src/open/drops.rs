//! What the BPF programs count of what they had to drop.

use uncore_trace_common::record::KINDS;
use uncore_trace_common::state::Drops as DropsAbi;

/// Records and ticks that the BPF side had to drop, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// By record kind.
    pub records: [u64; KINDS],
    /// Timers that could not be started again.
    pub timer: u64,
    /// Readings that were due in the middle of another.
    pub nested: u64,
    /// Timers that the kernel moved to another CPU because theirs went offline. Nothing was
    /// dropped, but [`super::Session::follow_cpus`] has to look.
    pub moved: u64,
    /// Block requests that there was no room to remember the owner of.
    pub unowned: u64,
    /// Switches that were not seen: a thread left that was not seen to come.
    pub switches: u64,
    /// Requests, packets and reads that were not seen because the CPU was at one already.
    pub missed: u64,
}

impl DropCounts {
    /// The sum over CPUs; of [`DropCounts::missed`] they know nothing.
    pub(super) fn sum_cpus(cpus: &[DropsAbi]) -> Self {
        let mut sum = Self::default();
        for cpu in cpus {
            let DropsAbi { records, nested, timer, moved, unowned, switches } = cpu;
            for (total, count) in sum.records.iter_mut().zip(records) {
                *total += count;
            }
            sum.timer += timer;
            sum.nested += nested;
            sum.moved += moved;
            sum.unowned += unowned;
            sum.switches += switches;
        }
        sum
    }

    /// Takes over a newer look at the same counts, and returns what is new in it. A count that is
    /// lower than before (`missed` is less than it was where a file of `/proc` could not be read)
    /// has nothing new, and stays as it was: it would be counted again with the next look.
    #[must_use]
    pub fn advance(&mut self, mut newer: Self) -> Self {
        let mut new = Self::default();
        for ((known_count, newer_count), gained) in
            self.each_count().into_iter().zip(newer.each_count()).zip(new.each_count())
        {
            *gained = newer_count.saturating_sub(*known_count);
            *known_count = (*known_count).max(*newer_count);
        }
        new
    }

    fn each_count(&mut self) -> impl IntoIterator<Item = &mut u64> {
        let Self { records, timer, nested, moved, unowned, switches, missed } = self;
        records.iter_mut().chain([timer, nested, moved, unowned, switches, missed])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_lower_than_before_has_nothing_new_and_is_not_counted_again() {
        let cpu = DropsAbi { records: [5; KINDS], switches: 3, ..DropsAbi::default() };
        let all = DropCounts { missed: 7, ..DropCounts::sum_cpus(&[cpu, cpu]) };
        assert_eq!((all.records, all.switches), ([10; KINDS], 6));
        let mut seen = DropCounts::default();
        assert_eq!(seen.advance(all), all);
        let lower = DropCounts { records: [9; KINDS], missed: 0, nested: 1, ..all };
        assert_eq!(seen.advance(lower), DropCounts { nested: 1, ..DropCounts::default() });
        let higher = DropCounts { records: [11; KINDS], nested: 1, ..all };
        assert_eq!(
            seen.advance(higher),
            DropCounts { records: [1; KINDS], ..DropCounts::default() }
        );
        assert_eq!(seen, higher);
    }
}
