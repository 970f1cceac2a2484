//! Profiles of some seconds, for which clients of `/debug/pprof/fabric` wait.
//!
//! A profile has the first seconds that the consumer sums after the request: those after the newest
//! one that it has. So an answer comes about as late as it is long.
//!
//! Guarantees: a client waits at most [`LATE`] longer than the time that it asked for. Memory is
//! bounded: at most [`MOST_PROFILES`] are collected at once, each of at most [`MOST_SAMPLES`]. A
//! profile that may lack counts says so in a comment.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use arrow::array::RecordBatch;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::{Snapshot, duration_ns};
use crate::schema::columns;
use crate::schema::loss::Losses;
use crate::schema::metadata::INTERVAL_NS;
use crate::view::export::pprof::{ProfileFacts, ShareProfile};
use crate::view::links::Links;
use crate::view::selected::ReportSelection;

/// Longest time of a profile, s.
pub(super) const MOST_SECONDS: u64 = 300;

/// A profile is answered this long after its time, with the rows that have come.
pub(super) const LATE: Duration = Duration::from_secs(5);

/// Profiles that are collected at once.
const MOST_PROFILES: usize = 4;

/// Samples of a profile: some 10 MB with paths of 100 bytes.
const MOST_SAMPLES: usize = 1 << 15;

/// Requests for profiles. Clones have the same requests.
#[derive(Debug, Clone)]
pub(super) struct ProfileRequests {
    new_requests: Arc<Mutex<Vec<ProfileRequest>>>,
    permits: Arc<Semaphore>,
}

/// A request that is not answered.
#[derive(Debug)]
struct ProfileRequest {
    duration: Duration,
    answer: Sender<Vec<u8>>,
    _permit: OwnedSemaphorePermit,
}

impl Default for ProfileRequests {
    fn default() -> Self {
        Self { new_requests: Arc::default(), permits: Arc::new(Semaphore::new(MOST_PROFILES)) }
    }
}

