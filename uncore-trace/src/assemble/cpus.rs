//! The states of the CPUs, as rows of `cpus`.

use std::collections::{BTreeMap, BTreeSet};

use super::sink::Sink;
use super::stream::{AppliedChange, RawStream, StreamContext, StreamStart};
use crate::discover::CpuList;
use crate::discover::cpus::CpuLocation;
use crate::open::{CpuSetChange, Layout};
use crate::schema::cpus;

/// The last state that was written for each CPU.
#[derive(Debug, Default)]
pub(super) struct CpuStates {
    cpu_locations: BTreeMap<u32, CpuLocation>,
    online: BTreeSet<u32>,
    layouts: BTreeMap<u32, Layout>,
    /// State and counters of each CPU.
    written: BTreeMap<u32, (&'static str, String)>,
}

impl RawStream for CpuStates {
    fn start_stream(start: &StreamStart<'_>, sink: &mut Sink) -> Self {
        let setup = start.setup;
        let mut states = Self::new(setup.cpu_locations, setup.cpus, setup.layouts);
        states.take_change(&CpuSetChange {
            went_offline: setup.offline.to_vec(),
            ..CpuSetChange::default()
        });
        if start.raw {
            states.write_rows(start.start_ns, sink);
        }
        states
    }

    fn apply_change(&mut self, applied: &AppliedChange<'_>, context: &mut StreamContext<'_>) {
        self.take_change(applied.change);
        if context.output.raw {
            self.write_rows(applied.time_ns, context.output.sink);
        }
    }
}

impl CpuStates {
    /// Starts with CPUs at these locations. Those in `online` are running; `layouts` says which
    /// counters each reads.
    pub(super) fn new(
        cpu_locations: &BTreeMap<u32, CpuLocation>,
        online: &[u32],
        layouts: &BTreeMap<u32, Layout>,
    ) -> Self {
        Self {
            cpu_locations: cpu_locations.clone(),
            online: online.iter().copied().collect(),
            layouts: layouts.clone(),
            written: BTreeMap::new(),
        }
    }

    /// Takes a change of CPUs or of the counters that they read.
    fn take_change(&mut self, change: &CpuSetChange) {
        self.online.extend(&change.came_online);
        for cpu in &change.went_offline {
            self.online.remove(cpu);
        }
        if let Some(layouts) = &change.layouts {
            self.layouts.clone_from(layouts);
        }
    }

    /// Writes a row at `time_ns` for each CPU that has changed since the last call.
    pub(super) fn write_rows(&mut self, time_ns: u64, sink: &mut Sink) {
        let cpus: BTreeSet<u32> = self.cpu_locations.keys().chain(&self.online).copied().collect();
        for cpu in cpus {
            let is_online = self.online.contains(&cpu);
            let state = if is_online { cpus::ONLINE } else { cpus::OFFLINE };
            let layout = self.layouts.get(&cpu).filter(|_| is_online);
            // A list of counters is formatted like a list of CPUs.
            let own_counters = layout.into_iter().flat_map(Layout::ids);
            let of_others =
                self.layouts.values().filter(|other_layout| other_layout.other_cpus.contains(&cpu));
            let of_others = of_others
                .flat_map(|other_layout| other_layout.ids().skip(other_layout.first_shared()));
            let counters: CpuList = own_counters.chain(of_others.filter(|_| is_online)).collect();
            let new_state = (state, counters.to_string());
            if self.written.get(&cpu) == Some(&new_state) {
                continue;
            }
            let cpu_location = self.cpu_locations.get(&cpu).copied().unwrap_or_default();
            sink.rows.cpus.append(&cpus::Row {
                mono_ns: time_ns as i64,
                cpu: cpu as i32,
                state,
                socket: cpu_location.package,
                node: cpu_location.node.map(|node| node as i32),
                core: cpu_location.core,
                counters: &new_state.1,
            });
            self.written.insert(cpu, new_state);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, RecordBatch};

    use super::*;
    use crate::open::PlacedCounter;
    use crate::schema::columns;

    fn layout(ids: &[u32]) -> Layout {
        let placed = |&id: &u32| PlacedCounter { id, base: crate::count::Count::default() };
        Layout { counters: ids.iter().map(placed).collect(), ..Layout::default() }
    }

    /// CPU, state and counters of each row.
    fn texts(rows: &RecordBatch) -> Vec<String> {
        let cpu = columns::i32_column(rows, "cpu").unwrap();
        let state = columns::word_column(rows, "state").unwrap();
        let counters = rows.column_by_name("counters").unwrap().as_string::<i32>();
        let text = |row| format!("{} {:?} {}", cpu.value(row), state.get(row), counters.value(row));
        (0..rows.num_rows()).map(text).collect()
    }

    #[test]
    fn a_cpu_has_the_counters_of_another_that_it_reads_too() {
        let places = (0..3).map(|cpu| (cpu, CpuLocation::default())).collect();
        let shared = Layout { shared: 2, other_cpus: vec![1, 2], ..layout(&[0, 1, 2]) };
        let mut sink = Sink::default();
        let mut cpus = CpuStates::new(&places, &[0, 1], &BTreeMap::from([(0, shared)]));
        cpus.write_rows(5, &mut sink);
        let rows = texts(&sink.rows.cpus.finish());
        assert_eq!(
            rows,
            ["0 Some(\"online\") 0-2", "1 Some(\"online\") 1-2", "2 Some(\"offline\") "]
        );
    }

    #[test]
    fn only_changes_have_rows() {
        let places = (0..3).map(|cpu| (cpu, CpuLocation::default())).collect();
        let layouts = BTreeMap::from([(0, layout(&[0, 1, 2])), (1, layout(&[3]))]);
        let mut sink = Sink::default();
        let mut cpus = CpuStates::new(&places, &[0, 1], &layouts);
        cpus.write_rows(5, &mut sink);
        cpus.write_rows(6, &mut sink);
        let first = texts(&sink.rows.cpus.finish());
        assert_eq!(
            first,
            ["0 Some(\"online\") 0-2", "1 Some(\"online\") 3", "2 Some(\"offline\") "]
        );
        let moved = BTreeMap::from([(0, layout(&[0, 1, 2, 3]))]);
        let change =
            CpuSetChange { went_offline: vec![1], layouts: Some(moved), ..CpuSetChange::default() };
        cpus.take_change(&change);
        cpus.write_rows(7, &mut sink);
        let second = texts(&sink.rows.cpus.finish());
        assert_eq!(second, ["0 Some(\"online\") 0-3", "1 Some(\"offline\") "]);
    }
}
