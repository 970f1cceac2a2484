//! What the upload still needs after its start: files, and TCP ports.

use std::path::{Path, PathBuf};

use reqwest::Url;
use uncore_trace_recording::confine::ThreadNeeds;

use crate::otlp::Push;
use crate::store::UploadStore;
use crate::uploader::UploadTask;

/// Directories in which host names and certificates are looked up, also by the C library. Files in
/// them are replaced while the upload runs, such as `/etc/resolv.conf`.
const SYSTEM: [&str; 6] = ["/etc", "/usr", "/lib", "/lib64", "/run", "/proc/sys"];

/// Environment variables that name files of certificates or credentials.
const FILES: [&str; 4] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// Environment variables with the address of a store, its proxy, or a service that gives out
/// credentials: those that `object_store` reads.
const STORES: [&str; 7] = [
    "AWS_PROXY_URL",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Environment variables with the address of a proxy: those that `reqwest` reads.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Answers that are too long for UDP are asked for over TCP.
const DNS: u16 = 53;

/// The needs of an upload and a push. An upload to a directory makes no socket.
pub(crate) fn upload_needs(
    upload: Option<(&UploadTask, &UploadStore)>,
    push: Option<&Push>,
) -> ThreadNeeds {
    let variable = |name: &str| std::env::var(name).ok();
    let mut reads: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    for (name, path) in FILES.iter().filter_map(|name| Some((name, PathBuf::from(variable(name)?))))
    {
        // Kubernetes renews a token by exchanging a directory beside the link to it.
        if name.ends_with("TOKEN_FILE") {
            reads.extend(path.parent().map(Path::to_owned));
        }
        reads.push(path);
    }
    let mut needs = ThreadNeeds { reads, ..ThreadNeeds::default() };
    if let Some((task, store)) = upload {
        needs.writes.push(task.directory.clone());
        let textfile = task.textfile.as_deref().and_then(Path::parent);
        needs
            .writes
            .extend(store.local_directory().into_iter().chain(textfile).map(Path::to_owned));
        if store.local_directory().is_none() {
            needs.connects.extend(store_ports(task.settings.endpoint.as_deref(), variable));
        }
    }
    if let Some(push) = push {
        needs.connects.extend(push.ports().chain(network_ports(variable)));
        needs.sockets.extend(push.socket().map(Path::to_owned));
    }
    needs
}

/// The ports of the store and of the services that give out credentials.
fn store_ports(endpoint: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<u16> {
    let named = STORES.iter().filter_map(|name| variable(name));
    let named =
        named.chain(endpoint.map(str::to_owned)).filter_map(|address| port_of_url(&address));
    let mut ports: Vec<u16> = named.chain(endpoint.is_none().then_some(HTTPS)).collect();
    // Without keys they are asked for: of the instance or the container (HTTP), or of STS (HTTPS).
    if variable("AWS_ACCESS_KEY_ID").is_none() {
        ports.extend([HTTP, HTTPS]);
    }
    ports.extend(network_ports(variable));
    ports
}

/// The ports of DNS and of the proxy.
fn network_ports(variable: impl Fn(&str) -> Option<String>) -> impl Iterator<Item = u16> {
    let named = PROXIES.iter().filter_map(move |name| port_of_url(&variable(name)?));
    std::iter::once(DNS).chain(named)
}

/// The port of a URL, which may lack its scheme as that of a proxy.
fn port_of_url(address: &str) -> Option<u16> {
    let url = if address.contains("://") {
        Url::parse(address)
    } else {
        Url::parse(&format!("http://{address}"))
    };
    url.ok()?.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_ports_of_the_store_its_proxy_and_its_credentials_are_left() {
        let of = |endpoint: Option<&str>, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let ports: BTreeSet<u16> = store_ports(endpoint, value).into_iter().collect();
            ports.into_iter().collect::<Vec<_>>()
        };
        let keys = ("AWS_ACCESS_KEY_ID", "x");
        assert_eq!(of(None, &[keys]), [53, 443]);
        assert_eq!(of(None, &[]), [53, 80, 443]);
        assert_eq!(of(Some("http://127.0.0.1:5000"), &[keys]), [53, 5000]);
        assert_eq!(of(Some("https://store.example"), &[keys]), [53, 443]);
        assert_eq!(of(Some("http://[::1]"), &[keys]), [53, 80]);
        let proxy = ("HTTPS_PROXY", "proxy.example:3128");
        assert_eq!(of(Some("https://store.example:9000"), &[keys, proxy]), [53, 3128, 9000]);
        let proxy = ("all_proxy", "http://user:word@proxy.example:3128/");
        assert_eq!(of(Some("https://store.example:9000"), &[keys, proxy]), [53, 3128, 9000]);
        // The agent of EKS Pod Identity.
        let pod = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23:8080/v1");
        assert_eq!(of(Some("https://store.example:9000"), &[pod]), [53, 80, 443, 8080, 9000]);
        // What is no address allows nothing.
        assert_eq!(of(None, &[keys, ("HTTP_PROXY", "http://:0:0")]), [53, 443]);
    }
}
