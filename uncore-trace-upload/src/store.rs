//! The object store: where a URL leads, and a request that ends.
//!
//! Guarantees: credentials come from the environment or the instance; a request ends after a time that
//! depends on its size only; no object is replaced by another; what [`Store::put`] confirms is in the store with the size of the file and
//! the entity tag that the store gave to what it took. (Amazon's protocol has the SHA-256 of the body in
//! the signature, so a store that checks signatures takes no other bytes.)

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreExt as _, PutMode, RetryConfig};
use tokio::time::timeout;

use uncore_trace::config::Upload;

/// How long a store may take to answer, beside the time for the body.
const PATIENCE: Duration = Duration::from_secs(15);

/// The slowest network that is waited for, bytes a second.
const SLOWEST: u64 = 64 << 10;

/// Characters of an error's text: stores answer with pages.
const MOST_TEXT: usize = 240;

/// An object store.
#[derive(Debug)]
pub(crate) struct Store {
    objects: Arc<dyn ObjectStore>,
    /// What all names begin with: empty, or `PREFIX/`.
    prefix: String,
    /// Endpoint and URL.
    name: String,
    /// Of a store that is a directory.
    directory: Option<PathBuf>,
    /// Of one that is none.
    bucket: Option<String>,
}

impl Store {
    /// The store that the settings name; makes no request.
    pub(crate) fn open(settings: &Upload) -> Result<Self> {
        let url = settings.url.as_str();
        let Some((scheme, rest)) = url.split_once("://") else {
            bail!("{url:?} is not the URL of a store: write s3://BUCKET/PREFIX or file:///DIR");
        };
        match scheme {
            "s3" => bucket(settings, rest),
            "file" => directory(settings, rest),
            _ => bail!("cannot upload to {scheme}://: write s3://BUCKET/PREFIX or file:///DIR"),
        }
    }

    /// How it is told from others, for people too.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The directory that it is, if it is one.
    pub(crate) fn directory(&self) -> Option<&LocalPath> {
        self.directory.as_deref()
    }

