//! Answers to clients.

use anyhow::Result;
use bytes::Bytes;
use hyper::Response;
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};

use crate::http::Body;
use crate::proxy::Call;
use crate::xml::Element;

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The answer of moto.
    pub(crate) fn of(answer: Response<Bytes>) -> Self {
        let (mut head, body) = answer.into_parts();
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) fn xml(root: &Element) -> Self {
        Self::new(200, "text/xml;charset=UTF-8", root.to_string())
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::new(status, "application/x-amz-json-1.1", value.to_string())
    }

    /// An error, in the form of the service that was called.
    pub(crate) fn error(call: &Call, status: u16, code: &str, message: &str) -> Self {
        if call.is_json() {
            return Self::json(status, &serde_json::json!({ "__type": code, "message": message }));
        }
        let error = Element::new("Error").with([Element::leaf("Code", code), Element::leaf("Message", message)]);
        // EC2 has its own form of errors; STS and other services of the query protocol have this
        // one.
        if !call.service.is_empty() && call.service != "ec2" {
            let root = Element::new("ErrorResponse").with([error, Element::leaf("RequestId", REQUEST)]);
            return Self { status, ..Self::xml(&root) };
        }
        let request = Element::leaf("RequestID", REQUEST);
        let root = Element::new("Response").with([Element::new("Errors").with([error]), request]);
        Self { status, ..Self::xml(&root) }
    }

    fn new(status: u16, kind: &'static str, body: String) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Self { status, headers, body: body.into() }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status == 200
    }

    /// The body as XML.
    pub(crate) fn parse(&self) -> Result<Element> {
        Element::parse(&String::from_utf8_lossy(&self.body))
    }

    /// The same with another body.
    pub(crate) fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with the XML changed.
    pub(crate) fn edit(self, change: impl FnOnce(&mut Element)) -> Result<Self> {
        let mut root = self.parse()?;
        change(&mut root);
        Ok(self.with_body(root.to_string()))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::new(self.body));
        *response.status_mut() = hyper::StatusCode::from_u16(self.status).unwrap_or_default();
        *response.headers_mut() = self.headers;
        response
    }
}

/// The id of a request that failed.
const REQUEST: &str = "59dbff89-35bd-4eac-99ed-be587EXAMPLE";
