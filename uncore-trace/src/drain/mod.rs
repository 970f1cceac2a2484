//! Turns bytes from the kernel into typed records, with checked reads.

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
