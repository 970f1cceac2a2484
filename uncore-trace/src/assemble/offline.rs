//! When CPUs were offline, as rows of `loss`: no owner gets that time, so it is reported.

use std::collections::BTreeMap;

use super::loss::Ledger;
use crate::schema::loss::Cause;

/// A CPU that stays offline is reported of this often, ns, so that a recording which is killed has it.
const REPORT_NS: u64 = 1_000_000_000;

/// A CPU's time offline.
#[derive(Debug)]
struct Away {
    /// Reported up to here.
    reported: u64,
    until: u64,
    /// Nothing of it was reported yet.
    is_new: bool,
}

/// The CPUs that are offline.
#[derive(Debug, Default)]
pub(super) struct Offline(BTreeMap<u32, Away>);

impl Offline {
    /// `cpu` was offline for this time, and still is.
    pub(super) fn stay(&mut self, cpu: u32, span: Option<(u64, u64)>) {
        if let Some((begin, end)) = span {
            let away =
                self.0.entry(cpu).or_insert(Away { reported: begin, until: begin, is_new: true });
            away.until = end;
        }
    }

    /// `cpu` was offline for this time, and is back.
    pub(super) fn back(&mut self, cpu: u32, span: Option<(u64, u64)>, ledger: &mut Ledger) {
        self.stay(cpu, span);
        if let Some(mut away) = self.0.remove(&cpu) {
            away.report(cpu, ledger);
        }
    }

    /// Enters what is due, or all at the end.
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
            // Once a CPU is offline once, however many rows it takes.
            let (span, count) = (self.until - self.reported, u64::from(self.is_new));
            ledger.add(Cause::CpuOffline, self.until, span, Some(cpu), None, count);
            (self.reported, self.is_new) = (self.until, false);
        }
    }
}
