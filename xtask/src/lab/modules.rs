//! Kernel modules for a guest: the device model with drivers compiled for it, and modules of the
//! distribution with their dependencies.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::kernel::Kernel;
use super::{cache, packages, time_step};
use crate::command::{last_lines, run_quietly};

/// Prefix of the cross compiler's programs.
const CROSS: &str = "aarch64-linux-gnu-";

/// Directories of the kernel source, two thirds of it, that neither Kconfig nor a PMU driver reads.
const LEFT_OUT: &[&str] = &[
    "linux-source-*/Documentation/devicetree",
    "linux-source-*/drivers/gpu/*.[ch]",
    "linux-source-*/drivers/media/*.[ch]",
    "linux-source-*/drivers/net/*.[ch]",
    "linux-source-*/drivers/staging/*.[ch]",
    "linux-source-*/sound/*.[ch]",
    "linux-source-*/tools/testing",
];

/// Builds the device model and the drivers for a kernel. Returns their `.ko` files in the order of
/// the model's Kbuild, in which they can be loaded.
pub(super) fn build_drivers(kernel: &Kernel, model: &Path) -> Result<Vec<PathBuf>> {
    ensure!(model.join("Kbuild").is_file(), "no device model in {}", model.display());
    let sources = source_files(model)?;
    let key = cache::CacheKey::from_inputs([&kernel.version, &kernel.release])
        .with_files(model, &sources)?;
    let dir = cache::cached_entry(&format!("model-{}", kernel.release), key, |dir| {
        let tree = prepared_source(kernel)?;
        time_step(&format!("kernel {}: modules built", kernel.release), || {
            copy_files(&sources, model, dir)?;
            build_modules(kernel, &tree, dir)
        })
    })?;
    let order = dir.join("modules.order");
    let order =
        fs::read_to_string(&order).with_context(|| format!("cannot read {}", order.display()))?;
    // Up to 6.2 modules are listed as `.ko`, later as `.o`, with or without a directory.
    let name = |line: &str| file_name(line).rsplit_once('.').map(|(stem, _)| format!("{stem}.ko"));
    Ok(order.lines().filter_map(name).map(|name| dir.join(name)).collect())
}

/// The model's source files, without products of a build in the same directory.
fn source_files(model: &Path) -> Result<Vec<PathBuf>> {
    let mut files = cache::list_files(model)?;
    files.retain(|path| {
        let generated = path.to_string_lossy().ends_with(".mod.c");
        path.ends_with("Kbuild") || !generated && path.extension().is_some_and(is_c)
    });
    Ok(files)
}

fn is_c(extension: &OsStr) -> bool {
    extension == "c" || extension == "h"
}

fn copy_files(files: &[PathBuf], source_dir: &Path, target_dir: &Path) -> Result<()> {
    for path in files {
        let target_path = target_dir.join(path.strip_prefix(source_dir).unwrap_or(path));
        let dir = target_path.parent().unwrap_or(&target_path);
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::copy(path, &target_path).with_context(|| format!("cannot copy {}", path.display()))?;
    }
    Ok(())
}

/// Builds in a separate directory, so that the source tree does not change.
fn build_modules(kernel: &Kernel, tree: &Path, dir: &Path) -> Result<()> {
    let mut command = make_command(kernel, tree);
    command.arg(path_argument("M=", dir)).arg(path_argument("LAB_SRC=", tree)).arg("modules");
    let output = run_quietly(&mut command)
        .with_context(|| format!("the modules do not build for kernel {}", kernel.release))?;
    refuse_warnings(&output, tree)?;
    for path in cache::list_files(dir)? {
        if path.extension().is_some_and(|extension| extension == "ko") {
            // Debug sections are ten times as large as the code, and the guest would have to unpack
            // them.
            run_quietly(Command::new(format!("{CROSS}strip")).arg("--strip-debug").arg(&path))?;
        }
    }
    Ok(())
}

/// Warnings in kernel files depend on the compiler and are accepted; the model must have none.
fn refuse_warnings(output: &str, tree: &Path) -> Result<()> {
    let tree = tree.to_string_lossy();
    let ours = |line: &&str| line.contains(": warning: ") && !line.starts_with(&*tree);
    let warnings: Vec<&str> = output.lines().filter(ours).collect();
    ensure!(warnings.is_empty(), "the device model has warnings:\n{}", warnings.join("\n"));
    Ok(())
}

/// The kernel's source, configured as the distribution's and ready for modules.
fn prepared_source(kernel: &Kernel) -> Result<PathBuf> {
    let key = cache::CacheKey::from_inputs([&kernel.version, &kernel.release]);
    cache::cached_entry(&format!("source-{}", kernel.release), key, |dir| {
        time_step(&format!("kernel {}: source prepared", kernel.release), || {
            prepare_source(kernel, dir)
        })
    })
}

