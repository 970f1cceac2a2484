//! System calls: a seccomp filter, seccomp(2).
//!
//! The filter refuses (EPERM) system calls that no thread of a confined process makes. A list of
//! allowed calls would differ between C libraries and architectures, and a call that a new version
//! of a library makes would end a recording or an upload. So the filter does not prove that the
//! rest is harmless. It removes what turns a fault of the process into lasting damage: executing
//! programs, inspecting or signalling other processes, connecting sockets, loading BPF programs and
//! modules, changing file systems and namespaces, and interfaces of the kernel that are not used.
//!
//! Two kinds of calls are left to who needs them: counters to a recorder, and connections over TCP
//! and the look-up of host names over UDP to the uploader. Landlock has the ports.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads, sock_filter,
};

use super::ThreadNeeds;

/// Calls that are refused with any arguments.
const REFUSED: &[libc::c_long] = &[
    // Other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // Those that listen already, for marks, accept.
    libc::SYS_listen,
    // Namespaces and file systems.
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_mknodat,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    // Interfaces that are not used.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that are refused to who does not connect. The C library binds the socket of a look-up.
const SOCKETS: [libc::c_long; 3] = [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind];

/// Kinds of addresses of one who connects; `AF_UNIX` for a service that looks names up, such as
/// nscd.
const FAMILIES: [u64; 3] = [libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64];

/// Protocols of one who connects: the default of the type, TCP and UDP. Landlock knows the ports of
/// TCP only, not those of MPTCP or SCTP.
const PROTOCOLS: [u64; 3] = [0, libc::IPPROTO_TCP as u64, libc::IPPROTO_UDP as u64];

/// Calls that send, and the position of their flags. With `MSG_FASTOPEN` they connect, which
/// Landlock sees on Linux 7.2 (`security/landlock/net.c`), but not on 6.12.
const SENDS: [(libc::c_long, u8); 3] =
    [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

/// Calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Commands of bpf(2) that are needed to follow a counter to another CPU, and to read records and
/// the files of all processes, as numbered in `include/uapi/linux/bpf.h`: `MAP_LOOKUP_ELEM`,
/// `MAP_UPDATE_ELEM`, `PROG_TEST_RUN`, `OBJ_GET_INFO_BY_FD`, `RAW_TRACEPOINT_OPEN`, `ITER_CREATE`.
/// None of them loads a program or creates a map.
const BPF_COMMANDS: [u64; 6] = [1, 2, 10, 15, 17, 33];

/// Pushes input into a terminal, `include/uapi/asm-generic/ioctls.h`. The type of libc's constant
/// differs between C libraries.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

/// Calls from this number on belong to the x32 interface (`__X32_SYSCALL_BIT` in
/// `arch/x86/include/uapi/asm/unistd.h`), which has other numbers for the refused calls.
const FOREIGN: u32 = 0x4000_0000;

/// Installs the filter in all threads of this process and in those that they start; sets
/// `no_new_privs`.
pub(super) fn filter_all_threads(needs: &ThreadNeeds) -> Result<(), String> {
    apply_filter_all_threads(&compile_filter(needs)?).map_err(|error| error.to_string())
}

/// The filter.
pub(super) fn compile_filter(needs: &ThreadNeeds) -> Result<Vec<sock_filter>, String> {
    let arch = std::env::consts::ARCH.try_into();
    let arch = arch.map_err(|_other: BackendError| "not on this architecture".to_owned())?;
    let rules = filter_rules(needs).map_err(|error| error.to_string())?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let compiled: Result<Vec<sock_filter>, _> = filter.and_then(TryInto::try_into);
    let mut program = leading_statements();
    program.extend(compiled.map_err(|error| error.to_string())?);
    Ok(program)
}

/// Rules that the list cannot express. The flags of `clone3` are in memory, which a filter cannot
/// read. The filter answers that `clone3` does not exist, and C libraries then use `clone`.
fn leading_statements() -> Vec<sock_filter> {
    let statement = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let refuse = |errno: i32| {
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
    };
    let jump = |operation: u32, k| statement(libc::BPF_JMP | operation | libc::BPF_K, 0, 1, k);
    vec![
        // The number of the call is the first field of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        jump(libc::BPF_JGE, FOREIGN),
        refuse(libc::EPERM),
        jump(libc::BPF_JEQ, libc::SYS_clone3 as u32),
        refuse(libc::ENOSYS),
    ]
}

fn filter_rules(needs: &ThreadNeeds) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let compare = |argument, operator, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let not = |argument, value: u64| compare(argument, SeccompCmpOp::Ne, value);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    // Refuses what is none of the values.
    let refuse_unless = |argument, values: &[u64]| {
        SeccompRule::new(
            values
                .iter()
                .map(|allowed_value| not(argument, *allowed_value))
                .collect::<Result<_, _>>()?,
        )
    };
    if needs.counts {
        rules.insert(libc::SYS_bpf, vec![refuse_unless(0, &BPF_COMMANDS)?]);
    } else {
        rules.extend([libc::SYS_bpf, libc::SYS_perf_event_open].map(|call| (call, Vec::new())));
    }
    if needs.connects.is_empty() {
        rules.extend(SOCKETS.map(|call| (call, Vec::new())));
    } else {
        rules.insert(
            libc::SYS_socket,
            vec![refuse_unless(0, &FAMILIES)?, refuse_unless(2, &PROTOCOLS)?],
        );
        for (call, flags) in SENDS {
            let fast = libc::MSG_FASTOPEN as u64;
            let connects = compare(flags, SeccompCmpOp::MaskedEq(fast), fast)?;
            rules.insert(call, vec![SeccompRule::new(vec![connects])?]);
        }
    }
    // Threads are allowed, processes are not.
    let process = vec![compare(0, SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64), 0)?];
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(process)?]);
    // Input of a terminal must come from its user.
    let types = [TIOCSTI, TIOCLINUX];
    let types = types.map(|request| SeccompRule::new(vec![compare(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, types.into_iter().collect::<Result<_, _>>()?);
    let own_pid = u64::from(std::process::id());
    let signalled: Vec<u64> =
        std::iter::once(own_pid).chain(needs.command.map(u64::from)).collect();
    rules.insert(libc::SYS_kill, vec![refuse_unless(0, &signalled)?]);
    rules.insert(libc::SYS_tgkill, vec![refuse_unless(0, &[own_pid])?]);
    Ok(rules)
}
