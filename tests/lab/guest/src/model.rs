//! The device model in the kernel, /dev/uncore-model, as tests/lab/model/abi.h describes it.
//!
//! Guarantees that requests and moves have the layout of this header (tests compare them), and that
//! a move is either accepted as a whole or is an error.
#![expect(unsafe_code, reason = "ioctl(2) needs to be told what a request reads and returns")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write};
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, ensure};
use rustix::ioctl::{Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl, opcode};
use uncore_trace_lab::spec::{Device, Move};

const DEVICE: &str = "/dev/uncore-model";
const MAGIC: u8 = 0xb7;
const DEFINE: Opcode = opcode::read_write::<Define>(MAGIC, 1);
const ATTACH: Opcode = opcode::none(MAGIC, 2);
const FORGET: Opcode = opcode::none(MAGIC, 3);
const DELEGATE: Opcode = opcode::write::<u32>(MAGIC, 4);
/// Size of struct `lab_truth`: time, cgroup, two ids and the move.
const TRUTH: usize = 8 + 8 + 4 + 4 + MOVE;
/// Size of struct `lab_move`.
const MOVE: usize = 4 + 4 + 8 + 8 + 8;
/// Number of moves in one write.
pub(crate) const MOVES: usize = 64;

/// struct `lab_define`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Define {
    kind: u32,
    node: u32,
    cpus: u64,
    arg: [u64; 12],
    text: [u8; 16],
}

/// `LAB_DEFINE`. It returns the number of the new device.
struct DefineRequest(Define);

// SAFETY: the opcode is that of `LAB_DEFINE`, which reads and writes one `struct lab_define` behind
// the pointer, and `Define` has its layout; the result of the call needs no pointer.
unsafe impl Ioctl for DefineRequest {
    type Output = u32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        DEFINE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(out.cast_unsigned())
    }
}

impl Define {
    fn new(device: &Device) -> Result<Self> {
        let mut define = Self {
            kind: device.kind,
            node: device.node,
            cpus: device.cpus,
            arg: [0; 12],
            text: [0; 16],
        };
        ensure!(device.arg.len() <= define.arg.len(), "it has more than 12 arguments");
        // The last byte is the terminator of the string.
        ensure!(device.text.len() < define.text.len(), "its text is longer than 15 bytes");
        define.arg[..device.arg.len()].copy_from_slice(&device.arg);
        define.text[..device.text.len()].copy_from_slice(device.text.as_bytes());
        Ok(define)
    }
}

/// The open device model.
#[derive(Debug)]
pub(crate) struct Model(File);

impl Model {
    /// Opens the model, which must exist.
    pub(crate) fn open() -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE);
        Ok(Self(file.with_context(|| {
            format!("open {DEVICE} (is uncore_model.ko among the guest's modules?)")
        })?))
    }

    /// Opens the model, if the guest has one.
    pub(crate) fn open_if_any() -> Result<Option<Self>> {
        Path::new(DEVICE).exists().then(Self::open).transpose()
    }

    /// Adds a device, which must get this number.
    pub(crate) fn define_device(&self, number: usize, device: &Device) -> Result<()> {
        let request = DefineRequest(Define::new(device)?);
        // SAFETY: see `DefineRequest`; the file is the model's.
        let got = unsafe { ioctl(&self.0, request) }.context("LAB_DEFINE")?;
        ensure!(got as usize == number, "the model calls it device {got}");
        Ok(())
    }

    /// Makes all devices visible to the kernel.
    pub(crate) fn attach_devices(&self) -> Result<()> {
        // SAFETY: `LAB_ATTACH` has no argument.
        let request = unsafe { NoArg::<ATTACH>::new() };
        // SAFETY: as above; the file is the model's.
        unsafe { ioctl(&self.0, request) }.context("LAB_ATTACH")
    }

    /// Empties the truth log.
    pub(crate) fn clear_log(&self) -> Result<()> {
        // SAFETY: `LAB_FORGET` has no argument.
        let request = unsafe { NoArg::<FORGET>::new() };
        // SAFETY: as above; the file is the model's.
        unsafe { ioctl(&self.0, request) }.context("LAB_FORGET")
    }

    /// From now on, a kernel thread makes each move after this much work, in µs.
    pub(crate) fn delegate_moves(&self, work_us: u32) -> Result<()> {
        // SAFETY: `LAB_DELEGATE` reads one number behind the pointer.
        let request = unsafe { Setter::<DELEGATE, u32>::new(work_us) };
        // SAFETY: as above; the file is the model's.
        unsafe { ioctl(&self.0, request) }.context("LAB_DELEGATE")
    }

    /// Moves traffic, [`MOVES`] moves at a time.
    pub(crate) fn move_traffic(&self, moves: &[Move]) -> Result<()> {
        for chunk in moves.chunks(MOVES) {
            let bytes: Vec<u8> = chunk.iter().flat_map(move_bytes).collect();
            (&self.0).write_all(&bytes).with_context(|| {
                format!("the model refused one of {} moves from {:?} on", chunk.len(), chunk[0])
            })?;
        }
        Ok(())
    }

    /// Copies the truth log.
    pub(crate) fn copy_truth(&mut self, mut output: impl Write) -> Result<()> {
        let mut buffer = vec![0; 1024 * TRUTH];
        loop {
            match self.0.read(&mut buffer).context("read the truth log")? {
                0 => return Ok(()),
                size => output.write_all(&buffer[..size]).context("write the truth log")?,
            }
        }
    }
}

/// A move as struct `lab_move`.
fn move_bytes(portion: &Move) -> [u8; MOVE] {
    let mut bytes = [0; MOVE];
    bytes[0..4].copy_from_slice(&portion.device.to_ne_bytes());
    bytes[4..8].copy_from_slice(&portion.event.to_ne_bytes());
    bytes[8..16].copy_from_slice(&portion.source.to_ne_bytes());
    bytes[16..24].copy_from_slice(&portion.target.to_ne_bytes());
    bytes[24..32].copy_from_slice(&portion.amount.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        // _IOWR(0xb7, 1, struct lab_define) of 128 bytes, _IO(0xb7, 2), _IO(0xb7, 3), _IOW(0xb7, 4,
        // u32).
        assert_eq!((DEFINE, ATTACH, FORGET), (0xc080_b701, 0xb702, 0xb703));
        assert_eq!(DELEGATE, 0x4004_b704);
        assert_eq!(TRUTH, 56);
    }

    #[test]
    fn a_move_is_laid_out_in_the_headers_order() {
        let portion = Move { device: 1, event: 2, source: 3, target: 4, amount: u64::MAX };
        let bytes = move_bytes(&portion);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(4)), (1, 2));
        assert_eq!((long(8), long(16), long(24)), (3, 4, u64::MAX));
    }

    #[test]
    fn what_does_not_fit_a_definition_is_refused() {
        let device = Device { arg: vec![7; 2], text: "NVDA200C".into(), ..Device::default() };
        let define = Define::new(&device).unwrap();
        assert_eq!((define.arg[1], define.arg[2], &define.text[..9]), (7, 0, &b"NVDA200C\0"[..]));
        assert!(Define::new(&Device { arg: vec![0; 13], ..Device::default() }).is_err());
        assert!(Define::new(&Device { text: "x".repeat(16), ..Device::default() }).is_err());
    }
}
