//! Spans in which CPUs were offline, as rows of `loss`: that time has no owner.

use std::collections::BTreeMap;

use super::loss::Ledger;
use crate::schema::loss::Cause;

/// How often the time of an offline CPU is reported, ns. A recording that is killed then has it.
const REPORT_NS: u64 = 1_000_000_000;

/// An offline CPU.
#[derive(Debug)]
struct Away {
    /// Time up to which it is reported.
    reported: u64,
    until: u64,
    /// Whether nothing of it was reported yet.
    is_new: bool,
}

/// The CPUs that are offline.
#[derive(Debug, Default)]
pub(super) struct Offline(BTreeMap<u32, Away>);

impl Offline {
    /// Adds `span` to the time of `cpu`, which stays offline.
    pub(super) fn stay(&mut self, cpu: u32, span: Option<(u64, u64)>) {
        if let Some((begin, end)) = span {
            let away =
                self.0.entry(cpu).or_insert(Away { reported: begin, until: begin, is_new: true });
            away.until = end;
        }
    }

    /// Adds `span` to the time of `cpu`, which is back online.
    pub(super) fn back(&mut self, cpu: u32, span: Option<(u64, u64)>, ledger: &mut Ledger) {
        self.stay(cpu, span);
        if let Some(mut away) = self.0.remove(&cpu) {
            away.report(cpu, ledger);
        }
    }

    /// Enters the losses that are due, or all of them at the end.
    pub(super) fn report(&mut self, all: bool, ledger: &mut Ledger) {
        for (&cpu, away) in &mut self.0 {
            if all || away.is_new || away.until - away.reported >= REPORT_NS {
                away.report(cpu, ledger);
            }
        }
    }
}

impl Away {
    fn report(&mut self, cpu: u32, ledger: &mut Ledger) {
        if self.until > self.reported {
            // A CPU is offline once, however many rows describe it.
            let (span, count) = (self.until - self.reported, u64::from(self.is_new));
            ledger.add_loss(Cause::CpuOffline, self.until, span, Some(cpu), None, count);
            (self.reported, self.is_new) = (self.until, false);
        }
    }
}
