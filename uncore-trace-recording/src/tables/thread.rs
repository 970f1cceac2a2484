//! Runs the writer in a separate thread, so that a slow disk does not stop the draining of the
//! ring.
//!
//! Guarantees: calls take effect in order. At most [`WAITING_BYTES`] of rows wait for the thread;
//! then [`RowStore::write_rows`] waits and [`RowStore::offer_rows`] refuses. An error in the thread
//! is returned by the next call. With a [`Tap`], an error of the files ends the files, not the
//! recording.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use arrow::array::RecordBatch;

use super::queue::{QueueRefusal, Receiver, Sender, bounded_queue};
use super::writer::{CreateOptions, RecordingSize, RecordingTarget, Writer};
use crate::schema::{ALL, RowStore, TableDef};
use crate::{confine, heap, priority};

/// Largest size in bytes of the rows that wait for the thread: a third of the memory limit of the
/// recorder. `-p host` on 4 busy CPUs produces 5 MB of rows a second, so a disk may stall for 4 s
/// before the ring has to hold the records. 1.5 million switches a second produce 70 MB of `slices`
/// a second; these are refused after a quarter of a second.
pub(crate) const WAITING_BYTES: usize = 20 << 20;

#[derive(Debug)]
enum WriterCommand {
    Write(&'static TableDef, RecordBatch),
    Metadata(BTreeMap<String, String>),
    Seal,
    Finish(BTreeMap<String, String>),
}

impl WriterCommand {
    /// The memory of a command while it waits; only rows count.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Write(_, batch) => batch.get_array_memory_size(),
            Self::Metadata(_) | Self::Seal | Self::Finish(_) => 0,
        }
    }
}

/// An item of a tap, with the number of its part.
#[derive(Debug)]
pub enum Tapped {
    /// New metadata of the part.
    Metadata(u32, BTreeMap<String, String>),
    /// Rows of a table.
    Rows(u32, &'static TableDef, RecordBatch),
    /// The end of the part. `true`: its files could not be completed.
    End(u32, bool),
}

/// Copies the rows that are written to another thread, for all parts of a recording.
#[derive(Debug, Clone)]
pub struct Tap {
    sender: SyncSender<Tapped>,
    tables: Vec<&'static TableDef>,
    next_part: Arc<AtomicU32>,
}

impl Tap {
    /// Rows of these tables go to `sender`. The recorder waits if the receiver is slow.
    pub fn new(sender: SyncSender<Tapped>, tables: Vec<&'static TableDef>) -> Self {
        Self { sender, tables, next_part: Arc::default() }
    }

    /// The tap of the next part.
    fn tap_next_part(&self) -> PartTap {
        PartTap { tap: self.clone(), part_number: self.next_part.fetch_add(1, Ordering::Relaxed) }
    }
}

#[derive(Debug)]
struct PartTap {
    tap: Tap,
    part_number: u32,
}

impl PartTap {
    fn send_tapped(&self, tapped: Tapped) -> Result<()> {
        self.tap.sender.send(tapped).context("the thread that receives the rows has ended")
    }

    fn wants_table(&self, table: &TableDef) -> bool {
        self.tap.tables.iter().any(|wanted| wanted.name == table.name)
    }
}

/// A [`Writer`] in another thread, with the same methods.
#[derive(Debug)]
pub struct WriterHandle {
    commands: Option<Sender<WriterCommand>>,
    thread: Option<JoinHandle<Result<RecordingSize>>>,
    wanted: Vec<&'static str>,
    /// Size of the sealed data in bytes, as last reported by the thread.
    sealed: Arc<AtomicU64>,
}

/// A recording whose files are being finished by its thread.
#[derive(Debug)]
pub struct Finishing(WriterHandle);

impl Finishing {
    /// Whether [`Finishing::join_writer`] returns at once.
    pub fn is_over(&self) -> bool {
        self.0.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until everything is on disk.
    ///
    /// # Errors
    ///
    /// The files cannot be written.
    pub fn join_writer(mut self) -> Result<RecordingSize> {
        self.0.join_thread()
    }
}

impl WriterHandle {
    /// Opens the target in the calling thread, so that errors are returned at once, and starts the
    /// thread.
    pub fn create(
        target: RecordingTarget,
        create: CreateOptions,
        metadata: &BTreeMap<String, String>,
        tap: Option<&Tap>,
    ) -> Result<WriterHandle> {
        heap::keep_little();
        let writer = Writer::create(target, create, metadata)?;
        let tap = tap.map(Tap::tap_next_part);
        if let Some(tap) = &tap {
            tap.send_tapped(Tapped::Metadata(tap.part_number, metadata.clone()))?;
        }
        let is_tapped = |table: &TableDef| tap.as_ref().is_some_and(|tap| tap.wants_table(table));
        let wanted = ALL.iter().filter(|table| writer.wants_table(table) || is_tapped(table));
        let wanted = wanted.map(|table| table.name).collect();
        let (commands, received) = bounded_queue(WAITING_BYTES);
        let sealed = Arc::new(AtomicU64::new(0));
        let thread = std::thread::Builder::new()
            .name("tables".to_owned())
            .spawn({
                let sealed = Arc::clone(&sealed);
                move || run_writer(writer, &received, &sealed, tap.as_ref())
            })
            .context("cannot start the thread that writes the tables")?;
        Ok(WriterHandle { commands: Some(commands), thread: Some(thread), wanted, sealed })
    }

