//! Loads the BPF object and attaches its programs, in a stated order.

use std::collections::BTreeSet;
use std::io::Read as _;

use anyhow::{Context as _, Result, anyhow, bail};
use aya::maps::{Map, MapData};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader, VerifierLogLevel};
use flate2::read::ZlibDecoder;
use rustix::system::uname;
use uncore_trace_common::config;

use super::barrier::{self, Call};
use super::btf::{GlobalValue, KernelTypes, MemberGlobal};
use super::counters::CounterArray;
use super::open_counter::SwitchReadings;
use super::options::SessionOptions;
use super::{bpf_refusal, holders, io};
use crate::discover::release::is_realtime;

/// The BPF object, compressed with zlib by the build script.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/uncore-trace.bpf.o.z"));

/// Raw tracepoint programs that not every recording attaches: two run on a CPU through
/// `BPF_PROG_TEST_RUN`, `others` is only for counters that several CPUs read, and [`RAW_SWITCH`]
/// for kernels without BTF.
const SELDOM: [&str; 4] = ["others", "probe", RAW_SWITCH, "run_on_cpu"];

/// Attached to `sched_switch` where the kernel has no BTF of its own, and so no BTF tracepoints, or
/// where it does not compile BPF programs, and so refuses calls of [`CAST`].
const RAW_SWITCH: &str = "raw_switch";

/// Programs at the begin and end of a softirq. With `PREEMPT_RT` softirqs run in threads and other
/// tasks preempt them (Documentation/core-api/real-time/differences.rst, Linux 7.2): the time in
/// between would be taken from these. Without the programs it is that of the thread.
const OF_SOFTIRQS: [&str; 2] = ["softirq_entry", "softirq_exit"];

/// Structure members whose offsets the programs need, each with its global.
const OFFSETS: [MemberGlobal; 5] = [
    (config::TASK_PID, &[("task_struct", "pid")]),
    (config::CGROUP_KN, &[("cgroup", "kn")]),
    (config::CGROUP_ROOT, &[("cgroup", "root")]),
    (config::KERNFS_ID, &[("kernfs_node", "id")]),
    (config::ROOT_HIERARCHY, &[("cgroup_root", "hierarchy_id")]),
];

/// The way from the perf event array to the count of a counter in memory, likewise.
const WATCHED: [MemberGlobal; 3] = [
    (config::ARRAY_ENTRIES, &[("bpf_array", "ptrs")]),
    (config::ENTRY_EVENT, &[("bpf_event_entry", "event")]),
    (config::EVENT_COUNT, &[("perf_event", "count")]),
];

/// The function of the kernel (Linux 6.2) whose result the programs can load from, whatever address
/// it is given.
const CAST: &str = "bpf_rdonly_cast";

/// How the lines of the verifier's statistics begin (`print_verification_stats`,
/// kernel/bpf/verifier.c, Linux 6.1 to 7.2).
const STATISTICS: [&str; 4] =
    ["verification time ", "stack depth ", "insns processed ", "processed "];

/// What the programs that not every recording loads need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OptionalPrograms<'a> {
    /// Of those that see I/O.
    pub io: Option<&'a io::IoSettings>,
    /// Of those that see who holds which device.
    pub files: Option<&'a holders::HolderSettings>,
}

/// Loads the object and sets its globals, for `cpus` possible CPUs. The programs read their
/// counters from `counters`; `at_switch` says which of them are read at every switch, and
/// `optional` whether I/O is recorded, and who holds which device. No program is loaded or attached
/// yet. `log` is the level of the verifier's log for programs that it refuses.
pub(super) fn load_object(
    options: &SessionOptions,
    cpus: u32,
    at_switch: SwitchReadings,
    counters: &CounterArray,
    types: &KernelTypes,
    optional: OptionalPrograms<'_>,
    log: VerifierLogLevel,
) -> Result<Ebpf> {
    let mut settings = types.member_values(&OFFSETS)?;
    settings.extend([
        (config::TICK_NS, options.tick_ns),
        (config::SLICES, u64::from(options.slices)),
        (config::SAMPLE_ON_SCHED, u64::from(options.sample_on_sched)),
        (config::SAMPLE_ON_IRQ, u64::from(options.sample_on_irq)),
        (config::MIN_GAP_NS, options.min_gap_ns),
        (config::AT_SWITCH, u64::from(at_switch != SwitchReadings::Nothing)),
    ]);
    let mut object = decompress_object()?;
    if at_switch == SwitchReadings::Watched {
        match watch_counts(&mut object, types) {
            Ok(watch_settings) => settings.extend(watch_settings),
            Err(error) => log::info!("counts are read at every switch: {error:#}"),
        }
    }
    let mut loader = EbpfLoader::new();
    loader.verifier_log_level(log);
    for (name, value) in &settings {
        loader.override_global(name, value, true);
    }
    for map in ["RINGS", "CPUS", "SAMPLERS", "PROGRESS", "TIMERS", "TURNS"] {
        loader.map_max_entries(map, cpus);
    }
    // Turns have the numbers of CPUs plus one.
    loader.map_max_entries("TURN_READ", cpus + 1);
    if let Some(io) = optional.io {
        io.apply_settings(&mut loader, cpus);
    }
    if let Some(files) = optional.files {
        files.apply_settings(&mut loader);
    }
    let ebpf = loader.load(&object).map_err(|error| {
        anyhow!(one_line(&error)).context(bpf_refusal("cannot create the BPF maps", &error))
    })?;
    match ebpf.map("COUNTERS") {
        Some(Map::PerfEventArray(map)) => replace_counters(map, counters)?,
        _ => bail!("the BPF object has no map COUNTERS"),
    }
    Ok(ebpf)
}