fn prepare_source(kernel: &Kernel, dir: &Path) -> Result<()> {
    let files = tempfile::Builder::new()
        .prefix(".files-")
        .tempdir_in(dir)
        .with_context(|| format!("cannot create a directory in {}", dir.display()))?;
    let [headers, source] = kernel.to_build()?;
    packages::unpack_into(&[headers.clone(), source.clone()], files.path())?;
    let src = files.path().join("usr/src");
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(src.join(format!("{}.tar.xz", source.name)));
    tar.args(LEFT_OUT.iter().map(|pattern| format!("--exclude={pattern}")));
    run_quietly(tar.arg("--directory").arg(dir).arg("--strip-components=1"))?;
    let headers = src.join(&headers.name);
    for name in [".config", "Module.symvers"] {
        fs::copy(headers.join(name), dir.join(name))
            .with_context(|| format!("cannot copy {name} of kernel {}", kernel.release))?;
    }
    write_pahole(dir)?;
    run_quietly(make_command(kernel, dir).arg("olddefconfig"))?;
    run_quietly(make_command(kernel, dir).arg("modules_prepare"))?;
    let config = fs::read_to_string(dir.join(".config"))
        .with_context(|| format!("no configuration of kernel {}", kernel.release))?;
    ensure!(
        config.contains("\nCONFIG_DEBUG_INFO_BTF=y\n"),
        "kernel {} lost its type information while being configured: its modules would not load",
        kernel.release
    );
    Ok(())
}

/// Without pahole, the configuration lacks type information and options that depend on it, and
/// `struct module` lacks fields: the kernel then refuses the modules. pahole never runs when only
/// modules are built, so a script that prints a version is enough.
fn write_pahole(dir: &Path) -> Result<()> {
    let config = dir.join(".config");
    let config =
        fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    let version = config.lines().find_map(|line| line.strip_prefix("CONFIG_PAHOLE_VERSION="));
    let version: u32 = version.and_then(|text| text.parse().ok()).unwrap_or(130);
    let path = dir.join("pahole");
    let script = format!("#!/bin/sh\necho v{}.{}\n", version / 100, version % 100);
    fs::write(&path, script)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// `make` in a tree as the distribution runs it, without parts that only a whole kernel needs: the
/// program that embeds type information, and signatures.
fn make_command(kernel: &Kernel, tree: &Path) -> Command {
    let mut command = Command::new("make");
    command
        .args(["--silent", "-j2", "ARCH=arm64"])
        .arg(format!("CROSS_COMPILE={CROSS}"))
        .arg(format!("KERNELRELEASE={}", kernel.release))
        .arg(path_argument("PAHOLE=", &tree.join("pahole")))
        .args(["CONFIG_DEBUG_INFO_BTF=", "CONFIG_DEBUG_INFO_BTF_MODULES="])
        .args(["CONFIG_MODULE_SIG_FORMAT=", "CONFIG_MODULE_SIG_ALL="])
        .env("LC_ALL", "C")
        .env_remove("MAKEFLAGS")
        .current_dir(tree);
    command
}

fn path_argument(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(path);
    argument
}

/// Modules of the distribution and their dependencies, as uncompressed `.ko` files in the order in
/// which they can be loaded, without those that are built into the kernel.
pub(super) fn unpack_dependencies(kernel: &Kernel, names: &[&str]) -> Result<Vec<PathBuf>> {
    let read = |name: &str| {
        let path = kernel.modules.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (dep, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    let mut order: Vec<&str> = Vec::new();
    for name in names {
        if builtin.lines().any(|line| module_name(line) == normalize_name(name)) {
            continue;
        }
        let mut lines = dep.lines().filter_map(|line| line.split_once(':'));
        let Some((path, needs)) = lines.find(|(path, _)| module_name(path) == normalize_name(name))
        else {
            bail!("kernel {} has no module {name}", kernel.release);
        };
        // modules.dep lists the dependencies of a module from the nearest to the farthest.
        for path in needs.split_whitespace().rev().chain([path]) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    let key = cache::CacheKey::from_inputs([&kernel.version, &kernel.release])
        .with_input(order.join("\n"));
    let dir = cache::cached_entry(&format!("modules-{}", kernel.release), key, |dir| {
        order.iter().try_for_each(|path| decompress_module(&kernel.modules.join(path), dir))
    })?;
    Ok(order.iter().map(|path| dir.join(file_name(path))).collect())
}

/// The name of a module, from the path of its file.
fn module_name(path: &str) -> String {
    normalize_name(file_name(path).trim_end_matches(".ko"))
}

/// The kernel's module names have underscores where file names may have dashes.
fn normalize_name(name: &str) -> String {
    name.replace('-', "_")
}

/// The name of the uncompressed file.
fn file_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".xz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name)
}

fn decompress_module(source: &Path, dir: &Path) -> Result<()> {
    let target = dir.join(file_name(&source.to_string_lossy()));
    let tool = match source.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => {
            fs::copy(source, &target)
                .with_context(|| format!("cannot copy {}", source.display()))?;
            return Ok(());
        }
    };
    let output = Command::new(tool)
        .args(["--decompress", "--stdout"])
        .arg(source)
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{tool} {}: {}", source.display(), last_lines(&error, 1));
    fs::write(&target, output.stdout).with_context(|| format!("cannot write {}", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_as_the_kernel_names_them() {
        assert_eq!(module_name("kernel/drivers/perf/arm-cmn.ko.xz"), "arm_cmn");
        assert_eq!(module_name("kernel/drivers/block/virtio_blk.ko"), "virtio_blk");
        assert_eq!(file_name("kernel/a/b.ko.zst"), "b.ko");
    }
}
