//! `top` on a real terminal: tmux provides terminal and keyboard.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::load::Load;
use crate::harness::{root_or_skip, rows, run, run_ok, text};
use crate::wait::{wait_for, wait_or_explain};

/// A terminal with a shell.
struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    /// A terminal with this many columns and lines.
    fn new(columns: u32, lines: u32) -> Self {
        let tmux = Self { dir: tempfile::tempdir().unwrap() };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        tmux.run(&["new-session", "-d", "-x", &columns, "-y", &lines, "sh"]);
        tmux.run(&["set-option", "-g", "window-size", "manual"]);
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        // Installed by cargo xtask setup.
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.dir.path().join("socket"))
            .args(["-f", "/dev/null"])
            .args(args)
            .env_remove("TMUX")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Starts the program under test.
    fn top(&self, args: &str) {
        let binary = crate::PROGRAM;
        let dir = self.dir.path().display();
        self.keys(&[
            &format!("cd {dir}; stty -g > before; {binary} top {args}; stty -g > after"),
            "Enter",
        ]);
    }

    fn picture(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Sends a signal to the program under test: the shell, which may be the child of another one,
    /// has no other child.
    fn signal(&self, signal: Signal) {
        let mut pid = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let is_program = |pid: &str| {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
            exe == Path::new(crate::PROGRAM)
        };
        while !is_program(pid.trim()) {
            let shell = pid.trim();
            pid = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        }
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits for a screen with a property; returns it.
    fn wait(&self, awaited: &str, is_awaited: impl Fn(&str) -> bool) -> String {
        let look = || Some(self.picture()).filter(|picture| is_awaited(picture));
        wait_or_explain(awaited, look, || self.picture())
    }

    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |picture| picture.contains(text))
    }

    /// The recordings in its directory, also those that go on.
    fn saved_recordings(&self) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let recording = |path: PathBuf| {
            let name = path.to_str()?.trim_end_matches(".partial").to_owned();
            name.ends_with(".parquet").then(|| name.into())
        };
        paths.filter_map(recording).collect()
    }

    /// Waits until the shell has the terminal again, as it was before.
    fn wait_for_shell(&self) {
        let modes = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).ok();
        self.wait("shell", |_| modes("after").is_some_and(|modes| !modes.is_empty()));
        assert_eq!(modes("before"), modes("after"));
        self.wait("prompt", |picture| picture.trim_end().ends_with('#'));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn keys_lead_from_the_picture_to_processes_and_a_recording() {
    let _machine = root_or_skip!();
    let _busy = Load::spin(0);
    let tmux = Tmux::new(80, 24);
    tmux.top("-p host -d 500ms --by cgroup");
    let first = tmux.wait_for("cpu-clock");
    let lines: Vec<&str> = first.lines().collect();
    assert!(lines[0].starts_with("uncore-trace top "), "{first}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{first}");
    assert!(first.contains("cpu-clock"), "{first}");
    tmux.keys(&["g", "g", "g", "g"]);
    tmux.wait_for("pid");
    tmux.keys(&["?"]);
    tmux.wait_for("Enter         processes");
    tmux.keys(&["x", "r"]);
    tmux.wait_for("recording to");
    let recording = wait_for("the recording", || tmux.saved_recordings().pop());
    rows::wait_for_window_after(&recording, 0);
    tmux.keys(&["r"]);
    tmux.wait_for(" rows in uncore-trace-");
    tmux.keys(&["p"]);
    tmux.wait_for("PAUSED");
    tmux.keys(&["p", "/", "zzz", "Enter"]);
    tmux.wait("filter", |picture| !picture.contains("(idle)") && !picture.contains("PAUSED"));
    tmux.keys(&["Escape", "q"]);
    tmux.wait_for_shell();
    assert_eq!(tmux.saved_recordings(), std::slice::from_ref(&recording));
    let report = run_ok(["report", recording.to_str().unwrap(), "--by", "pid"]);
    assert!(report.contains("cpu-clock"), "{report}");
}

#[test]
fn the_terminal_is_given_back_whatever_ends_the_program() {
    let _machine = root_or_skip!();
    let ends = [(80, 24, Some(Signal::TERM)), (132, 50, Some(Signal::HUP)), (80, 24, None)];
    for (columns, lines, signal) in ends {
        let tmux = Tmux::new(columns, lines);
        tmux.top("-p host -d 200ms --ascii");
        let picture = tmux.wait_for("cpu-clock");
        assert!(picture.is_ascii(), "{picture}");
        tmux.run(&["resize-window", "-x", "50", "-y", "8"]);
        tmux.wait_for("60x12 needed, 50x8 here; q quits");
        tmux.run(&["resize-window", "-x", "100", "-y", "30"]);
        tmux.wait_for("CPUs");
        match signal {
            Some(signal) => tmux.signal(signal),
            None => tmux.keys(&["C-c"]),
        }
        tmux.wait_for_shell();
    }
}