/// Has the programs watch counts: the settings for that, unless the kernel keeps counts elsewhere.
fn watch_counts(object: &mut [u8], types: &KernelTypes) -> Result<Vec<GlobalValue>> {
    let mut settings = types.member_values(&WATCHED)?;
    settings.push((config::WATCH_COUNTS, 1));
    if let Some(function) = types.function_number(CAST)
        && let Some(event_type) = types.struct_number("perf_event")
    {
        replace_casts(object, function);
        settings.push((config::EVENT_TYPE, u64::from(event_type)));
    }
    Ok(settings)
}

/// Makes the calls of [`config::CAST_CALL`] calls of a function of the kernel
/// (`BPF_PSEUDO_KFUNC_CALL`, include/uapi/linux/bpf.h, Linux 6.1 to 7.2).
fn replace_casts(object: &mut [u8], function: u32) {
    const CALL: u8 = 0x85;
    const KFUNC_CALL: u8 = 2 << 4;
    let marked = [[CALL, 0, 0, 0], config::CAST_CALL.to_le_bytes()].concat();
    let call = [[CALL, KFUNC_CALL, 0, 0], function.to_le_bytes()].concat();
    let (instructions, _) = object.as_chunks_mut::<8>();
    for instruction in instructions.iter_mut().filter(|instruction| instruction[..] == marked) {
        instruction.copy_from_slice(&call);
    }
}

/// The object, decompressed.
fn decompress_object() -> Result<Vec<u8>> {
    let mut object = Vec::new();
    let read = ZlibDecoder::new(OBJECT).read_to_end(&mut object);
    read.context("the BPF object of this program is damaged")?;
    Ok(object)
}

fn replace_counters(map: &MapData, counters: &CounterArray) -> Result<()> {
    use std::os::fd::AsFd as _;
    counters.take_place_of(map.fd().as_fd()).context("cannot put the perf event array in its place")
}

/// Loads and attaches the programs that every recording needs: all raw tracepoint programs except
/// those for I/O and for files of devices, each to the tracepoint of its name. `sched_switch` is
/// last, because time is accounted from there on: by then the programs that keep names correct see
/// every change.
pub(super) fn attach_programs(ebpf: &mut Ebpf, kernel: Option<&Btf>) -> Result<()> {
    let realtime = is_realtime(&uname().version().to_string_lossy());
    let is_for_every_recording = |name: &&str| {
        let left_out = SELDOM.contains(name) || realtime && OF_SOFTIRQS.contains(name);
        !left_out && !io::PROGRAMS.contains(name) && !holders::PROGRAMS.contains(name)
    };
    let names: BTreeSet<String> = ebpf
        .programs()
        .filter(|(_, program)| matches!(program, Program::RawTracePoint(_)))
        .map(|(name, _)| name)
        .filter(is_for_every_recording)
        .map(str::to_owned)
        .collect();
    for name in &names {
        attach_raw(ebpf, name, name)?;
    }
    let Some(kernel) = kernel else { return attach_raw(ebpf, RAW_SWITCH, "sched_switch") };
    let program: &mut BtfTracePoint = find_program(ebpf, "sched_switch")?;
    if let Err(error) = check_load("sched_switch", program.load("sched_switch", kernel)) {
        log::info!("{error:#}: {RAW_SWITCH} takes its place");
        return attach_raw(ebpf, RAW_SWITCH, "sched_switch");
    }
    program.attach().context("cannot attach to the tracepoint sched_switch")?;
    Ok(())
}

