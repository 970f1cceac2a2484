//! The counters of a roll-up: their numbers, and the plan that they would have been of.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch};
use serde_json::json;

use super::HourFile;
use super::allowed_rows::{self, AllowedRows};
use crate::schema::columns::{self, WordColumn, nullable_value};
use crate::schema::link::{Direction, Link, LinkCounter, PeakRate, PeakSource};
use crate::schema::origin::RecordingOrigin;

/// What tells counters apart, beside the boot and the socket.
pub(super) const WORDS: [&str; 7] =
    ["subsystem", "pmu", "event", "filter", "unit", "link", "direction"];
/// The indices of `link` and `direction` in [`WORDS`].
const LINK: usize = 5;
const DIRECTION: usize = 6;

/// What tells a counter from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CounterIdentity {
    origin: usize,
    socket: Option<i16>,
    words: [Option<String>; 7],
}

/// The numbers of counters.
#[derive(Debug, Default)]
pub(super) struct RollupCounters {
    pub(super) index: HashMap<CounterIdentity, i32>,
    list: Vec<CounterIdentity>,
    /// The newest peak of each.
    peaks: Vec<Option<(f64, Direction)>>,
}

impl RollupCounters {
    /// Gives the counters in a file their numbers, unless it may not have its rows: says why not.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn add_file_counters(
        &mut self,
        hour_file: &HourFile,
        allowed: &AllowedRows<'_>,
    ) -> Result<Option<String>> {
        let peak_columns = ["socket", "peak", "peak_direction"];
        // A file that may not have its rows leaves no counter behind.
        let mut file_counters = Self::default();
        for batch in hour_file
            .table
            .scan_columns(&[&WORDS[..], &peak_columns, &allowed_rows::COLUMNS].concat())?
        {
            let batch = batch?;
            if let Some(why) = allowed.refusal_reason(&batch)? {
                return Ok(Some(why));
            }
            let ids = find_counter_ids(&batch, hour_file.origin, |counter| {
                Ok(file_counters.assign_id(&counter))
            })?;
            let peaks = columns::f64_column(&batch, "peak")?;
            let directions = columns::word_column(&batch, "peak_direction")?;
            for (row, &id) in ids.iter().enumerate() {
                let direction = || directions.get(row).and_then(Direction::from_name);
                if let Some(peak) = nullable_value(peaks, row)
                    && let Some(slot) = file_counters.peaks.get_mut(id as usize)
                    && slot.is_none_or(|(newest, _)| newest.to_bits() != peak.to_bits())
                {
                    *slot = direction().map(|direction| (peak, direction));
                }
            }
        }
        for (counter, peak) in file_counters.list.iter().zip(file_counters.peaks) {
            let id = self.assign_id(counter);
            if let Some(slot) = self.peaks.get_mut(id as usize) {
                *slot = peak.or(*slot);
            }
        }
        Ok(None)
    }

    fn assign_id(&mut self, counter: &CounterIdentity) -> i32 {
        if let Some(id) = self.index.get(counter) {
            return *id;
        }
        let id = self.list.len() as i32;
        self.index.insert(counter.clone(), id);
        self.list.push(counter.clone());
        self.peaks.push(None);
        id
    }
}

/// The number of the counter of each row, by `find_id`, which is called once for each counter.
pub(super) fn find_counter_ids(
    batch: &RecordBatch,
    origin: usize,
    mut find_id: impl FnMut(CounterIdentity) -> Result<i32>,
) -> Result<Vec<i32>> {
    let words: Vec<WordColumn<'_>> =
        WORDS.iter().map(|name| columns::word_column(batch, name)).collect::<Result<_>>()?;
    let sockets: &Int16Array = columns::typed_column(batch, "socket")?;
    let mut known = HashMap::new();
    let mut ids = Vec::with_capacity(batch.num_rows());
    let mut previous = None;
    for row in 0..batch.num_rows() {
        let socket = nullable_value(sockets, row);
        let word_keys = std::array::from_fn(|index| words[index].dictionary_key(row));
        let key: (Option<i16>, [i32; 7]) = (socket, word_keys);
        // Rows are sorted: most are of the counter of the row before.
        let id = match previous {
            Some((previous_key, id)) if previous_key == key => id,
            _ => match known.entry(key) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let text = |index: usize| words[index].get(row).map(str::to_owned);
                    let words = std::array::from_fn(text);
                    *entry.insert(find_id(CounterIdentity { origin, socket, words })?)
                }
            },
        };
        previous = Some((key, id));
        ids.push(id);
    }
    Ok(ids)
}

/// The plan that the counters and links would have been of, as far as a roll-up has it.
pub(super) fn build_plan(
    counters: &RollupCounters,
    origins: &[RecordingOrigin],
) -> serde_json::Value {
    let has_hosts = origins.iter().any(|origin| origin.host != origins[0].host);
    let mut links: Vec<Link> = Vec::new();
    let mut link_indices: HashMap<String, usize> = HashMap::new();
    let mut listed = Vec::new();
    for (id, (counter, peak)) in counters.list.iter().zip(&counters.peaks).enumerate() {
        let text = |column: usize| counter.words[column].as_deref().unwrap_or_default();
        listed.push(json!({
            "id": id, "pmu": text(1), "event": text(2), "filter": text(3), "unit": text(4),
        }));
        let (Some(link_name), Some(flow)) =
            (&counter.words[LINK], Direction::from_name(text(DIRECTION)))
        else {
            continue;
        };
        let host = &origins[counter.origin].host;
        let name = if has_hosts { format!("{host} {link_name}") } else { link_name.clone() };
        let index = *link_indices.entry(name.clone()).or_insert(links.len());
        if index == links.len() {
            links.push(Link {
                name,
                // Names are the kind and what tells links of it apart.
                kind: link_name
                    .rsplit_once(' ')
                    .map_or(link_name.as_str(), |(kind, _)| kind)
                    .to_owned(),
                subsystem: text(0).to_owned(),
                socket: counter.socket,
                devices: None,
                counters: Vec::new(),
                peaks: Vec::new(),
                latencies: Vec::new(),
            });
        }
        let link = &mut links[index];
        link.counters.push(LinkCounter { counter: id as u32, direction: flow });
        let Some((bytes_per_s, direction)) = *peak else { continue };
        link.peaks.retain(|peak| peak.direction != direction);
        let detail = "as the roll-up has it".to_owned();
        link.peaks.push(PeakRate { direction, bytes_per_s, source: PeakSource::Rollup, detail });
    }
    json!({ "links": links, "counters": listed })
}
