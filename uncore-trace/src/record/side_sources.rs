//! What is polled beside the rings: monitors, marks, witnesses, the canary, accounts, pods, and the
//! files of holders.
//!
//! The recorder knows [`SideSource`] only. A source is a file with a function `prepare_source`, and
//! a line in [`prepare_sources`]. It is prepared before counting begins, when it may still fail and
//! end the recording; it starts when counting has begun, before this process is confined, so that
//! it can open what a confined process cannot. From then on each drain polls it. What it could not
//! see it enters as a loss ([`RecorderState::note_loss`]).

use std::collections::BTreeMap;
use std::slice::IterMut;
use std::thread::{self, JoinHandle};

use anyhow::Result;

use super::args::RecordOptions;
use super::open_part::OpenPart;
use super::state::RecorderState;
use crate::discover::Machine;
use crate::open::Session;
use crate::plan::Plan;
use crate::schema::loss::LossCause;
use crate::tables::writer::RecordingTarget;

/// Prepares all sources. They are started, polled and stopped in this order. A new source is a line
/// of this list.
///
/// # Errors
///
/// What was asked for cannot be recorded; the error says why and the way out.
pub(super) async fn prepare_sources<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Result<Vec<SideSetup<'a>>> {
    let setups = [
        super::monitors::prepare_source(preparation)?,
        super::marks::prepare_source(preparation),
        super::witness::prepare_source(preparation),
        super::canary::prepare_source(preparation)?,
        super::accounts::prepare_source(preparation),
        super::pods::prepare_source(preparation).await,
        super::holders::prepare_source(preparation),
    ];
    Ok(setups.into_iter().flatten().collect())
}

/// What sources are prepared from.
#[derive(Clone, Copy)]
pub(super) struct Preparation<'p, 'a> {
    pub machine: &'p Machine,
    pub plan: &'a Plan,
    pub options: &'p RecordOptions,
    pub target: &'p RecordingTarget,
    /// Whether it is recorded who holds which device.
    pub wants_holders: bool,
}

/// A recording whose counters count, and whose command runs.
pub(super) struct BegunRecording<'s> {
    pub session: &'s mut Session,
    pub machine: &'s Machine,
    /// Begin of its first tick, `CLOCK_MONOTONIC`, ns.
    pub start_ns: u64,
}

/// A source that has started.
pub(super) type StartedSource<'a> = Box<dyn SideSource + 'a>;

type StartSource<'a> = dyn FnOnce(&mut BegunRecording<'_>) -> Option<StartedSource<'a>> + 'a;

/// A source that is prepared.
pub(super) struct SideSetup<'a> {
    /// Starts it; `None` if it has nothing to record.
    pub start: Box<StartSource<'a>>,
    /// Enters what holds at the begin of the first part, before the command is started: what the
    /// command does is seen as it happens. See [`SideSource::seed_part`].
    pub seed_part: fn(&Session, &mut OpenPart),
    /// A cgroup that it made, which has rows of its own whatever `--cgroup` says.
    pub own_cgroup: Option<String>,
    /// What it says of itself in the metadata of the first part.
    pub metadata: BTreeMap<String, String>,
}

impl<'a> SideSetup<'a> {
    /// A source that `start` starts.
    pub(super) fn new(
        start: impl FnOnce(&mut BegunRecording<'_>) -> Option<StartedSource<'a>> + 'a,
    ) -> Self {
        Self {
            start: Box::new(start),
            seed_part: |_, _| {},
            own_cgroup: None,
            metadata: BTreeMap::new(),
        }
    }
}

/// Starts the thread of a source. If it cannot be started, that is only a warning, which says what
/// is missing then.
pub(super) fn spawn_thread(
    name: &str,
    consequence: &str,
    run: impl FnOnce() + Send + 'static,
) -> Option<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.inspect_err(|error| log::warn!("{consequence}: cannot start a thread: {error}")).ok()
}

/// When a source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopPoint {
    /// Before the last tick is chosen: what it moved is counted by then, and no counter is retired
    /// while the last windows close.
    BeforeLastTick,
    /// After the last tick: it measures up to the end of the last window.
    AfterLastTick,
}

