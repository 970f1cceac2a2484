//! Asks the kubelet which devices it has assigned to which pods: the method `List` of its service
//! `PodResources` (gRPC over a Unix socket that only root can open).
//!
//! gRPC is here what one call of one method needs: a message behind five bytes, on HTTP/2 by the
//! crate h2, which the upload has anyway. `tonic` would add a dozen crates for the same call.
//!
//! Messages are those of `pkg/apis/podresources/v1/api.proto` (Kubernetes 1.20 to 1.36). An answer
//! is bounded in size and time, whoever gives it.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, StatusCode};
use prost::Message;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::protobuf;
use crate::protobuf::NestedFields;
use crate::signals::event_loop;

/// The socket, below the root.
const SOCKET: &str = "var/lib/kubelet/pod-resources/kubelet.sock";

/// The method. The host of the address means nothing.
const METHOD: &str = "http://localhost/v1.PodResourcesLister/List";

/// Longest time for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of an answer. One of 500 pods with 30 devices each has less than 1 MiB.
const MOST: usize = 4 << 20;

/// Most fields of an answer. One of two bytes makes a message of some 100, and each id is looked
/// up.
const FIELDS: usize = 1 << 16;

/// Most bytes that are under way, and of the headers.
const WINDOW: u32 = 1 << 18;
const HEADERS: u32 = 1 << 14;

/// An empty message: not compressed, and its length.
const EMPTY: &[u8] = &[0; 5];

/// `ListPodResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ListedPods {
    /// `pod_resources`
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<Pod>,
}

/// `PodResources`.
#[derive(Clone, PartialEq, Message)]
pub struct Pod {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<Container>,
}

/// `ContainerResources`.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<PluginDevices>,
    /// Devices of DRA.
    #[prost(message, repeated, tag = "5")]
    pub dynamic: Vec<Dynamic>,
}

/// `ContainerDevices`.
#[derive(Clone, PartialEq, Message)]
pub struct PluginDevices {
    /// Name of the resource.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// Ids of the devices.
    #[prost(string, repeated, tag = "2")]
    pub ids: Vec<String>,
}

/// `DynamicResource`.
#[derive(Clone, PartialEq, Message)]
pub struct Dynamic {
    /// Name of the claim.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// `claim_resources`
    #[prost(message, repeated, tag = "4")]
    pub resources: Vec<Claimed>,
}

/// `ClaimResource`.
#[derive(Clone, PartialEq, Message)]
pub struct Claimed {
    /// Devices of CDI.
    #[prost(message, repeated, tag = "1")]
    pub cdi: Vec<CdiDevice>,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub driver: String,
    /// Name of the pool.
    #[prost(string, tag = "3")]
    pub pool: String,
    /// Name of the device.
    #[prost(string, tag = "4")]
    pub device: String,
}

/// `CDIDevice`.
#[derive(Clone, PartialEq, Message)]
pub struct CdiDevice {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The kubelet's socket under `root`.
pub fn socket(root: &Path) -> PathBuf {
    root.join(SOCKET)
}

/// Connects to the socket of a kubelet that root runs; `None` if there is no kubelet, or the user
/// may not ask it.
///
/// # Errors
///
/// It does not accept a connection, or is another user's.
pub async fn connect_kubelet(socket: &Path) -> Result<Option<StdStream>> {
    let stream = match timeout(PATIENCE, UnixStream::connect(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => return Ok(None),
            _ => return Err(error).context("it does not accept a connection"),
        },
        Err(_) => bail!("it does not accept a connection in {PATIENCE:?}"),
    };
    let user = stream.peer_cred().context("its user is not known")?.uid();
    ensure!(user == 0, "user {user} runs it, not root");
    stream.into_std().context("the connection cannot be used").map(Some)
}

/// Asks the kubelet under `root` once; `None` as [`connect_kubelet`].
///
/// # Errors
///
/// Those of [`connect_kubelet`] and [`Kubelet::fetch_assignments`].
pub fn ask_once(root: &Path) -> Result<Option<ListedPods>> {
    let runtime = event_loop()?;
    runtime.block_on(async {
        let Some(stream) = connect_kubelet(&socket(root)).await? else { return Ok(None) };
        Kubelet::new(stream).await?.fetch_assignments().await.map(Some)
    })
}

/// A connection to the kubelet.
#[derive(Debug)]
pub struct Kubelet {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Kubelet {
    /// Begins to speak HTTP/2, in a task of the running event loop.
    ///
    /// # Errors
    ///
    /// The other side does not.
    pub async fn new(stream: StdStream) -> Result<Self> {
        let stream = UnixStream::from_std(stream).context("the connection cannot be used")?;
        let mut builder = Builder::new();
        builder.enable_push(false).max_header_list_size(HEADERS);
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let shaken = timeout(PATIENCE, builder.handshake(stream)).await;
        let (requests, connection) = shaken.context("it does not answer")??;
        let connection = tokio::spawn(async move {
            // An error of the connection is one of its requests, too.
            drop(connection.await);
        });
        Ok(Self { requests, connection })
    }

