//! Runs a program on a CPU through its descriptor only. A second descriptor would need
//! `CAP_SYS_ADMIN` (`BPF_PROG_GET_FD_BY_ID`), which the calling thread does not have.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::counters::bpf_call;

/// `BPF_PROG_TEST_RUN` and `BPF_F_TEST_RUN_ON_CPU`, include/uapi/linux/bpf.h.
const PROG_TEST_RUN: libc::c_int = 10;
const ON_CPU: u32 = 1;
/// Largest number of arguments of a raw tracepoint (`MAX_BPF_FUNC_ARGS`, include/linux/bpf.h).
const ARGUMENTS: usize = 12;

/// The fields of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[derive(Default)]
#[repr(C)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
}

/// Runs a raw tracepoint program once on `cpu`, with all arguments 0.
pub(super) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> io::Result<()> {
    let arguments = [0_u64; ARGUMENTS];
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        ctx_size_in: size_of_val(&arguments) as u32,
        ctx_in: arguments.as_ptr() as u64,
        flags: ON_CPU,
        cpu,
        ..TestRun::default()
    };
    bpf_call(PROG_TEST_RUN, &mut attr)?;
    Ok(())
}
