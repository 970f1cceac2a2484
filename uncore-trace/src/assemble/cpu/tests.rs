use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::drain::{CgroupChange, CgroupRecord, CpuContext};
use crate::identity::cgroups::Cgroups;

fn names() -> TaskNames {
    TaskNames::new(
        Path::new("/nonexistent"),
        Cgroups::new(None, Path::new("/nonexistent"), Vec::new()),
        Vec::new(),
    )
}

fn task(tid: u32) -> TaskIdentity {
    TaskIdentity { tid, pid: tid, ..TaskIdentity::default() }
}

fn slot(tid: u32, wall_ns: u64, irq_ns: u64) -> TaskSlot {
    TaskSlot { task: task(tid), wall_ns, irq_ns, slices: 1 }
}

/// A part of a slice that goes on in the next bin.
fn part(tid: u32, wall_ns: u64, irq_ns: u64) -> TaskSlot {
    TaskSlot { slices: 0, ..slot(tid, wall_ns, irq_ns) }
}

/// The unsent state of an idle CPU.
fn peek(run: RunRecord) -> Peek {
    Peek { run, next_tid: 0, irqs: Vec::new(), io: None }
}

fn span(begin_ns: u64, end_ns: u64) -> TimeSpan {
    TimeSpan { begin_ns, end_ns }
}

fn total(bin: &CpuBin) -> u64 {
    let tasks: u64 = bin.tasks.iter().map(|task| task.wall_ns).sum();
    tasks + bin.irq_ns(false) + bin.irq_ns(true) + bin.unknown_ns
}

#[test]
fn time_offline_is_nobodys() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1050,
        end: 1050,
        slots: vec![slot(1, 50, 0)],
    };
    assert_eq!(track.go_offline(Some(&peek(run))), None);
    assert!(track.is_offline());
    assert_eq!(track.add_offline_until(1200), Some(span(1050, 1200)));
    let bins = [track.close_first_bin(1100), track.close_first_bin(1200)];
    assert_eq!(bins.iter().map(|bin| bin.offline_ns).collect::<Vec<_>>(), [50, 100]);
    assert!(bins.iter().all(|bin| bin.unknown_ns == 0 && bin.excess_ns == 0), "{bins:?}");
    assert!(track.saw_switch(), "its records may be on their way");
    assert!(!track.saw_switch());
    assert_eq!(track.come_online(1230), Some(span(1200, 1230)));
    assert!(!track.is_offline());
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1230,
        last_slot_begin: 1300,
        end: 1300,
        slots: vec![slot(2, 70, 0)],
    };
    assert_eq!(track.add_run(&run, &mut names()), None);
    let bin = track.close_first_bin(1300);
    assert_eq!((bin.offline_ns, bin.unknown_ns, bin.tasks.len()), (30, 0, 1));
}

#[test]
fn what_was_lost_before_a_cpu_went_offline_is_a_gap() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1030,
        last_slot_begin: 1050,
        end: 1050,
        slots: vec![slot(1, 20, 0)],
    };
    assert_eq!(track.go_offline(Some(&peek(run))), Some(span(1000, 1030)));
    assert_eq!(track.add_offline_until(1100), Some(span(1050, 1100)));
    let bin = track.close_first_bin(1100);
    assert_eq!((bin.unknown_ns, bin.offline_ns, total(&bin)), (30, 50, 50));
}

#[test]
fn an_old_state_or_one_after_the_end_says_nothing_of_a_cpu_that_went_offline() {
    for (begin, end, stop) in [(990, 1010, 1100), (1050, 1110, 1100), (1050, 1050, 1100)] {
        let mut track = CpuTrack::new(1000, 100);
        track.stop_at(stop);
        let slots = vec![slot(1, end - begin, 0)];
        let state = peek(RunRecord { cpu: 0, begin_ns: begin, last_slot_begin: end, end, slots });
        assert_eq!(track.go_offline(Some(&state)), None);
        assert_eq!(track.accounted_ns, 1000);
        assert_eq!(track.add_offline_until(1200), Some(span(1000, 1100)));
        assert_eq!(track.add_offline_until(1200), None);
        let bin = track.close_first_bin(1100);
        assert_eq!((bin.offline_ns, bin.unknown_ns, bin.tasks.len()), (100, 0, 0));
    }
}

