//! Loads the guest's kernel modules, files of /lab/modules.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: &str = "/lab/modules";
/// `MODULE_INIT_COMPRESSED_FILE` of include/uapi/linux/module.h (Linux 5.17 and later).
const COMPRESSED: i32 = 4;

/// Loads modules in the given order. A module that is loaded already is no error.
pub(crate) fn load_modules(names: &[String]) -> Result<()> {
    for name in names {
        let path = Path::new(DIRECTORY).join(name);
        let file = File::open(&path)
            .with_context(|| format!("open {} (is it in the initramfs?)", path.display()))?;
        insert_module(&path, &file).with_context(|| {
            format!("load {} (the kernel's messages may say more)", path.display())
        })?;
    }
    Ok(())
}

fn insert_module(path: &Path, file: &File) -> io::Result<()> {
    // The kernel supports only the compression it was built for, and returns an error for others.
    let flags = if path.extension().is_some_and(|suffix| suffix == "ko") { 0 } else { COMPRESSED };
    match rustix::system::finit_module(file, c"", flags) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
