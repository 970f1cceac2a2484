//! The metrics of the agent, from its own sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use reqwest::{Client, Response, StatusCode, redirect};
use uncore_trace_recording::bounds;
use uncore_trace_recording::config::ListenAddress;

/// Time limit of a request, which stays on this host.
const PATIENCE: Duration = Duration::from_secs(10);

/// The agent's server.
#[derive(Debug)]
pub(super) struct AgentClient {
    client: Client,
    url: String,
    name: String,
}

impl AgentClient {
    /// The server at this address.
    pub(super) fn new(listen: &ListenAddress) -> Result<Self> {
        let builder = Client::builder()
            .no_proxy()
            // It speaks no TLS, and the machine may have no certificates.
            .tls_certs_only([])
            .redirect(redirect::Policy::none())
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE);
        let (builder, host) = match listen {
            ListenAddress::Unix(path) => {
                (builder.unix_socket(path.as_path()), "localhost".to_owned())
            }
            ListenAddress::Tcp(address) => (builder, reachable_address(*address).to_string()),
        };
        let client = builder.build().context("cannot make an HTTP client")?;
        Ok(Self { client, url: format!("http://{host}/otlp"), name: listen.to_string() })
    }

    /// The address, for messages.
    pub(super) fn display_address(&self) -> &str {
        &self.name
    }

    /// The body of a request of OTLP. An error is a part of a line.
    pub(super) async fn fetch_metrics(&self) -> Result<Vec<u8>, String> {
        let answer = self.client.get(&self.url).send().await.map_err(innermost_cause)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err("it does not know /otlp; restart it with this version".to_owned());
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                return Err("its last window is old; see its log".to_owned());
            }
            status => return Err(format!("it answers {status}")),
        }
        let (body, is_whole) = read_bounded(answer, bounds::METRICS).await?;
        if is_whole {
            return Ok(body);
        }
        Err(format!("they have more than {} bytes; lower metrics.owners", bounds::METRICS))
    }
}

/// The address to connect to for one that is listened on.
fn reachable_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The first bytes of a body, and whether these are all.
pub(super) async fn read_bounded(
    mut answer: Response,
    byte_limit: u64,
) -> Result<(Vec<u8>, bool), String> {
    let limit = usize::try_from(byte_limit).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(innermost_cause)? {
        let space = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(space)]);
        if chunk.len() > space {
            return Ok((body, false));
        }
    }
    Ok((body, true))
}

/// The innermost cause of an error, without the URL.
pub(super) fn innermost_cause(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "there is no answer in time".to_owned();
    }
    let error = error.without_url();
    anyhow::Chain::new(&error).next_back().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_listens_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9762", "127.0.0.1:9762"),
            ("[::]:9762", "[::1]:9762"),
            ("192.0.2.7:1", "192.0.2.7:1"),
            ("127.0.0.2:1", "127.0.0.2:1"),
        ] {
            assert_eq!(reachable_address(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
