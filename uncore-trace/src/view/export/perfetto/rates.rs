//! Tracks of totals, and of each tenant's part, in units per second.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::packets::{SliceEvent, TracePackets, TrackId, TrackScale};
use crate::view::export::SelectedRows;
use crate::view::export::counts::{CountDescription, ExportNames};
use crate::view::export::sums::{LineRates, RateStretch, StretchSums};
use crate::view::export::survey::{ExportSurvey, TenantOrOthers};

/// The tracks of one total.
struct CountTracks {
    total: TrackId,
    lines: Vec<TrackId>,
    unknown: TrackId,
    /// The rates that were written last, while they hold.
    written_rates: Option<LineRates>,
    /// Whether a slice on `unknown` is open.
    is_unknown: bool,
    /// End of the time that was written, ns.
    end_ns: i64,
}

/// Writes the rates from the rows of `fabric`.
///
/// # Errors
///
/// The table cannot be read, or the trace cannot be written.
pub(super) fn write_rates<W: Write>(
    fabric: &SelectedRows<'_>,
    names: ExportNames,
    top: usize,
    packets: &mut TracePackets<W>,
) -> Result<()> {
    let mut survey = ExportSurvey::read_fabric(fabric, names, top)?;
    let mut tracks = add_all_tracks(&survey, packets)?;
    let lines = survey.lines.iter().map(Vec::len);
    let mut sums = StretchSums::for_counters(&survey.counters, lines, survey.window_ns);
    let mut write_stretch =
        |stretch: &RateStretch| tracks[stretch.count_index].write_stretch(stretch, packets);
    survey.each_share(fabric, |share, line| sums.add_share(share, line, &mut write_stretch))?;
    sums.finish(&mut write_stretch)?;
    for count_tracks in tracks.into_iter().filter(|candidate| candidate.is_unknown) {
        packets.end_slice(count_tracks.unknown, count_tracks.end_ns)?;
    }
    Ok(())
}

/// The tracks of all totals; those of one group are together.
fn add_all_tracks<W: Write>(
    survey: &ExportSurvey,
    packets: &mut TracePackets<W>,
) -> Result<Vec<CountTracks>> {
    let counts = survey.names.counts();
    // In the order of the plan, which `--dry-run` shows; a group comes where its first counter is.
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, count) in counts.iter().enumerate() {
        groups.entry(&count.group).or_insert(index);
    }
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|count_index| (groups[counts[*count_index].group.as_str()], *count_index));
    let mut tracks_by_count: BTreeMap<usize, CountTracks> = BTreeMap::new();
    let mut group: Option<(&str, TrackId)> = None;
    for place_in_plan in order {
        let planned_count = &counts[place_in_plan];
        let parent = match group {
            Some((name, track)) if name == planned_count.group => track,
            _ => packets.add_track(&planned_count.group, None, None)?,
        };
        group = Some((&planned_count.group, parent));
        let lines = &survey.lines[place_in_plan];
        let tracks = add_count_tracks(survey, planned_count, lines, parent, packets)?;
        tracks_by_count.insert(place_in_plan, tracks);
    }
    Ok(tracks_by_count.into_values().collect())
}

fn add_count_tracks<W: Write>(
    survey: &ExportSurvey,
    count: &CountDescription,
    lines: &[TenantOrOthers],
    group: TrackId,
    packets: &mut TracePackets<W>,
) -> Result<CountTracks> {
    let parent = packets.add_track(&count.name, Some(group), None)?;
    let unit = match count.unit.as_str() {
        "" => "count",
        unit => unit,
    };
    let scale = TrackScale {
        unit: format!("{unit}/s"),
        shared_key: [count.group.as_str(), &count.name, &count.unit].join("\n"),
    };
    let total = packets.add_track("total", Some(parent), Some(&scale))?;
    let mut tracks = Vec::with_capacity(lines.len());
    for line in lines {
        let name = match line {
            TenantOrOthers::Tenant(tenant) => survey.names.tenants()[*tenant].display_name(),
            TenantOrOthers::Others => "(other tenants)".to_owned(),
        };
        tracks.push(packets.add_track(&name, Some(parent), Some(&scale))?);
    }
    let unknown = packets.add_track("not known", Some(parent), None)?;
    let (written_rates, is_unknown, end_ns) = (None, false, 0);
    Ok(CountTracks { total, lines: tracks, unknown, written_rates, is_unknown, end_ns })
}

impl CountTracks {
    /// Writes the rates of a stretch; a rate that did not change is not written again.
    fn write_stretch<W: Write>(
        &mut self,
        stretch: &RateStretch,
        packets: &mut TracePackets<W>,
    ) -> Result<()> {
        let begin_ns = stretch.begin_ns;
        self.end_ns = stretch.end_ns;
        let Some(rates) = &stretch.rates else {
            self.written_rates = None;
            if !std::mem::replace(&mut self.is_unknown, true) {
                let (slice, name) = (SliceEvent::SliceBegin, "not known");
                packets.write_named_event(slice, self.unknown, begin_ns, name, Vec::new())?;
            }
            return Ok(());
        };
        if std::mem::replace(&mut self.is_unknown, false) {
            packets.end_slice(self.unknown, begin_ns)?;
        }
        let previous_rates = self.written_rates.as_ref();
        if previous_rates.is_none_or(|previous| previous.total.to_bits() != rates.total.to_bits()) {
            packets.write_value(self.total, begin_ns, rates.total)?;
        }
        for (line, (track, rate)) in self.lines.iter().zip(&rates.lines).enumerate() {
            if previous_rates
                .is_none_or(|previous_lines| previous_lines.lines[line].to_bits() != rate.to_bits())
            {
                packets.write_value(*track, begin_ns, *rate)?;
            }
        }
        self.written_rates = Some(rates.clone());
        Ok(())
    }
}
