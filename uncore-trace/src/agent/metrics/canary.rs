//! The bytes that the canary was credited, over those that it moved, on each link.
//!
//! Both are sums of windows of the roll-up in which old ones count less, so that the ratio is that
//! of about the last hour.

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;
use arrow::array::RecordBatch;

use crate::schema::canary::{BurstRow, CanarySummary, decode_bursts};

/// A window of this age counts 1/e of a new one, ns.
const MEMORY_NS: f64 = 3600e9;

/// Most bursts that wait for the end of their window: those of two hours.
const WAITING: usize = 10_000;

/// Sums of one direction of a link, bytes.
#[derive(Debug, Clone, Copy, Default)]
struct CanaryBytes {
    moved: f64,
    credited: f64,
}

/// The ratios of all links.
#[derive(Debug, Clone, Default)]
pub(in crate::agent) struct CanaryRatios {
    /// Path of its cgroup; `None` if there is no canary.
    cgroup: Option<String>,
    /// Bursts whose window is not closed yet.
    waiting: VecDeque<BurstRow>,
    sums: BTreeMap<(String, &'static str), CanaryBytes>,
    /// End of the last window, ns.
    end_ns: Option<i64>,
}

impl CanaryRatios {
    /// Reads the metadata of the recording.
    pub(in crate::agent) fn read_metadata(
        &mut self,
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.cgroup = CanarySummary::from_metadata(pairs)?.map(|canary| canary.cgroup);
        Ok(())
    }

    /// Adds rows of the table `canary`.
    pub(in crate::agent) fn add_bursts(&mut self, rows: &RecordBatch) -> Result<()> {
        let free_places = WAITING.saturating_sub(self.waiting.len());
        self.waiting.extend(decode_bursts(rows)?.into_iter().take(free_places));
        Ok(())
    }

    /// A window that ends at `end_ns` is closed: its bursts are in the sums.
    pub(in crate::agent) fn close_window(&mut self, end_ns: i64) {
        let elapsed_ns = self.end_ns.map_or(0, |previous_ns| (end_ns - previous_ns).max(0)) as f64;
        self.end_ns = Some(end_ns);
        let decay = (-elapsed_ns / MEMORY_NS).exp();
        for sums in self.sums.values_mut() {
            sums.moved *= decay;
            sums.credited *= decay;
        }
        while let Some(burst) =
            self.waiting.pop_front_if(|waiting_burst| waiting_burst.end_ns <= end_ns)
        {
            for link in burst.links {
                let sums =
                    self.sums.entry((link.link, link.direction.direction_name())).or_default();
                sums.moved += burst.bytes as f64;
            }
        }
    }

    /// Adds what an owner was credited in that window on a link.
    pub(super) fn add_credited(
        &mut self,
        link_direction: (&str, &str),
        cgroup: Option<&str>,
        bytes: f64,
    ) {
        if self.cgroup.is_none() || cgroup != self.cgroup.as_deref() {
            return;
        }
        let is_link_direction =
            |key: &&(String, &'static str)| (key.0.as_str(), key.1) == link_direction;
        // What it was credited on a link before it moved anything there belongs to no ratio.
        if let Some(key) = self.sums.keys().find(is_link_direction).cloned()
            && let Some(sums) = self.sums.get_mut(&key)
        {
            sums.credited += bytes;
        }
    }

    /// Link, direction and ratio.
    pub(super) fn credited_ratios(&self) -> impl Iterator<Item = ((&str, &str), f64)> {
        let moved = self.sums.iter().filter(|(_, sums)| sums.moved > 0.0);
        moved.map(|((link, direction), sums)| {
            ((link.as_str(), *direction), sums.credited / sums.moved)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::canary::{Builder, Burst, CanaryKind, LinkDirection};
    use crate::schema::link::Direction;
    use crate::schema::origin::RecordingOrigin;

    #[test]
    fn a_ratio_is_of_bytes_of_the_same_windows() {
        let mut ratio = CanaryRatios::default();
        let canary = CanarySummary { cgroup: "/canary".to_owned(), ..CanarySummary::default() };
        let mut pairs = BTreeMap::new();
        canary.write_metadata(&mut pairs).unwrap();
        ratio.read_metadata(&pairs).unwrap();
        let links = [LinkDirection { link: "disk vda".to_owned(), direction: Direction::In }];
        let mut rows = Builder::default();
        for end_ns in [5, 15] {
            let (kind, node) = (CanaryKind::Disk, None);
            let burst = Burst { kind, begin_ns: 1, end_ns, cpu: 0, node, bytes: 1000 };
            rows.append_burst(&burst, Some("vda"), &links, &RecordingOrigin::default()).unwrap();
        }
        ratio.add_bursts(&rows.finish()).unwrap();
        let way = ("disk vda", "in");
        assert_eq!(ratio.credited_ratios().count(), 0);
        ratio.close_window(10);
        ratio.add_credited(way, Some("/canary"), 900.0);
        ratio.add_credited(way, Some("/other"), 900.0);
        ratio.add_credited(("disk vda", "out"), Some("/canary"), 900.0);
        assert_eq!(ratio.credited_ratios().collect::<Vec<_>>(), [(way, 0.9)]);
        ratio.close_window(20);
        ratio.add_credited(way, Some("/canary"), 1100.0);
        let found = ratio.credited_ratios().next().unwrap().1;
        assert!((found - 1.0).abs() < 1e-9, "{found}");
        // An hour later the old windows count little.
        ratio.close_window(20 + 5 * 3_600_000_000_000);
        ratio.add_credited(way, Some("/canary"), 0.0);
        assert!(ratio.sums.values().all(|sums| sums.moved < 20.0));
    }
}
