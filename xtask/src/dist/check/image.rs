//! Test of the container image: it is built without a registry, and run like the chart's pod.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use uncore_trace_ebpf::stamp::workspace_root;

use super::chart::RenderedChart;
use super::check_version;
use crate::apt::Apt;
use crate::command::{run_quietly, tool_version};

const TAG: &str = "uncore-trace:check";

/// The chart's directory for recordings.
const STATE: &str = "/var/lib/uncore-trace";

/// Builds the image from `context`, and records in a container of it.
pub(super) fn check_image(context: &Path, pod: &RenderedChart, apt: &Apt) -> Result<()> {
    for tool in ["buildah", "runc"] {
        if tool_version(tool).is_err() {
            apt.install_packages(&[tool])?;
        }
    }
    let store = tempfile::tempdir().context("cannot make a directory")?;
    let buildah = |args: &[&str]| -> Result<String> {
        let mut command = Command::new("buildah");
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(store.path().join("root"))
            .arg("--runroot")
            .arg(store.path().join("run"))
            .args(args);
        run_quietly(&mut command)
    };
    let file = workspace_root().join("packaging/Containerfile").display().to_string();
    let from = context.display().to_string();
    buildah(&["build", "--isolation", "chroot", "--file", &file, "--tag", TAG, &from])?;
    let container = buildah(&["from", "--pull-never", TAG])?;
    let root = buildah(&["mount", container.trim()])?;
    let version_run = run_container(Path::new(root.trim()), pod, &["--version"])?;
    check_version("uncore-trace", &version_run.1)?;
    let record = format!("record -p host --duration 1s -o {STATE}/run/");
    let (state, output) =
        run_container(Path::new(root.trim()), pod, &record.split(' ').collect::<Vec<_>>())?;
    let fabric = state.path().join("run/fabric.parquet");
    ensure!(fabric.exists(), "the container has recorded nothing: {output}");
    ensure!(!output.contains("cgroup namespace"), "the pod does not see all cgroups: {output}");
    buildah(&["umount", container.trim()]).map(drop)
}

/// Runs the program in the image like the pod; returns its state directory and its output.
fn run_container(root: &Path, pod: &RenderedChart, args: &[&str]) -> Result<(TempDir, String)> {
    let bundle = tempfile::tempdir().context("cannot make a directory")?;
    let state = tempfile::tempdir().context("cannot make a directory")?;
    let config = bundle.path().join("config.json");
    let text = oci_specification(root, state.path(), pod, args).to_string();
    fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    let name = format!("uncore-trace-check-{}", std::process::id());
    let mut command = Command::new("runc");
    command.arg("--root").arg(bundle.path().join("state")).args(["run", "--bundle"]);
    // Exit code 1: records were lost because the machine is busy.
    let output = command.arg(bundle.path()).arg(&name).output().context("cannot run runc")?;
    let output_bytes = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_bytes).into_owned();
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{}: {output_text}", output.status);
    Ok((state, output_text))
}

/// The OCI specification of the pod's container: the pid and network namespaces of the host, a
/// read-only root, and the capabilities of the chart.
fn oci_specification(root: &Path, state: &Path, pod: &RenderedChart, args: &[&str]) -> Value {
    let capabilities = pod.recorder_capabilities();
    let args: Vec<&str> = ["/usr/bin/uncore-trace"].iter().chain(args).copied().collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "cwd": "/",
            "env": ["PATH=/usr/bin"],
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
        },
        "root": {"path": root, "readonly": true},
        "mounts": [
            mount_entry("/proc", "proc", Path::new("proc"), &["nosuid", "noexec", "nodev"]),
            mount_entry("/dev", "tmpfs", Path::new("tmpfs"), &["nosuid", "mode=755"]),
            mount_entry("/sys", "bind", Path::new("/sys"), &["rbind", "ro", "rprivate"]),
            mount_entry("/host/cgroup", "bind", Path::new("/sys/fs/cgroup"), &["rbind", "ro", "rprivate"]),
            mount_entry(STATE, "bind", state, &["rbind", "rw", "rprivate"]),
        ],
        "linux": {
            "namespaces": [{"type": "mount"}, {"type": "ipc"}, {"type": "cgroup"}],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger"],
        },
    })
}

fn mount_entry(mount_point: &str, fs_type: &str, source: &Path, options: &[&str]) -> Value {
    json!({"destination": mount_point, "type": fs_type, "source": source, "options": options})
}
