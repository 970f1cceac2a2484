//! Limits what a store may answer: an endless error page would otherwise fill the memory.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt as _, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use uncore_trace_recording::bounds;

/// The most bytes of the largest object that is read back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Largest(Arc<AtomicU64>);

impl Largest {
    /// Lets an answer have as many bytes as an object of this size.
    pub(crate) fn allow_size(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn size_limit(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(bounds::ANSWER)
    }
}

/// Makes clients whose answers are limited.
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Largest);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(LimitedService { inner, largest: self.0.clone() }))
    }
}

#[derive(Debug)]
struct LimitedService {
    inner: HttpClient,
    largest: Largest,
}

/// What `async_trait` makes of `HttpService::call`.
type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for LimitedService {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> ResponseFuture<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let answer = self.inner.execute(request).await?;
            // An error is never as long as an object.
            let is_object = answer.status().is_success();
            let byte_limit = if is_object { self.largest.size_limit() } else { bounds::ANSWER };
            let limit = usize::try_from(byte_limit).unwrap_or(usize::MAX);
            let too_long = move || {
                let why = format!("the store's answer has more than {byte_limit} bytes");
                HttpError::new(HttpErrorKind::Decode, io::Error::other(why))
            };
            let explained = move |error: Box<dyn Error + Send + Sync>| {
                error.downcast().map_or_else(|_| too_long(), |error| *error)
            };
            let bounded =
                |body| HttpResponseBody::new(Limited::new(body, limit).map_err(explained));
            Ok(answer.map(bounded))
        })
    }
}
