//! Profiles of some seconds, for which clients of `/debug/pprof/fabric` wait.
//!
//! A profile has the first seconds that the consumer sums after the request: those after the newest
//! one that it has. So an answer comes about as late as it is long.
//!
//! Guarantees: a client waits at most [`LATEST`] longer than the time that it asked for, also if the
//! consumer hangs. Memory is bounded: at most [`MOST_PROFILES`] are collected at once, each within
//! [`LIMITS`]. A profile that may lack counts says so in a comment. A profile that fails ends
//! nothing else.

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
use crate::view::export::pprof::{ProfileFacts, ProfileLimits, ShareProfile};
use crate::view::links::Links;
use crate::view::selected::ReportSelection;

/// Longest time of a profile, s.
pub(super) const MOST_SECONDS: u64 = 300;

/// A profile is answered this long after its time, with the rows that have come.
const LATE: Duration = Duration::from_secs(5);

/// This long after its time, the answer is that the consumer hangs. Until then it may compress other
/// profiles.
pub(super) const LATEST: Duration = Duration::from_secs(8);

/// Profiles that are collected at once.
const MOST_PROFILES: usize = 4;

/// Some 20 MB: frames and samples take about as much as their texts.
const LIMITS: ProfileLimits = ProfileLimits { samples: 1 << 15, text_bytes: 8 << 20 };

/// A profile, gzipped, or the reason why there is none.
pub(super) type ProfileAnswer = Result<Vec<u8>, &'static str>;

const NOTHING_RECORDED: &str = "nothing was recorded in that time\n";

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
    requested_at: Instant,
    answer: Sender<ProfileAnswer>,
    _permit: OwnedSemaphorePermit,
}

impl Default for ProfileRequests {
    fn default() -> Self {
        Self { new_requests: Arc::default(), permits: Arc::new(Semaphore::new(MOST_PROFILES)) }
    }
}

