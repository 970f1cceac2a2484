//! A collector (`otlp.py`) on loopback, and an agent that serves what a test gives it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::command::{Answer, Place};
use crate::fleet::environment;
use crate::needs::python;
use crate::wait::wait_until;

/// The receiver and the comparison.
pub(crate) const SCRIPT: &str = include_str!("otlp.py");

/// A collector that keeps what it got.
#[derive(Debug)]
pub(crate) struct Collector {
    child: Child,
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    /// Gives these answers, the last one again and again.
    pub(crate) fn start(answers: &Value) -> Self {
        Self::start_with(answers, &[])
    }

    /// The same over TLS, with a certificate and its key.
    pub(crate) fn with_tls(answers: &Value, certificate: &Path, key: &Path) -> Self {
        Self::start_with(answers, &[certificate, key])
    }

    fn start_with(answers: &Value, files: &[&Path]) -> Self {
        let mut command = Command::new(python());
        command.args(["-c", SCRIPT, "receive", &answers.to_string()]).args(files);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let shared = Arc::clone(&requests);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, port, requests }
    }

    /// The address for all signals.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits for this many requests; returns all so far.
    pub(crate) fn wait_for_requests(&self, least: usize) -> Vec<Value> {
        wait_until(&format!("{least} requests"), || self.requests.lock().unwrap().len() >= least);
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A place with a configuration of an agent that serves `body` at `/otlp`.
pub(crate) struct Served {
    pub(crate) place: Place,
}

impl Served {
    /// With these further sections.
    pub(crate) fn new(body: Vec<u8>, more: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                reader.read_line(&mut request).ok();
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                let status =
                    if request.starts_with("GET /otlp ") { "200 OK" } else { "404 Not Found" };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
                write!(stream, "{head}Connection: close\r\n\r\n").ok();
                stream.write_all(&body).ok();
            }
        });
        let place = Place::new();
        let text = format!("cluster = 'lab'\n[metrics]\nlisten = '{listen}'\n{more}");
        std::fs::write(place.path("agent.toml"), text).unwrap();
        Self { place }
    }

    /// The program with these options and variables.
    pub(crate) fn tool(&self, options: &[&str], variables: &[(&str, &str)]) -> Command {
        tool(&self.place, options, variables)
    }

    /// Pushes once.
    pub(crate) fn once(&self, variables: &[(&str, &str)]) -> Answer {
        Answer::of(self.tool(&["--once"], variables).output().unwrap())
    }
}

pub(crate) fn tool(place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = place.tool(["--config", "agent.toml"]);
    environment(&mut command);
    command.args(options).envs(variables.iter().copied());
    command
}
