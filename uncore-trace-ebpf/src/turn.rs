//! Turns at counters that several CPUs read.
//!
//! Since Linux 6.7, `perf_event_read_local` (kernel/events/core.c) reads some counters on any CPU
//! of their package (`PERF_EV_CAP_READ_ACTIVE_PKG`, and later `PERF_EV_CAP_READ_SCOPE`). It takes
//! no lock, and the drivers add what is new to the event's count without one either
//! (`uncore_perf_event_update`, arch/x86/events/intel/uncore.c, Linux 7.2: `local64_xchg` and
//! `local64_add`): two CPUs that read at the same time would count twice or lose what is new. So a
//! CPU reads such counters only while it has their turn, an entry of a hash map. Its insertion is
//! atomic on every kernel; a compare-and-exchange needs instructions that this object does without.
//!
//! The kernel may refuse to remove an entry, because it does not get the lock of the map
//! (`htab_lock_bucket`, kernel/bpf/hashtab.c, Linux 6.18). So the entry has the CPU that took the
//! turn: the turn of a CPU that reads nothing now is left over, and that CPU takes it again.

use core::ffi::c_void;

use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::macros::btf_map;

/// The CPUs that have the turns which are taken, by number of the turn.
#[btf_map]
static TURNS: HashMap<u32, u32, 1> = HashMap::new();

/// When the counters of each turn were last read. Index 0 is not used.
#[btf_map]
static TURN_READ: Array<u64, 1> = Array::new();

/// `BPF_NOEXIST`, include/uapi/linux/bpf.h.
const NO_EXIST: u64 = 1;

/// Most tries to take a turn. Each takes about 100 ns, and another CPU has the turn for as long as
/// it reads: 1 us for each counter.
const TRIES: u32 = 4096;

/// Takes a turn for this CPU, `cpu`, which reads nothing now; `false` if another CPU has it.
#[inline(always)]
pub fn take_turn(turn: u32, cpu: u32) -> bool {
    // SAFETY: the value is a number.
    TURNS.insert(turn, cpu, NO_EXIST).is_ok() || unsafe { TURNS.get(turn) } == Some(&cpu)
}

/// As [`take_turn`], and waits for the turn if another CPU has it; `false` if it has it for too
/// long.
#[inline(always)]
pub fn wait_for_turn(turn: u32, cpu: u32) -> bool {
    let mut wanted = WantedTurn { turn, cpu, is_taken: 0 };
    let callback: unsafe extern "C" fn(u64, *mut WantedTurn) -> i64 = try_again;
    // SAFETY: the callback takes what is given here, which lives as long as the call.
    unsafe { bpf_loop(TRIES, callback as *mut c_void, (&raw mut wanted).cast(), 0) };
    wanted.is_taken != 0
}

/// Lets others have the turn. If the kernel refuses that, the next turn of this CPU ends it.
#[inline(always)]
pub fn release_turn(turn: u32) {
    let _left_over = TURNS.remove(turn);
}

/// Whether the counters of a turn were last read at least `gap` ns before `now_ns`.
#[inline(always)]
pub fn is_due(turn: u32, now_ns: u64, gap: u64) -> bool {
    // The clock of another CPU may be ahead.
    TURN_READ.get(turn).is_none_or(|read| now_ns >= *read + gap)
}

/// Notes that the counters were read at `now_ns`. The caller has the turn.
#[inline(always)]
pub fn note_read(turn: u32, now_ns: u64) {
    if let Some(read) = TURN_READ.get_ptr_mut(turn) {
        // SAFETY: a map value; only the CPU with the turn writes it.
        unsafe { *read = now_ns };
    }
}

struct WantedTurn {
    turn: u32,
    cpu: u32,
    is_taken: u32,
}

unsafe extern "C" fn try_again(_try: u64, wanted: *mut WantedTurn) -> i64 {
    // SAFETY: the kernel passes the pointer that `wait_for_turn` gave.
    let wanted = unsafe { &mut *wanted };
    let is_taken = take_turn(wanted.turn, wanted.cpu);
    wanted.is_taken = u32::from(is_taken);
    i64::from(is_taken)
}
