//! The canary as a source beside the rings.

use std::collections::BTreeMap;

use anyhow::Result;

use super::super::open_part::OpenPart;
use super::super::open_parts::OpenParts;
use super::super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::super::state::RecorderState;
use super::{CanaryProcess, EndedBurst};
use crate::assemble::Sink;
use crate::schema::metadata::CANARY;

/// Starts the process of the canary, if one is asked for.
///
/// # Errors
///
/// See [`CanaryProcess::start_process`].
pub(in super::super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Result<Option<SideSetup<'a>>> {
    let Preparation { machine, plan, options, target, .. } = preparation;
    if !options.canary {
        return Ok(None);
    }
    let mut canary = CanaryProcess::start_process(machine, plan, target)?;
    let mut metadata = BTreeMap::new();
    canary.summary.write_metadata(&mut metadata)?;
    let own_cgroup = Some(canary.summary.cgroup.clone());
    let mut setup = SideSetup::new(|_begun| {
        canary.child.send_order("go");
        Some(Box::new(canary))
    });
    (setup.own_cgroup, setup.metadata) = (own_cgroup, metadata);
    Ok(Some(setup))
}

impl SideSource for CanaryProcess {
    fn end_drain(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        let bursts = self.take_bursts();
        self.enter_bursts(bursts, &mut state.open_parts)
    }

    fn write_metadata(&self, pairs: &mut BTreeMap<String, String>) -> Result<()> {
        self.summary.write_metadata(pairs)
    }

    /// Writes what the canary moved into the metadata.
    fn seal_part(&mut self, open_part: &mut OpenPart) -> Result<bool> {
        let summary = self.part_summaries.get(&open_part.start_ns).unwrap_or(&self.summary);
        let previous = open_part.pairs.get(CANARY).cloned();
        summary.write_metadata(&mut open_part.pairs)?;
        Ok(previous.as_ref() != open_part.pairs.get(CANARY))
    }

    fn end_part(&mut self, open_part: &mut OpenPart, _next_start_ns: Option<u64>) -> Result<()> {
        self.seal_part(open_part)?;
        self.part_summaries.remove(&open_part.start_ns);
        Ok(())
    }

    /// All its bytes are to be counted.
    fn stop_point(&self) -> StopPoint {
        StopPoint::BeforeLastTick
    }

    /// Ends the last burst.
    fn stop(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        let bursts = self.stop_moving();
        self.enter_bursts(bursts, &mut state.open_parts)
    }
}

impl CanaryProcess {
    /// Enters bursts that have ended, each in the part in which it ended.
    fn enter_bursts(&mut self, bursts: Vec<EndedBurst>, open_parts: &mut OpenParts) -> Result<()> {
        for EndedBurst { burst, device, links } in bursts {
            let open_part = open_parts.part_of_end(burst.end_ns);
            let new_summary = || self.summary.clone();
            let summary = self.part_summaries.entry(open_part.start_ns).or_insert_with(new_summary);
            summary.add_burst(burst.kind, &links, burst.bytes);
            let Sink { rows, origin, .. } = &mut open_part.sink;
            rows.canary.append_burst(&burst, device.as_deref(), &links, origin)?;
        }
        Ok(())
    }
}
