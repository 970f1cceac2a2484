//! Process 1: brings the machine up, runs the steps, writes the results and powers off.
//!
//! Guarantees that it ends: whatever fails, the last line on the console is `lab: success` or
//! `lab: failure: REASON`, and the machine is switched off.
#![expect(clippy::print_stdout, reason = "the console is how a guest tells its host what happens")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{fs, io, panic};

use anyhow::{Context, Result, anyhow, bail};
use rustix::system::{RebootCommand, reboot, sethostname};
use uncore_trace_lab::capture::capture_machine;
use uncore_trace_lab::spec::{Device, Guest};

use crate::kmsg::Messages;
use crate::model::Model;
use crate::wait::wait_within;
use crate::{archive, housekeeping, modules, mounts, steps};

const OUT: &str = "/out";
/// The host name in recordings.
const HOST: &str = "lab";
const PMUS: &str = "/sys/bus/event_source/devices";
/// Drivers bind in the background. Emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns only if the machine cannot be switched off, which makes the kernel panic.
pub(crate) fn main() -> ExitCode {
    let result = panic::catch_unwind(run_guest)
        .unwrap_or_else(|_payload| Err(anyhow!("init panicked (its message is above)")));
    // Starts with a newline, because it may follow an incomplete kernel message.
    match result {
        Ok(()) => println!("\nlab: success"),
        Err(error) => println!("\nlab: failure: {}", format!("{error:#}").replace('\n', "; ")),
    }
    // An error cannot be reported any more. The host sees what was written so far.
    rustix::termios::tcdrain(io::stdout()).unwrap_or_default();
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff).unwrap_or_default();
    ExitCode::FAILURE
}

fn run_guest() -> Result<()> {
    mounts::mount_all()?;
    mounts::open_console()?;
    sethostname(HOST.as_bytes()).context("name the machine")?;
    let guest = Guest::read(Path::new("/lab/guest.json"))?;
    modules::load_modules(&guest.modules)?;
    define_devices(&guest.devices)?;
    modules::load_modules(&guest.drivers)?;
    let missing = wait_for_pmus(&guest.pmus)?;
    if !missing.is_empty() {
        println!("lab: PMUs missing after {} s: {missing:?}", PATIENCE.as_secs());
    }
    if let Some(cpu) = guest.housekeeping {
        housekeeping::keep_to(cpu).with_context(|| format!("keep to CPU {cpu}"))?;
    }
    describe_machine(&Path::new(OUT).join("machine")).context("describe the machine")?;
    if wants_shell()? {
        run_shell()?;
    } else {
        steps::run_steps(&guest.steps, Path::new(OUT))?;
    }
    archive::write_results(Path::new(OUT))
}

/// Defines the devices in the model, then attaches them to the kernel.
fn define_devices(devices: &[Device]) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let model = Model::open()?;
    for (number, device) in devices.iter().enumerate() {
        model.define_device(number, device).with_context(|| format!("define device {number}"))?;
    }
    model.attach_devices()
}

/// Waits for PMUs and returns those that are missing. The checks of the steps find these.
fn wait_for_pmus(pmus: &[String]) -> Result<Vec<&String>> {
    let mut missing = Vec::new();
    let look = || match present_pmus() {
        Ok(present) => {
            missing = pmus.iter().filter(|name| !present.contains(*name)).collect();
            missing.is_empty().then_some(Ok(()))
        }
        Err(error) => Some(Err(error)),
    };
    wait_within(PATIENCE, look).transpose()?;
    Ok(missing)
}

fn present_pmus() -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(PMUS).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    });
    entries.with_context(|| format!("list {PMUS}"))
}

/// Describes the machine on which the steps ran.
fn describe_machine(out: &Path) -> Result<()> {
    fs::create_dir_all(out)?;
    let uname = rustix::system::uname();
    let words = [uname.sysname(), uname.release(), uname.version(), uname.machine()];
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    fs::write(out.join("uname.txt"), words.join(" ") + "\n")?;
    let pmus: String = present_pmus()?.into_iter().map(|name| name + "\n").collect();
    fs::write(out.join("pmus.txt"), pmus)?;
    fs::write(out.join("dmesg.txt"), Messages::from_oldest()?.read_new()?)?;
    let (tree, _pmus) = capture_machine(Path::new("/"))?;
    fs::write(out.join("machine.toml"), tree.to_text())?;
    Ok(())
}

fn wants_shell() -> Result<bool> {
    let words = fs::read_to_string("/proc/cmdline").context("read /proc/cmdline")?;
    Ok(words.split_whitespace().any(|word| word == "lab.shell"))
}

/// A shell on the console, with the commands of busybox.
fn run_shell() -> Result<()> {
    let busybox = |args: &[&str]| Command::new("/bin/busybox").args(args).status();
    if !busybox(&["--install", "-s", "/bin"]).is_ok_and(|status| status.success()) {
        bail!("no shell: /bin/busybox does not run");
    }
    println!("lab: a shell; `exit` ends the guest");
    busybox(&["sh"]).context("run a shell")?;
    Ok(())
}
