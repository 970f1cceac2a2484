//! Turns bytes from the kernel into typed records, with checked reads.
//!
//! `record/ring_feed.rs` reads the rings, and gives the decoded records to
//! [`Timeline::feed_record`](crate::assemble::Timeline::feed_record).

mod decode;
mod merge;
mod peek;

pub use self::decode::{
    CgroupChange, CgroupRecord, Comm, CpuContext, DrainedRecord, FileChange, FileRecord, IoKind,
    IoRecord, IoTransfer, IrqRecord, IrqTime, Mover, RawReading, RunRecord, SampleRecord,
    SampleTrigger, TaskChange, TaskIdentity, TaskRecord, TaskSlot, Undecodable, decode_record,
};
pub use self::merge::Merge;
pub use self::peek::{Peek, decode_state};
