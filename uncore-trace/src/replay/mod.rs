//! Makes `fabric` again from the raw tables of a recording: by another method or by the same, in
//! other windows or in the same.
//!
//! Guarantees: nothing of the machine is looked at; with the method and the windows of the recording
//! the rows are those of the recording, in their order. Two things that are not in the tables to the nanosecond may
//! make a window differ: when a counter that went offline with its CPU was opened again, and the
//! times of a counter until it was first multiplexed. Memory is bounded by the largest row group of
//! `readings`, not by the length of the recording.

mod facts;
mod io;
mod readings;
mod rows;
mod time;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use self::{facts::Facts, io::Io, readings::Readings, time::Time};
use crate::{
    attribute::Choice,
    tables::{
        fabric, metadata,
        reader::Recording,
        writer::{Finished, Target, Writer},
    },
    timeline::Replay,
};

/// Rows that are handed to the writer at once.
const ROWS: usize = 8192;

/// Readings are taken this far ahead of the windows, ns: records of several CPUs come to the
/// recorder out of order, by less than this.
const AHEAD_NS: u64 = 1_000_000_000;

/// What is to be other than it was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Again {
    /// How counts are divided.
    pub method: Option<Choice>,
    /// Time a row covers, ns.
    pub interval_ns: Option<u64>,
}

/// Makes `fabric` of `recording` again into `target`.
///
/// # Errors
///
/// The recording has no raw tables or is damaged, the interval is not a whole number of its ticks,
/// or the target cannot be written.
pub fn attribute(
    recording: &Recording,
    again: Again,
    target: Target,
    overwrite: bool,
) -> Result<Finished> {
    if !recording.is_dataset() {
        bail!(
            "{} is a single file without raw tables: record into a directory, e.g. -o run/",
            recording.path().display()
        );
    }
    let facts = Facts::read(recording, again)?;
    if facts.told.methods.choice == Choice::Misses && !facts.told.plan.has_misses() {
        bail!(
            "{} has no counts of misses: choose another --method, or record with --method misses",
            recording.path().display()
        );
    }
    let pairs = facts.pairs.clone();
    let mut writer = Writer::create(target, overwrite, &pairs)?;
    make(recording, facts, &mut writer)?;
    writer.finish(&pairs)
}

fn make(recording: &Recording, facts: Facts, writer: &mut Writer) -> Result<()> {
    let mut readings = Readings::open(recording, &facts)?;
    let mut time = Time::open(recording, &facts)?;
    let mut io = Io::open(recording)?;
    let tick_ns = facts.told.plan.tick_ns;
    let (mut tick, stop) = (facts.told.start_tick, facts.told.stop_tick);
    let mut replay = Replay::new(facts.told);
    let mut fabric = fabric::Builder::default();
    while stop.is_none_or(|stop| tick < stop) {
        tick += 1;
        let end = tick * tick_ns;
        if stop.is_none() && time.is_over()? {
            break;
        }
        readings.feed(end + AHEAD_NS, &mut replay)?;
        time.feed(end, &mut replay)?;
        io.feed(end, &mut replay)?;
        replay.close(tick, &mut fabric);
        if fabric.len() >= ROWS {
            writer.write(&fabric::TABLE, &fabric.finish())?;
        }
    }
    writer.write(&fabric::TABLE, &fabric.finish())
}

/// A number of the metadata.
fn number(pairs: &BTreeMap<String, String>, key: &str) -> Result<u64> {
    let text = pairs.get(key).with_context(|| format!("the metadata lacks {key}"))?;
    text.parse().ok().with_context(|| format!("the metadata has no number for {key}"))
}

/// JSON of the metadata.
fn json<T: serde::de::DeserializeOwned>(
    pairs: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>> {
    let parse = |text: &String| {
        serde_json::from_str(text).with_context(|| format!("the metadata {key} is damaged"))
    };
    pairs.get(key).map(parse).transpose()
}

/// The method a recording was made with; those without a word for it are by time.
fn recorded(pairs: &BTreeMap<String, String>) -> Choice {
    let name = pairs.get(metadata::METHOD).map(String::as_str);
    let known = <Choice as clap::ValueEnum>::value_variants().iter();
    known.copied().find(|choice| Some(choice.name()) == name).unwrap_or(Choice::Residency)
}