#[test]
fn a_slice_over_several_bins_is_divided_at_their_ends() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1050,
        end: 1320,
        slots: vec![slot(1, 30, 0), slot(2, 20, 0), slot(3, 270, 0)],
    };
    assert_eq!(track.add_run(&run, &mut names()), None);
    let first = track.close_first_bin(1100);
    assert_eq!(first.tasks, [slot(1, 30, 0), slot(2, 20, 0), part(3, 50, 0)]);
    assert_eq!(track.close_first_bin(1200).tasks, [part(3, 100, 0)]);
    assert_eq!(track.close_first_bin(1300).tasks, [part(3, 100, 0)]);
    let last = track.close_first_bin(1400);
    assert_eq!((last.tasks.as_slice(), last.unknown_ns), ([slot(3, 20, 0)].as_slice(), 80));
}

#[test]
fn interrupt_time_is_taken_out_of_the_task() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1060,
        end: 1200,
        slots: vec![slot(1, 60, 10), slot(2, 140, 25)],
    };
    track.add_run(&run, &mut names());
    let irq = |tick_end_ns, ns| IrqRecord {
        cpu: 0,
        tick_end_ns,
        span: None,
        slots: vec![IrqTime { source: CpuContext::Irq(9), ns, count: 1 }],
    };
    track.add_irq_record(irq(1100, 15));
    track.add_irq_record(irq(1200, 20));
    let first = track.close_first_bin(1100);
    assert_eq!(first.tasks, [slot(1, 50, 10), part(2, 35, 5)]);
    assert_eq!(first.irq_ns(false), 15);
    assert_eq!(total(&first), 100);
    let second = track.close_first_bin(1200);
    assert_eq!(second.tasks, [slot(2, 80, 20)]);
    assert_eq!(total(&second), 100);
}

/// A softirq from 1080 to 1120, of which a hardware interrupt took the first 20 ns. If spread
/// evenly, 10 of its own 20 ns would lie in the first bin.
#[test]
fn what_crosses_a_boundary_gives_way_to_what_does_not() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1080,
        end: 1200,
        slots: vec![slot(1, 80, 0), slot(2, 120, 40)],
    };
    track.add_run(&run, &mut names());
    let irq = |tick_end_ns, span, source| IrqRecord {
        cpu: 0,
        tick_end_ns,
        span,
        slots: vec![IrqTime { source, ns: 20, count: 1 }],
    };
    track.add_irq_record(irq(1100, None, CpuContext::Irq(9)));
    track.add_irq_record(irq(1200, Some(span(1080, 1120)), CpuContext::Softirq(8)));
    let first = track.close_first_bin(1100);
    assert_eq!((first.irq_ns(false), first.irq_ns(true), first.excess_ns), (20, 0, 0));
    assert_eq!((total(&first), first.unknown_ns), (100, 0));
}

#[test]
fn what_was_peeked_at_is_not_counted_again() {
    let mut track = CpuTrack::new(1000, 100);
    let mut names = names();
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1040,
        end: 1040,
        slots: vec![slot(1, 40, 0)],
    };
    let peek = Peek { run: run.clone(), next_tid: 2, irqs: Vec::new(), io: None };
    assert_eq!(track.add_peek(&peek, &task(2), 1200, &mut names), None);
    assert_eq!(track.close_first_bin(1100).tasks, [slot(1, 40, 0), part(2, 60, 0)]);
    assert_eq!(track.close_first_bin(1200).tasks, [part(2, 100, 0)]);
    // The same slots arrive with the slice when it ends.
    let record = RunRecord { end: 1250, slots: vec![slot(1, 40, 0), slot(2, 210, 0)], ..run };
    assert_eq!(track.add_run(&record, &mut names), None);
    let third = track.close_first_bin(1300);
    assert_eq!(third.tasks, [slot(2, 50, 0)]);
    assert_eq!(third.unknown_ns, 50);
}

