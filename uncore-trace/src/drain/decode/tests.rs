use proptest::prelude::*;

use super::*;

/// A sample with two readings; the second failed with EINVAL.
fn bytes_of_a_sample() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [KIND_SAMPLE, 3] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in [100u64, 130, 7] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in [TRIGGER_SCHED, 2, 9, 0, CONTEXT_SOFTIRQ, 3, 11, 10] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(42u64.to_ne_bytes());
    bytes.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0");
    for word in [5u64, 6, 6, 22, READ_FAILED, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[test]
fn a_sample_has_its_fields() {
    let Ok(DrainedRecord::Sample(sample)) = decode_record(&bytes_of_a_sample()) else {
        panic!("not a sample");
    };
    assert_eq!((sample.cpu, sample.begin_ns, sample.end_ns, sample.sequence), (3, 100, 130, 7));
    assert_eq!(sample.trigger, SampleTrigger::Sched);
    assert_eq!(sample.first_slot, 9);
    assert_eq!(sample.context, CpuContext::Softirq(3));
    assert_eq!(sample.task.comm.to_text(), "name");
    assert_eq!(
        sample.readings,
        [RawReading::Counted { value: 5, enabled: 6, running: 6 }, RawReading::Failed(22)]
    );
}

#[test]
fn every_truncated_sample_is_too_short() {
    let bytes = bytes_of_a_sample();
    for len in 0..bytes.len() {
        assert_eq!(decode_record(&bytes[..len]), Err(Undecodable::Short), "at {len}");
    }
}

/// A record from `begin` to `end`; the last slot begins at `last`.
fn bytes_of_a_run([begin, last, end]: [u64; 3], walls: &[u64]) -> Vec<u8> {
    let mut bytes = [KIND_RUN, 3].map(u32::to_ne_bytes).concat();
    for word in [begin, last, end, 0, 0, 0, walls.len() as u64] {
        bytes.extend(word.to_ne_bytes());
    }
    for wall in walls {
        bytes.extend([11u32, 10].map(u32::to_ne_bytes).concat());
        bytes.extend(42u64.to_ne_bytes());
        bytes.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0");
        bytes.extend([*wall, 7].map(u64::to_ne_bytes).concat());
        bytes.extend([2u32, 11].map(u32::to_ne_bytes).concat());
    }
    bytes
}

#[test]
fn a_run_has_its_task_and_slots() {
    let Ok(DrainedRecord::Run(run)) =
        decode_record(&bytes_of_a_run([1000, 1030, 1100], &[10, 20, 70]))
    else {
        panic!("not a run");
    };
    assert_eq!((run.cpu, run.begin_ns, run.last_slot_begin, run.end), (3, 1000, 1030, 1100));
    let task = TaskIdentity { tid: 11, pid: 10, cgroup_id: 42, comm: Comm::from_bytes(b"name") };
    let slot = |wall_ns| TaskSlot { task, wall_ns, irq_ns: 7, slices: 2 };
    assert_eq!(run.slots, [10, 20, 70].map(slot));
}

#[test]
fn slots_that_do_not_fill_the_time_of_their_record_are_an_error() {
    let adds_up = |times, walls: &[u64]| match decode_record(&bytes_of_a_run(times, walls)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Undecodable::Value(KIND_RUN));
            false
        }
    };
    assert!(adds_up([1000, 1030, 1030], &[10, 20]));
    assert!(adds_up([1000, 1000, 1030], &[30]));
    assert!(adds_up([1000, 1000, 1000], &[]));
    assert!(!adds_up([1000, 1030, 1030], &[10, 19]), "too little");
    assert!(!adds_up([1000, 1030, 1030], &[10, 21]), "too much");
    assert!(!adds_up([1000, 1010, 1030], &[11, 19]), "in all it is right");
    assert!(!adds_up([1000, 1010, 1030], &[10, 19]), "too little at the end");
    assert!(!adds_up([1000, 1000, 1030], &[]), "nobody");
    assert!(!adds_up([1000, 1030, 1020], &[30]), "back at the end");
    assert!(!adds_up([1000, 990, 1030], &[40]), "back at the begin");
    assert!(!adds_up([1000, 1030, 1030], &[u64::MAX, 31]), "more than there is");
}

