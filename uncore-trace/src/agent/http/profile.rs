//! `GET /debug/pprof/fabric?seconds=N`: a profile of N seconds, gzipped, as Go's programs serve
//! theirs.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout;

use super::answer::{Answer, text_response};
use crate::agent::profiles::{LATEST, MOST_SECONDS, ProfileAnswer, ProfileRequests};

pub(super) const PROFILE_PATH: &str = "/debug/pprof/fabric";

/// Time of a profile if the request has none, s.
const SECONDS: u64 = 10;

/// A profile that is being collected.
#[derive(Debug)]
pub(super) struct ProfileWait {
    duration: Duration,
    receiver: Receiver<ProfileAnswer>,
}

/// Requests a profile, or refuses to.
pub(super) fn request_profile(query: Option<&str>, requests: &ProfileRequests) -> Answer {
    let mut parameters = query.unwrap_or_default().split('&');
    let seconds = parameters.find_map(|parameter| parameter.strip_prefix("seconds="));
    let seconds = seconds.map_or(Some(SECONDS), |text| text.parse().ok());
    let Some(seconds) = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds)) else {
        let message = "seconds must be a whole number from 1 to 300\n";
        return Answer::Ready(text_response(StatusCode::BAD_REQUEST, message));
    };
    let duration = Duration::from_secs(seconds);
    let Some(receiver) = requests.request_profile(duration) else {
        let message = "four profiles are being collected: try again later\n";
        return Answer::Ready(text_response(StatusCode::TOO_MANY_REQUESTS, message));
    };
    Answer::Profile(ProfileWait { duration, receiver })
}

impl ProfileWait {
    /// The longest time until the profile is there.
    pub(super) fn longest_wait(&self) -> Duration {
        self.duration + LATEST
    }

    /// Waits for the profile.
    pub(super) async fn wait_for_response(self) -> Response<Full<Bytes>> {
        let answer = match timeout(self.longest_wait(), self.receiver).await {
            Ok(answer) => answer.unwrap_or(Err("the agent ends\n")),
            Err(_) => Err("the roll-up or a disk hangs\n"),
        };
        let profile = match answer {
            Ok(profile) => profile,
            Err(reason) => return text_response(StatusCode::SERVICE_UNAVAILABLE, reason),
        };
        let mut response = Response::new(Full::new(profile.into()));
        let media_type = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response
    }
}
