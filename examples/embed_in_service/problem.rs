//! Errors as JSON, with a fitting HTTP status.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use skyward::prelude::*;

/// An error as a caller of the service sees it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    /// The kind of the error, for programs.
    kind: Box<str>,
    message: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Box<str>>,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    /// The payload's exception. Its traceback goes to the log and not to callers, because it shows
    /// the service's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<Box<str>>,
    /// After how many seconds the same request may succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, message: impl Into<String>) -> Self {
        let (kind, message) = (kind.into(), message.into().into());
        Self { status, kind, message, hint: None, field: None, exception: None, retry_after: None }
    }

    pub(crate) fn invalid(message: impl Into<String>, field: Option<&'static str>) -> Self {
        Self { field, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "InvalidRequest", message) }
    }

    pub(crate) fn unread(status: StatusCode, why: String, most: usize) -> Self {
        Self::new(status, "InvalidRequest", format!("the body cannot be read: {why}"))
            .hint(format!("a training request has at most {most} bytes"))
    }

    pub(crate) fn no_such_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "NoSuchMethod", "this path does not have this method")
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("there is no {what}"))
    }

    pub(crate) fn ended(id: &str, state: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyEnded", format!("the training {id} is {state}"))
    }

    pub(crate) fn full(capacity: usize) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "Full", format!("{capacity} trainings run or wait already"))
            .hint("try again later, or cancel one")
            .retry_after(RETRY_AFTER)
    }

    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Stopping", "the service is stopping and takes no more trainings")
            .hint("send it to another instance, or again when this one is back")
            .retry_after(RETRY_AFTER)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

/// An error of the pool: a 4xx if the caller can correct it, a 5xx if the service can. Its hint is for
/// the developers of the service.
impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Argument | ErrorKind::Payload | ErrorKind::Poisoned | ErrorKind::Raised => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Closed | ErrorKind::Failed | ErrorKind::NodeLost | ErrorKind::WorkerExited => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ if error.is_temporary() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut problem = Self::new(status, &format!("{:?}", error.kind()), error.message());
        problem.exception = error.exception().map(|exception| exception.type_name.as_str().into());
        problem.retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER);
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = super::http::json(self.status, &serde_json::json!({ "error": self }));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// In seconds.
const RETRY_AFTER: u32 = 5;