/// Loads a raw tracepoint program and attaches it to a tracepoint.
pub(super) fn attach_raw(ebpf: &mut Ebpf, name: &str, tracepoint: &str) -> Result<()> {
    let program: &mut RawTracePoint = find_program(ebpf, name)?;
    check_load(name, program.load())?;
    let attached = program.attach(tracepoint);
    attached.with_context(|| format!("cannot attach to the tracepoint {tracepoint}"))?;
    Ok(())
}

/// The program of this name and type.
pub(super) fn find_program<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T>
where
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .with_context(|| format!("the BPF object has no program {name}"))?
        .try_into()
        .with_context(|| format!("the BPF program {name} is of another type"))
}

/// Turns a failed load into one line, without the verifier's long log.
pub(super) fn check_load(name: &str, result: Result<(), ProgramError>) -> Result<()> {
    result.map_err(|error| {
        let reason = match &error {
            ProgramError::LoadError { io_error, verifier_log } => {
                let log = verifier_log.to_string();
                let message = verifier_message(&log).map(|line| format!(": {line}"));
                format!("{io_error}{}", message.unwrap_or_default())
            }
            other_error => one_line(other_error),
        };
        let why = barrier::barrier_in(Call::Bpf, &error);
        let why = why.map(|barrier| format!("{barrier}; ")).unwrap_or_default();
        anyhow!(
            "the kernel refuses the BPF program {name}: {reason} ({why}see `uncore-trace doctor`)"
        )
    })
}

/// What the verifier says: the last line of its log before the statistics.
fn verifier_message(log: &str) -> Option<&str> {
    let is_statistic = |line: &str| STATISTICS.iter().any(|prefix| line.starts_with(prefix));
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    Some(lines.find(|line| !is_statistic(line))?.trim_end_matches('.'))
}

fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `BPF_STX | BPF_ATOMIC | BPF_DW` with `BPF_ADD`, and a call of `bpf_ringbuf_output`: code and
    /// constant of an instruction (include/uapi/linux/bpf.h).
    const ATOMIC_ADD: (u8, u32) = (0xdb, 0);
    const OUTPUT: (u8, u32) = (0x85, 130);

    fn read_number<const N: usize>(bytes: &[u8], offset: usize) -> usize {
        let mut number = [0; 8];
        number[..N].copy_from_slice(&bytes[offset..offset + N]);
        usize::from_le_bytes(number)
    }

    /// The code of each section of an object that has some.
    fn code(object: &[u8]) -> Vec<&[u8]> {
        let (sections, size, count) = (
            read_number::<8>(object, 0x28),
            read_number::<2>(object, 0x3a),
            read_number::<2>(object, 0x3c),
        );
        let headers = (0..count).map(|index| &object[sections + index * size..]);
        // SHT_PROGBITS with SHF_EXECINSTR.
        let code = headers.filter(|header| {
            read_number::<4>(header, 4) == 1 && read_number::<8>(header, 8) & 4 != 0
        });
        code.map(|header| {
            &object[read_number::<8>(header, 0x18)..][..read_number::<8>(header, 0x20)]
        })
        .collect()
    }

    #[test]
    fn the_message_of_the_verifier_is_the_line_before_its_statistics() {
        let why = "0: (85) call bpf_timer_init#169\nbpf_timer cannot be used for PREEMPT_RT.\n";
        let processed = "processed 23 insns (limit 1000000) max_states_per_insn 0 total_states 1\n";
        for statistics in [
            String::new(),
            processed.to_owned(),
            format!("verification time 321 usec\nstack depth 24+0\n{processed}"),
            format!("stack depth 24+0 max 24\ninsns processed 23\n{processed}\n"),
        ] {
            let log = format!("{why}{statistics}");
            assert_eq!(
                verifier_message(&log),
                Some("bpf_timer cannot be used for PREEMPT_RT"),
                "{log}"
            );
            assert_eq!(verifier_message(&statistics), None);
        }
    }

    /// A program that interrupts another on the same CPU counts in the same place.
    #[test]
    fn programs_count_dropped_records_by_atomic_addition() {
        let object = decompress_object().unwrap();
        let mut senders = 0;
        for section in code(&object) {
            let count = |(code, constant)| {
                let instructions = section.chunks_exact(8);
                instructions
                    .filter(|instruction| {
                        instruction[0] == code
                            && read_number::<4>(instruction, 4) == constant as usize
                    })
                    .count()
            };
            senders += usize::from(count(OUTPUT) > 0);
            assert!(count(ATOMIC_ADD) >= count(OUTPUT), "{} {}", count(ATOMIC_ADD), count(OUTPUT));
        }
        assert!(senders > 10, "{senders}");
    }
}