#[test]
fn interrupts_that_were_not_sent_are_of_the_ticks_that_have_ended() {
    let irq = |tick_end_ns| {
        let slots = vec![IrqTime { source: CpuContext::Irq(9), ns: 10, count: 1 }];
        IrqRecord { cpu: 0, tick_end_ns, span: None, slots }
    };
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1100,
        end: 1100,
        slots: vec![slot(1, 100, 10)],
    };
    // What began before the first bin is in no bin, and the next tick may bring more.
    let irqs = [1000, 1100, 1200].map(irq).to_vec();
    let state = Peek { irqs, ..peek(run) };
    assert_eq!(track.add_peek(&state, &task(2), 1100, &mut names()), None);
    assert_eq!(track.accounted_ns, 1100);
    assert_eq!(track.close_first_bin(1100).irq_ns(false), 10);
    track.stop_at(1200);
    track.add_irq_record(irq(1100));
    track.add_irq_record(irq(1200));
    assert_eq!(track.close_first_bin(1200).irq_ns(false), 10);
}

/// The bin of the peek stays open while another CPU is waited for, and the record arrives
/// meanwhile.
#[test]
fn interrupts_that_were_peeked_at_are_not_counted_again() {
    let irq = |source, tick_end_ns, span, ns| IrqRecord {
        cpu: 0,
        tick_end_ns,
        span,
        slots: vec![IrqTime { source, ns, count: 1 }],
    };
    let hard = irq(CpuContext::Irq(9), 1100, None, 10);
    let crossing = irq(CpuContext::Softirq(3), 1100, Some(span(1050, 1070)), 20);
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1040,
        end: 1040,
        slots: vec![slot(1, 40, 0)],
    };
    let state = Peek { irqs: vec![hard.clone(), crossing.clone()], ..peek(run) };
    assert_eq!(track.add_peek(&state, &task(2), 1100, &mut names()), None);
    track.add_irq_record(hard);
    track.add_irq_record(crossing);
    // This record was sent before the peek, and is not part of it.
    track.add_irq_record(irq(CpuContext::Softirq(3), 1100, None, 5));
    let bin = track.close_first_bin(1100);
    assert_eq!((bin.irq_ns(false), bin.irq_ns(true)), (10, 25));
    assert!(track.peeked.is_empty());
}

/// After a recorder was stopped, the first record may be much later than the previous one and
/// contain a long slice.
#[test]
fn memory_does_not_grow_with_the_time_that_passed() {
    const MINUTE: u64 = 60_000_000_000;
    const MS: u64 = 1_000_000;
    let mut track = CpuTrack::new(0, MS);
    let (begin, end) = (MINUTE, 2 * MINUTE + MS / 2);
    let slots = vec![slot(1, end - begin, 0)];
    let gap = track.add_run(
        &RunRecord { cpu: 0, begin_ns: begin, last_slot_begin: begin, end, slots },
        &mut names(),
    );
    assert_eq!(gap, Some(span(0, MINUTE)));
    let slots = vec![slot(2, MS / 4, 0)];
    let (begin, end) = (end, end + MS / 4);
    track.add_run(
        &RunRecord { cpu: 0, begin_ns: begin, last_slot_begin: end, end, slots },
        &mut names(),
    );
    assert_eq!((track.bins.len(), track.long.len()), (1, 1));
    track.go_offline(None);
    track.add_offline_until(3 * MINUTE);
    track.add_offline_until(4 * MINUTE);
    assert_eq!(track.offline.len(), 1);
    let (mut ran, mut unknown, mut offline) = (0, 0, 0);
    for number in 1..=4 * MINUTE / MS {
        let bin = track.close_first_bin(number * MS);
        ran += bin.tasks.iter().map(|task| task.wall_ns).sum::<u64>();
        unknown += bin.unknown_ns;
        offline += bin.offline_ns;
    }
    assert_eq!((ran, unknown, offline), (MINUTE + 3 * MS / 4, MINUTE, 2 * MINUTE - 3 * MS / 4));
}

#[test]
fn a_lost_record_before_a_peek_is_a_gap() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1030,
        last_slot_begin: 1050,
        end: 1050,
        slots: vec![slot(1, 20, 0)],
    };
    let gap = track.add_peek(&peek(run), &task(2), 1100, &mut names());
    assert_eq!((gap, track.close_first_bin(1100).unknown_ns), (Some(span(1000, 1030)), 30));
}

