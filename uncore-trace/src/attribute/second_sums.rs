//! What owners had of each count in a second, from all shares of its windows.
//!
//! Windows of `fabric` have rows of the owners with the largest shares only. The sums are made of
//! the shares before that, so every cgroup has its own, and every process that is not small in the
//! second.

use foldhash::HashMap;

use super::method::Method;
use super::share::Share;
use super::waiting::{EndedWindow, WindowState};
use super::windows::DividedWindow;
use super::workers;
use crate::entries::Owner;
use crate::schema::sums;

/// The sums of the second that is not over, for each counter.
#[derive(Debug)]
pub(super) struct SecondSums {
    /// Length of a second, ticks: a multiple of the length of a window.
    length_ticks: u64,
    /// The tick at which the second ends; `None` before its first window.
    end_tick: Option<u64>,
    /// In the order of the counters.
    counters: Vec<SecondShares>,
}

/// The sums of one second that is over.
#[derive(Debug)]
pub(super) struct EndedSecond {
    /// It has the form of a window.
    pub window: EndedWindow,
    /// The known time of each counter, ticks.
    pub known_ticks: Vec<u64>,
}

/// The sums of one counter.
#[derive(Debug, Default)]
struct SecondShares {
    /// The ticks at which the first window begins and the last ends.
    ticks: Option<(u64, u64)>,
    /// Time of the windows with a count, ticks.
    known_ticks: u64,
    /// Sum of running x ticks, and of ticks.
    running: (f64, f64),
    total: f64,
    /// The method of the sums: exact if any of them is, since they would be rounded as estimates;
    /// else that of the last window with owners.
    method: Option<Method>,
    /// Owners in the order of their first shares, so that results do not depend on hashes.
    shares: Vec<Share>,
    share_index: HashMap<(Owner, Method), usize>,
}

impl SecondShares {
    fn add_window(&mut self, divided: &DividedWindow) {
        let length = divided.end_tick.saturating_sub(divided.begin_tick);
        let (begin_tick, _) = self.ticks.unwrap_or((divided.begin_tick, 0));
        self.ticks = Some((begin_tick.min(divided.begin_tick), divided.end_tick));
        self.running.0 += f64::from(divided.running) * length as f64;
        self.running.1 += length as f64;
        let Some(total) = divided.total else { return };
        self.known_ticks += length;
        self.total += total;
        if !divided.shares.is_empty() {
            self.note_method(divided.method);
        }
        for share in &divided.shares {
            let method = share.method.unwrap_or(divided.method);
            let next_index = self.shares.len();
            let index = *self.share_index.entry((share.owner, method)).or_insert(next_index);
            match self.shares.get_mut(index) {
                Some(sum) => sum.add_share(share),
                None => self.shares.push(Share { method: Some(method), ..*share }),
            }
        }
    }

    fn note_method(&mut self, window_method: Method) {
        self.method = match self.method {
            Some(known) if !known.is_estimate() || window_method == Method::None => Some(known),
            _ => Some(window_method),
        };
    }

    /// Takes the sums as a divided window, and its known time in ticks.
    fn take_window(&mut self) -> Option<(DividedWindow, u64)> {
        let (begin_tick, end_tick) = self.ticks.take()?;
        let known_ticks = std::mem::take(&mut self.known_ticks);
        let (running, ticks) = std::mem::take(&mut self.running);
        let method = self.method.take().unwrap_or(Method::None);
        // The capacity stays: most owners are there in the next second too.
        let mut shares: Vec<Share> = self.shares.drain(..).collect();
        self.share_index.clear();
        for share in &mut shares {
            share.method = share.method.filter(|share_method| *share_method != method);
        }
        shares.sort_unstable_by_key(|share| (share.owner, share.method.map(Method::name)));
        let total = std::mem::take(&mut self.total);
        let divided = DividedWindow {
            begin_tick,
            end_tick,
            total: (known_ticks > 0).then_some(total),
            running: if ticks > 0.0 { (running / ticks) as f32 } else { 0.0 },
            method,
            shares,
        };
        Some((divided, known_ticks))
    }
}

impl SecondSums {
    /// No sums yet, of windows of `window_ns` and so many counters.
    pub(super) fn new(tick_ns: u64, window_ns: u64, counters: usize) -> Self {
        let counters = std::iter::repeat_with(SecondShares::default).take(counters).collect();
        Self { length_ticks: sums::second_length_ns(window_ns) / tick_ns, end_tick: None, counters }
    }

