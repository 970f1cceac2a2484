//! The library that both programs count on, and what it counts.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::run_quietly;

/// A counter that was opened: type, config words, CPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Opened {
    pub(super) attr_type: u32,
    pub(super) config: [u64; 4],
    pub(super) cpu: i32,
}

impl Opened {
    /// The count that the library gives it (`make` of `counts.c`).
    pub(super) fn fixed_count(&self) -> u64 {
        let [config, config1, config2, config3] = self.config;
        // The library takes the CPU as an unsigned word.
        let words = [u64::from(self.attr_type), config, config1, config2, config3, self.cpu as u64];
        let hash = words
            .into_iter()
            .fold(0_u64, |hash, word| mix_bits(hash.wrapping_mul(31).wrapping_add(word)));
        100_000 + hash % 1_000_000_000
    }
}

fn mix_bits(x: u64) -> u64 {
    let x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Compiles the library.
pub(super) fn build_library(work_dir: &Path) -> Result<PathBuf> {
    let library = work_dir.join("counts.so");
    let source = workspace_root().join("tests/oracle/counts.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
    run_quietly(compiler.arg(source).arg("-ldl"))?;
    Ok(library)
}

/// The counters in the log of the library; none if nothing was opened.
pub(super) fn read_opened(log: &Path) -> Result<Vec<Opened>> {
    let Ok(text) = std::fs::read_to_string(log) else { return Ok(Vec::new()) };
    let line = |line: &str| -> Option<Opened> {
        let mut words = line.split(' ');
        let attr_type = words.next()?.parse().ok()?;
        let mut word = || words.next()?.parse::<u64>().ok();
        let config = [word()?, word()?, word()?, word()?];
        Some(Opened { attr_type, config, cpu: words.next()?.parse().ok()? })
    };
    let read = |text: &str| line(text).with_context(|| format!("{}: {text}", log.display()));
    text.lines().map(read).collect()
}
