//! Records of the ring: decoding yields no more than the bytes hold, and only names that tables can
//! store.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::drain::{Record, Task, decode};

/// A name that is cut in the middle of a character ends before it.
fn assert_clean(task: &Task) {
    let clean = task.comm.clean();
    let text = clean.text();
    assert!(text.len() <= 15 && text.as_bytes() == &clean.0[..text.len()], "{task:?}");
    assert_eq!(clean.clean(), clean, "{task:?}");
}

fuzz_target!(|input: &[u8]| {
    let Ok(record) = decode(input) else { return };
    let (entries, least) = match &record {
        Record::Sample(sample) => {
            assert_clean(&sample.task);
            (sample.readings.len(), 24)
        }
        Record::Run(run) => {
            run.slots.iter().for_each(|slot| assert_clean(&slot.task));
            (run.slots.len(), 56)
        }
        Record::Irq(irq) => (irq.slots.len(), 24),
        Record::Io(io) => (io.slots.len(), 104),
        Record::Task(event) => {
            assert_clean(&event.task);
            (0, 0)
        }
        Record::File(event) => {
            assert_clean(&event.task);
            (0, 0)
        }
        Record::Cgroup(_) => (0, 0),
    };
    assert!(entries * least <= input.len(), "{entries} entries of {} bytes", input.len());
});
