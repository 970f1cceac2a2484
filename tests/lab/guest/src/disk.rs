//! Sequential requests to a disk, and the traffic that its root port sees of them.
//!
//! Guarantees that each request goes to the device (nothing is cached) and that its bytes are moved
//! when it is complete, not before.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use uncore_trace_lab::spec::{Disk, Move};

use crate::model::Model;
use crate::time;
use crate::wait::wait_within;

const NS_PER_US: u64 = 1_000;
/// Alignment of requests and their buffers: a page, which is also the largest logical block.
const ALIGN: usize = 4096;
/// The disk appears a moment after its driver was loaded. Emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends requests until the time `end_ns`.
pub(crate) fn send_requests(spec: &Disk, model: Option<&Model>, end_ns: u64) -> Result<()> {
    let bytes = spec.bytes as usize;
    let mut disk = open_device(Path::new(&spec.path))?;
    let size = disk.seek(SeekFrom::End(0)).with_context(|| format!("measure {}", spec.path))?;
    let slots = size / u64::from(spec.bytes);
    ensure!(slots > 0, "{} is smaller than a request", spec.path);
    let mut memory = vec![0; bytes + ALIGN];
    let skip = memory.as_ptr().align_offset(ALIGN);
    let buffer = memory.get_mut(skip..skip + bytes).context("align the buffer")?;
    let mut slot = 0;
    for request in 1_u32.. {
        if time::now_ns() >= end_ns {
            break;
        }
        let is_write = spec.write_every > 0 && request.is_multiple_of(spec.write_every);
        let offset = slot * u64::from(spec.bytes);
        let done = if is_write {
            disk.write_all_at(buffer, offset)
        } else {
            disk.read_exact_at(buffer, offset)
        };
        done.with_context(|| format!("request {request} of {}", spec.path))?;
        let portion = if is_write { spec.written } else { spec.read };
        if let (Some(model), Some(portion)) = (model, portion) {
            model.move_traffic(&[Move {
                amount: portion.amount * u64::from(spec.bytes),
                ..portion
            }])?;
        }
        // Not next to the previous request, so that the kernel does not merge them.
        slot = (slot + slots / 2 + 1) % slots;
        time::sleep_until(time::now_ns() + u64::from(spec.pause_us) * NS_PER_US)?;
    }
    Ok(())
}

fn open_device(path: &Path) -> Result<File> {
    wait_within(PATIENCE, || path.exists().then_some(()))
        .with_context(|| format!("no {} (has the machine a disk?)", path.display()))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    options.open(path).with_context(|| format!("open {}", path.display()))
}
