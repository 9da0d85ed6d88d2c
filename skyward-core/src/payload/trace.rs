//! The trace that a call belongs to, as it crosses to Python.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The trace that a call belongs to: the header fields `traceparent` and `tracestate` of [W3C Trace Context](https://www.w3.org/TR/trace-context/).
///
/// The payload sees it as `sky.trace_context()`, and it and its child processes as the environment variables `TRACEPARENT` and `TRACESTATE`.
///
/// ```
/// use skyward_core::payload::TraceContext;
///
/// let trace = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")?.with_state("vendor=1")?;
/// assert_eq!(trace.state(), Some("vendor=1"));
/// assert!(TraceContext::new("00-0af7-b7ad-01").is_err());
/// # Ok::<(), skyward_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext(Arc<Fields>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fields {
    parent: String,
    /// Empty: there is none.
    state: String,
}

/// Says which trace a call belongs to when it is submitted.
#[derive(Clone)]
pub(crate) struct TraceSource(Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>);

impl TraceContext {
    /// A trace by its `traceparent`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] when it is none.
    pub fn new(traceparent: impl Into<String>) -> Result<Self> {
        let parent = traceparent.into();
        match mistake(&parent) {
            None => Ok(Self(Arc::new(Fields { parent, state: String::new() }))),
            Some(why) => Err(Error::new(ErrorKind::InvalidSpec, format!("{parent:?} is not a `traceparent`: {why}"))
                .with_hint(
                    "it is `00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>`, in lower case",
                )),
        }
    }

    /// The same with a `tracestate`, in place of the one that it has.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] when it is longer than 8 KiB, or has other characters than printable ASCII.
    pub fn with_state(self, tracestate: impl Into<String>) -> Result<Self> {
        let state = tracestate.into();
        if state.len() > LONGEST_STATE || !state.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            let message = format!("a `tracestate` of {} bytes cannot be handed on", state.len());
            return Err(Error::new(ErrorKind::InvalidSpec, message)
                .with_hint(format!("it is `name=value,…` in printable ASCII, of at most {LONGEST_STATE} bytes")));
        }
        Ok(Self(Arc::new(Fields { parent: self.0.parent.clone(), state })))
    }

    /// A trace from what a propagator has written, such as a map of header fields; their names are taken in any case. None when there is no valid `traceparent`; a `tracestate` that is
    /// not valid is left out.
    ///
    /// ```
    /// use skyward_core::payload::TraceContext;
    ///
    /// let headers = [("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("accept", "*/*")];
    /// assert!(TraceContext::from_carrier(headers).is_some());
    /// ```
    pub fn from_carrier<K: AsRef<str>, V: AsRef<str>>(fields: impl IntoIterator<Item = (K, V)>) -> Option<Self> {
        let (mut parent, mut state) = (None, None);
        for (name, value) in fields {
            match name.as_ref() {
                name if name.eq_ignore_ascii_case("traceparent") => parent = Some(value.as_ref().to_owned()),
                name if name.eq_ignore_ascii_case("tracestate") => state = Some(value.as_ref().to_owned()),
                _ => {}
            }
        }
        let trace = Self::new(parent?).ok()?;
        Some(state.and_then(|state| trace.clone().with_state(state).ok()).unwrap_or(trace))
    }

    /// Its `traceparent`.
    pub fn parent(&self) -> &str {
        &self.0.parent
    }

    /// Its `tracestate`, if it has one.
    pub fn state(&self) -> Option<&str> {
        Some(self.0.state.as_str()).filter(|state| !state.is_empty())
    }
}

impl TraceSource {
    pub(crate) fn new(source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    pub(crate) fn get(&self) -> Option<TraceContext> {
        (self.0)()
    }
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSource")
    }
}

/// Why this is no `traceparent`; none when it is one. Later versions may append fields.
fn mistake(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST_PARENT || !text.is_ascii() {
        return Some("it is too long, or no ASCII");
    }
    let mut fields = text.split('-');
    let lengths = [2, 32, 16, 2];
    let mut parts = [""; 4];
    for (part, length) in parts.iter_mut().zip(lengths) {
        *part = fields.next().unwrap_or_default();
        if part.len() != length || !part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Some("its fields are not of 2, 32, 16 and 2 hexadecimal digits in lower case");
        }
    }
    let [version, trace, span, _] = parts;
    if version == "ff" {
        Some("version ff is forbidden")
    } else if version == "00" && fields.next().is_some() {
        Some("version 00 has four fields")
    } else if [trace, span].iter().any(|id| id.bytes().all(|byte| byte == b'0')) {
        Some("an id of zeros stands for none")
    } else {
        None
    }
}

const LONGEST_PARENT: usize = 256;
const LONGEST_STATE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_what_the_standard_allows_is_a_trace() {
        for text in [PARENT, "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more"] {
            assert_eq!(TraceContext::new(text).unwrap().parent(), text);
        }
        for text in [
            "",
            "00-0af7-b7ad-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
            "00-é",
        ] {
            let error = TraceContext::new(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{text}");
            assert!(error.hint().is_some());
        }
        for state in ["a=1\nb", "ü=1", &"a".repeat(LONGEST_STATE + 1)] {
            assert!(TraceContext::new(PARENT).unwrap().with_state(state).is_err(), "{state}");
        }
    }

    #[test]
    fn a_carrier_gives_what_is_valid() {
        let carrier = |state| TraceContext::from_carrier([("TRACEPARENT", PARENT), ("tracestate", state), ("x", "y")]);
        assert_eq!(carrier("a=1").unwrap().state(), Some("a=1"));
        assert_eq!(carrier("a=1\n").unwrap().state(), None);
        assert_eq!(TraceContext::from_carrier([("traceparent", "none")]), None);
        assert_eq!(TraceContext::from_carrier([("tracestate", "a=1")]), None);
    }
}