    /// See [`Writer::set_metadata`].
    pub fn set_metadata(&mut self, metadata: BTreeMap<String, String>) -> Result<()> {
        self.send_command(WriterCommand::Metadata(metadata))
    }

    /// See [`Writer::seal_rows`].
    pub fn seal_rows(&mut self) -> Result<()> {
        self.send_command(WriterCommand::Seal)
    }

    /// See [`Writer::finish`]. Waits until everything is on disk.
    pub fn finish(self, metadata: BTreeMap<String, String>) -> Result<RecordingSize> {
        self.start_finishing(metadata)?.join_writer()
    }

    /// Like [`WriterHandle::finish`], without waiting.
    pub fn start_finishing(mut self, metadata: BTreeMap<String, String>) -> Result<Finishing> {
        self.send_command(WriterCommand::Finish(metadata))?;
        self.commands = None;
        Ok(Finishing(self))
    }

    /// Size of the sealed data in bytes.
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    fn send_command(&mut self, command: WriterCommand) -> Result<()> {
        let bytes = command.memory_bytes();
        let sent = self.commands.as_ref().is_some_and(|sender| sender.send(command, bytes).is_ok());
        if sent { Ok(()) } else { self.join_thread().map(|_| ()) }
    }

    /// The thread's result. A second call after an error only reports that there was one.
    fn join_thread(&mut self) -> Result<RecordingSize> {
        self.commands = None;
        let Some(thread) = self.thread.take() else {
            return Err(anyhow!("the tables cannot be written because of an earlier error"));
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that writes the tables ended early")))
    }
}

impl RowStore for WriterHandle {
    fn wants_table(&self, table: &TableDef) -> bool {
        self.wanted.contains(&table.name)
    }

    fn write_rows(&mut self, table: &'static TableDef, rows: RecordBatch) -> Result<()> {
        self.send_command(WriterCommand::Write(table, rows))
    }

    fn offer_rows(&mut self, table: &'static TableDef, rows: RecordBatch) -> Result<bool> {
        let command = WriterCommand::Write(table, rows);
        let bytes = command.memory_bytes();
        let sent = self
            .commands
            .as_ref()
            .map_or(Err(QueueRefusal::Closed), |sender| sender.try_send(command, bytes));
        match sent {
            Ok(()) => Ok(true),
            Err(QueueRefusal::Full) => Ok(false),
            Err(QueueRefusal::Closed) => self.join_thread().map(|_| true),
        }
    }
}

impl Drop for WriterHandle {
    /// Waits for the thread, so that its files do not change after this returns.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The recording is being abandoned, so nobody needs the error.
            thread.join().ok();
        }
    }
}

/// Executes commands until the recording is finished. With a tap, also sends what is written
/// there, even if the files fail.
fn run_writer(
    writer: Writer,
    commands: &Receiver<WriterCommand>,
    sealed: &AtomicU64,
    tap: Option<&PartTap>,
) -> Result<RecordingSize> {
    priority::raise_priority();
    confine::restrict_thread(&writer.access_needs());
    let mut writer = Some(writer);
    let mut attempt = |operation: &mut dyn FnMut(&mut Writer) -> Result<()>| {
        let Some(files) = &mut writer else { return Ok(()) };
        match operation(files) {
            Ok(()) => sealed.store(files.sealed_bytes(), Ordering::Relaxed),
            Err(error) if tap.is_none() => return Err(error),
            Err(error) => {
                log::warn!("the recording goes on without the files of this part: {error:#}");
                writer = None;
            }
        }
        Ok(())
    };
    while let Some(command) = commands.next() {
        match command {
            WriterCommand::Write(def, batch) => {
                attempt(&mut |files| files.write(def, &batch))?;
                if let Some(tap) = tap.filter(|tap| tap.wants_table(def)) {
                    tap.send_tapped(Tapped::Rows(tap.part_number, def, batch))?;
                }
            }
            WriterCommand::Metadata(metadata) => {
                attempt(&mut |files| files.set_metadata(&metadata))?;
                if let Some(tap) = tap {
                    tap.send_tapped(Tapped::Metadata(tap.part_number, metadata))?;
                }
            }
            WriterCommand::Seal => attempt(&mut Writer::seal_rows)?,
            WriterCommand::Finish(metadata) => {
                let finished = writer.map(|files| files.finish(&metadata));
                let Some(tap) = tap else {
                    return finished.unwrap_or_else(|| Ok(RecordingSize::default()));
                };
                let is_broken = !matches!(finished, Some(Ok(_)));
                tap.send_tapped(Tapped::Metadata(tap.part_number, metadata))?;
                tap.send_tapped(Tapped::End(tap.part_number, is_broken))?;
                let size = finished
                    .transpose()
                    .inspect_err(|error| log::warn!("a part is left unfinished: {error:#}"));
                return Ok(size.ok().flatten().unwrap_or_default());
            }
        }
    }
    Err(anyhow!("the recording was abandoned before it was finished"))
}
