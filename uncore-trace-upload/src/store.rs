//! The object store: an S3 bucket or a local directory.
//!
//! Guarantees:
//! - Credentials come from the environment or from the instance's role.
//! - A request ends after a time that depends only on its size.
//! - No object is replaced by a different one.
//! - When [`UploadStore::put_object`] succeeds, the store has the object with the size of the file
//!   and with the entity tag of the upload. The signature of a request to S3 covers the SHA-256 of
//!   the body, so a store that checks signatures accepts no other bytes.

use std::fs;
use std::io;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Chain, Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreExt as _, PutMode, RetryConfig};
use tokio::time::timeout;

use uncore_trace_recording::config::UploadConfig;

use crate::answers::{Connector, Largest};

/// Time limit of a request, in addition to the time for its body.
const PATIENCE: Duration = Duration::from_secs(15);

/// The slowest accepted rate of a transfer, bytes per second.
const SLOWEST: u64 = 64 << 10;

/// Most characters of an error's text, because stores may answer with whole pages.
const MOST_TEXT: usize = 240;

/// An object store.
#[derive(Debug)]
pub(crate) struct UploadStore {
    objects: Arc<dyn ObjectStore>,
    /// Prefix of all object names: empty, or `PREFIX/`.
    prefix: String,
    /// URL and endpoint.
    name: String,
    /// The directory, if the store is one.
    directory: Option<PathBuf>,
    /// The bucket, if the store is one.
    bucket: Option<String>,
    /// The longest object that it may answer with.
    largest: Largest,
}

impl UploadStore {
    /// The store of the settings. Makes no request.
    pub(crate) fn open(settings: &UploadConfig) -> Result<Self> {
        let url = settings.url.as_str();
        let Some((scheme, location)) = url.split_once("://") else {
            bail!("{url:?} is not the URL of a store: write s3://BUCKET/PREFIX or file:///DIR");
        };
        match scheme {
            "s3" => open_bucket(settings, location),
            "file" => open_directory(settings, location),
            _ => bail!("cannot upload to {scheme}://: write s3://BUCKET/PREFIX or file:///DIR"),
        }
    }

    /// URL and endpoint: identifies the store in the journal and in messages.
    pub(crate) fn store_name(&self) -> &str {
        &self.name
    }

    /// The directory, if the store is one.
    pub(crate) fn local_directory(&self) -> Option<&LocalPath> {
        self.directory.as_deref()
    }

    /// Uploads an object and verifies that the store has it. An error is one line.
    ///
    /// An existing object is replaced only if it is a prefix of the new one: a store whose writes
    /// are not atomic may keep such a part of an interrupted request.
    pub(crate) async fn put_object(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        let path = Path::parse(format!("{}{name}", self.prefix));
        let path = path.map_err(|error| error.to_string())?;
        self.remove_staged(name);
        self.largest.allow_size(bytes.len() as u64);
        let put = self.put_new(&path, Bytes::from(bytes)).await;
        put.map_err(|failure| self.explain_failure(&failure))
    }

    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<(), StoreFailure> {
        match self.put_and_verify(path, &bytes, PutMode::Create).await {
            Err(StoreFailure::Error(object_store::Error::AlreadyExists { .. })) => {}
            Err(StoreFailure::Error(error)) if is_unknown(&error) => {}
            put_result => return put_result,
        }
        match self.compare_object(path, &bytes).await? {
            StoredObject::Nothing | StoredObject::Begin => {
                self.put_and_verify(path, &bytes, PutMode::Overwrite).await
            }
            StoredObject::Same => Ok(()),
            StoredObject::Other => Err(StoreFailure::Other),
        }
    }

    /// Uploads the object, and compares its size and entity tag in the store.
    async fn put_and_verify(
        &self,
        path: &Path,
        bytes: &Bytes,
        mode: PutMode,
    ) -> Result<(), StoreFailure> {
        let put = self.objects.put_opts(path, bytes.clone().into(), mode.into());
        let stored = with_time_limit(request_limit(bytes), put).await?;
        let kept = with_time_limit(PATIENCE, self.objects.head(path)).await?;
        if kept.size != bytes.len() as u64 {
            return Err(StoreFailure::Size { kept: kept.size, sent: bytes.len() });
        }
        if stored.e_tag.is_some() && stored.e_tag != kept.e_tag {
            return Err(StoreFailure::Other);
        }
        Ok(())
    }