    /// Puts the object and has it confirmed; an error says why not, in one line.
    ///
    /// An object that is there already is not replaced, unless it is the begin of this one, which a store
    /// that is not atomic may leave of a request that was cut.
    pub(crate) async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        let path = Path::parse(format!("{}{name}", self.prefix));
        let path = path.map_err(|error| error.to_string())?;
        self.remove_staged(name);
        let put = self.put_new(&path, Bytes::from(bytes)).await;
        put.map_err(|failure| self.explain(&failure))
    }

    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<(), Failure> {
        match self.take(path, &bytes, PutMode::Create).await {
            Err(Failure::Error(object_store::Error::AlreadyExists { .. })) => {}
            Err(Failure::Error(error)) if is_unknown(&error) => {}
            taken => return taken,
        }
        match self.compare(path, &bytes).await? {
            Kept::Nothing | Kept::Begin => self.take(path, &bytes, PutMode::Overwrite).await,
            Kept::Same => Ok(()),
            Kept::Other => Err(Failure::Other),
        }
    }

    /// Has the store take the object, and asks for it.
    async fn take(&self, path: &Path, bytes: &Bytes, mode: PutMode) -> Result<(), Failure> {
        let put = self.objects.put_opts(path, bytes.clone().into(), mode.into());
        let taken = within(patience(bytes), put).await?;
        let kept = within(PATIENCE, self.objects.head(path)).await?;
        if kept.size != bytes.len() as u64 {
            return Err(Failure::Size { kept: kept.size, sent: bytes.len() });
        }
        if taken.e_tag.is_some() && taken.e_tag != kept.e_tag {
            return Err(Failure::Other);
        }
        Ok(())
    }

    /// What the store has by this name.
    async fn compare(&self, path: &Path, bytes: &Bytes) -> Result<Kept, Failure> {
        let kept = match within(PATIENCE, self.objects.head(path)).await {
            Err(Failure::Error(object_store::Error::NotFound { .. })) => return Ok(Kept::Nothing),
            kept => kept?,
        };
        if kept.size > bytes.len() as u64 {
            return Ok(Kept::Other);
        }
        let get = async { self.objects.get(path).await?.bytes().await };
        let kept = within(patience(bytes), get).await?;
        Ok(match bytes.starts_with(&kept) {
            true if kept.len() == bytes.len() => Kept::Same,
            true => Kept::Begin,
            false => Kept::Other,
        })
    }

    /// Removes what a kill has left beside a file of this name in a directory: `object_store` writes a
    /// file as `NAME#1` (or 2, and so on) before it has its name.
    fn remove_staged(&self, name: &str) {
        let Some(directory) = &self.directory else { return };
        let staged = |number: u32| directory.join(format!("{name}#{number}"));
        let mut removed = (1..).map(staged).map(fs::remove_file);
        while let Some(Ok(())) = removed.next() {}
    }

    /// What is wrong, in one line.
    fn explain(&self, failure: &Failure) -> String {
        let error = match failure {
            Failure::Error(error) => error,
            Failure::Late(patience) => {
                return format!("the store did not answer within {} s", patience.as_secs());
            }
            Failure::Size { kept, sent } => {
                return format!("the store has {kept} bytes of {sent}");
            }
            Failure::Other => {
                return "the store has another object of this name; remove one of them".to_owned();
            }
        };
        let text = error.to_string();
        let why = innermost(error, &text);
        // The text has the address of the request: one without the bucket was for credentials.
        let is_of_bucket = self.bucket.as_ref().is_none_or(|bucket| text.contains(bucket));
        match error {
            _ if text.contains("Error performing") && !is_of_bucket => {
                format!("no credentials ({why}); {CREDENTIALS}")
            }
            object_store::Error::Unauthenticated { .. }
            | object_store::Error::PermissionDenied { .. }
                if self.bucket.is_some() =>
            {
                format!("the store refuses it ({why}); {CREDENTIALS}")
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
enum Failure {
    Error(object_store::Error),
    /// There was no answer in this time.
    Late(Duration),
    Size {
        kept: u64,
        sent: usize,
    },
    /// Another object has the name.
    Other,
}

/// What a store has by a name.
enum Kept {
    Nothing,
    /// The begin of the object, or an empty one.
    Begin,
    Same,
    Other,
}

/// How long a store may take for an object.
fn patience(bytes: &Bytes) -> Duration {
    PATIENCE + Duration::from_secs(bytes.len() as u64 / SLOWEST)
}

/// The answer, or why there is none.
async fn within<T>(
    patience: Duration,
    request: impl Future<Output = object_store::Result<T>>,
) -> Result<T, Failure> {
    match timeout(patience, request).await {
        Ok(answer) => answer.map_err(Failure::Error),
        Err(_) => Err(Failure::Late(patience)),
    }
}

/// Whether the store does not know how to put an object only where there is none.
fn is_unknown(error: &object_store::Error) -> bool {
    let code = error.to_string();
    matches!(error, object_store::Error::NotImplemented { .. })
        || tag(&code, "Code") == Some("NotImplemented")
}

/// A directory, `/DIR`.
fn directory(settings: &Upload, path: &str) -> Result<Store> {
    ensure!(path.starts_with('/'), "{:?}: write file:///DIR with the whole path", settings.url);
    ensure!(settings.endpoint.is_none(), "a store of files has no endpoint: leave it out");
    let directory = PathBuf::from(path);
    ensure!(
        directory.is_dir(),
        "cannot upload to {}: there is no directory {path}; make it first",
        settings.url
    );
    let store = LocalFileSystem::new_with_prefix(&directory)
        .with_context(|| format!("cannot upload to {}", settings.url))?;
    Ok(Store {
        // A file that is removed here is on disk there.
        objects: Arc::new(store.with_fsync(true)),
        prefix: String::new(),
        name: settings.url.clone(),
        directory: Some(directory),
        bucket: None,
    })
}

/// A bucket, `BUCKET/PREFIX`.
fn bucket(settings: &Upload, rest: &str) -> Result<Store> {
    let Upload { url, endpoint, region, .. } = settings;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    ensure!(
        !rest.contains('@') && !endpoint.as_ref().is_some_and(|endpoint| endpoint.contains('@')),
        "credentials are not written into the configuration: {CREDENTIALS}"
    );
    let belongs = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    ensure!(
        !bucket.is_empty() && bucket.bytes().all(belongs),
        "{url:?} names no bucket: write s3://BUCKET/PREFIX"
    );
    let prefix = prefix.trim_matches('/');
    let is_plain = !prefix.contains(['?', '#', '\\']) && Path::parse(prefix).is_ok();
    ensure!(is_plain, "{url:?}: the prefix is no path; write s3://BUCKET/PREFIX");
    install_tls();
    let client = AmazonS3ConfigKey::Client;
    let agent = concat!("uncore-trace/", env!("CARGO_PKG_VERSION"));
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_unsigned_payload(false)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_config(client(ClientConfigKey::ConnectTimeout), "5s")
        // Ended by `within`, which knows the size.
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
    let store = builder.build().map_err(|error| match innermost(&error, "").as_str() {
        why @ ("Missing AccessKeyId" | "Missing SecretAccessKey") => {
            anyhow!("{why}; {CREDENTIALS}")
        }
        why => anyhow!("{why}"),
    });
    Ok(Store {
        objects: Arc::new(store.with_context(|| format!("cannot upload to {name}"))?),
        prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        name,
        directory: None,
        bucket: Some(bucket.to_owned()),
    })
}

/// Where credentials come from.
pub(crate) const CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                                      environment, or give the instance a role";

/// The one implementation of TLS that is built in. Where one was installed before, that is it.
fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// What the store or the network says, of all that is said of it.
fn innermost(error: &object_store::Error, text: &str) -> String {
    let mut last: &dyn Error = error;
    let mut io = None;
    while let Some(source) = last.source() {
        last = source;
        io = last.downcast_ref::<io::Error>().or(io);
    }
    let why = match (tag(text, "Code"), tag(text, "Message"), io) {
        (Some(code), Some(message), _) => format!("{code}: {message}"),
        (Some(code), None, _) => code.to_owned(),
        (None, _, Some(io)) => io.to_string(),
        (None, _, None) => last.to_string(),
    };
    one_line(why.trim_end_matches([' ', ':']))
}

/// What is in an element of XML.
fn tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(value, _)| value)
}

/// The text with line breaks and runs of blanks made one blank, and not too long.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
