//! The writer in a thread of its own, so that a slow disk does not stop the draining of rings.
//!
//! Guarantees: verbs take effect in the order they are called; at most [`DEPTH`] of them wait,
//! after which the caller waits; an error in the thread comes out of the next call.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use arrow::array::RecordBatch;

use super::writer::{Create, Finished, Target, Writer};
use super::{ALL, TableDef};
use crate::priority;

/// Verbs that may wait: at the few hundred batches a second a recording makes this is about a
/// third of a second, the length of a merge on a slow disk.
const DEPTH: usize = 128;

#[derive(Debug)]
enum Verb {
    Write(&'static TableDef, RecordBatch),
    Metadata(BTreeMap<String, String>),
    Seal,
    Finish(BTreeMap<String, String>),
}

/// A [`Writer`] in another thread, with the same verbs.
#[derive(Debug)]
pub struct WriterHandle {
    verbs: Option<SyncSender<Verb>>,
    thread: Option<JoinHandle<Result<Finished>>>,
    wanted: Vec<&'static str>,
}

impl WriterHandle {
    /// Opens the target in the calling thread, so that its errors come at once, and starts.
    pub fn create(
        target: Target,
        create: Create,
        metadata: &BTreeMap<String, String>,
    ) -> Result<WriterHandle> {
        let writer = Writer::create(target, create, metadata)?;
        let wanted =
            ALL.iter().filter(|table| writer.wants(table)).map(|table| table.name).collect();
        let (verbs, received) = sync_channel(DEPTH);
        let thread = std::thread::Builder::new()
            .name("tables".to_owned())
            .spawn(move || run(writer, &received))
            .context("cannot start the thread that writes the tables")?;
        Ok(WriterHandle { verbs: Some(verbs), thread: Some(thread), wanted })
    }

    /// See [`Writer::wants`].
    pub fn wants(&self, def: &TableDef) -> bool {
        self.wanted.contains(&def.name)
    }

    /// See [`Writer::write`].
    pub fn write(&mut self, def: &'static TableDef, batch: RecordBatch) -> Result<()> {
        self.send(Verb::Write(def, batch))
    }

    /// See [`Writer::set_metadata`].
    pub fn set_metadata(&mut self, metadata: BTreeMap<String, String>) -> Result<()> {
        self.send(Verb::Metadata(metadata))
    }

    /// See [`Writer::seal`].
    pub fn seal(&mut self) -> Result<()> {
        self.send(Verb::Seal)
    }

    /// See [`Writer::finish`]; waits for everything to be on disk.
    pub fn finish(mut self, metadata: BTreeMap<String, String>) -> Result<Finished> {
        self.send(Verb::Finish(metadata))?;
        self.join()
    }

    fn send(&mut self, verb: Verb) -> Result<()> {
        let sent = self.verbs.as_ref().is_some_and(|verbs| verbs.send(verb).is_ok());
        if sent { Ok(()) } else { self.join().map(|_| ()) }
    }

    /// The thread's result; a second call after an error says only that there was one.
    fn join(&mut self) -> Result<Finished> {
        self.verbs = None;
        let Some(thread) = self.thread.take() else {
            return Err(anyhow!("the tables cannot be written, as an earlier error said"));
        };
        thread.join().unwrap_or_else(|_| Err(anyhow!("the thread that writes the tables died")))
    }
}

impl Drop for WriterHandle {
    /// Waits for the thread, so that what it leaves behind is settled when this returns.
    fn drop(&mut self) {
        self.verbs = None;
        if let Some(thread) = self.thread.take() {
            // An error nobody asked for; the recording is being given up.
            thread.join().ok();
        }
    }
}

fn run(mut writer: Writer, verbs: &Receiver<Verb>) -> Result<Finished> {
    priority::hurry();
    while let Ok(verb) = verbs.recv() {
        match verb {
            Verb::Write(def, batch) => writer.write(def, &batch)?,
            Verb::Metadata(metadata) => writer.set_metadata(&metadata)?,
            Verb::Seal => writer.seal()?,
            Verb::Finish(metadata) => return writer.finish(&metadata),
        }
    }
    Err(anyhow!("the recording was given up before it was finished"))
}