/// The records that a drain fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FedRecords<'f> {
    pub record_count: u64,
    /// Whether the rings were emptied.
    pub has_emptied: bool,
    /// Number of samples, by the CPU that read them.
    pub samples_by_cpu: &'f [u64],
}

/// Counters that are no longer read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RetiredCounters {
    pub counter_ids: Vec<u32>,
    pub cause: LossCause,
    /// The reason, in one line.
    pub why: String,
}

/// What is polled beside the rings. It must not wait: whoever has to wait for the kernel, a driver
/// or another process has a thread of its own. It ends when it is dropped.
pub(super) trait SideSource {
    /// Takes what has arrived since the last drain, before the rings are read.
    fn poll(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        Ok(())
    }

    /// Takes what needs all records that were sent until [`RecorderState::fed_ns`], before ticks
    /// are closed.
    fn follow_records(
        &mut self,
        _state: &mut RecorderState<'_>,
        _fed: FedRecords<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// The counters that must not be read from now on. It is asked only when the last change of
    /// reader CPUs is complete.
    fn find_retired(&mut self, _session: &mut Session) -> Option<RetiredCounters> {
        None
    }

    /// Ends a drain, when all ticks that can be closed are, and before a part is sealed or ends.
    /// Not called any more once the last tick is chosen.
    fn end_drain(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        Ok(())
    }

    /// Notes that records of this kind found the ring full.
    fn note_ring_loss(&mut self, _record_kind: u32) {}

    /// Says of itself in the metadata of a new part what is known before its first record.
    fn write_metadata(&self, _pairs: &mut BTreeMap<String, String>) -> Result<()> {
        Ok(())
    }

    /// Enters what holds at the begin of a part after the first, before its first record.
    fn seed_part(&mut self, _session: &Session, _open_part: &mut OpenPart) {}

    /// Gives the live part what must survive a kill from now on. `true` if its metadata changed.
    fn seal_part(&mut self, _open_part: &mut OpenPart) -> Result<bool> {
        Ok(false)
    }

    /// Gives a part the last that belongs to it. The next one, if there is one, begins at
    /// `next_start_ns`, `CLOCK_MONOTONIC`.
    fn end_part(&mut self, _open_part: &mut OpenPart, _next_start_ns: Option<u64>) -> Result<()> {
        Ok(())
    }

    /// When it ends.
    fn stop_point(&self) -> StopPoint;

    /// Ends it. It is still polled until the recording ends.
    fn stop(&mut self, state: &mut RecorderState<'_>) -> Result<()>;
}

/// The sources of a recording.
pub(super) struct SideSources<'a>(pub Vec<StartedSource<'a>>);

impl<'a> SideSources<'a> {
    /// The sources, in the order of the list of [`prepare_sources`].
    pub(super) fn each_source(&mut self) -> IterMut<'_, StartedSource<'a>> {
        self.0.iter_mut()
    }

    /// The metadata of sources in a part that has no record yet.
    pub(super) fn part_metadata(&self) -> Result<BTreeMap<String, String>> {
        let mut pairs = BTreeMap::new();
        self.0.iter().try_for_each(|source| source.write_metadata(&mut pairs))?;
        Ok(pairs)
    }

    /// See [`SideSource::seal_part`].
    pub(super) fn seal_part(&mut self, open_part: &mut OpenPart) -> Result<bool> {
        let mut has_changed = false;
        for source in &mut self.0 {
            has_changed |= source.seal_part(open_part)?;
        }
        Ok(has_changed)
    }

    /// Ends the sources that end at this point, and takes the last that they have.
    pub(super) fn stop_sources(
        &mut self,
        point: StopPoint,
        state: &mut RecorderState<'_>,
    ) -> Result<()> {
        let mut ending: Vec<_> =
            self.0.iter_mut().filter(|source| source.stop_point() == point).collect();
        ending.iter_mut().try_for_each(|source| source.stop(state))?;
        // Only now have all of them said their last.
        ending.iter_mut().try_for_each(|source| source.poll(state))
    }
}
