//! HTTP over loopback: one request out, and servers whose handler is a closure.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::guard;
use crate::timing::{ACCEPT_PAUSE, HTTP_ANSWER};

/// A whole request or response.
pub(crate) type Body = Full<Bytes>;

/// The server closes the connection without an answer.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Closed {}

impl From<Infallible> for Closed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Sends one request and reads the whole answer.
pub(crate) async fn send(to: SocketAddr, request: Request<Body>) -> Result<Response<Bytes>> {
    guard::loopback(to.ip())?;
    let exchange = async {
        let stream = TcpStream::connect(to).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = Abort(tokio::spawn(connection));
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        drop(connection);
        anyhow::Ok(Response::from_parts(head, body))
    };
    let answer =
        timeout(HTTP_ANSWER, exchange).await.with_context(|| format!("{to} did not answer in {HTTP_ANSWER:?}"))?;
    answer.with_context(|| format!("cannot ask {to}"))
}

/// Listens on an address, and hands each request to the handler until the task is aborted.
pub(crate) async fn serve<Handler, Answer>(
    address: IpAddr,
    port: u16,
    handler: Handler,
) -> Result<(SocketAddr, Abort<()>)>
where
    Handler: Fn(Request<Incoming>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Response<Body>, Closed>> + Send + 'static,
{
    guard::loopback(address)?;
    let listener =
        TcpListener::bind((address, port)).await.with_context(|| format!("cannot listen on {address}:{port}"))?;
    let bound = listener.local_addr()?;
    let handler = Arc::new(handler);
    let task = tokio::spawn(async move {
        // The tasks of open connections end with the listener's.
        let mut open = tokio::task::JoinSet::new();
        loop {
            while open.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let handler = Arc::clone(&handler);
            open.spawn(async move {
                let service = service_fn(move |request| (*handler)(request));
                // It is no error when a client goes away or a handler closes the connection.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok((bound, Abort(task)))
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Abort<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
