//! A queue between two threads with a limit in bytes.
//!
//! Guarantees: items come out in order. The size of the waiting items is at most the limit, except
//! for a single item that is larger. If one side is gone, the other does not wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Makes both ends of a queue of at most `limit` bytes.
pub(super) fn bounded_queue<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let state = QueueState { items: VecDeque::new(), bytes: 0, open: true };
    let shared = Arc::new(SharedQueue { state: Mutex::new(state), changed: Condvar::new(), limit });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// Why an item was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueRefusal {
    /// There is no room now.
    Full,
    /// The receiver is gone.
    Closed,
}

#[derive(Debug)]
struct QueueState<T> {
    /// The waiting items, with their sizes in bytes.
    items: VecDeque<(T, usize)>,
    /// Sum of the sizes.
    bytes: usize,
    open: bool,
}

#[derive(Debug)]
struct SharedQueue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
    limit: usize,
}

impl<T> SharedQueue<T> {
    /// Locks the state. A thread that panicked while it held the lock left the state consistent.
    fn lock_state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state once the condition is false.
    fn wait_while(
        &self,
        condition: impl Fn(&QueueState<T>) -> bool,
    ) -> MutexGuard<'_, QueueState<T>> {
        let waited = self.changed.wait_while(self.lock_state(), |state| condition(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn close_queue(&self) {
        self.lock_state().open = false;
        self.changed.notify_all();
    }

    fn has_room(&self, state: &QueueState<T>, bytes: usize) -> bool {
        state.items.is_empty() || state.bytes.saturating_add(bytes) <= self.limit
    }

    fn push_item(&self, mut state: MutexGuard<'_, QueueState<T>>, item: T, bytes: usize) {
        state.bytes += bytes;
        state.items.push_back((item, bytes));
        self.changed.notify_all();
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<SharedQueue<T>>);

impl<T> Sender<T> {
    /// Adds an item of this size. Waits until there is room.
    ///
    /// # Errors
    ///
    /// [`QueueRefusal::Closed`] only.
    pub(super) fn send(&self, item: T, bytes: usize) -> Result<(), QueueRefusal> {
        let state = self.0.wait_while(|state| state.open && !self.0.has_room(state, bytes));
        if !state.open {
            return Err(QueueRefusal::Closed);
        }
        self.0.push_item(state, item, bytes);
        Ok(())
    }

    /// Adds an item of this size if there is room.
    ///
    /// # Errors
    ///
    /// There is no room, or the receiver is gone.
    pub(super) fn try_send(&self, item: T, bytes: usize) -> Result<(), QueueRefusal> {
        let state = self.0.lock_state();
        if !state.open {
            return Err(QueueRefusal::Closed);
        }
        if !self.0.has_room(&state, bytes) {
            return Err(QueueRefusal::Full);
        }
        self.0.push_item(state, item, bytes);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close_queue();
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<SharedQueue<T>>);

impl<T> Receiver<T> {
    /// Waits for the next item; `None` if the sender is gone and the queue is empty.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.0.wait_while(|state| state.open && state.items.is_empty());
        let (item, bytes) = state.items.pop_front()?;
        state.bytes -= bytes;
        self.0.changed.notify_all();
        Some(item)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.close_queue();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_waits_is_never_more_than_the_limit_and_comes_out_in_order() {
        let (sender, receiver) = bounded_queue(10);
        let refused: Vec<_> = (0..6).map(|item| sender.try_send(item, 3)).collect();
        // Three items of 3 bytes fit into 10 bytes, and none was taken.
        assert_eq!(refused[..3], [Ok(()); 3]);
        assert_eq!(refused[3..], [Err(QueueRefusal::Full); 3]);
        assert_eq!(receiver.next(), Some(0));
        assert_eq!(sender.try_send(9, 3), Ok(()));
        drop(sender);
        assert_eq!([(); 4].map(|()| receiver.next()), [Some(1), Some(2), Some(9), None]);
    }

    #[test]
    fn what_is_larger_than_the_limit_waits_alone() {
        let (sender, receiver) = bounded_queue(10);
        assert_eq!(sender.try_send("large", 1000), Ok(()));
        assert_eq!(sender.try_send("small", 1), Err(QueueRefusal::Full));
        assert_eq!(receiver.next(), Some("large"));
        assert_eq!(sender.try_send("small", 1), Ok(()));
        assert_eq!(sender.try_send("large", 1000), Err(QueueRefusal::Full));
    }

    #[test]
    fn a_sender_waits_for_room_and_not_for_a_receiver_that_is_gone() {
        let (sender, receiver) = bounded_queue(1);
        let producer = thread::spawn(move || {
            let sent: Vec<_> = (0..100).map(|item| sender.send(item, 1)).collect();
            (sent.into_iter().collect::<Result<Vec<()>, _>>(), sender)
        });
        assert_eq!((0..100).map(|_| receiver.next()).collect::<Vec<_>>(), {
            (0..100).map(Some).collect::<Vec<_>>()
        });
        let (sent, sender) = producer.join().unwrap();
        assert_eq!(sent.map(|sent| sent.len()), Ok(100));
        sender.send(0, 1).unwrap();
        let waits = thread::spawn(move || sender.send(1, 1));
        drop(receiver);
        assert_eq!(waits.join().unwrap(), Err(QueueRefusal::Closed));
    }
}
