//! `assignments`: which device the kubelet had assigned to which container of a pod, from when to
//! when.
//!
//! Guarantee: rows say what the kubelet said; nothing is guessed from the id of a device. That a
//! device is assigned does not say that anybody has it open ([`super::holders`]); a function of a
//! NIC in the network of a pod has no file that could be open. Encodings: short, so dictionaries
//! for words and plain numbers.

use super::column_type::{I64, Null, Word, table};

table! {
    "assignments", "which device the kubelet had assigned to which pod, and when", sorted by [];
    During("begin_ns", "end_ns");
    origin;
    pod: Word => Dict, "Pod, `NAMESPACE/NAME`: `pod` of `cgroups` before the `@`.";
    container: Word => Dict, "Container of the pod, as the pod names it: `container` of `cgroups` before the `@`.";
    resource: Word => Dict, "Resource of a device plugin, such as `nvidia.com/gpu`, or driver of DRA.";
    device: Word => Dict, "Id of the device, as the plugin gives it; `POOL/DEVICE` of DRA.";
    claim: Null<Word> => Dict, "Claim of DRA, `NAMESPACE/NAME`; null for a device plugin.";
    cdi: Null<Word> => Dict, "Names of CDI, with commas; null where there is none.";
    bdf: Null<Word> => Dict, "PCI functions of the device, in ascending order with commas; null where the id, NVIDIA's driver and the files of CDI do not say them.";
    port: Null<Word> => Dict, "Functions on the root bus above them, their root ports, in ascending order with commas; null as `bdf`.";
    begin_ns: Null<I64> => Plain, "Time of the first reading with this assignment, `CLOCK_MONOTONIC`, ns: the device was assigned at most 10 s before. Null where the first of all readings has it, or the device was assigned before the part of a rotated recording.";
    end_ns: Null<I64> => Plain, "Time of the first reading without this assignment, or of the last possible reading, `CLOCK_MONOTONIC`, ns; null where the device was assigned when the recording, or the part, ended.";
}
