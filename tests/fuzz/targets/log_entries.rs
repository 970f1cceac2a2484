//! Entries of a log in any order, also of unknown counters: an entry that breaks the order is an
//! error, and the shares from the accepted entries sum to the totals.
#![no_main]

use std::rc::Rc;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use uncore_trace::drain::Comm;
use uncore_trace::entries::{
    CounterReading, CounterValue, DeviceTransfer, EntryConsumer as _, LogEntry, Owner,
    ReadingTrigger,
};
use uncore_trace::plan::IoDirection;
use uncore_trace::schema::Builders;
use uncore_trace::schema::cgroups::CgroupNames;

use self::made::{START, TICK_NS, assert_conserved, attributor, plan};

mod made;

fn owner(byte: u8) -> Owner {
    match byte % 8 {
        0 => Owner::Idle,
        1 => Owner::Irq(u32::from(byte)),
        2 => Owner::Softirq(u32::from(byte)),
        3 => Owner::Device,
        4 => Owner::OtherTasks,
        5 => Owner::Unattributed,
        _ => {
            let comm = Comm::from_bytes(&[byte]);
            Owner::Task { pid: u32::from(byte), comm, cgroup_id: u64::from(byte / 16) }
        }
    }
}

fn reading(bytes: [u8; 6], tick: u64) -> CounterReading {
    let [_, which, place, late, amount, whose] = bytes;
    let value = u64::from(amount) << (whose % 60);
    let running = (late.is_multiple_of(3)).then_some((value, value / 2));
    CounterReading {
        tick,
        time: (tick * TICK_NS).saturating_sub(u64::from(late) << 12),
        counter: u32::from(which % 5),
        cpu: u32::from(place % 3),
        trigger: match place / 64 {
            0 => ReadingTrigger::Timer,
            1 => ReadingTrigger::Event,
            2 => ReadingTrigger::Stop,
            _ => ReadingTrigger::Start,
        },
        value: if amount == 255 { Err(5) } else { Ok(CounterValue { value, times: running }) },
        owner: (which > 127).then(|| owner(whose)),
    }
}

fuzz_target!(|input: &[u8]| {
    let plan = plan();
    let mut attributor = attributor(&plan);
    let mut tables = Builders::default();
    let root = Arc::new(CgroupNames { path: "/".into(), ..CgroupNames::default() });
    let mut tick = START;
    for entry in input.as_chunks::<6>().0 {
        let [kind, which, place, later, amount, whose] = *entry;
        let parts = [(owner(whose), u64::from(amount) << 12), (owner(which), 1 << 12)];
        let moved = DeviceTransfer {
            device: Rc::from(if place > 99 { "sda" } else { "sdb" }),
            is_on_pci: place > 99,
            direction: if place.is_multiple_of(2) { IoDirection::Read } else { IoDirection::Write },
            owner: owner(whose),
            bytes: u64::from(amount) << 9,
            requests: 1,
        };
        let taken = match kind % 9 {
            0..=2 => LogEntry::Reading(reading(*entry, tick)),
            3 => LogEntry::Usage { cpu: u32::from(place % 4), usage: &parts },
            4 => LogEntry::Moved(&moved),
            7 => LogEntry::Switches { cpu: u32::from(place % 4), switches: &parts },
            5 => LogEntry::Cgroup { id: u64::from(which), names: &root },
            6 => LogEntry::Interrupt { number: u32::from(which), name: "nic" },
            _ => {
                // Back in time, and far ahead.
                tick = (tick + u64::from(later)).saturating_sub(u64::from(whose / 128));
                LogEntry::EndOfTick { tick, is_last: amount == 7 }
            }
        };
        // An entry that breaks the order is ignored.
        attributor.take_entry(taken, &mut tables).ok();
    }
    assert_conserved(&tables.fabric.finish());
});