#[test]
fn no_color_leaves_colours_out() {
    let _machine = root_or_skip!();
    let tmux = Tmux::new(80, 24);
    for (variable, coloured) in [("NO_COLOR=1 ", false), ("", true)] {
        let binary = crate::PROGRAM;
        tmux.keys(&[&format!("{variable}{binary} top -p host -d 200ms --by cgroup"), "Enter"]);
        tmux.wait_for("(softirq)");
        // Owners other than tasks are grey.
        let escapes = tmux.run(&["capture-pane", "-p", "-e"]);
        let has = escapes.contains("\u{1b}[90m") || escapes.contains("\u{1b}[38;5;8m");
        assert_eq!(has, coloured, "{escapes:?}");
        tmux.keys(&["q"]);
        tmux.wait("shell", |picture| picture.trim_end().ends_with('#'));
        tmux.run(&["clear-history"]);
        tmux.keys(&["clear", "Enter"]);
        tmux.wait("clear terminal", |picture| !picture.contains("CPUs"));
    }
}

#[test]
fn once_prints_one_picture_for_scripts() {
    let _machine = root_or_skip!();
    let json = run_ok(["top", "-p", "host", "--once", "--json", "-d", "300ms"]);
    let screen: serde_json::Value = serde_json::from_str(&json).unwrap();
    let links = screen["links"].as_array().unwrap();
    let clock = links.iter().position(|link| link["name"] == "cpu-clock").unwrap();
    let owners = screen["owners"].as_array().unwrap();
    let sum: f64 = owners.iter().filter_map(|owner| owner["per_s"][clock].as_f64()).sum();
    let clock_rate = links[clock]["per_s"].as_f64().unwrap();
    assert!((sum - clock_rate).abs() <= clock_rate * 1e-6, "{sum} of {clock_rate}");
    let plain = run_ok(["top", "-p", "host", "--once", "--ascii", "-d", "300ms"]);
    assert!(plain.contains("cpu-clock") && plain.contains("last minute"), "{plain}");
    let output = run(["top"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("use --once"), "{}", text(&output));
}

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(name);
    path.to_str().unwrap().to_owned()
}

/// One value for each line.
fn lines(json: &str) -> Vec<serde_json::Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_updates_of_a_recording_follow_each_other_and_sum_to_its_bytes() {
    let grace = sample("grace");
    let updates = lines(&run_ok(["top", &grace, "--json", "-d", "100ms"]));
    let ns = |update: &serde_json::Value, field: &str| update[field].as_i64().unwrap();
    let (mut sum, mut end) = (0.0, None);
    for update in &updates {
        let (begin_ns, end_ns) = (ns(update, "begin_ns"), ns(update, "end_ns"));
        assert_eq!(begin_ns, end.unwrap_or(begin_ns), "{update}");
        end = Some(end_ns);
        let link = &update["links"][0];
        let rate = link["in_per_s"].as_f64().unwrap();
        sum += rate * (end_ns - begin_ns) as f64 / 1e9;
        let owners = update["owners"].as_array().unwrap();
        let shares: f64 = owners.iter().filter_map(|owner| owner["link_per_s"].as_f64()).sum();
        let bytes_per_s = link["per_s"].as_f64().unwrap();
        assert!((shares - bytes_per_s).abs() <= bytes_per_s * 1e-6, "{shares} of {bytes_per_s}");
        let wall = update["time"].as_str().unwrap();
        assert!(wall.len() == 24 && wall.ends_with('Z'), "{wall}");
    }
    let report = lines(&run_ok(["report", &grace, "--links", "--json"]));
    let is_link_in = |line: &&serde_json::Value| {
        line["link"] == updates[0]["links"][0]["name"] && line["direction"] == "in"
    };
    let bytes = report.iter().find(is_link_in).unwrap()["bytes"].as_f64().unwrap();
    assert!((sum - bytes).abs() <= bytes * 1e-6, "{sum} of {bytes}");

    // One screen is one of these.
    let last = lines(&run_ok(["top", &grace, "--json", "-d", "100ms", "--once"]));
    let ends = |updates: &[serde_json::Value]| -> Vec<i64> {
        updates.iter().map(|update| ns(update, "end_ns")).collect()
    };
    assert_eq!(ends(&last), ends(&updates[updates.len() - 1..]));
    let args = ["top", &grace, "--json", "-d", "100ms", "--once", "--after", "200ms"];
    assert_eq!(ends(&lines(&run_ok(args))), ends(&updates[2..3]));
    let part = lines(&run_ok(["top", &grace, "--json", "-d", "1s", "--from", "1s", "--to", "3s"]));
    let begin_ns = ns(&part[0], "begin_ns") - ns(&updates[0], "begin_ns");
    assert!(part.len() == 2 && (900_000_000..=1_000_000_000).contains(&begin_ns), "{begin_ns}");
}