    /// Compares the store's object of this name with `bytes`.
    async fn compare_object(
        &self,
        path: &Path,
        bytes: &Bytes,
    ) -> Result<StoredObject, StoreFailure> {
        let kept = match with_time_limit(PATIENCE, self.objects.head(path)).await {
            Err(StoreFailure::Error(object_store::Error::NotFound { .. })) => {
                return Ok(StoredObject::Nothing);
            }
            kept => kept?,
        };
        if kept.size > bytes.len() as u64 {
            return Ok(StoredObject::Other);
        }
        let get = async { self.objects.get(path).await?.bytes().await };
        let kept = with_time_limit(request_limit(bytes), get).await?;
        Ok(match bytes.starts_with(&kept) {
            true if kept.len() == bytes.len() => StoredObject::Same,
            true => StoredObject::Begin,
            false => StoredObject::Other,
        })
    }

    /// Removes temporary files that a killed process left in a directory: `object_store` writes a
    /// file as `NAME#1`, `NAME#2` and so on before it renames it.
    fn remove_staged(&self, name: &str) {
        let Some(directory) = &self.directory else { return };
        let staged = |number: u32| directory.join(format!("{name}#{number}"));
        let mut removed = (1..).map(staged).map(fs::remove_file);
        while let Some(Ok(())) = removed.next() {}
    }

    /// The failure as one line.
    fn explain_failure(&self, failure: &StoreFailure) -> String {
        let error = match failure {
            StoreFailure::Error(error) => error,
            StoreFailure::Late(patience) => {
                return format!("the store did not answer within {} s", patience.as_secs());
            }
            StoreFailure::Size { kept, sent } => {
                return format!("the store has {kept} of {sent} bytes");
            }
            StoreFailure::Other => {
                return "the store has another object of this name; remove one of them".to_owned();
            }
        };
        let text = error.to_string();
        let why = innermost_cause(error, &text);
        // The text contains the URL of the request. A URL without the bucket is that of the service
        // that gives out credentials.
        let is_of_bucket = self.bucket.as_ref().is_none_or(|bucket| text.contains(bucket));
        match error {
            _ if text.contains("Error performing") && !is_of_bucket => {
                format!("no credentials ({why}); {CREDENTIALS}")
            }
            object_store::Error::Unauthenticated { .. }
            | object_store::Error::PermissionDenied { .. }
                if self.bucket.is_some() =>
            {
                // Without credentials there would have been no request.
                let is_known = !UNKNOWN.iter().any(|code| why.starts_with(code));
                let way_out = if is_known { PERMISSION } else { CORRECT };
                format!("the store refuses it ({why}); {way_out}")
            }
            object_store::Error::NotFound { .. } if why.starts_with("NoSuchBucket") => {
                "there is no such bucket; make it first".to_owned()
            }
            _ => why,
        }
    }
}

/// Why an object is not in the store.
#[derive(Debug)]
enum StoreFailure {
    Error(object_store::Error),
    /// There was no answer in this time.
    Late(Duration),
    /// The object has another size than the file, in bytes.
    Size {
        kept: u64,
        sent: usize,
    },
    /// The name is taken by another object.
    Other,
}

/// How the store's object of a name compares with the new one.
enum StoredObject {
    /// There is none.
    Nothing,
    /// It is a prefix of the new one, or empty.
    Begin,
    Same,
    Other,
}

/// Time limit of a request with this body.
fn request_limit(bytes: &Bytes) -> Duration {
    PATIENCE + Duration::from_secs(bytes.len() as u64 / SLOWEST)
}

/// Awaits a request with a time limit.
async fn with_time_limit<T>(
    patience: Duration,
    request: impl Future<Output = object_store::Result<T>>,
) -> Result<T, StoreFailure> {
    match timeout(patience, request).await {
        Ok(answer) => answer.map_err(StoreFailure::Error),
        Err(_) => Err(StoreFailure::Late(patience)),
    }
}

/// Whether the store does not implement conditional writes (`If-None-Match`).
fn is_unknown(error: &object_store::Error) -> bool {
    let code = error.to_string();
    matches!(error, object_store::Error::NotImplemented { .. })
        || xml_element(&code, "Code") == Some("NotImplemented")
}

