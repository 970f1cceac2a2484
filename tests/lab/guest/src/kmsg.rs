//! Reads kernel messages from /dev/kmsg.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context, Result};

const DEVICE: &str = "/dev/kmsg";
/// Larger than any record: `PRINTK_MESSAGE_MAX` of kernel/printk/internal.h (6.12) is 2048.
const RECORD: usize = 8192;

/// A position in the kernel's messages.
#[derive(Debug)]
pub(crate) struct Messages(File);

impl Messages {
    /// Starts at the oldest message that the kernel still has.
    pub(crate) fn from_oldest() -> Result<Self> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(DEVICE);
        Ok(Self(file.with_context(|| format!("open {DEVICE}"))?))
    }

    /// Starts at the next message.
    pub(crate) fn new() -> Result<Self> {
        let mut messages = Self::from_oldest()?;
        messages.0.seek(SeekFrom::End(0)).with_context(|| format!("seek in {DEVICE}"))?;
        Ok(messages)
    }

    /// The messages since the last call, in the format of dmesg.
    pub(crate) fn read_new(&mut self) -> Result<String> {
        let mut text = String::new();
        let mut buffer = [0; RECORD];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(text),
                Ok(size) => text.push_str(&dmesg_line(&String::from_utf8_lossy(&buffer[..size]))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(text),
                // The next read starts with the oldest message that the kernel still has.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    text.push_str("(messages lost: the kernel's buffer was too small)\n");
                }
                Err(error) => return Err(error).with_context(|| format!("read {DEVICE}")),
            }
        }
    }
}

/// Converts a record `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT` with lines of attributes to the
/// format of dmesg.
fn dmesg_line(record: &str) -> String {
    let first_line = record.lines().next().unwrap_or_default();
    let (head, text) = first_line.split_once(';').unwrap_or(("", first_line));
    let time: u64 = head.split(',').nth(2).and_then(|time| time.parse().ok()).unwrap_or(0);
    format!("[{:5}.{:06}] {text}\n", time / 1_000_000, time % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_shown_as_dmesg_does() {
        let record = "6,339,5140900,-;NET: Registered protocol; family 10\n SUBSYSTEM=net\n";
        assert_eq!(dmesg_line(record), "[    5.140900] NET: Registered protocol; family 10\n");
    }
}
