//! `cargo xtask unpack` and `cargo xtask pack`: converts the text of a captured machine to the
//! directory that `uncore-trace --root` reads, and back.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use uncore_trace_lab::fixtures;
use uncore_trace_lab::tree::Tree;

/// Options of `cargo xtask unpack`.
#[derive(Debug, clap::Args)]
pub(crate) struct Unpack {
    /// File that `cargo xtask capture` made, such as tests/fixtures/machines/NAME.toml
    file: PathBuf,
    /// Directory to make
    dir: PathBuf,
}

/// Options of `cargo xtask pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct Pack {
    /// Directory to read, with all its files
    dir: PathBuf,
    /// File to make, such as tests/fixtures/machines/NAME.toml
    file: PathBuf,
}

/// Makes the directory.
pub(crate) fn unpack_fixture(args: &Unpack) -> Result<()> {
    fixtures::read_tree(&args.file)?.unpack_to(&args.dir)?;
    println!("unpack: look at it with `uncore-trace list --root {}`", args.dir.display());
    Ok(())
}

/// Makes the file.
pub(crate) fn pack_fixture(args: &Pack) -> Result<()> {
    let tree = Tree::pack_dir(&args.dir)?;
    write_new(&tree, &args.file)?;
    println!("pack: {} files and links in {}", tree.all_entries().count(), args.file.display());
    Ok(())
}

/// Writes the text of a tree to a file that must not exist.
pub(crate) fn write_new(tree: &Tree, path: &Path) -> Result<()> {
    let open = OpenOptions::new().write(true).create_new(true).open(path);
    open.and_then(|mut file| file.write_all(tree.to_text().as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
