//! Tracks of totals, and of each tenant's part, in units per second.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::packets::{Packets, Scale, Track};
use crate::view::export::Selection;
use crate::view::export::parts::{Counted, Names};
use crate::view::export::sums::{Rates, Stretch, Sums};
use crate::view::export::survey::{Survey, TenantOrOthers};

/// The tracks of one total.
struct Tracks {
    total: Track,
    lines: Vec<Track>,
    unknown: Track,
    /// The rates that were written last, while they hold.
    last: Option<Rates>,
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
pub(super) fn write<W: Write>(
    fabric: &Selection<'_>,
    names: Names,
    top: usize,
    packets: &mut Packets<W>,
) -> Result<()> {
    let mut survey = Survey::of(fabric, names, top, |_| {})?;
    let mut tracks = tracks(&survey, packets)?;
    let mut sums = Sums::new(&survey);
    let mut take = |stretch: &Stretch| tracks[stretch.counted].take(stretch, packets);
    survey.each_share(fabric, |part, line| sums.add(part, line, &mut take))?;
    sums.finish(&mut take)?;
    for its in tracks.into_iter().filter(|its| its.is_unknown) {
        packets.end(its.unknown, its.end_ns)?;
    }
    Ok(())
}

/// The tracks of all totals; those of one group are together.
fn tracks<W: Write>(survey: &Survey, packets: &mut Packets<W>) -> Result<Vec<Tracks>> {
    let all = survey.names.counted();
    // In the order of the plan, which `--dry-run` shows; a group comes where its first counter is.
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, its) in all.iter().enumerate() {
        groups.entry(&its.group).or_insert(at);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (groups[all[*at].group.as_str()], *at));
    let mut made: Vec<(usize, Tracks)> = Vec::new();
    let mut group: Option<(&str, Track)> = None;
    for at in order {
        let its = &all[at];
        let parent = match group {
            Some((name, track)) if name == its.group => track,
            _ => packets.track(&its.group, None, None)?,
        };
        group = Some((&its.group, parent));
        made.push((at, tracks_of(survey, its, &survey.lines[at], parent, packets)?));
    }
    made.sort_by_key(|(at, _)| *at);
    Ok(made.into_iter().map(|(_, tracks)| tracks).collect())
}

fn tracks_of<W: Write>(
    survey: &Survey,
    its: &Counted,
    lines: &[TenantOrOthers],
    group: Track,
    packets: &mut Packets<W>,
) -> Result<Tracks> {
    let parent = packets.track(&its.name, Some(group), None)?;
    let unit = match its.unit.as_str() {
        "" => "count",
        unit => unit,
    };
    let scale = Scale {
        unit: format!("{unit}/s"),
        shared: [its.group.as_str(), &its.name, &its.unit].join("\n"),
    };
    let total = packets.track("total", Some(parent), Some(&scale))?;
    let mut tracks = Vec::with_capacity(lines.len());
    for line in lines {
        let name = match line {
            TenantOrOthers::Tenant(tenant) => survey.names.tenants()[*tenant].name(),
            TenantOrOthers::Others => "(other tenants)".to_owned(),
        };
        tracks.push(packets.track(&name, Some(parent), Some(&scale))?);
    }
    let unknown = packets.track("not known", Some(parent), None)?;
    let (last, is_unknown, end_ns) = (None, false, 0);
    Ok(Tracks { total, lines: tracks, unknown, last, is_unknown, end_ns })
}

impl Tracks {
    /// A rate that did not change is not written again.
    fn take<W: Write>(&mut self, stretch: &Stretch, packets: &mut Packets<W>) -> Result<()> {
        let begin_ns = stretch.begin_ns;
        self.end_ns = stretch.end_ns;
        let Some(rates) = &stretch.rates else {
            self.last = None;
            if !std::mem::replace(&mut self.is_unknown, true) {
                packets.begin(self.unknown, begin_ns, "not known", Vec::new())?;
            }
            return Ok(());
        };
        if std::mem::replace(&mut self.is_unknown, false) {
            packets.end(self.unknown, begin_ns)?;
        }
        let last = self.last.as_ref();
        if last.is_none_or(|last| last.total.to_bits() != rates.total.to_bits()) {
            packets.value(self.total, begin_ns, rates.total)?;
        }
        for (line, (track, rate)) in self.lines.iter().zip(&rates.lines).enumerate() {
            if last.is_none_or(|last| last.lines[line].to_bits() != rate.to_bits()) {
                packets.value(*track, begin_ns, *rate)?;
            }
        }
        self.last = Some(rates.clone());
        Ok(())
    }
}