/// An interrupt of 40 ns in this context.
fn bytes_of_an_interrupt([begin, end]: [u64; 2], context: u32) -> Vec<u8> {
    let mut bytes = [KIND_IRQ, 3].map(u32::to_ne_bytes).concat();
    bytes.extend([2000, begin, end, 1].map(u64::to_ne_bytes).concat());
    bytes.extend([context, 9].map(u32::to_ne_bytes).concat());
    bytes.extend([40u64, 5].map(u64::to_ne_bytes).concat());
    bytes
}

#[test]
fn interrupts_are_decoded_also_across_the_end_of_a_tick() {
    for (context, source) in
        [(CONTEXT_IRQ, CpuContext::Irq(9)), (CONTEXT_SOFTIRQ, CpuContext::Softirq(9))]
    {
        for (times, span) in [
            ([0, 0], None),
            ([1990, 2030], Some(TimeSpan::new(1990, 2030))),
            ([0, 2030], None),
            ([2030, 2030], None),
            ([2031, 2030], None),
        ] {
            let slots = vec![IrqTime { source, ns: 40, count: 5 }];
            let read = IrqRecord { cpu: 3, tick_end_ns: 2000, span, slots };
            assert_eq!(
                decode_record(&bytes_of_an_interrupt(times, context)),
                Ok(DrainedRecord::Irq(read))
            );
        }
    }
}

#[test]
fn a_task_is_no_interrupt() {
    for context in [CONTEXT_TASK, CONTEXT_NOBODY] {
        let bytes = bytes_of_an_interrupt([0, 0], context);
        assert_eq!(decode_record(&bytes), Err(Undecodable::Value(KIND_IRQ)));
    }
}

#[test]
fn unknown_kinds_and_values_are_errors() {
    let mut bytes = bytes_of_a_sample();
    bytes[0] = 99;
    assert_eq!(decode_record(&bytes), Err(Undecodable::Kind(99)));
    let mut bytes = bytes_of_a_sample();
    bytes[32] = 99;
    assert_eq!(decode_record(&bytes), Err(Undecodable::Value(KIND_SAMPLE)));
}

#[test]
fn a_sample_that_ends_before_its_begin_is_an_error() {
    let mut bytes = bytes_of_a_sample();
    bytes[8..16].copy_from_slice(&2000_u64.to_ne_bytes());
    bytes[16..24].copy_from_slice(&1999_u64.to_ne_bytes());
    assert_eq!(decode_record(&bytes), Err(Undecodable::Value(KIND_SAMPLE)));
}

