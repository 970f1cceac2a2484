//! Asks the kubelet now and then which devices it has assigned to which pods, on a thread of its
//! own.
//!
//! The connection is made before the recorder is confined, which lets it make no other. If it
//! breaks, as when the kubelet is started again, a loss says so, and nothing more is asked.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::open_part::OpenPart;
use super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::state::RecorderState;
use crate::assemble::AssignmentReading;
use crate::clock::mono_ns;
use crate::confine::{self, ThreadNeeds};
use crate::identity::assignments::{cdi_trees, list_assignments};
use crate::identity::kubelet::{Kubelet, connect_kubelet, socket};
use crate::open::Session;
use crate::schema::loss::LossCause;
use crate::signals::event_loop;

/// Time between two questions.
const PAUSE: Duration = Duration::from_secs(10);

/// Prepares the questions, if it is recorded who holds which device.
pub(super) async fn prepare_source<'a>(preparation: &Preparation<'_, 'a>) -> Option<SideSetup<'a>> {
    if !preparation.wants_holders {
        return None;
    }
    let root = preparation.machine.root.clone();
    // None if there is no kubelet, or this user may not ask it.
    let connected = connect_kubelet(&socket(&root)).await.transpose()?;
    Some(SideSetup::new(|_begun| Some(Box::new(PodThread::start_thread(connected, root)))))
}

/// Asks the kubelet until `stopped` ends.
fn ask_repeatedly(
    stream: UnixStream,
    root: &Path,
    sender: &Sender<AssignmentReading>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let reads = ["proc", "sys"].map(|tree| root.join(tree)).into_iter();
    let reads = reads.chain(cdi_trees(root)).collect();
    confine::restrict_thread(&ThreadNeeds { reads, ..ThreadNeeds::default() });
    let runtime = event_loop()?;
    runtime.block_on(async {
        let asking = async {
            let kubelet = Kubelet::new(stream).await?;
            let mut has_failed = false;
            loop {
                let asked_ns = mono_ns() as u64;
                let listed = kubelet.fetch_assignments().await;
                let list = listed.and_then(|listed| list_assignments(&listed, root));
                // Of failures in a row one is said. A kubelet that is busy answers later.
                let is_news = list.is_ok() || !has_failed;
                has_failed = list.is_err();
                let list = list.map_err(|error| not_asked(&error));
                // The recorder has ended if it takes no answer.
                if is_news && sender.send(AssignmentReading { time_ns: asked_ns, list }).is_err() {
                    return Ok(());
                }
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            ended = asking => ended,
            _ = &mut stopped => Ok(()),
        }
    })
}

/// Sends the reason why the kubelet is asked no more.
fn send_failure(sender: &Sender<AssignmentReading>, error: &anyhow::Error) {
    // The recorder has ended if it takes no answer.
    drop(sender.send(AssignmentReading { time_ns: mono_ns() as u64, list: Err(not_asked(error)) }));
}

fn not_asked(error: &anyhow::Error) -> String {
    format!("cannot get the devices of pods from the kubelet: {error:#}")
}

/// A kubelet that is asked; the thread ends when this is dropped.
#[derive(Debug)]
struct PodThread {
    answers: Receiver<AssignmentReading>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// What the kubelet last said of devices and pods.
    last_answer: Option<AssignmentReading>,
}

impl PodThread {
    /// Starts the thread that asks the kubelet.
    fn start_thread(connected: Result<UnixStream>, root: PathBuf) -> Self {
        let (sender, answers) = channel();
        let (stop, stopped) = oneshot::channel();
        let failed = sender.clone();
        let thread = std::thread::Builder::new().name("pods".to_owned()).spawn(move || {
            let asked =
                connected.and_then(|stream| ask_repeatedly(stream, &root, &sender, stopped));
            asked.unwrap_or_else(|error| send_failure(&sender, &error));
        });
        let thread = thread.context("cannot start a thread");
        let thread = thread.inspect_err(|error| send_failure(&failed, error)).ok();
        Self { answers, stop: Some(stop), thread, last_answer: None }
    }

    /// Asks no more, and waits until the thread has ended.
    fn stop_thread(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

impl SideSource for PodThread {
    fn poll(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        for answer in self.answers.try_iter() {
            state.open_parts.feed_reading(&answer);
            if let Err(why) = &answer.list {
                state.note_loss(LossCause::HolderUnseen, answer.time_ns, why);
            }
            self.last_answer = Some(answer);
        }
        Ok(())
    }

    /// Devices stay assigned from part to part.
    fn seed_part(&mut self, _session: &Session, open_part: &mut OpenPart) {
        let Some(answer) = &self.last_answer else { return };
        open_part.timeline.feed_reading(answer, &mut open_part.sink);
        if let Err(why) = &answer.list {
            let ledger = &mut open_part.timeline.ledger;
            ledger.add_explained(LossCause::HolderUnseen, mono_ns() as u64, None, why);
        }
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_thread();
        Ok(())
    }
}

impl Drop for PodThread {
    fn drop(&mut self) {
        self.stop_thread();
    }
}