#[test]
fn a_file_without_cpu_time_says_that_it_is_not_known() {
    let vm = sample("vm.parquet");
    let updates = lines(&run_ok(["top", &vm, "--json"]));
    let owners = updates.iter().flat_map(|update| update["owners"].as_array().unwrap());
    assert!(owners.clone().any(|owner| owner["owner"] == "task"));
    assert!(owners.clone().all(|owner| owner["cpus"].is_null()));
    for (args, says) in [
        (vec!["top", &vm, "-p", "host"], "cannot be used with"),
        (vec!["top", "--from", "1s", "--json"], "required"),
        (vec!["top", "/nowhere.parquet", "--json"], "no such file"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output).contains(says), "{args:?}: {}", text(&output));
    }
}

#[test]
fn a_reader_that_leaves_ends_the_updates_without_a_message() {
    let _machine = root_or_skip!();
    let grace = sample("grace");
    let recorded: &[&str] = &["top", &grace, "--json", "-d", "100ms"];
    for args in [recorded, &["top", "-p", "host", "--json", "-d", "100ms"]] {
        let mut top = Command::new(crate::PROGRAM)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut updates = BufReader::new(top.stdout.take().unwrap()).lines();
        let ends: Vec<i64> = (updates.by_ref().take(3))
            .map(|line| lines(&line.unwrap())[0]["end_ns"].as_i64().unwrap())
            .collect();
        assert!(ends.len() == 3 && ends.is_sorted_by(|a, b| a < b), "{ends:?}");
        drop(updates);
        let output = top.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_signal_ends_the_updates() {
    let _machine = root_or_skip!();
    let mut top = Command::new(crate::PROGRAM)
        .args(["top", "-p", "host", "--json", "-d", "100ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut updates = BufReader::new(top.stdout.take().unwrap()).lines();
    updates.next().unwrap().unwrap();
    kill_process(Pid::from_child(&top), Signal::INT).unwrap();
    for line in updates {
        lines(&line.unwrap());
    }
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

#[test]
fn a_recording_is_played_and_stays_at_its_end() {
    let _machine = root_or_skip!();
    let tmux = Tmux::new(80, 24);
    tmux.top(&format!("{} -d 200ms --by cgroup", sample("grace")));
    let first = tmux.wait_for("/lab/train");
    assert!(first.lines().next().unwrap().contains(" of 5.1 s  every 200 ms"), "{first}");
    let end = tmux.wait_for("the recording ends here; Left goes back, q quits");
    assert!(end.contains("  END  ") && end.contains("█"), "{end}");
    tmux.keys(&["r"]);
    tmux.wait_for("this is a recording");
    tmux.keys(&["Left"]);
    tmux.wait_for(" 5.0 of 5.1 s  PAUSED");
    tmux.keys(&["Left"]);
    tmux.wait_for(" 4.8 of 5.1 s  PAUSED");
    tmux.keys(&["Right"]);
    tmux.wait_for(" 5.0 of 5.1 s  PAUSED");
    tmux.keys(&["+"]);
    tmux.wait_for(" 5.0 of 5.1 s  PAUSED  every 250 ms");
    tmux.keys(&["Space"]);
    tmux.wait_for("  END  ");
    tmux.run(&["resize-window", "-x", "60", "-y", "20"]);
    tmux.wait_for("1 minute");
    tmux.keys(&["?"]);
    let help = tmux.wait_for("not known: a counter has no value");
    assert!(help.lines().all(|line| line.chars().count() <= 60 && !line.contains('…')), "{help}");
    tmux.keys(&["x"]);
    tmux.signal(Signal::TERM);
    tmux.wait_for_shell();
}