    /// Asks for all assignments.
    ///
    /// # Errors
    ///
    /// The answer is an error, too long, too late or none of this method.
    pub async fn fetch_assignments(&self) -> Result<ListedPods> {
        let answered = timeout(PATIENCE, self.request_list()).await;
        let message = answered.with_context(|| format!("it does not answer in {PATIENCE:?}"))??;
        decode_listed(message.get(EMPTY.len()..).unwrap_or_default())
    }

    async fn request_list(&self) -> Result<Vec<u8>> {
        let head = Request::post(METHOD)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let head = head.body(()).context("the request is not valid")?;
        let mut requests = self.requests.clone().ready().await?;
        let (answer, mut body) = requests.send_request(head, false)?;
        body.send_data(Bytes::from_static(EMPTY), true)?;
        let (head, mut body) = answer.await?.into_parts();
        ensure!(head.status == StatusCode::OK, "it answers with the status {}", head.status);
        if head.headers.contains_key("grpc-status") {
            ensure_success(&head.headers)?;
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            ensure!(bytes.len() + chunk.len() <= MOST, "its answer has more than {MOST} bytes");
            body.flow_control().release_capacity(chunk.len())?;
            bytes.extend_from_slice(&chunk);
        }
        ensure_success(&body.trailers().await?.unwrap_or(head.headers))?;
        let (prefix, message) =
            bytes.split_at_checked(EMPTY.len()).context("its answer is empty")?;
        let [0, length @ ..] = prefix else { bail!("its answer is compressed") };
        let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        ensure!(length == message.len(), "its answer is not one message");
        Ok(bytes)
    }
}

/// The messages of an answer, whose fields are counted before anything is made of them.
fn decode_listed(message: &[u8]) -> Result<ListedPods> {
    let damaged = "its answer belongs to another method";
    let count = protobuf::count_fields(message, &LISTED, FIELDS).context(damaged)?;
    ensure!(count.is_some(), "its answer has more than {FIELDS} fields, the most that are read");
    ListedPods::decode(message).context(damaged)
}

const LISTED: NestedFields = NestedFields(&[(1, NestedFields(&[(3, CONTAINER)]))]);
const CONTAINER: NestedFields = NestedFields(&[
    (2, NestedFields(&[])),
    (5, NestedFields(&[(4, NestedFields(&[(1, NestedFields(&[]))]))])),
]);

/// Whether the call has succeeded, by the trailers.
fn ensure_success(trailers: &HeaderMap) -> Result<()> {
    let text = |name| {
        let value = trailers.get(name).map(HeaderValue::as_bytes);
        value.map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
    };
    match text("grpc-status").as_str() {
        "0" => Ok(()),
        "" => bail!("its answer has no status"),
        // Older than Kubernetes 1.20, or `List` is turned off.
        status => bail!("it answers with the error {status}: {}", text("grpc-message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of this number with these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        field.extend_from_slice(bytes);
        field
    }

    #[test]
    fn an_answer_with_too_many_fields_is_refused_before_it_is_decoded() {
        let empty = |number: u8, count: usize| [number << 3 | 2, 0].repeat(count);
        let within = |bytes: &[u8]| field(1, &field(3, &field(2, bytes)));
        let many = FIELDS + 1;
        for bomb in [empty(1, many), field(1, &empty(3, many)), within(&empty(2, many))] {
            let error = decode_listed(&bomb).unwrap_err().to_string();
            assert!(error.contains("more than 65536 fields"), "{error}");
        }
        let listed = decode_listed(&within(&empty(2, 100))).unwrap();
        assert_eq!(listed.pods[0].containers[0].devices[0].ids.len(), 100);
        for damaged in [&[10, 9][..], &[0xff; 12]] {
            let error = decode_listed(damaged).unwrap_err().to_string();
            assert_eq!(error, "its answer belongs to another method");
        }
    }
}
