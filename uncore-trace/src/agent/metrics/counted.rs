//! Counts of one link or event, and the choice of the owners with a series.

use std::collections::HashMap;

/// Forgetting factor per window for an owner's recent bytes. Recent bytes decide who has a series.
const FORGETTING: f64 = 0.9;

/// An owner replaces another if it has this many times the other's recent bytes.
const BETTER: f64 = 2.0;

/// Windows without bytes after which an owner loses its series.
const IDLE: u32 = 360;

/// An owner, as the labels name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub owner: String,
    pub device: String,
    pub cgroup: String,
    pub container: String,
    pub pod: String,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Series {
    pub total: f64,
    pub recent: f64,
    pub idle: u32,
    /// Sum of confidence x value, and sum of value, in the last window.
    pub sure: (f64, f64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    pub total: f64,
    pub unattributed: f64,
    pub other: f64,
    pub peak: Option<f64>,
    pub shown: HashMap<Name, Series>,
    /// Recent bytes of owners without a series.
    pub waiting: HashMap<Name, f64>,
}

impl Counted {
    /// Adds the share of an owner. Returns whether the owner has no series; at most `most` owners
    /// have one.
    pub(super) fn add(
        &mut self,
        name: Name,
        value: f64,
        confidence: Option<f32>,
        most: usize,
    ) -> bool {
        if !self.shown.contains_key(&name) && self.shown.len() >= most {
            self.other += value;
            self.wait(name, value, 4 * most);
            return true;
        }
        let series = self.shown.entry(name).or_default();
        series.total += value;
        series.recent += value;
        series.idle = 0;
        if let Some(confidence) = confidence {
            series.sure.0 += f64::from(confidence) * value;
            series.sure.1 += value;
        }
        false
    }

    /// Remembers the recent bytes of an owner without a series. The number of such owners is
    /// limited, because names that come and go must not fill the memory: a larger owner replaces
    /// the smallest.
    fn wait(&mut self, name: Name, value: f64, most: usize) {
        if self.waiting.len() >= most && !self.waiting.contains_key(&name) {
            let least = self.waiting.iter().min_by(|a, b| a.1.total_cmp(b.1));
            let Some((least, _)) = least.filter(|(_, recent)| value > **recent) else { return };
            let least = least.clone();
            self.waiting.remove(&least);
        }
        *self.waiting.entry(name).or_default() += value;
    }

    /// The owner with a series that moved the fewest bytes recently.
    fn least(&self) -> Option<(Name, f64)> {
        let least = self.shown.iter().min_by(|a, b| a.1.recent.total_cmp(&b.1.recent));
        least.map(|(name, series)| (name.clone(), series.recent))
    }

    /// Chooses the owners with a series for the next window. Returns how many owners lost theirs.
    pub(super) fn settle(&mut self, most: usize) -> u64 {
        for series in self.shown.values_mut() {
            series.recent *= FORGETTING;
            series.idle += 1;
        }
        self.shown.retain(|_, series| series.idle <= IDLE);
        self.waiting.values_mut().for_each(|recent| *recent *= FORGETTING);
        self.waiting.retain(|_, recent| *recent > 0.5);
        let mut replaced = 0;
        // The limit may have been lowered.
        while self.shown.len() > most
            && let Some((least, recent)) = self.least()
        {
            self.shown.remove(&least);
            self.wait(least, recent, 4 * most);
            replaced += 1;
        }
        loop {
            let best = self.waiting.iter().max_by(|a, b| a.1.total_cmp(b.1));
            let Some((name, recent)) = best.map(|(name, recent)| (name.clone(), *recent)) else {
                break;
            };
            if self.shown.len() >= most {
                let Some((least, its)) = self.least() else { break };
                if recent < BETTER * its {
                    break;
                }
                self.shown.remove(&least);
                replaced += 1;
            }
            self.waiting.remove(&name);
            self.shown.insert(name, Series { recent, ..Series::default() });
        }
        replaced
    }
}
