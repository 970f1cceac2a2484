//! What `uncore-trace upload` takes of the configuration of the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytesize::ByteSize;
use toml::{Table, Value};

use crate::record::parse_duration;
use crate::upload::{Settings, Task};

/// The keys of `[upload]`.
const KEYS: [&str; 6] = ["url", "endpoint", "region", "queue", "every", "keep-local"];

/// What a key for credentials has in its name.
const SECRETS: [&str; 6] = ["key", "secret", "token", "password", "credential", "user"];

/// What the file asks for.
pub(super) fn task(path: &Path) -> Result<Task> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let task = text.parse::<Table>().map_err(|error| anyhow::anyhow!(brief(&error)));
    task.and_then(|table| parse(&table)).with_context(|| format!("cannot use {shown}"))
}

/// The error of a parser in one line.
fn brief(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(" ")
}

fn parse(table: &Table) -> Result<Task> {
    let section = |name: &str| table.get(name).and_then(Value::as_table);
    let Some(upload) = section("upload") else {
        bail!("it has no [upload]; write one with url = \"s3://BUCKET/PREFIX\"");
    };
    let Some(directory) = section("rollup").and_then(|rollup| rollup.get("directory")) else {
        bail!("it has no directory in [rollup], which is what is uploaded");
    };
    let directory = PathBuf::from(string("directory", directory)?);
    let metrics = section("metrics").and_then(|metrics| metrics.get("textfile"));
    let textfile = metrics.map(|path| string("textfile", path)).transpose()?;
    let textfile = textfile.map(|path| beside(Path::new(path)));
    Ok(Task { settings: settings(upload)?, directory, textfile })
}

/// The file of the upload beside that of the agent: `NAME_upload.prom`.
fn beside(textfile: &Path) -> PathBuf {
    let mut name = textfile.file_stem().unwrap_or_default().to_owned();
    name.push("_upload.prom");
    textfile.with_file_name(name)
}

fn settings(upload: &Table) -> Result<Settings> {
    if let Some(key) = upload.keys().find(|key| !KEYS.contains(&key.as_str())) {
        if SECRETS.iter().any(|secret| key.contains(secret)) {
            bail!(
                "[upload] {key}: credentials are not written into the configuration; set \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or give the \
                 instance a role"
            );
        }
        bail!("[upload] has no key {key}; it has {}", KEYS.join(", "));
    }
    let text = |key: &str| upload.get(key).map(|value| string(key, value)).transpose();
    let Some(url) = text("url")? else {
        bail!("[upload] has no url; write url = \"s3://BUCKET/PREFIX\"");
    };
    let queue: ByteSize = text("queue")?.unwrap_or("2GiB").parse().map_err(|error| {
        anyhow::anyhow!("[upload] queue: {error}; write a size such as \"2GiB\"")
    })?;
    let every = parse_duration(text("every")?.unwrap_or("30s"), Duration::from_secs(1));
    let every = every.map_err(|error| anyhow::anyhow!("[upload] every: {error}"))?;
    let range = Duration::from_millis(100)..=Duration::from_hours(24);
    if !range.contains(&every) {
        bail!("[upload] every: choose 100ms to 24h");
    }
    let keep_local = match upload.get("keep-local") {
        None => true,
        Some(Value::Boolean(keep)) => *keep,
        Some(_) => bail!("[upload] keep-local: write true or false"),
    };
    Ok(Settings {
        url: url.to_owned(),
        endpoint: text("endpoint")?.map(str::to_owned),
        region: text("region")?.unwrap_or("us-east-1").to_owned(),
        queue: queue.as_u64(),
        every,
        keep_local,
    })
}

fn string<'a>(key: &str, value: &'a Value) -> Result<&'a str> {
    value.as_str().with_context(|| format!("{key}: write a text in quotes"))
}
