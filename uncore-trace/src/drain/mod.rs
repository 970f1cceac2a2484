//! Turns bytes from the kernel into typed records, with checked reads.

mod decode;
mod merge;
mod peek;

pub use self::decode::{
    CgroupChange, CgroupEvent, Comm, Context, FileChange, FileEvent, IoKind, IoRecord, IoSlot, Irq,
    IrqSlot, Mover, Reading, Record, Run, Sample, Slot, Task, TaskChange, TaskEvent, Trigger,
    Undecodable, decode,
};
pub use self::merge::Merge;
pub use self::peek::{Peek, peek};
