//! `cargo xtask pictures`: the pictures and the terminal screens in `docs/`.
//!
//! Records on the lab's Grace and on this machine, as root, and shows the output of `uncore-trace`
//! about these and about `samples`: pages, and a profile in speedscope, in Chromium as PNG in
//! `docs/pictures`, and screens as text between markers in the documents. Nothing is drawn by hand,
//! so a picture is what users see.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

pub(crate) mod host;
pub(crate) mod screens;

/// Drives Chromium in the same way as the tests. Not all of it is used here.
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../../tests/harness/browser.rs"]
mod browser;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use uncore_trace_ebpf::stamp::workspace_root;

use self::browser::Browser;
use crate::{command, lab, target};

/// Width and height of a picture, CSS pixels: a window on a small screen.
const WINDOW: (u32, u32) = (1200, 850);
/// Largest picture, bytes: documents must load over a slow line.
const LARGEST: u64 = 200_000;

/// Height of a picture of a profile, CSS pixels: its stacks are short.
const PROFILE_HEIGHT: u32 = 230;

/// Time in which speedscope draws a profile.
const DRAWS: Duration = Duration::from_secs(4);

/// The viewer of profiles, as npm names it.
const SPEEDSCOPE: &str = "speedscope@1.25.0";

/// Width of the terminal for screens.
const COLUMNS: &str = "90";

/// Options of `cargo xtask pictures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record only on this machine, without the lab
    #[arg(long)]
    no_lab: bool,
}

/// Makes all pictures and screens.
pub(crate) fn run(args: &Args) -> Result<()> {
    let studio = Studio::new()?;
    if !args.no_lab {
        lab::run_scenario("grace-2s", "seen", |results| {
            screens::replace_screen("top", &screens::step_output(results, "seen-top")?)?;
            let recording = results.join("seen-record/run");
            screens::replace_screen("links", &studio.terminal_screen(&recording, &["--links"])?)
        })?;
    }
    let sample = workspace_root().join("samples/grace");
    studio.picture_page("grace", &["report"], &[&sample], &[])?;
    studio.picture_profile(
        "profile",
        &workspace_root().join("samples/vm.parquet"),
        "page-faults",
    )?;
    let steady = studio.dir.path().join("host");
    host::record_steady(&studio.program, &steady)?;
    studio.picture_page("host", &["report"], &[&steady], &["--by", "cgroup"])?;
    studio.picture_page("diff", &["diff"], &[&steady], &host::HALVES)?;
    let lossy = studio.dir.path().join("losses");
    host::record_with_losses(&studio.program, &lossy)?;
    studio.picture_page("losses", &["report"], &[&lossy], &["--by", "cgroup"])
}

/// Programs and directories for making pictures.
struct Studio {
    /// The release build of `uncore-trace`.
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Studio {
    fn new() -> Result<Self> {
        command::tool_version("chromium")
            .context("pictures need Chromium: run cargo xtask setup")?;
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        Ok(Self { program: target::release_binary()?, dir })
    }

    /// The top of the page of a subcommand, as `docs/pictures/NAME.png`.
    fn picture_page(
        &self,
        name: &str,
        subcommand: &[&str],
        recordings: &[&Path],
        options: &[&str],
    ) -> Result<()> {
        let page = self.dir.path().join(format!("{name}.html"));
        let mut report_command = Command::new(&self.program);
        report_command.args(subcommand).args(recordings).args(options);
        command::run_quietly(report_command.args([OsStr::new("--html"), page.as_os_str()]))?;
        let mut browser = Browser::start(WINDOW.0, WINDOW.1);
        browser.open(&page);
        browser.settle();
        let complaints = browser.complaints();
        ensure!(complaints.is_empty(), "the page {name} complains: {complaints:?}");
        save_picture(&mut browser, name)
    }

    /// The profile of an event in speedscope, which npm installs.
    fn picture_profile(&self, name: &str, recording: &Path, event: &str) -> Result<()> {
        let profile = self.dir.path().join("profile.pb.gz");
        let mut export = Command::new(&self.program);
        export.args(["export", "--event", event]).arg(recording).arg("--pprof").arg(&profile);
        command::run_quietly(&mut export)?;
        let bytes = fs::read(&profile).with_context(|| format!("no {}", profile.display()))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", SPEEDSCOPE, "--prefix"]);
        command::run_quietly(npm.arg(self.dir.path()))?;
        // As speedscope's own command does: the page loads a script, which has the profile.
        let script = self.dir.path().join("profile.js");
        let load = format!(
            "speedscope.loadFileFromBase64('{event}', btoa(String.fromCharCode(...{bytes:?})))"
        );
        fs::write(&script, load).context("cannot write the script")?;
        let viewer = self.dir.path().join("node_modules/speedscope/dist/release/index.html");
        let url = format!("file://{}#localProfilePath={}", viewer.display(), script.display());
        let mut browser = Browser::start(WINDOW.0, PROFILE_HEIGHT);
        browser.ask("Page.navigate", &json!({"url": url}));
        sleep(DRAWS);
        // Frames with the same name become one, the largest first.
        browser.eval("window.dispatchEvent(new KeyboardEvent('keypress', {key: '2'})) && 0");
        sleep(DRAWS);
        save_picture(&mut browser, name)
    }

    /// The output of `report` on a terminal.
    fn terminal_screen(&self, recording: &Path, options: &[&str]) -> Result<String> {
        let report = format!(
            "'{}' report '{}' {}",
            self.program.display(),
            recording.display(),
            options.join(" ")
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &report, "/dev/null"]).env("COLUMNS", COLUMNS);
        command::run_quietly(&mut terminal)
    }
}

/// Saves what the browser shows as `docs/pictures/NAME.png`.
fn save_picture(browser: &mut Browser, name: &str) -> Result<()> {
    let png = workspace_root().join("docs/pictures").join(format!("{name}.png"));
    browser.picture(&png, false);
    let size = fs::metadata(&png).with_context(|| format!("no {}", png.display()))?.len();
    ensure!(size <= LARGEST, "{} has {size} bytes, more than {LARGEST}", png.display());
    println!("pictures: {}: {size} bytes", png.display());
    Ok(())
}
