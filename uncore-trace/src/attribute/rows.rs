//! A divided window as rows of `fabric`.

use std::borrow::Cow;

use super::counter::Divided;
use super::names::Names;
use crate::clock::Snapshot;
use crate::log::{Owner, softirq};
use crate::plan::Counter;
use crate::schema::fabric;
use crate::schema::origin::Origin;

/// Names of an owner, beside its kind and ids.
#[derive(Debug, Default)]
struct Label<'a> {
    comm: Option<Cow<'a, str>>,
    cgroup: Option<&'a str>,
    container: Option<&'a str>,
    pod: Option<&'a str>,
}

impl<'a> Label<'a> {
    fn of(owner: &'a Owner, names: &'a Names) -> Self {
        match *owner {
            Owner::Task { pid, ref comm, cgroup_id } => {
                let place = names.place(cgroup_id);
                let known = pid != 0;
                Self {
                    comm: known.then(|| comm.text()),
                    cgroup: place.map(|place| place.path.as_str()),
                    container: place.and_then(|place| place.container.as_deref()),
                    pod: place.and_then(|place| place.pod.as_deref()),
                }
            }
            Owner::Irq(number) => Self { comm: Some(names.irq(number)), ..Self::default() },
            Owner::Softirq(vector) => {
                Self { comm: Some(softirq(vector).into()), ..Self::default() }
            }
            Owner::OtherTasks | Owner::Idle | Owner::Device | Owner::Unattributed => {
                Self::default()
            }
        }
    }
}

/// Appends one row for each share. A window in which nothing was counted, or in which the counter
/// did not run, is one row with the owner `unattributed`.
pub(super) fn append(
    counter: &Counter,
    window: &Divided,
    tick_ns: u64,
    wall: Snapshot,
    origin: &Origin,
    names: &Names,
    fabric: &mut fabric::Builder,
) {
    let mono_ns = (window.to * tick_ns) as i64;
    let mut row = |owner: Owner, value: Option<f64>, confidence: Option<f32>| {
        let device = counter.io.as_ref().filter(|_| owner == Owner::Device);
        let (ids, label) = (owner.columns(), Label::of(&owner, names));
        fabric.append(&fabric::Row {
            ts: wall.wall(mono_ns),
            mono_ns,
            window_ns: ((window.to - window.from) * tick_ns) as i64,
            host: &origin.host,
            boot_id: &origin.boot_id,
            cluster: origin.cluster.as_deref(),
            counter: counter.id as i32,
            socket: counter.socket,
            cpu: counter.cpu as i32,
            subsystem: &counter.subsystem,
            pmu: &counter.pmu,
            event: &counter.event,
            filter: &counter.filter,
            unit: &counter.unit,
            owner: ids.kind,
            pid: ids.pid,
            number: ids.number,
            comm: label.comm.as_deref().or(device.map(|io| io.label.as_str())),
            cgroup_id: ids.cgroup_id,
            cgroup: label.cgroup,
            container: label.container,
            pod: label.pod,
            value,
            total: window.total,
            running: window.running,
            method: window.method.name(),
            confidence,
        });
    };
    if window.shares.is_empty() {
        row(Owner::Unattributed, window.total, None);
    }
    for share in &window.shares {
        row(share.who, Some(share.value), Some(share.confidence));
    }
}
