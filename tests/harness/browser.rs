//! A headless browser, driven over a pipe with the Chrome `DevTools` protocol: JSON messages, each
//! terminated by a zero byte (`--remote-debugging-pipe`).
//!
//! Guarantees: it makes no network requests by itself; its profile is removed when it ends;
//! complaints about a page are kept ([`Browser::complaints`]). It uses no other module of the
//! tests, so that development tasks can make pictures with it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::spawn;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::{Value, json};

/// The program, with options that make it quiet and able to run as root.
const START: &str = "exec chromium --headless --no-sandbox --disable-gpu --disable-quic \
    --no-first-run --disable-background-networking --disable-component-update --disable-sync \
    --hide-scrollbars --disable-dev-shm-usage --enable-unsafe-swiftshader --remote-debugging-pipe \
    --user-data-dir=\"$PROFILE\" about:blank \
    3<&0 4>&1 1>/dev/null 2>/dev/null";

/// Longest wait for an answer, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longest time that it may take to end.
const ENDS: Duration = Duration::from_secs(10);

/// A running browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    session: String,
    last: u64,
    complaints: Vec<String>,
    loaded: bool,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it with an empty page of this size, in CSS pixels.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", START]).env("PROFILE", profile.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (commands, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, receiver) = channel();
        spawn(move || {
            let messages = BufReader::new(stdout).split(0).map_while(Result::ok);
            for message in messages.filter_map(|bytes| serde_json::from_slice(&bytes).ok()) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages: receiver,
            session: String::new(),
            last: 0,
            complaints: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", &attach);
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        browser.size(width, height, 1.0);
        browser
    }

    /// Sends a command and waits for the answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let to = self.commands.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes()).unwrap();
        to.flush().unwrap();
        loop {
            let answer = self.next_message(method);
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The next message; reports of errors are kept.
    fn next_message(&mut self, waiting_for: &str) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        let message = message.unwrap_or_else(|error| panic!("{waiting_for}: {error}"));
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loaded = true,
            "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.complaints.push(params.to_string());
            }
            "Runtime.consoleAPICalled" if params["type"] != "log" => {
                self.complaints.push(params.to_string());
            }
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file:") {
                    self.complaints.push(format!("it asked for {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until its scripts have run; returns how long that took.
    pub(crate) fn open(&mut self, page: &Path) -> Duration {
        self.loaded = false;
        let begin = Instant::now();
        let url = format!("file://{}", fs::canonicalize(page).unwrap().display());
        let answer = self.ask("Page.navigate", &json!({"url": url}));
        assert!(answer["errorText"].is_null(), "{answer}");
        while !self.loaded {
            self.next_message("load");
        }
        self.settle();
        begin.elapsed()
    }

    /// Waits until two frames were drawn, so that changes are visible.
    pub(crate) fn settle(&mut self) {
        let frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.eval(frame);
    }

    /// The value of a JavaScript expression; of a promise, its result.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Errors and warnings of the page, and of the browser about it, so far.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Earlier messages arrive before the answer to this.
        self.eval("0");
        self.complaints.clone()
    }

    /// Changes the size of the page; below 600 it is a phone.
    pub(crate) fn size(&mut self, width: u32, height: u32, scale: f64) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", &params);
    }

    /// Whether the user prefers dark mode.
    pub(crate) fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.ask("Emulation.setEmulatedMedia", &json!({"features": features}));
        self.settle();
    }

    /// Moves the pointer, with a button or without: `mouseMoved`, `mousePressed`, `mouseReleased`.
    pub(crate) fn mouse(&mut self, event_type: &str, x: f64, y: f64) {
        let pressed = event_type != "mouseMoved";
        let button = if pressed { "left" } else { "none" };
        let params = json!({"type": event_type, "x": x, "y": y, "button": button,
            "buttons": i32::from(event_type == "mousePressed"), "clickCount": i32::from(pressed)});
        self.ask("Input.dispatchMouseEvent", &params);
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        for event_type in ["keyDown", "keyUp"] {
            self.ask("Input.dispatchKeyEvent", &json!({"type": event_type, "key": key}));
        }
        self.settle();
    }

    /// A PNG of the visible part or, with `whole`, of the whole page.
    pub(crate) fn picture(&mut self, path: &Path, whole: bool) {
        let params = json!({"format": "png", "captureBeyondViewport": whole});
        let answer = self.ask("Page.captureScreenshot", &params);
        fs::write(path, decode_base64(answer["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its pipe is closed, and so do its messages.
        drop(self.commands.take());
        let deadline = Instant::now() + ENDS;
        while self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
        {
        }
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// RFC 4648, section 4.
fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect();
    let mut bytes = Vec::new();
    for quad in digits.chunks(4) {
        let bits = quad.iter().fold(0, |bits, six| bits << 6 | u32::from(*six));
        let bits = bits << (6 * (4 - quad.len()));
        bytes.extend(&bits.to_be_bytes()[1..quad.len()]);
    }
    bytes
}

/// Directory for pictures that people want to look at: `UNCORE_TRACE_PICTURES`.
pub(crate) fn pictures() -> Option<std::path::PathBuf> {
    env::var_os("UNCORE_TRACE_PICTURES").map(Into::into)
}
