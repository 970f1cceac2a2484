//! Records of the ring: decoding yields no more than the bytes hold, and only names that tables can
//! store.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::drain::{DrainedRecord, TaskIdentity, decode_record};

/// A name that is cut in the middle of a character ends before it.
fn assert_clean(task: &TaskIdentity) {
    let clean = task.comm.to_table_form();
    let text = clean.to_text();
    assert!(text.len() <= 15 && text.as_bytes() == &clean.0[..text.len()], "{task:?}");
    assert_eq!(clean.to_table_form(), clean, "{task:?}");
}

fuzz_target!(|input: &[u8]| {
    let Ok(record) = decode_record(input) else { return };
    let (entries, least) = match &record {
        DrainedRecord::Sample(sample) => {
            assert_clean(&sample.task);
            (sample.readings.len(), 24)
        }
        DrainedRecord::Run(run) => {
            run.slots.iter().for_each(|slot| assert_clean(&slot.task));
            (run.slots.len(), 56)
        }
        DrainedRecord::Irq(irq) => (irq.slots.len(), 24),
        DrainedRecord::Io(io) => (io.slots.len(), 104),
        DrainedRecord::Task(event) => {
            assert_clean(&event.task);
            (0, 0)
        }
        DrainedRecord::File(event) => {
            assert_clean(&event.task);
            (0, 0)
        }
        DrainedRecord::Cgroup(_) => (0, 0),
    };
    assert!(entries * least <= input.len(), "{entries} entries of {} bytes", input.len());
});
