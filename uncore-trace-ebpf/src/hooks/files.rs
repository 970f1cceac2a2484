//! The files of watched devices: `fd_install(unsigned int fd, struct file *file)` puts every file
//! that a process opens or receives into its table; `locks_remove_posix(struct file *filp,
//! fl_owner_t owner)` is called for every file that is taken out of one, by `close`, `dup2`,
//! `execve` and the end of the process (fs/file.c, fs/open.c, Linux 6.1 to 7.2);
//! `sched_process_fork(struct task_struct *parent, struct task_struct *child)` follows the copy of
//! a table.
//!
//! The iterator `task_file` visits every file of every process when user space reads from it.

use aya_ebpf::macros::{fentry, raw_tracepoint};
use aya_ebpf::programs::{FEntryContext, RawTracePointContext};

use crate::files::{self, TaskFile};

#[fentry(function = "fd_install")]
fn fd_install(ctx: FEntryContext) -> i32 {
    files::note_gained(ctx.arg(1));
    0
}

#[fentry(function = "locks_remove_posix")]
fn locks_remove_posix(ctx: FEntryContext) -> i32 {
    files::note_closed(ctx.arg(0));
    0
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn sched_process_fork(ctx: RawTracePointContext) -> i32 {
    files::note_fork(ctx.arg(1));
    0
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
extern "C" fn task_file(ctx: *const TaskFile) -> i32 {
    // SAFETY: the kernel passes the context of this iterator.
    unsafe { files::write_seen(ctx) };
    0
}