impl ProfileRequests {
    /// Requests a profile of the next time of this length. It comes in the receiver, which ends
    /// without one if nothing was recorded. `None` if too many are being collected.
    pub(super) fn request_profile(&self, duration: Duration) -> Option<Receiver<Vec<u8>>> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let (answer, receiver) = channel();
        let request = ProfileRequest { duration, answer, _permit: permit };
        self.new_requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        Some(receiver)
    }

    fn take_new(&self) -> Vec<ProfileRequest> {
        std::mem::take(&mut *self.new_requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A profile that is being collected.
#[derive(Debug)]
struct PendingProfile {
    request: ProfileRequest,
    /// Ends of its windows, `CLOCK_MONOTONIC`, ns.
    wanted: RangeInclusive<i64>,
    deadline: Instant,
    profile: ShareProfile,
}

/// Collects the profiles from the rows of `sums`.
#[derive(Debug)]
pub(super) struct ProfileCollector {
    requests: ProfileRequests,
    links: Links,
    window_ns: Option<i64>,
    /// The newest end of a second of each part that is being recorded.
    reached_ns: BTreeMap<u32, i64>,
    /// Of all parts; `None` before the first.
    newest_ns: Option<i64>,
    pending: Vec<PendingProfile>,
}

impl ProfileCollector {
    pub(super) fn new(requests: ProfileRequests) -> Self {
        Self {
            requests,
            links: Links::default(),
            window_ns: None,
            reached_ns: BTreeMap::new(),
            newest_ns: None,
            pending: Vec::new(),
        }
    }

    /// Reads the metadata of the recording, before its rows.
    ///
    /// # Errors
    ///
    /// The plan in them cannot be read.
    pub(super) fn read_metadata(&mut self, pairs: &BTreeMap<String, String>) -> Result<()> {
        self.links = Links::from_metadata(pairs)?;
        self.window_ns = pairs.get(INTERVAL_NS).and_then(|text| text.parse().ok());
        Ok(())
    }

    /// Adds rows of `sums` of a part.
    ///
    /// # Errors
    ///
    /// The batch lacks columns of the table.
    pub(super) fn add_seconds(&mut self, part_id: u32, rows: &RecordBatch) -> Result<()> {
        self.begin_requested();
        for pending in &mut self.pending {
            let selected = ReportSelection::default();
            pending.profile.add_rows(rows, &pending.wanted, &selected)?;
        }
        if let Some(newest) = columns::i64_column(rows, "mono_ns")?.values().iter().max() {
            let reached = self.reached_ns.entry(part_id).or_insert(*newest);
            *reached = (*reached).max(*newest);
            self.newest_ns = self.newest_ns.max(Some(*newest));
        }
        Ok(())
    }

    /// No rows of this part come any more.
    pub(super) fn end_part(&mut self, part_id: u32) {
        self.reached_ns.remove(&part_id);
    }

    /// Begins the profiles that were requested since.
    fn begin_requested(&mut self) {
        for request in self.requests.take_new() {
            let begin_ns = self.newest_ns.unwrap_or_else(crate::clock::mono_ns);
            let end_ns = begin_ns.saturating_add(duration_ns(request.duration));
            let deadline = Instant::now() + request.duration + LATE;
            let profile = ShareProfile::new(self.links.clone(), MOST_SAMPLES);
            let wanted = begin_ns.saturating_add(1)..=end_ns;
            self.pending.push(PendingProfile { request, wanted, deadline, profile });
        }
    }

    /// Begins and answers profiles. `lost` has the losses since the agent began, by cause.
    pub(super) fn serve_requests(&mut self, lost: impl Fn() -> BTreeMap<String, u64>) {
        self.begin_requested();
        // The rows of a second may come in several batches.
        let has_all = |end_ns| {
            !self.reached_ns.is_empty() && self.reached_ns.values().all(|reached| *reached > end_ns)
        };
        let is_over = |pending: &mut PendingProfile| {
            has_all(*pending.wanted.end())
                || Instant::now() >= pending.deadline
                || pending.request.answer.is_closed()
        };
        for pending in self.pending.extract_if(.., is_over) {
            if pending.profile.is_empty() || pending.request.answer.is_closed() {
                continue;
            }
            let mut comments = Vec::new();
            if !has_all(*pending.wanted.end()) {
                comments.push("incomplete: rows of this time have not come yet".to_owned());
            }
            let losses = Losses::from_totals(lost()).brief_text();
            if !losses.is_empty() {
                comments.push(format!("since the agent began: {losses}"));
            }
            let clocks = Snapshot::read_clocks();
            let wall_ns = clocks.wall_ns.saturating_sub(clocks.mono_ns);
            let facts = ProfileFacts { wall_ns, window_ns: self.window_ns, comments };
            let mut body = Vec::new();
            match pending.profile.write_gzip(facts, &mut body) {
                // The client may have gone meanwhile.
                Ok(()) => drop(pending.request.answer.send(body)),
                Err(error) => log::warn!("cannot make a profile: {error:#}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::super::sample::{sample_metadata, sample_sums};
    use super::*;

    const S: i64 = 1_000_000_000;

    fn collector() -> ProfileCollector {
        let mut collector = ProfileCollector::new(ProfileRequests::default());
        collector.read_metadata(&sample_metadata()).unwrap();
        collector
    }

    fn add_seconds(collector: &mut ProfileCollector, part: u32, ends: &[i64]) {
        let ends: Vec<i64> = ends.iter().map(|second| second * S).collect();
        collector.add_seconds(part, &sample_sums(&ends)).unwrap();
        collector.serve_requests(BTreeMap::new);
    }

    fn request(collector: &ProfileCollector, seconds: u64) -> Receiver<Vec<u8>> {
        collector.requests.request_profile(Duration::from_secs(seconds)).unwrap()
    }

    /// The number of seconds in a profile: each has a byte.
    fn seconds_in(receiver: &mut Receiver<Vec<u8>>) -> Option<i64> {
        let body = receiver.try_recv().ok()?;
        let mut message = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut message).unwrap();
        Some(crate::view::export::pprof::tests::decoded_sums(&message)["e"])
    }

    #[test]
    fn a_profile_has_the_seconds_after_the_newest_one() {
        let mut collector = collector();
        add_seconds(&mut collector, 0, &[1, 2, 3]);
        let mut profile = request(&collector, 2);
        collector.serve_requests(BTreeMap::new);
        add_seconds(&mut collector, 0, &[3, 4]);
        add_seconds(&mut collector, 0, &[5]);
        assert_eq!(seconds_in(&mut profile), None);
        add_seconds(&mut collector, 0, &[6]);
        assert_eq!(seconds_in(&mut profile), Some(2));
        assert!(collector.pending.is_empty());
    }

    #[test]
    fn rows_of_a_part_that_is_not_over_are_waited_for() {
        let mut collector = collector();
        add_seconds(&mut collector, 0, &[1]);
        let mut profile = request(&collector, 2);
        add_seconds(&mut collector, 1, &[3, 4]);
        assert_eq!(seconds_in(&mut profile), None);
        add_seconds(&mut collector, 0, &[2]);
        assert_eq!(seconds_in(&mut profile), None);
        collector.end_part(0);
        collector.serve_requests(BTreeMap::new);
        assert_eq!(seconds_in(&mut profile), Some(2));
    }

    #[test]
    fn a_late_profile_says_so_and_one_without_rows_is_none() {
        let mut collector = collector();
        add_seconds(&mut collector, 0, &[1]);
        let (mut late, mut empty) = (request(&collector, 2), request(&collector, 2));
        add_seconds(&mut collector, 0, &[2]);
        let now = Instant::now();
        collector.pending.iter_mut().for_each(|pending| pending.deadline = now);
        collector.pending[1].profile = ShareProfile::new(Links::default(), MOST_SAMPLES);
        collector.serve_requests(BTreeMap::new);
        assert_eq!(seconds_in(&mut late), Some(1));
        empty.try_recv().unwrap_err();
    }

    #[test]
    fn few_profiles_are_collected_at_once_and_those_of_clients_that_left_are_dropped() {
        let mut collector = collector();
        let profiles: Vec<_> = (0..MOST_PROFILES).map(|_| request(&collector, 9)).collect();
        assert!(collector.requests.request_profile(Duration::from_secs(1)).is_none());
        drop(profiles);
        collector.serve_requests(BTreeMap::new);
        assert!(collector.pending.is_empty());
        assert!(collector.requests.request_profile(Duration::from_secs(1)).is_some());
    }
}
