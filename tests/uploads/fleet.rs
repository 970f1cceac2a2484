//! A roll-up directory with generated files, and an upload of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Answer, Place};
use crate::store::BUCKET;
use crate::wait::{wait_or_explain, wait_until};

/// The directory of the host in that of an hour.
pub(crate) const HOST: &str = "host=one";

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A roll-up directory with a configuration, and all files that were created in it.
pub(crate) struct Fleet {
    pub(crate) place: Place,
    pub(crate) made: Files,
}

impl Fleet {
    /// A fleet with these lines in `[upload]`.
    pub(crate) fn new(upload: &str) -> Self {
        let place = Place::new();
        fs::create_dir(place.path("rollup")).unwrap();
        let fleet = Self { place, made: Files::new() };
        fleet.configure(upload);
        fleet
    }

    /// A fleet that uploads to a bucket at this endpoint.
    pub(crate) fn to_bucket(endpoint: &str, upload: &str) -> Self {
        Self::new(&bucket(endpoint, upload))
    }

    /// A fleet that uploads to the directory `store`.
    pub(crate) fn to_directory(upload: &str) -> Self {
        let fleet = Self::new("");
        fs::create_dir(fleet.place.path("store")).unwrap();
        let url = format!("file://{}", fleet.place.path("store").display());
        fleet.configure(&format!("url = {url:?}\n{upload}"));
        fleet
    }

    pub(crate) fn configure(&self, upload: &str) {
        let directory = self.rollup();
        let directory = directory.display();
        let text = format!("[rollup]\ndirectory = \"{directory}\"\n[upload]\n{upload}");
        fs::write(self.place.path("agent.toml"), text).unwrap();
    }

    pub(crate) fn rollup(&self) -> PathBuf {
        self.place.path("rollup")
    }

    /// Creates a complete file of this hour (counted from 2026-01-01); returns its name.
    pub(crate) fn make(&mut self, hour: u32, size: usize) -> String {
        self.make_named(&format!("cluster=lab/date={}/hour={:02}", date(hour), hour % 24), size)
    }

    pub(crate) fn make_named(&mut self, hour: &str, size: usize) -> String {
        let seed = self.made.len() as u64;
        let bytes: Vec<u8> = (0..size as u64).map(|at| noise(seed << 32 | at)).collect();
        let name = format!("{hour}/{HOST}/12345678_{seed}.parquet");
        let path = self.rollup().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path.with_extension("tmp"), &bytes).unwrap();
        fs::rename(path.with_extension("tmp"), path).unwrap();
        self.made.insert(name.clone(), bytes);
        name
    }

    /// Those of the created files that still exist.
    pub(crate) fn local(&self) -> Files {
        let here = |name: &String| fs::read(self.rollup().join(name)).ok();
        self.made.keys().filter_map(|name| Some((name.clone(), here(name)?))).collect()
    }

    /// The content of a store that is a directory.
    pub(crate) fn stored(&self) -> Files {
        let root = self.place.path("store");
        let files = self.place.content().into_iter().filter(|(path, _)| !path.is_dir());
        let name = |path: &Path| Some(path.strip_prefix(&root).ok()?.to_str().unwrap().to_owned());
        files.filter_map(|(path, bytes)| Some((name(&path)?, bytes))).collect()
    }

    pub(crate) fn tool(&self, options: &[&str]) -> Command {
        let mut command = self.place.tool(["--config", "agent.toml"]);
        environment(&mut command);
        command.args(options);
        command
    }

    pub(crate) fn once(&self) -> Answer {
        Answer::of(self.tool(&["--once"]).output().unwrap())
    }

    pub(crate) fn start(&self) -> Upload {
        let log = self.place.path("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.tool(&[]);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Upload { child, log }
    }

    /// Waits until the file was removed, which happens after it was sent.
    pub(crate) fn wait_gone(&self, name: &str) {
        let path = self.rollup().join(name);
        wait_until(&format!("{name} to go"), || !path.exists());
    }
}

pub(crate) fn date(hour: u32) -> String {
    format!("2026-01-{:02}", 1 + hour / 24)
}

/// A pseudo-random byte from a seed.
pub(crate) fn noise(seed: u64) -> u8 {
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31) as u8
}

pub(crate) fn bucket(endpoint: &str, upload: &str) -> String {
    format!("url = \"s3://{BUCKET}/fleet/one\"\nendpoint = {endpoint:?}\n{upload}")
}

/// The names of the files as objects in a bucket.
pub(crate) fn in_bucket(files: &Files) -> Files {
    files.iter().map(|(name, bytes)| (format!("fleet/one/{name}"), bytes.clone())).collect()
}

/// Sets credentials, and removes all variables that could redirect requests.
pub(crate) fn environment(command: &mut Command) {
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"]
    {
        command.env_remove(name);
    }
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("AWS_") || shown.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.env("AWS_ACCESS_KEY_ID", "testing").env("AWS_SECRET_ACCESS_KEY", "testing");
}

pub(crate) fn names(files: &Files) -> Vec<&str> {
    files.keys().map(String::as_str).collect()
}

/// Compares names and bytes; a difference is reported by names.
pub(crate) fn assert_same(actual: &Files, expected: &Files) {
    assert_eq!(names(actual), names(expected));
    for (name, bytes) in expected {
        assert!(actual[name] == *bytes, "{name} has other bytes");
    }
}

/// A running upload.
pub(crate) struct Upload {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Upload {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn wait_says(&self, words: &str) {
        let is_said = || self.log().contains(words).then_some(());
        wait_or_explain(&format!("{words:?} in the log"), is_said, || self.log());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with a signal. It must exit within 5 s with code 0.
    pub(crate) fn stop(mut self, signal: Signal) {
        let begin = Instant::now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?}", begin.elapsed());
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