/// A slice in one bin keeps its own interrupt time.
#[test]
fn a_slice_up_to_the_end_of_a_bin_is_whole() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1000,
        end: 1150,
        slots: vec![slot(1, 150, 0)],
    };
    track.add_run(&run, &mut names());
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1150,
        last_slot_begin: 1150,
        end: 1200,
        slots: vec![slot(2, 50, 10)],
    };
    track.add_run(&run, &mut names());
    let slots = vec![IrqTime { source: CpuContext::Irq(9), ns: 10, count: 1 }];
    track.add_irq_record(IrqRecord { cpu: 0, tick_end_ns: 1200, span: None, slots });
    track.close_first_bin(1100);
    assert_eq!(track.close_first_bin(1200).tasks, [slot(2, 40, 10), slot(1, 50, 0)]);
}

#[test]
fn a_slice_is_of_the_cgroup_that_its_task_was_in() {
    let (mut track, mut names) = (CpuTrack::new(1000, 100), names());
    let of = |cgroup_id, wall_ns| TaskSlot {
        task: TaskIdentity { cgroup_id, ..task(1) },
        wall_ns,
        irq_ns: 0,
        slices: 1,
    };
    let mut run = |begin, slot: TaskSlot| {
        let end = begin + slot.wall_ns;
        track.add_run(
            &RunRecord { cpu: 0, begin_ns: begin, last_slot_begin: begin, end, slots: vec![slot] },
            &mut names,
        );
        if end == 1030 {
            let change = CgroupChange::Attached(1);
            names.cgroup_event(&CgroupRecord { time_ns: 1080, change, cgroup_id: 8, path: None });
        }
    };
    // The record of a slice has the cgroup at its end.
    run(1000, of(7, 30));
    run(1030, of(8, 40));
    run(1070, of(8, 30));
    let tasks = track.close_first_bin(1100).tasks;
    assert_eq!(tasks, [TaskSlot { slices: 2, ..of(7, 80) }, of(8, 20)]);
}

#[test]
fn a_record_of_no_time_is_of_nobody() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1050,
        last_slot_begin: 1050,
        end: 1050,
        slots: vec![slot(1, 0, 0)],
    };
    assert_eq!(track.add_run(&run, &mut names()), Some(span(1000, 1050)));
    let bin = track.close_first_bin(1100);
    assert_eq!((bin.tasks.len(), bin.unknown_ns), (0, 100));
}

/// The programs send no such record. In one bin it would exceed the bin.
#[test]
fn slots_that_were_combined_over_the_end_of_a_bin_are_unknown_time() {
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1050,
        last_slot_begin: 1150,
        end: 1150,
        slots: vec![slot(1, 100, 0)],
    };
    let bins = |take: &dyn Fn(&mut CpuTrack) -> Option<TimeSpan>| {
        let mut track = CpuTrack::new(1000, 100);
        assert_eq!(take(&mut track), Some(span(1000, 1050)));
        let bins = [track.close_first_bin(1100), track.close_first_bin(1200)];
        bins.map(|bin| (total(&bin), bin.excess_ns, bin.tasks.len()))
    };
    let record = bins(&|track| track.add_run(&run, &mut names()));
    assert_eq!(record, [(100, 0, 0); 2]);
    let state = peek(run);
    let look = bins(&|track| track.add_peek(&state, &task(2), 1200, &mut names()));
    assert_eq!(look, [(100, 0, 0), (100, 0, 1)]);
    let offline = bins(&|track| track.go_offline(Some(&state)));
    assert_eq!(offline, [(100, 0, 0); 2]);
}

#[test]
fn a_lost_record_is_a_gap_and_unknown_time() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1080,
        last_slot_begin: 1100,
        end: 1100,
        slots: vec![slot(1, 20, 0)],
    };
    assert_eq!(track.add_run(&run, &mut names()), Some(span(1000, 1080)));
    assert_eq!(track.close_first_bin(1100).unknown_ns, 80);
}

#[test]
fn interrupts_of_lost_slices_are_of_the_unknown_time() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1060,
        last_slot_begin: 1100,
        end: 1100,
        slots: vec![slot(1, 40, 5)],
    };
    assert_eq!(track.add_run(&run, &mut names()), Some(span(1000, 1060)));
    let slots = vec![IrqTime { source: CpuContext::Irq(9), ns: 25, count: 2 }];
    track.add_irq_record(IrqRecord { cpu: 0, tick_end_ns: 1100, span: None, slots });
    let bin = track.close_first_bin(1100);
    assert_eq!((bin.irq_ns(false), bin.unknown_ns, bin.excess_ns), (25, 40, 0));
    assert_eq!(total(&bin), 100);
}

