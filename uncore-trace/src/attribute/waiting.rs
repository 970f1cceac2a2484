//! Windows that wait for later ticks.
//!
//! A method that learns knows more about a window after it has seen later ticks. So such a window
//! waits, for the lag at most ([`super::schedule`]). Its rows are made when all counters have
//! divided it, in the order in which windows end.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::owner_names::OwnerNames;
use super::windows::{DividedWindow, UndividedWindow};

/// The state of a counter in a window.
#[derive(Debug)]
pub(super) enum WindowState {
    /// It has no rows: it is extended, or there is nothing to report.
    Nothing,
    /// It is not divided yet: its method waits for later ticks.
    Undivided(Box<UndividedWindow>),
    /// It is divided.
    Divided(DividedWindow),
}

impl WindowState {
    /// The divided window.
    pub(super) const fn as_divided(&self) -> Option<&DividedWindow> {
        match self {
            Self::Divided(divided) => Some(divided),
            _ => None,
        }
    }

    /// The divided window.
    pub(super) const fn as_divided_mut(&mut self) -> Option<&mut DividedWindow> {
        match self {
            Self::Divided(divided) => Some(divided),
            _ => None,
        }
    }
}

/// A window that has ended, with the state of each counter.
#[derive(Debug)]
pub(super) struct EndedWindow {
    /// The tick at which it ended.
    pub tick: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// In the order of the counters.
    pub states: Vec<WindowState>,
    /// What is changed when every counter has divided it, in this order.
    pub adjustments: Vec<Box<dyn WindowAdjustment>>,
}

/// A change of the shares of several counters in a window, which needs those of all of them.
pub(super) trait WindowAdjustment: Debug + Send {
    /// Changes the shares. Those of each counter sum to the same total before and after.
    fn adjust_window(&self, states: &mut [WindowState], names: &OwnerNames);
}

/// The waiting windows, oldest first.
#[derive(Debug, Default)]
pub(super) struct WaitingWindows(VecDeque<EndedWindow>);

impl WaitingWindows {
    /// Adds a window that has ended.
    pub(super) fn push(&mut self, window: EndedWindow) {
        self.0.push_back(window);
    }

    /// The windows that end at `last_tick` or earlier, oldest first.
    pub(super) fn windows_up_to(
        &mut self,
        last_tick: u64,
    ) -> impl Iterator<Item = &mut EndedWindow> {
        self.0.iter_mut().take_while(move |window| window.tick <= last_tick)
    }

    /// The oldest window, if every counter has divided it.
    pub(super) fn pop(&mut self) -> Option<EndedWindow> {
        let is_divided = |window: &mut EndedWindow| {
            !window.states.iter().any(|state| matches!(state, WindowState::Undivided(..)))
        };
        self.0.pop_front_if(is_divided)
    }
}
