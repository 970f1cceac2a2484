//! Mounts of a command's own, for tests that change what it sees of the machine.

#![expect(unsafe_code, reason = "a namespace is entered between fork and exec")]

use std::ffi::CStr;
use std::io::{Error, Result};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::command::NO_CONFIG;

/// More than the depth of any root directory.
const MOST_ABOVE: usize = 64;

/// A shell that ends at the first error, with mounts of its own: what the script mounts or unmounts
/// is nobody else's.
pub(crate) fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.env("XDG_CONFIG_HOME", NO_CONFIG).args(["-ec", script]);
    // SAFETY: `separate_mounts` calls nothing but system calls.
    unsafe { command.pre_exec(separate_mounts) };
    command
}

/// What `unshare --mount` does, also where the root directory is no mount point, as in a chroot:
/// there unshare(1) fails, since the kernel changes the propagation of mount points only. The
/// working directory stays.
fn separate_mounts() -> Result<()> {
    // SAFETY: a system call without pointers.
    check_return(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    if make_private().is_ok() {
        return Ok(());
    }
    // Both are opened in the new namespace: those of the old one take no mounts here.
    let [root, working] = [open_dir(c"/")?, open_dir(c".")?];
    // With the root in a directory that the working directory is not in, `..` leads above the root.
    change_root(c"/proc")?;
    enter_dir(root)?;
    for _ in 0..MOST_ABOVE {
        // SAFETY: a constant string.
        check_return(unsafe { libc::chdir(c"..".as_ptr()) })?;
    }
    change_root(c".")?;
    make_private()?;
    enter_dir(root)?;
    change_root(c".")?;
    enter_dir(working)
}

/// A descriptor of a directory, which the command that is executed does not have.
fn open_dir(path: &CStr) -> Result<libc::c_int> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a string that ends with NUL.
    let dir = unsafe { libc::open(path.as_ptr(), flags) };
    check_return(dir)?;
    Ok(dir)
}

fn enter_dir(dir: libc::c_int) -> Result<()> {
    // SAFETY: a system call without pointers.
    check_return(unsafe { libc::fchdir(dir) })
}

fn make_private() -> Result<()> {
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the strings are constant, and no type or data is needed for this change.
    check_return(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })
}

fn change_root(root: &CStr) -> Result<()> {
    // SAFETY: a string that ends with NUL.
    check_return(unsafe { libc::chroot(root.as_ptr()) })
}

fn check_return(returned: libc::c_int) -> Result<()> {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

mod tests {
    use std::ffi::CString;
    use std::fs;

    use super::*;
    use crate::harness::root_or_skip;

    /// What a command fails with after it has mounted something, as a chroot has no program to run.
    const MOUNTED: i32 = libc::EOWNERDEAD;

    #[test]
    fn mounts_are_separate_where_the_root_is_no_mount_point() {
        let _machine = root_or_skip!();
        let dir = tempfile::tempdir().unwrap();
        for name in ["proc", "work/inner"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let root = CString::new(dir.path().to_str().unwrap()).unwrap();
        let mut command = Command::new("true");
        let mount_inside = move || {
            change_root(&root)?;
            enter_dir(open_dir(c"/work")?)?;
            separate_mounts()?;
            // In the working directory of the command.
            let (inner, kind) = (c"inner".as_ptr(), c"tmpfs".as_ptr());
            // SAFETY: strings that end with NUL; the file system needs no data.
            check_return(unsafe { libc::mount(kind, inner, kind, 0, std::ptr::null()) })?;
            Err(Error::from_raw_os_error(MOUNTED))
        };
        // SAFETY: nothing but system calls.
        unsafe { command.pre_exec(mount_inside) };
        assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(MOUNTED));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(dir.path().to_str().unwrap()), "{mounts}");
    }
}
