//! A small HTTP client for `--once` and for the tests of this example.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A client of one service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// What the service answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A stream of server-sent events.
pub(crate) struct Follower {
    body: Incoming,
    text: String,
}

/// One event of such a stream.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) data: Value,
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::DELETE, path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, body.into()).await
    }

    /// Follows a training from the event after this one.
    pub(crate) async fn follow(&self, path: &str, after: u64) -> Result<Follower, Failure> {
        let response = self.send(Method::GET, path, Bytes::new(), after).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("{path} is answered with {}", response.status()).into());
        }
        Ok(Follower { body: response.into_body(), text: String::new() })
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        let response = self.send(method, path, body, 0).await?;
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(ANSWER, body.collect()).await??.to_bytes();
        let body = serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}: {body:?}"))?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    async fn send(&self, method: Method, path: &str, body: Bytes, after: u64) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.0.to_string())
            .header("last-event-id", after)
            .body(Full::new(body))?;
        let answer = async {
            let stream = TokioIo::new(TcpStream::connect(self.0).await?);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            Ok::<_, Failure>(sender.send_request(request).await?)
        };
        tokio::time::timeout(ANSWER, answer).await?
    }
}

impl Follower {
    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Told>, Failure> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let told = Told::read(block)?;
                self.text = rest.to_owned();
                match told {
                    Some(told) => return Ok(Some(told)),
                    None => continue,
                }
            }
            match tokio::time::timeout(ANSWER, self.body.frame()).await? {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.text.push_str(std::str::from_utf8(&data)?);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// All events up to and including the first one with one of these names.
    pub(crate) async fn until(&mut self, names: &[&str]) -> Result<Vec<Told>, Failure> {
        let mut all = Vec::new();
        while let Some(told) = self.next().await? {
            let last = names.contains(&told.name.as_str());
            all.push(told);
            if last {
                return Ok(all);
            }
        }
        Err(format!("the stream ended before one of {names:?}: {all:#?}").into())
    }
}

impl Told {
    /// `None` for a comment, such as those that keep the connection open.
    fn read(block: &str) -> Result<Option<Self>, Failure> {
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim_start()))
        };
        let (Some(name), Some(id), Some(data)) = (field("event"), field("id"), field("data")) else { return Ok(None) };
        Ok(Some(Self { name: name.to_owned(), id: id.parse()?, data: serde_json::from_str(data)? }))
    }
}

/// How long one answer, or one event, may take.
const ANSWER: Duration = Duration::from_secs(120);
