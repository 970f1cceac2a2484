//! `links`: the link and direction of each traffic counter, and the link's peak rate.
//!
//! One row for each counter on a link; the counters of one link and direction add up. If several
//! sources give a peak, the row has the first in this order: calibrated, sysfs, catalog. The plan
//! in the metadata has all of them.

use super::column_type::{F64, I32, Null, Text, Word, table};

table! {
    "links", "the link of each counter of traffic, and its peak", sorted by [];
    Holds { since: None, key: &["counter"], last_row: None };
    origin;
    counter: I32 => Plain, "Counter: `counter` in `counters` and `fabric`.";
    link: Word => Dict, "Name of the link, unique within the recording, e.g. `memory 0`, `PCIe nvme0n1`.";
    kind: Word => Dict, "Kind of the link, e.g. `memory`, `PCIe`.";
    subsystem: Word => Dict, "Group of the counter: mem, pcie, c2c, mesh.";
    socket: Null<I32> => Plain, "Socket (NUMA node); null where the PMU belongs to none.";
    devices: Null<Text> => Plain, "Disks, interfaces or PCI functions below its root ports; null where there are none, or none is known.";
    direction: Word => Dict, "in (towards the CPUs of the socket: memory is read, a device writes to memory), out, or both.";
    peak: Null<F64> => Plain, "Peak bandwidth, bytes a second; null where it is not known.";
    peak_direction: Null<Word> => Dict, "Direction that `peak` limits; both: the sum of in and out.";
    peak_source: Null<Word> => Dict, "calibrated (measured by `uncore-trace calibrate`), sysfs, or catalog (a data sheet).";
    peak_detail: Null<Text> => Plain, "How the peak was determined.";
}
