//! `--control`: another program enables and disables the counters, by lines through a FIFO or a
//! descriptor.
//!
//! The protocol is that of perf (`tools/perf/util/evlist.c`, Linux 7.2): `enable`, `disable`,
//! `ping` and `stop` are answered by [`ACK`] if there is a descriptor for answers; `ack` is
//! accepted and not answered. Guarantee: an answer means that the command was carried out. As in
//! perf, an unknown command gets a warning on standard error and no answer.

use std::io;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};

use crate::text::printable;

/// Length limit of a command; perf's own buffer has 1024 bytes.
const LONGEST: usize = 1024;

/// The answer, with the zero byte that perf sends after the newline (`EVLIST_CTL_CMD_ACK_TAG`,
/// `tools/perf/util/evlist.c`): clients read five bytes.
const ACK: &[u8] = b"ack\n\0";

/// Where commands are read and answers written, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlAddress {
    /// Path to read.
    control: String,
    /// Path to write.
    ack: Option<String>,
}

impl FromStr for ControlAddress {
    type Err = String;

    /// Parses `fifo:CTL[,ACK]` or `fd:CTL[,ACK]`. A descriptor is opened again through
    /// `/proc/self/fd`, which leaves the inherited one unchanged.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write fifo:CTL[,ACK] or fd:CTL[,ACK]";
        let (scheme, ends) = text.split_once(':').ok_or(form)?;
        let (control, ack) = match ends.split_once(',') {
            Some((control, ack)) => (control, Some(ack)),
            None => (ends, None),
        };
        let path = |end: &str| match scheme {
            "fifo" if !end.is_empty() => Ok(end.to_owned()),
            "fd" => match end.parse::<u16>() {
                Ok(number) => Ok(format!("/proc/self/fd/{number}")),
                Err(_) => Err(format!("'{end}' is not the number of a descriptor; {form}")),
            },
            _ => Err(form.to_owned()),
        };
        Ok(Self { control: path(control)?, ack: ack.map(path).transpose()? })
    }
}

/// A command of the other program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Enable the counters.
    Enable,
    /// Disable the counters.
    Disable,
    /// Only answer.
    Ping,
    /// Print the counts and end.
    Stop,
    /// Ignored, without an answer.
    Ack,
}

impl ControlCommand {
    fn parse_line(line: &str) -> Option<Self> {
        // perf accepts the name of an event after it, and then enables only that event.
        match line.trim() {
            "enable" => Some(Self::Enable),
            "disable" => Some(Self::Disable),
            "ping" => Some(Self::Ping),
            "stop" => Some(Self::Stop),
            "ack" => Some(Self::Ack),
            _ => None,
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Control {
    receiver: Receiver,
    sender: Option<Sender>,
    buffer: Vec<u8>,
}

impl Control {
    /// Opens both ends; needs a tokio runtime.
    ///
    /// Each is opened for reading and writing, as in perf: so opening does not wait for the other
    /// side, and its closing is not an end of file.
    ///
    /// # Errors
    ///
    /// An end is no FIFO or pipe, or may not be opened.
    pub fn open(address: &ControlAddress) -> Result<Self> {
        let ControlAddress { control, ack } = address;
        let cannot = |path: &str| {
            format!("cannot open {path} for --control: it must be a FIFO (mkfifo {path}) or a pipe")
        };
        let receiver = OpenOptions::new()
            .read_write(true)
            .open_receiver(control)
            .with_context(|| cannot(control))?;
        let sender = ack.as_ref().map(|ack| {
            OpenOptions::new().read_write(true).open_sender(ack).with_context(|| cannot(ack))
        });
        Ok(Self { receiver, sender: sender.transpose()?, buffer: Vec::new() })
    }

    /// Waits for the next command; cancel-safe.
    pub async fn next_command(&mut self) -> Result<ControlCommand> {
        loop {
            while let Some(line) = self.take_line() {
                if let Some(order) = ControlCommand::parse_line(&line) {
                    return Ok(order);
                }
                let line = printable(&line);
                log::warn!(
                    "--control: unknown command '{line}', not acknowledged; the commands are \
                     enable, disable, ping, stop"
                );
            }
            self.receiver.readable().await.context("cannot wait for --control")?;
            let mut bytes = [0; 256];
            match self.receiver.try_read(&mut bytes) {
                Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot read from --control"),
            }
            if self.buffer.len() > LONGEST {
                bail!("--control: a command of more than {LONGEST} bytes without a line end");
            }
        }
    }

    /// The next complete line in the buffer, without empty ones. As in perf, a zero byte also ends
    /// a line.
    fn take_line(&mut self) -> Option<String> {
        loop {
            let end = self.buffer.iter().position(|byte| matches!(byte, b'\n' | 0))?;
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).trim().to_owned();
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    /// Answers that the last command was carried out.
    pub fn acknowledge(&self) {
        if let Some(sender) = &self.sender
            && let Err(error) = sender.try_write(ACK)
        {
            log::warn!("--control: cannot acknowledge a command: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_addresses_are_those_of_perf() {
        let read = |text: &str| text.parse::<ControlAddress>().map(|it| (it.control, it.ack));
        let path = |path: &str| path.to_owned();
        assert_eq!(read("fifo:a"), Ok((path("a"), None)));
        assert_eq!(read("fifo:/x/a,/x/b"), Ok((path("/x/a"), Some(path("/x/b")))));
        assert_eq!(read("fd:3,4"), Ok((path("/proc/self/fd/3"), Some(path("/proc/self/fd/4")))));
        for bad in ["", "a", "fifo:", "fifo:a,", "fd:x", "fd:3,", "fd:-1", "pipe:a"] {
            assert!(read(bad).unwrap_err().contains("fifo:CTL"), "{bad}");
        }
    }

    #[test]
    fn control_commands_are_those_of_perf() {
        assert_eq!(ControlCommand::parse_line("enable"), Some(ControlCommand::Enable));
        assert_eq!(ControlCommand::parse_line(" stop "), Some(ControlCommand::Stop));
        assert_eq!(ControlCommand::parse_line("enable page-faults"), None);
        assert_eq!(ControlCommand::parse_line("ENABLE"), None);
    }
}
