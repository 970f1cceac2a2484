//! What the upload still needs after its start: files, and TCP ports.

use std::path::{Path, PathBuf};

use reqwest::Url;
use uncore_trace::confine::Needs;

use crate::store::Store;
use crate::uploader::Task;

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

/// Environment variables with the address of a store, of a service that gives out credentials, or
/// of a proxy: those that `object_store` and `reqwest` read.
const ADDRESSES: [&str; 12] = [
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Answers that are too long for UDP are asked for over TCP.
const DNS: u16 = 53;

/// The needs of an upload. One to a directory makes no socket.
pub(crate) fn of(task: &Task, store: &Store) -> Needs {
    let variable = |name: &str| std::env::var(name).ok();
    let mut reads: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    reads.extend(FILES.iter().filter_map(|name| variable(name)).map(PathBuf::from));
    let mut writes = vec![task.directory.clone()];
    writes.extend(store.directory().map(Path::to_owned));
    let textfile = task.textfile.as_deref().and_then(Path::parent);
    writes.extend(textfile.map(Path::to_owned));
    let connects = match store.directory() {
        Some(_) => Vec::new(),
        None => ports(task.settings.endpoint.as_deref(), variable),
    };
    Needs { reads, writes, connects, ..Needs::default() }
}

/// The ports of the store, of its proxy, of the services that give out credentials, and of DNS.
fn ports(endpoint: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<u16> {
    let named = ADDRESSES.iter().filter_map(|name| variable(name));
    let mut ports: Vec<u16> =
        named.chain(endpoint.map(str::to_owned)).filter_map(|address| port(&address)).collect();
    ports.push(DNS);
    if endpoint.is_none() {
        ports.push(HTTPS);
    }
    // Without keys they are asked for: of the instance or the container (HTTP), or of STS (HTTPS).
    if variable("AWS_ACCESS_KEY_ID").is_none() {
        ports.extend([HTTP, HTTPS]);
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The port of a URL, which may lack its scheme as that of a proxy.
fn port(address: &str) -> Option<u16> {
    let url = match address.contains("://") {
        true => Url::parse(address),
        false => Url::parse(&format!("http://{address}")),
    };
    url.ok()?.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_the_store_its_proxy_and_its_credentials_are_left() {
        let of = |endpoint: Option<&str>, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            ports(endpoint, value)
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
