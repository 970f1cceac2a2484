//! Counters that several CPUs read: with `--sample-on sched`, at the switches of each.
//!
//! Most counters can be read on one CPU only. Since Linux 6.7 a program reads those of Intel's
//! uncore on any CPU of their package, and later kernels more (`perf_event_read_local`,
//! kernel/events/core.c). Which, is tried with the program `probe`.
//!
//! The timer's readings, which end windows, stay those of the reader CPU. A CPU reads while it has
//! the turn of that reader: see `uncore-trace-ebpf/src/turn.rs`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use aya::programs::RawTracePoint;
use uncore_trace_common::state::Sampler;

use super::open_counter::Layout;
use super::programs;
use super::session::Session;

/// The number of the turn of a reader CPU's counters.
pub(super) const fn turn_number(reader: u32) -> u32 {
    reader + 1
}

impl Session {
    /// Has all CPUs read at their switches what they can, if some counters can be read on other
    /// CPUs than their reader. No counter is enabled yet.
    pub(super) fn share_counters(&mut self) -> Result<()> {
        for index in 0..self.opened.len() {
            let Some(counter) = self.opened.get(index).filter(|candidate| !candidate.per_cpu)
            else {
                continue;
            };
            let Some(reader) = counter.reader else { continue };
            let shared = self.first_reader(index, self.near_cpus(reader))?.is_some();
            if let Some(counter) = self.opened.get_mut(index) {
                counter.shared = shared;
            }
        }
        if !self.opened.iter().any(|counter| counter.shared) {
            return Ok(());
        }
        self.fill_slots(0)?;
        let program: &mut RawTracePoint = programs::find_program(&mut self.ebpf, "others")?;
        programs::check_load("others", program.load())?;
        program.attach("sched_switch").context("cannot attach to the tracepoint sched_switch")?;
        Ok(())
    }

    /// Finds the CPUs that can read the shared counters of each reader. A CPU reads those of one
    /// reader: where a package has several, of the last one before it.
    pub(super) fn find_others(&mut self) -> Result<()> {
        // PMUs may be of parts of different size: a counter of each is tried.
        let mut readers: BTreeMap<u32, BTreeMap<&str, usize>> = BTreeMap::new();
        for (index, counter) in
            self.opened.iter().enumerate().filter(|(_, candidate)| candidate.shared)
        {
            if let Some(reader) = counter.reader {
                readers.entry(reader).or_default().entry(&counter.pmu).or_insert(index);
            }
        }
        let readers: BTreeMap<u32, Vec<usize>> =
            readers.into_iter().map(|(cpu, pmus)| (cpu, pmus.into_values().collect())).collect();
        let mut others_of_reader: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut reader_of_cpu: BTreeMap<u32, u32> = BTreeMap::new();
        for (&reader, indexes) in &readers {
            let mut able = self.follower.online.clone();
            able.retain(|cpu| !readers.contains_key(cpu));
            for &index in indexes {
                self.offer_to_probe(index)?;
                let mut readable = Vec::new();
                for cpu in able {
                    if self.can_read(cpu)? {
                        readable.push(cpu);
                    }
                }
                able = readable;
            }
            for cpu in able {
                if reader_of_cpu.get(&cpu).is_none_or(|_| reader < cpu) {
                    reader_of_cpu.insert(cpu, reader);
                }
            }
        }
        for (cpu, reader) in reader_of_cpu {
            others_of_reader.entry(reader).or_default().push(cpu);
        }
        for (reader, layout) in &mut self.layouts {
            layout.other_cpus = others_of_reader.remove(reader).unwrap_or_default();
        }
        Ok(())
    }

    /// The CPUs that read counters at their switches which another CPU reads at each tick, and the
    /// number of these counters.
    pub fn shared_readers(&self) -> (Vec<u32>, usize) {
        let shared = self.layouts.values().filter(|layout| !layout.other_cpus.is_empty());
        let mut cpus: Vec<u32> =
            shared.clone().flat_map(|layout| layout.other_cpus.iter().copied()).collect();
        cpus.sort_unstable();
        (cpus, shared.map(|layout| layout.shared as usize).sum())
    }

    /// The other online CPUs, those with near numbers first, which are mostly in the same package;
    /// at most as many as a package may have before one of it comes.
    fn near_cpus(&self, reader: u32) -> Vec<u32> {
        let other_cpus = self.follower.online.iter().copied().filter(|cpu| *cpu != reader);
        let mut cpus: Vec<u32> = other_cpus.collect();
        cpus.sort_by_key(|cpu| cpu.abs_diff(reader));
        cpus.truncate(NEAR);
        cpus
    }
}

/// Number of CPUs on which a counter is tried. With CPUs of packages in turns (0, 2, 4 and so on),
/// the nearest of two, four or eight packages are among them.
const NEAR: usize = 16;

/// Has the CPUs read what `layouts` says about the counters of others.
pub(super) fn assign_others(
    samplers: &mut Array<MapData, Sampler>,
    layouts: &BTreeMap<u32, Layout>,
) -> Result<()> {
    for cpu in 0..samplers.len() {
        let sampler = samplers.get(&cpu, 0).context("cannot read the map SAMPLERS")?;
        let shared_layout = layouts.iter().find(|(_, layout)| layout.other_cpus.contains(&cpu));
        let (first_other_slot, others_len, others_turn) =
            shared_layout.map_or((0, 0, 0), |(reader, layout)| {
                (
                    layout.first_slot + layout.first_shared() as u32,
                    layout.shared,
                    turn_number(*reader),
                )
            });
        if (sampler.others, sampler.others_len, sampler.others_turn)
            == (first_other_slot, others_len, others_turn)
        {
            continue;
        }
        let sampler = Sampler { others: first_other_slot, others_len, others_turn, ..sampler };
        samplers.set(cpu, sampler, 0).context("cannot write the map SAMPLERS")?;
    }
    Ok(())
}