impl ProfileRequests {
    /// Requests a profile of the next time of this length. The answer comes in the receiver. `None`
    /// if too many are being collected.
    pub(super) fn request_profile(&self, duration: Duration) -> Option<Receiver<ProfileAnswer>> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let (answer, receiver) = channel();
        let request =
            ProfileRequest { duration, requested_at: Instant::now(), answer, _permit: permit };
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
    pub(super) fn add_seconds(&mut self, part_id: u32, rows: &RecordBatch) {
        self.begin_requested();
        let selected = ReportSelection::default();
        let refuses = |pending: &mut PendingProfile| {
            let added = pending.profile.add_rows(rows, &pending.wanted, &selected);
            added.inspect_err(|error| log::warn!("cannot add to a profile: {error:#}")).is_err()
        };
        for pending in self.pending.extract_if(.., refuses) {
            drop(
                pending.request.answer.send(Err("rows of that time cannot be read: see the log\n")),
            );
        }
        let ends = columns::i64_column(rows, "mono_ns").map(|ends| ends.values().iter().max());
        if let Ok(Some(newest)) = ends {
            let reached = self.reached_ns.entry(part_id).or_insert(*newest);
            *reached = (*reached).max(*newest);
            self.newest_ns = self.newest_ns.max(Some(*newest));
        }
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
            let deadline = request.requested_at + request.duration + LATE;
            let profile = ShareProfile::new(self.links.clone(), LIMITS);
            let wanted = begin_ns.saturating_add(1)..=end_ns;
            self.pending.push(PendingProfile { request, wanted, deadline, profile });
        }
    }

    /// Begins and answers profiles, all if no more rows come. `lost` has the losses since the agent
    /// began, by cause.
    pub(super) fn serve_requests(
        &mut self,
        is_last: bool,
        lost: impl Fn() -> BTreeMap<String, u64>,
    ) {
        self.begin_requested();
        // The rows of a second may come in several batches.
        let has_all = |end_ns| {
            !self.reached_ns.is_empty() && self.reached_ns.values().all(|reached| *reached > end_ns)
        };
        let is_over = |pending: &mut PendingProfile| {
            is_last
                || has_all(*pending.wanted.end())
                || Instant::now() >= pending.deadline
                || pending.request.answer.is_closed()
        };
        for pending in self.pending.extract_if(.., is_over) {
            if pending.request.answer.is_closed() {
                continue;
            }
            if pending.profile.is_empty() {
                let reason = if is_last { "the agent ends\n" } else { NOTHING_RECORDED };
                drop(pending.request.answer.send(Err(reason)));
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
            let written = pending.profile.write_gzip(facts, &mut body);
            let written = written.map(|()| body).map_err(|error| {
                log::warn!("cannot make a profile: {error:#}");
                "the profile cannot be made: see the log\n"
            });
            // The client may have gone meanwhile.
            drop(pending.request.answer.send(written));
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
        collector.add_seconds(part, &sample_sums(&ends));
        collector.serve_requests(false, BTreeMap::new);
    }

    fn request(collector: &ProfileCollector, seconds: u64) -> Receiver<ProfileAnswer> {
        collector.requests.request_profile(Duration::from_secs(seconds)).unwrap()
    }

    /// The number of seconds in a profile: each has a byte.
    fn seconds_in(receiver: &mut Receiver<ProfileAnswer>) -> Option<i64> {
        let body = receiver.try_recv().ok()?.unwrap();
        let mut message = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut message).unwrap();
        Some(crate::view::export::pprof::tests::decoded_sums(&message)["e"])
    }

    #[test]
    fn a_profile_has_the_seconds_after_the_newest_one() {
        let mut collector = collector();
        add_seconds(&mut collector, 0, &[1, 2, 3]);
        let mut profile = request(&collector, 2);
        collector.serve_requests(false, BTreeMap::new);
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
        collector.serve_requests(false, BTreeMap::new);
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
        collector.pending[1].profile = ShareProfile::new(Links::default(), LIMITS);
        collector.serve_requests(false, BTreeMap::new);
        assert_eq!(seconds_in(&mut late), Some(1));
        assert_eq!(empty.try_recv().unwrap(), Err(NOTHING_RECORDED));
    }

    #[test]
    fn profiles_that_wait_at_the_end_are_answered() {
        let mut collector = collector();
        add_seconds(&mut collector, 0, &[1]);
        let mut begun = request(&collector, 9);
        add_seconds(&mut collector, 0, &[2, 3]);
        // It begins after the last row.
        let mut empty = request(&collector, 9);
        collector.serve_requests(true, BTreeMap::new);
        assert_eq!(seconds_in(&mut begun), Some(2));
        assert_eq!(empty.try_recv().unwrap(), Err("the agent ends\n"));
    }

    #[test]
    fn rows_that_cannot_be_read_end_the_profiles_and_nothing_else() {
        let mut collector = collector();
        let mut profile = request(&collector, 1);
        let rows = sample_sums(&[S]).project(&[0]).unwrap();
        collector.add_seconds(0, &rows);
        assert!(profile.try_recv().unwrap().unwrap_err().contains("cannot be read"));
        let mut next = request(&collector, 1);
        add_seconds(&mut collector, 0, &[2]);
        assert_eq!(collector.newest_ns, Some(2 * S));
        assert_eq!(seconds_in(&mut next), None);
    }

    #[test]
    fn few_profiles_are_collected_at_once_and_those_of_clients_that_left_are_dropped() {
        let mut collector = collector();
        let profiles: Vec<_> = (0..MOST_PROFILES).map(|_| request(&collector, 9)).collect();
        assert!(collector.requests.request_profile(Duration::from_secs(1)).is_none());
        drop(profiles);
        collector.serve_requests(false, BTreeMap::new);
        assert!(collector.pending.is_empty());
        assert!(collector.requests.request_profile(Duration::from_secs(1)).is_some());
    }
}
