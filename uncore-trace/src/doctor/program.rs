//! The file of this program, as a user must name it to give it privileges.

use std::borrow::Cow;
use std::env;

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The running program's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Its absolute path, quoted for a shell.
    pub(super) path: String,
    /// Whether its file system is mounted with `nosuid`: the kernel then ignores file capabilities
    /// (`mnt_may_suid()`, `fs/namespace.c`, Linux 6.18).
    pub(super) nosuid: bool,
}

impl Program {
    /// The running program; `None` where its path cannot be read.
    pub(super) fn running_program() -> Option<Self> {
        let path = env::current_exe().ok()?;
        let nosuid = statvfs(&path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
        Some(Self { path: quote_for_shell(&path.to_string_lossy()).into_owned(), nosuid })
    }
}

impl Default for Program {
    /// A program that the shell finds by its name.
    fn default() -> Self {
        Self { path: "uncore-trace".to_owned(), nosuid: false }
    }
}

/// The text as one word of a POSIX shell.
fn quote_for_shell(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quote_for_shell("/usr/local/bin/uncore-trace"), "/usr/local/bin/uncore-trace");
        assert_eq!(quote_for_shell("/home/a b/$x"), "'/home/a b/$x'");
        assert_eq!(quote_for_shell("it's"), r"'it'\''s'");
    }

    #[test]
    fn the_running_program_is_found() {
        let path = Program::running_program().unwrap().path;
        assert!(path.starts_with(['/', '\'']), "{path}");
    }
}