#[test]
fn interrupts_whose_record_was_lost_are_unknown_time() {
    let mut track = CpuTrack::new(1000, 100);
    let slots = vec![slot(1, 60, 25), slot(2, 40, 10)];
    let run = RunRecord { cpu: 0, begin_ns: 1000, last_slot_begin: 1100, end: 1100, slots };
    assert_eq!(track.add_run(&run, &mut names()), None);
    let told = vec![IrqTime { source: CpuContext::Irq(9), ns: 10, count: 2 }];
    track.add_irq_record(IrqRecord { cpu: 0, tick_end_ns: 1100, span: None, slots: told });
    let bin = track.close_first_bin(1100);
    assert_eq!((bin.irq_ns(false), bin.unknown_ns, bin.untold), (10, 25, 25));
    assert_eq!(total(&bin), 100);
}

/// In order: the slots that include them, pieces, the time offline, unknown time; the rest is cut
/// off.
#[test]
fn interrupts_are_of_the_time_that_has_room_for_them() {
    let bin = |told| {
        let irqs = vec![IrqTime { source: CpuContext::Irq(9), ns: told, count: 1 }];
        let (slots, pieces) = (vec![slot(1, 20, 5)], [slot(2, 10, 0)]);
        OpenBin { slots, irqs }.close_bin(1100, 100, &pieces, Vec::new(), 30)
    };
    // Told: task 1, task 2, interrupts, offline, unknown, cut off.
    for (told, times) in [
        (3, [15, 10, 3, 30, 42, 0]),
        (5, [15, 10, 5, 30, 40, 0]),
        (12, [15, 3, 12, 30, 40, 0]),
        (25, [15, 0, 25, 20, 40, 0]),
        (60, [15, 0, 60, 0, 25, 0]),
        (85, [15, 0, 85, 0, 0, 0]),
        (92, [15, 0, 85, 0, 0, 7]),
    ] {
        let CpuBin { tasks, unknown_ns: unknown, offline_ns: offline, excess_ns: excess, .. } =
            &bin(told);
        let irq_ns = bin(told).irq_ns(false);
        let found = [tasks[0].wall_ns, tasks[1].wall_ns, irq_ns, *offline, *unknown, *excess];
        assert_eq!(found, times, "{told}");
    }
}

#[test]
fn a_slot_has_no_more_interrupt_time_than_time() {
    let irqs = vec![IrqTime { source: CpuContext::Irq(9), ns: 30, count: 1 }];
    let slots = vec![slot(1, 20, 30), slot(2, 80, 0), slot(1, 0, 0)];
    let bin = OpenBin { slots, irqs }.close_bin(1100, 100, &[], Vec::new(), 0);
    assert_eq!(bin.tasks, [TaskSlot { slices: 2, ..slot(1, 0, 20) }, slot(2, 80, 0)]);
    assert_eq!((bin.irq_ns(false), bin.unknown_ns, bin.excess_ns), (20, 0, 10));
}

#[test]
fn the_interrupts_of_a_source_are_one() {
    let irq = |source, ns| IrqTime { source, ns, count: 1 };
    let [hard, soft] = [CpuContext::Irq(3), CpuContext::Softirq(3)];
    let irqs = vec![irq(hard, 30), irq(soft, 10), irq(hard, 20)];
    let spread = vec![irq(soft, 20), irq(soft, 60)];
    let bin = OpenBin { irqs, ..OpenBin::default() }.close_bin(1100, 100, &[], spread, 0);
    // 40 ns are left for the 80 that cross the end of a tick.
    let all = [IrqTime { count: 2, ..irq(hard, 50) }, IrqTime { count: 3, ..irq(soft, 50) }];
    assert_eq!(bin.irqs, all);
    assert_eq!((bin.irq_ns(false), bin.irq_ns(true), bin.unknown_ns), (50, 50, 0));
}