    /// The tick at which the second ends that a window belongs to, by the tick of its end.
    fn second_end(&self, window_end_tick: u64) -> u64 {
        window_end_tick.next_multiple_of(self.length_ticks)
    }

    /// The number of windows at the begin of `windows` that belong to one second.
    pub(super) fn windows_in_second(&self, windows: &[EndedWindow]) -> usize {
        let Some(first) = windows.first() else { return 0 };
        let end_tick = self.second_end(first.tick);
        windows.iter().take_while(|window| window.tick <= end_tick).count()
    }

    /// Whether a window belongs to a later second than those that are summed.
    pub(super) fn is_over_at(&self, window: &EndedWindow) -> bool {
        self.end_tick.is_some_and(|end_tick| window.tick > end_tick)
    }

    /// Whether no later window belongs to the second.
    pub(super) fn is_complete(&self, last: &EndedWindow) -> bool {
        self.end_tick == Some(last.tick)
    }

    /// Adds windows of the second, whose shares are not united yet.
    pub(super) fn add_windows(&mut self, windows: &[EndedWindow], threads: usize) {
        let Some(last) = windows.last() else { return };
        self.end_tick = Some(self.second_end(last.tick));
        let divided_windows = |index: usize| -> Vec<&DividedWindow> {
            let states = windows.iter().filter_map(|window| window.states.get(index));
            states.filter_map(WindowState::as_divided).collect()
        };
        let counters = self.counters.iter_mut().enumerate();
        let mut jobs: Vec<_> =
            counters.map(|(index, sums)| (sums, divided_windows(index))).collect();
        workers::run_jobs(threads, &mut jobs, |(sums, divided_windows)| {
            for divided in divided_windows {
                sums.add_window(divided);
            }
        });
    }

    /// Takes the sums of the second; `None` if there are none.
    pub(super) fn take_second(&mut self) -> Option<EndedSecond> {
        let end_tick = self.end_tick.take()?;
        let (states, known_ticks) = self
            .counters
            .iter_mut()
            .map(|sums| match sums.take_window() {
                Some((divided, known)) => (WindowState::Divided(divided), known),
                None => (WindowState::Nothing, 0),
            })
            .unzip();
        let window = EndedWindow { tick: end_tick, length_ns: 0, states, adjustments: Vec::new() };
        Some(EndedSecond { window, known_ticks })
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact sums are exact, and that is what is tested")]
mod tests {
    use super::*;
    use crate::attribute::row_budget::unite_sums;
    use crate::drain::Comm;

    fn task(pid: u32, cgroup_id: u64) -> Owner {
        Owner::Task { pid, comm: Comm::default(), cgroup_id }
    }

    fn window(tick: u64, method: Method, values: &[(Owner, f64)]) -> EndedWindow {
        let share = |&(owner, value): &(Owner, f64)| Share::new(owner, value, 1.0);
        let divided = DividedWindow {
            begin_tick: tick - 10,
            end_tick: tick,
            total: Some(values.iter().map(|(_, value)| value).sum()),
            running: 1.0,
            method,
            shares: values.iter().map(share).collect(),
        };
        let states = vec![WindowState::Divided(divided)];
        EndedWindow { tick, length_ns: 10_000_000, states, adjustments: Vec::new() }
    }

    /// A tenant that reads 4 KiB beside one that reads 100 MB.
    #[test]
    fn small_exact_sums_are_not_rounded_whatever_the_last_window_has() {
        for last_method in [Method::None, Method::Residency] {
            let mut sums = SecondSums::new(1_000_000, 10_000_000, 1);
            let read = [(task(1, 10), 1e8), (task(2, 20), 4096.0)];
            let windows = [
                window(10, Method::Exact, &read),
                window(20, last_method, &[(Owner::Unattributed, 0.0)]),
            ];
            sums.add_windows(&windows, 1);
            let mut second = sums.take_second().unwrap();
            unite_sums(&mut second.window, &[0], 0.001);
            let divided = second.window.states[0].as_divided().unwrap();
            let small = divided.shares.iter().find(|share| share.owner == task(2, 20)).unwrap();
            assert_eq!(small.value, 4096.0, "{last_method:?}");
        }
    }
}
