//! A cancelled request does not look like a finished one.
//!
//! To the libraries below, a stream of messages is over when the caller has closed its
//! side and also when it has cancelled the call: neither HTTP nor gRPC layer makes an
//! error of it. A push whose chunks had all arrived would then land although its sender
//! has given it up. The two differ in whether the end of the stream was received, and
//! that is asked here. The error is not CANCELLED, which would be swallowed again.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// A service whose request bodies fail when they are cancelled.
#[derive(Clone, Debug)]
pub(super) struct WholeRequests<S>(pub(super) S);

impl<S: NamedService> NamedService for WholeRequests<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<tonic::body::Body>> for WholeRequests<S>
where
    S: Service<http::Request<tonic::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> S::Future {
        self.0.call(request.map(|body| tonic::body::Body::new(WholeBody(body))))
    }
}

fn cancelled<T>() -> Poll<Option<Result<T, Status>>> {
    Poll::Ready(Some(Err(Status::aborted("the caller has cancelled the call"))))
}

struct WholeBody(tonic::body::Body);

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.0).poll_frame(cx) {
            Poll::Ready(None) if !self.0.is_end_stream() => cancelled(),
            Poll::Ready(Some(Err(error))) if error.code() == Code::Cancelled => cancelled(),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