/// A record of these 32-bit words, followed by 64-bit words.
fn bytes_of(words: &[u32], more: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(more.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// The bytes of a task, and what they mean.
fn a_task(tid: u32) -> (Vec<u8>, TaskIdentity) {
    let mut bytes = bytes_of(&[tid, 10], &[42]);
    bytes.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0");
    (bytes, TaskIdentity { tid, pid: 10, cgroup_id: 42, comm: Comm::from_bytes(b"name") })
}

#[test]
fn names_end_at_the_first_nul_and_are_cut_off() {
    assert_eq!(Comm(*b"ab\0cdefghijklmno").to_text(), "ab");
    assert_eq!(Comm(*b"abcdefghijklmnop").to_text(), "abcdefghijklmnop");
    assert_eq!(Comm::from_bytes(b"abcdefghijklmnop").0, *b"abcdefghijklmno\0");
    assert_eq!(format!("{:?}", Comm::from_bytes(b"a\n")), r#""a\n""#);
}

#[test]
fn a_clean_name_gives_itself_again() {
    let clean = |name: &[u8; 16]| Comm(*name).to_table_form().0;
    // What older kernels leave behind the end is no part of the name.
    assert_eq!(clean(b"ab\0cdefghijklmno"), *b"ab\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(clean(b"abcdefghijklmno\0"), *b"abcdefghijklmno\0");
    assert_eq!(clean(b"abcdefghijklmnop"), *b"abcdefghijklmno\0");
    // Each invalid byte becomes a character of three bytes; the last ones do not fit.
    assert_eq!(&clean(b"\xff\0aaaaaaaaaaaaaa"), "\u{fffd}\0\0\0\0\0\0\0\0\0\0\0\0\0".as_bytes());
    assert_eq!(&clean(b"abcdefghijklm\xff\xff\0"), b"abcdefghijklm\0\0\0");
    assert_eq!(&clean(b"abcdefghijkl\xff\0\0\0"), "abcdefghijkl\u{fffd}\0".as_bytes());
}

#[test]
fn triggers_and_contexts_are_read() {
    let triggers = [
        (TRIGGER_TIMER, SampleTrigger::Timer, "timer"),
        (TRIGGER_SCHED, SampleTrigger::Sched, "sched"),
        (TRIGGER_IRQ, SampleTrigger::Irq, "irq"),
        (TRIGGER_SOFTIRQ, SampleTrigger::Softirq, "softirq"),
    ];
    let contexts = [
        (CONTEXT_TASK, CpuContext::Task),
        (CONTEXT_IRQ, CpuContext::Irq(3)),
        (CONTEXT_SOFTIRQ, CpuContext::Softirq(3)),
    ];
    for (trigger, as_trigger, name) in triggers {
        for (context, as_context) in contexts {
            let mut bytes = bytes_of_a_sample();
            bytes[32..36].copy_from_slice(&trigger.to_ne_bytes());
            bytes[48..52].copy_from_slice(&context.to_ne_bytes());
            let Ok(DrainedRecord::Sample(sample)) = decode_record(&bytes) else {
                panic!("not a sample");
            };
            assert_eq!((sample.trigger, sample.context), (as_trigger, as_context));
            assert_eq!(sample.trigger.name(), name);
        }
    }
    let mut bytes = bytes_of_a_sample();
    bytes[48..52].copy_from_slice(&CONTEXT_NOBODY.to_ne_bytes());
    assert_eq!(decode_record(&bytes), Err(Undecodable::Value(KIND_SAMPLE)));
}

#[test]
fn a_change_of_a_task_is_decoded() {
    let (of_task, task) = a_task(11);
    for (code, change) in [
        (TASK_EXEC, Ok(TaskChange::Exec)),
        (TASK_EXIT, Ok(TaskChange::Exit)),
        (TASK_EXIT + 1, Err(Undecodable::Value(KIND_TASK))),
    ] {
        let mut bytes = bytes_of(&[KIND_TASK, 3], &[1000]);
        bytes.extend(bytes_of(&[code, 0], &[]));
        bytes.extend(&of_task);
        let read =
            change.map(|change| DrainedRecord::Task(TaskRecord { time_ns: 1000, change, task }));
        assert_eq!(decode_record(&bytes), read);
    }
}

#[test]
fn a_change_of_a_device_file_is_decoded() {
    let task = TaskIdentity { tid: 11, pid: 10, cgroup_id: 42, comm: Comm::from_bytes(b"name") };
    let mut of_task = bytes_of(&[11, 10], &[42]);
    of_task.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0");
    for (code, change) in [
        (FILE_SEEN, Ok(FileChange::Seen)),
        (FILE_GOT, Ok(FileChange::Got)),
        (FILE_LEFT, Ok(FileChange::Left)),
        (FILE_DOUBT, Ok(FileChange::Doubt)),
        (FILE_FORK, Ok(FileChange::Fork(9))),
        (FILE_FORK + 1, Err(Undecodable::Value(KIND_FILE))),
    ] {
        let mut bytes = bytes_of(&[KIND_FILE, 3], &[1000]);
        // renderD128 of DRM: 226:128.
        bytes.extend(bytes_of(&[code, 226 << 20 | 128, 1, 9], &[]));
        bytes.extend(&of_task);
        let number = DeviceNumber { is_block: true, major: 226, minor: 128 };
        let read = change.map(|change| FileRecord { time_ns: 1000, change, number, task });
        assert_eq!(decode_record(&bytes), read.map(DrainedRecord::File));
    }
}

#[test]
fn a_change_of_a_cgroup_is_decoded() {
    let read = |code: u32, path: &[u8]| {
        let mut bytes = bytes_of(&[KIND_CGROUP, 3], &[1000]);
        bytes.extend(bytes_of(&[code, 11], &[42]));
        bytes.extend(path);
        decode_record(&bytes).map(|record| match record {
            DrainedRecord::Cgroup(event) => event,
            other => panic!("{other:?}"),
        })
    };
    let path = |len: usize| {
        let mut path = [0; MAX_PATH];
        path[..len].fill(b'a');
        path
    };
    for (code, change) in [
        (CGROUP_MKDIR, CgroupChange::Created),
        (CGROUP_RMDIR, CgroupChange::Removed),
        (CGROUP_ATTACH, CgroupChange::Attached(11)),
    ] {
        let path_read = Some("aa".to_owned());
        let event = CgroupRecord { time_ns: 1000, change, cgroup_id: 42, path: path_read };
        assert_eq!(read(code, &path(2)), Ok(event));
    }
    assert_eq!(read(CGROUP_ATTACH + 1, &path(2)), Err(Undecodable::Value(KIND_CGROUP)));
    assert_eq!(read(CGROUP_MKDIR, &path(2)[1..]), Err(Undecodable::Short));
    let len = |len| read(CGROUP_MKDIR, &path(len)).unwrap().path.map(|path| path.len());
    assert_eq!(len(0), None);
    assert_eq!(len(MAX_PATH - 2), Some(MAX_PATH - 2));
    // These paths may have been cut.
    assert_eq!([len(MAX_PATH - 1), len(MAX_PATH)], [None, None]);
}

#[test]
fn a_transfer_of_io_is_decoded() {
    let read = |[begin, end, sequence]: [u64; 3], code, context, tid| {
        let (of_task, _) = a_task(tid);
        let mut bytes = bytes_of(&[KIND_IO, 3], &[2000, begin, end, sequence, 1, 4096]);
        bytes.extend(of_task);
        let mut device = [0; MAX_DEVICE];
        device[..3].copy_from_slice(b"sda");
        bytes.extend(device);
        bytes.extend(bytes_of(&[], &[99, 4096]));
        bytes.extend(bytes_of(&[2, code, context, 9, 4, 5], &[]));
        decode_record(&bytes).map(|record| match record {
            DrainedRecord::Io(moved) => moved,
            other => panic!("{other:?}"),
        })
    };
    let slot = |kind, mover| {
        let device = "sda".to_owned();
        IoTransfer { kind, mover, device, interface: (5, 4), bytes: 4096, requests: 2 }
    };
    let task = Mover::Task(a_task(11).1);
    for (code, kind) in [
        (IO_READ, IoKind::Read),
        (IO_WRITE, IoKind::Write),
        (IO_SENT, IoKind::Sent),
        (IO_RECEIVED, IoKind::Received),
        (IO_TAKEN, IoKind::Taken),
    ] {
        let slots = vec![slot(kind, task)];
        let moved = IoRecord { cpu: 3, tick_end_ns: 2000, span: None, sequence: None, slots };
        assert_eq!(read([0, 0, 0], code, CONTEXT_TASK, 11), Ok(moved));
    }
    for (context, tid, mover) in [
        (CONTEXT_TASK, 0, Mover::Cgroup(42)),
        (CONTEXT_IRQ, 11, Mover::Interrupt(CpuContext::Irq(9))),
        (CONTEXT_SOFTIRQ, 11, Mover::Interrupt(CpuContext::Softirq(9))),
        (CONTEXT_NOBODY, 11, Mover::Nobody),
    ] {
        let moved = read([0, 0, 0], IO_READ, context, tid).unwrap();
        assert_eq!(moved.slots, [slot(IoKind::Read, mover)]);
    }
    for (times, span) in [
        ([1990, 2030, 0], Some(TimeSpan::new(1990, 2030))),
        ([0, 2030, 0], None),
        ([2030, 2030, 0], None),
        ([2031, 2030, 0], None),
    ] {
        assert_eq!(read(times, IO_READ, CONTEXT_TASK, 11).unwrap().span, span);
    }
    assert_eq!(read([0, 0, 7], IO_READ, CONTEXT_TASK, 11).unwrap().sequence, Some(7));
    let no_value = Err(Undecodable::Value(KIND_IO));
    assert_eq!(read([0, 0, 0], IO_TAKEN + 1, CONTEXT_TASK, 11), no_value);
    assert_eq!(read([0, 0, 0], IO_READ, CONTEXT_NOBODY + 1, 11), no_value);
}

#[test]
fn names_of_devices_end_at_the_first_nul() {
    assert_eq!(device_name(b"sda\0b"), "sda");
    assert_eq!(device_name(b"sda"), "sda");
    assert_eq!(device_name(b"s\xff"), "s\u{fffd}");
}

proptest! {
    #[test]
    fn no_bytes_panic_the_decoder(kind in 0u32..8, rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(rest);
        let _either = decode_record(&bytes);
    }
}
