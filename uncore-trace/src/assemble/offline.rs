//! Spans in which CPUs were offline, as rows of `loss`: that time has no owner.

use std::collections::BTreeMap;

use super::loss::Ledger;
use crate::clock::TimeSpan;
use crate::schema::loss::LossCause;

/// How often the time of an offline CPU is reported, ns. A recording that is killed then has it.
const REPORT_NS: u64 = 1_000_000_000;

/// An offline CPU.
#[derive(Debug)]
struct OfflineCpu {
    /// Time up to which it is reported.
    reported_ns: u64,
    until_ns: u64,
    /// Whether nothing of it was reported yet.
    is_new: bool,
}

/// The CPUs that are offline.
#[derive(Debug, Default)]
pub(super) struct OfflineCpus(BTreeMap<u32, OfflineCpu>);

impl OfflineCpus {
    /// Adds `span` to the time of `cpu`, which stays offline.
    pub(super) fn extend_offline(&mut self, cpu: u32, span: Option<TimeSpan>) {
        if let Some(TimeSpan { begin_ns, end_ns }) = span {
            let offline_cpu = self.0.entry(cpu).or_insert(OfflineCpu {
                reported_ns: begin_ns,
                until_ns: begin_ns,
                is_new: true,
            });
            offline_cpu.until_ns = end_ns;
        }
    }

    /// Adds `span` to the time of `cpu`, which is back online.
    pub(super) fn end_offline(&mut self, cpu: u32, span: Option<TimeSpan>, ledger: &mut Ledger) {
        self.extend_offline(cpu, span);
        if let Some(mut offline_cpu) = self.0.remove(&cpu) {
            offline_cpu.report_loss(cpu, ledger);
        }
    }

    /// Enters the losses that are due, or all of them if `is_last`.
    pub(super) fn report_due(&mut self, is_last: bool, ledger: &mut Ledger) {
        for (&cpu, offline_cpu) in &mut self.0 {
            if is_last
                || offline_cpu.is_new
                || offline_cpu.until_ns - offline_cpu.reported_ns >= REPORT_NS
            {
                offline_cpu.report_loss(cpu, ledger);
            }
        }
    }
}

impl OfflineCpu {
    fn report_loss(&mut self, cpu: u32, ledger: &mut Ledger) {
        if self.until_ns > self.reported_ns {
            // A CPU is offline once, however many rows describe it.
            let (span, count) = (self.until_ns - self.reported_ns, u64::from(self.is_new));
            ledger.add_loss(LossCause::CpuOffline, self.until_ns, span, Some(cpu), None, count);
            (self.reported_ns, self.is_new) = (self.until_ns, false);
        }
    }
}
