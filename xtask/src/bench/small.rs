//! Compiles the small BPF programs of benchmarks, which are written in C.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::apt::Apt;
use crate::command::{run_quietly, tool_version};
use crate::target;

/// Compiles `xtask/src/bench/NAME.bpf.c`, with a compiler that is installed if there is none.
pub(super) fn compile_program(name: &str) -> Result<PathBuf> {
    if tool_version("clang").is_err() {
        Apt::new().install_packages(&["clang"]).context("the small programs need clang")?;
    }
    let dir = target::target_dir()?.join("bpf");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let object = dir.join(format!("{name}.bpf.o"));
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-c", "-o"]);
    clang.arg(&object).arg(workspace_root().join(format!("xtask/src/bench/{name}.bpf.c")));
    run_quietly(&mut clang)?;
    Ok(object)
}