/// The store of `file:///DIR`.
fn open_directory(settings: &UploadConfig, path: &str) -> Result<UploadStore> {
    ensure!(path.starts_with('/'), "{:?}: write file:///DIR with an absolute path", settings.url);
    ensure!(settings.endpoint.is_none(), "a directory has no endpoint: leave it out");
    let directory = PathBuf::from(path);
    ensure!(
        directory.is_dir(),
        "cannot upload to {}: there is no directory {path}; make it first",
        settings.url
    );
    let store = LocalFileSystem::new_with_prefix(&directory)
        .with_context(|| format!("cannot upload to {}", settings.url))?;
    Ok(UploadStore {
        // The roll-up's file may be removed afterwards, so its copy must be on the disk.
        objects: Arc::new(store.with_fsync(true)),
        prefix: String::new(),
        name: settings.url.clone(),
        directory: Some(directory),
        bucket: None,
        largest: Largest::default(),
    })
}

/// The store of `s3://BUCKET/PREFIX`.
fn open_bucket(settings: &UploadConfig, location: &str) -> Result<UploadStore> {
    let UploadConfig { url, endpoint, region, .. } = settings;
    let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
    ensure!(
        !location.contains('@')
            && !endpoint.as_ref().is_some_and(|endpoint| endpoint.contains('@')),
        "credentials may not be in the configuration: {CREDENTIALS}"
    );
    let belongs = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    ensure!(
        !bucket.is_empty() && bucket.bytes().all(belongs),
        "{url:?} names no bucket: write s3://BUCKET/PREFIX"
    );
    let prefix = prefix.trim_matches('/');
    let is_plain = !prefix.contains(['?', '#', '\\']) && Path::parse(prefix).is_ok();
    ensure!(is_plain, "{url:?}: the prefix is not a path; write s3://BUCKET/PREFIX");
    install_tls();
    let client = AmazonS3ConfigKey::Client;
    let largest = Largest::default();
    let agent = concat!("uncore-trace/", env!("CARGO_PKG_VERSION"));
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_unsigned_payload(false)
        .with_http_connector(Connector(largest.clone()))
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_config(client(ClientConfigKey::ConnectTimeout), "5s")
        // `with_time_limit` sets the time limit, which depends on the size.
        .with_config(client(ClientConfigKey::Timeout), "1day")
        .with_config(client(ClientConfigKey::UserAgent), agent);
    let mut name = url.clone();
    if let Some(endpoint) = endpoint {
        let is_plain = endpoint.starts_with("http://");
        ensure!(
            is_plain || endpoint.starts_with("https://"),
            "endpoint = {endpoint:?} is not the address of a store: write https://HOST:PORT"
        );
        builder = builder.with_endpoint(endpoint.trim_end_matches('/')).with_allow_http(is_plain);
        name = format!("{url} at {endpoint}");
    }
    let store = builder.build().map_err(|error| match innermost_cause(&error, "").as_str() {
        why @ ("Missing AccessKeyId" | "Missing SecretAccessKey") => {
            anyhow!("{why}; {CREDENTIALS}")
        }
        why => anyhow!("{why}"),
    });
    Ok(UploadStore {
        objects: Arc::new(store.with_context(|| format!("cannot upload to {name}"))?),
        prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        name,
        directory: None,
        bucket: Some(bucket.to_owned()),
        largest,
    })
}

/// How to give credentials, for messages.
pub(crate) const CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                                      environment, or give the instance a role";

/// The errors of S3 for credentials that it does not accept (API Reference, Error responses).
const UNKNOWN: [&str; 6] = [
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// What to do about credentials that are not accepted, for messages.
const CORRECT: &str = "correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, \
                       the instance's role, or the clock";

/// What to do about credentials that are accepted and do not suffice, for messages.
const PERMISSION: &str = "allow its credentials s3:PutObject and s3:GetObject there, in the \
                          bucket's policy or the role's";

/// Selects the TLS implementation. Later calls have no effect.
pub(crate) fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// The cause of an error without its wrappers: the store's code and message, or the I/O error.
fn innermost_cause(error: &object_store::Error, text: &str) -> String {
    let io = Chain::new(error).rev().find_map(|cause| cause.downcast_ref::<io::Error>());
    let why = match (xml_element(text, "Code"), xml_element(text, "Message"), io) {
        (Some(code), Some(message), _) => format!("{code}: {message}"),
        (Some(code), None, _) => code.to_owned(),
        (None, _, Some(io)) => io.to_string(),
        (None, _, None) => {
            Chain::new(error).next_back().map(ToString::to_string).unwrap_or_default()
        }
    };
    one_line(why.trim_end_matches([' ', ':']))
}

/// The text of an XML element.
fn xml_element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after_open_tag) = text.split_once(&format!("<{name}>"))?;
    after_open_tag.split_once("</").map(|(value, _)| value)
}

/// The text on one line, with at most [`MOST_TEXT`] characters.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
