//! `[upload]`: where the files of closed hours are sent.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::value;

/// `[upload]`: where the files of closed hours are sent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct UploadConfig {
    /// `s3://BUCKET/PREFIX` or `file:///DIR`.
    pub url: String,
    /// Address of a store that is not Amazon's; `None`: Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: String,
    /// Most bytes that wait on the disk.
    #[serde(deserialize_with = "value::deserialize_size")]
    pub queue: u64,
    /// Interval between searches for closed hours.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub every: Duration,
    /// Whether a file stays on the disk after the store has confirmed it.
    pub keep_local: bool,
}

impl Default for UploadConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            queue: 2 << 30,
            every: Duration::from_secs(30),
            keep_local: true,
        }
    }
}

impl UploadConfig {
    pub(super) fn into_checked(self) -> Result<Self> {
        let url = &self.url;
        ensure!(
            url.starts_with("s3://") || url.starts_with("file:///"),
            "upload.url is {url:?}: write s3://BUCKET/PREFIX or file:///DIRECTORY"
        );
        ensure!(
            !url.contains('@'),
            "upload.url holds a user or a key: credentials are taken from the environment or the \
             instance only"
        );
        ensure!(
            self.every >= Duration::from_millis(100),
            "upload.every is too short: choose at least 100ms"
        );
        Ok(self)
    }
}