#[test]
fn an_interrupt_over_the_end_of_a_bin_is_divided() {
    let mut track = CpuTrack::new(1000, 100);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1000,
        end: 1200,
        slots: vec![slot(1, 200, 40)],
    };
    track.add_run(&run, &mut names());
    let irq = IrqRecord {
        cpu: 0,
        tick_end_ns: 1200,
        span: Some(TimeSpan::new(1090, 1130)),
        slots: vec![IrqTime { source: CpuContext::Softirq(3), ns: 40, count: 1 }],
    };
    track.add_irq_record(irq);
    // Counted where it ended.
    let part = |bin: CpuBin| (bin.irq_ns(true), bin.irqs[0].count);
    assert_eq!(part(track.close_first_bin(1100)), (10, 0));
    assert_eq!(part(track.close_first_bin(1200)), (30, 1));
}

/// As where a virtual machine is paused within an interrupt: the record is of one span.
#[test]
fn an_interrupt_of_an_hour_takes_no_memory_and_loses_no_time() {
    const TICK: u64 = 10_000_000;
    const HOUR: u64 = 360_000 * TICK;
    let mut track = CpuTrack::new(0, TICK);
    // A time that no part of the span divides, beside another of the same time.
    let irq = |source, ns| {
        let slots = vec![IrqTime { source, ns, count: 2 }];
        IrqRecord { cpu: 0, tick_end_ns: HOUR, span: Some(TimeSpan::new(TICK / 3, HOUR)), slots }
    };
    let (soft, hard) = (HOUR / 7, HOUR / 11);
    track.add_irq_record(irq(CpuContext::Softirq(3), soft));
    track.add_irq_record(irq(CpuContext::Irq(4), hard));
    assert_eq!((track.bins.len(), track.crossing.len()), (0, 2));
    let slots = vec![slot(1, HOUR, soft + hard)];
    track.add_run(
        &RunRecord { cpu: 0, begin_ns: 0, last_slot_begin: 0, end: HOUR, slots },
        &mut names(),
    );
    let (mut ns, mut count, mut ran) = ([0, 0], 0, 0);
    for number in 1..=HOUR / TICK {
        let bin = track.close_first_bin(number * TICK);
        assert_eq!((total(&bin), bin.unknown_ns, bin.excess_ns), (TICK, 0, 0));
        ns[0] += bin.irq_ns(true);
        ns[1] += bin.irq_ns(false);
        count += bin.irqs.iter().map(|irq| irq.count).sum::<u64>();
        ran += bin.tasks.iter().map(|task| task.wall_ns).sum::<u64>();
    }
    assert_eq!((ns, count, ran), ([soft, hard], 4, HOUR - soft - hard));
    assert!(track.crossing.is_empty());
}

#[test]
fn nothing_after_the_stop_counts() {
    let mut track = CpuTrack::new(1000, 100);
    track.stop_at(1150);
    let run = RunRecord {
        cpu: 0,
        begin_ns: 1000,
        last_slot_begin: 1000,
        end: 1190,
        slots: vec![slot(1, 190, 0)],
    };
    track.add_run(&run, &mut names());
    assert_eq!(track.close_first_bin(1100).tasks, [part(1, 100, 0)]);
    assert_eq!(track.close_first_bin(1150).tasks, [part(1, 50, 0)]);
}

proptest! {
    /// Every bin sums to its length, unless the CPU reported more time than there is.
    #[test]
    fn time_adds_up(slices in prop::collection::vec((1u32..5, 1u64..300, 0u64..20), 1..60)) {
        let mut track = CpuTrack::new(1000, 100);
        let mut names = names();
        let mut at = 1000;
        for (tid, wall, irq) in slices {
            let irq = irq.min(wall);
            let end = at + wall;
            let crosses = at / 100 != end / 100;
            let run = RunRecord {
                cpu: 0,
                begin_ns: at,
                last_slot_begin: if crosses { at } else { end },
                end,
                slots: vec![slot(tid, wall, irq)],
            };
            track.add_run(&run, &mut names);
            let told = IrqTime { source: CpuContext::Irq(1), ns: irq, count: 1 };
            let tick_end_ns = (at / 100 + 1) * 100;
            let span = crosses.then_some(TimeSpan::new(at, end));
            track.add_irq_record(IrqRecord { cpu: 0, tick_end_ns, span, slots: vec![told] });
            at = end;
        }
        let mut end = 1100;
        while end <= at {
            let bin = track.close_first_bin(end);
            prop_assert_eq!(total(&bin), 100, "{:?}", bin);
            end += 100;
        }
    }
}
